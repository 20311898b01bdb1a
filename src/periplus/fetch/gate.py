"""How many requests run at once: a limit for all and one for each host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Two limits; waiting for a busy host holds no place in the limit for all. Used on one event loop."""

    def __init__(self, everywhere: int, each_host: int) -> None:
        self._all = asyncio.Semaphore(everywhere)
        self._each = each_host
        self._hosts: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def pass_to(self, host: str) -> AsyncIterator[None]:
        own = self._hosts.get(host)
        if own is None:
            own = self._hosts[host] = asyncio.Semaphore(self._each)
        async with own, self._all:
            yield
