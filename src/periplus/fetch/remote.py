"""The far side of Fetch: the web session, the stores and the limits that live on the loop of remote requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from periplus.fetch.bridge import Bridge
from periplus.fetch.http.client import Web
from periplus.fetch.http.retry import Gate, Patience
from periplus.fetch.objects.options import options_for
from periplus.fetch.objects.stores import ObjectStores
from periplus.policy import WEB, Policy, scheme_of

T = TypeVar("T")


class Remote:
    """What lives on the loop: the web session, the stores, the limits."""

    def __init__(
        self, policy: Policy, options: Mapping[str, Any], concurrency: int, per_host: int, patience: Patience
    ) -> None:
        gate = Gate(concurrency, per_host)
        chosen = partial(options_for, options=options)
        self.web = Web(policy=policy, options=chosen, gate=gate, patience=patience)
        self.stores = ObjectStores(options=chosen, gate=gate, patience=patience, region=self.web.bucket_region)
        self.bridge = Bridge()
        self.bridge.closers.append(self.web.close)

    async def ask(self, plain: str, given: str, work: Callable[[Web | ObjectStores, str], Coroutine[Any, Any, T]]) -> T:
        """The result of work by what reads that URL; the web gets it as given, perhaps with a user name."""
        if scheme_of(plain) in WEB:
            return await self.run(lambda remote: work(remote.web, given))
        return await self.run(lambda remote: work(remote.stores, plain))

    async def run(self, work: Callable[[Remote], Coroutine[Any, Any, T]]) -> T:
        """The result of work on the loop of remote requests, from whichever loop this is."""
        if self.bridge.inside():
            return await work(self)
        return await asyncio.wrap_future(self.bridge.submit(work(self)))

    async def each(self, work: Callable[[Remote], AsyncIterator[T]]) -> AsyncIterator[T]:
        """The items of a listing on that loop, likewise."""
        items = work(self)
        if self.bridge.inside():
            async for item in items:
                yield item
            return

        async def step() -> tuple[bool, T | None]:
            try:
                return True, await items.__anext__()
            except StopAsyncIteration:
                return False, None

        while True:
            more, value = await asyncio.wrap_future(self.bridge.submit(step()))
            if not more:
                return
            yield value  # type: ignore[misc]
