"""How many requests run at once: a limit for all and one for each host, and a pause for a host that asks for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LONGEST_PAUSE = 10.0
"""Seconds a host may hold up requests for others of its objects."""


class Gate:
    """Two limits; waiting for a busy host holds no place in the limit for all. Used on one event loop."""

    def __init__(self, everywhere: int, each_host: int) -> None:
        self._all = asyncio.Semaphore(everywhere)
        self._each = each_host
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._until: dict[str, float] = {}

    @asynccontextmanager
    async def pass_to(self, host: str) -> AsyncIterator[None]:
        """A place for one request."""
        own = self._hosts.get(host)
        if own is None:
            own = self._hosts[host] = asyncio.Semaphore(self._each)
        async with own:
            pause = self._until.get(host, 0.0) - asyncio.get_running_loop().time()
            if pause > 0:
                await asyncio.sleep(pause)
            async with self._all:
                yield

    def hold(self, host: str, seconds: float) -> None:
        """Send nothing more to a host for a while: it reported that it is overloaded."""
        until = asyncio.get_running_loop().time() + min(seconds, LONGEST_PAUSE)
        self._until[host] = max(until, self._until.get(host, 0.0))
