"""Many spans at once: fetched side by side within a budget of bytes, handed over as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from periplus.errors import FetchError
from periplus.fetch.bridge import Bridge
from periplus.fetch.merge import Spans
from periplus.model import Source

Ranged = Callable[[Source, int, int], Coroutine[Any, Any, Any]]
"""Reads exactly the bytes [start, stop) of a source; anything with the buffer protocol."""


def stream_remote(
    bridge: Bridge, read: Ranged, spans: Spans, numbers: list[int], *, in_flight_bytes: int
) -> Iterator[tuple[int, memoryview]]:
    """(span number, bytes) in order of completion. A span counts until the next one is asked for."""
    arrived: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
    tasks: dict[int, asyncio.Task[None]] = {}
    sizes = (spans.stop - spans.start).tolist()

    async def fetch(number: int) -> None:
        data, error = None, None
        try:
            data = await read(spans.sources[int(spans.file[number])], int(spans.start[number]), int(spans.stop[number]))
        except BaseException as failure:
            error = failure
            if isinstance(failure, asyncio.CancelledError):
                raise
        finally:
            arrived.put((number, data, error))

    def launch(batch: list[int]) -> None:
        for number in batch:
            tasks[number] = bridge.loop.create_task(fetch(number))

    async def stop() -> None:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    waiting = iter(numbers)
    upcoming = next(waiting, None)
    outstanding = running = 0
    try:
        while running or upcoming is not None:
            batch = []
            while upcoming is not None and (not running or outstanding + sizes[upcoming] <= in_flight_bytes):
                batch.append(upcoming)
                outstanding += sizes[upcoming]
                running += 1
                upcoming = next(waiting, None)
            if batch:
                bridge.call(launch, batch)
            number, data, error = arrived.get()
            if error is not None:
                raise error if isinstance(error, Exception) else FetchError("the read was cancelled")
            view = memoryview(data).cast("B")
            del data
            tasks.pop(number, None)
            yield number, view
            del view
            running -= 1
            outstanding -= sizes[number]
    finally:
        if running:
            with suppress(FetchError):  # closed: all have been cancelled
                bridge.run(stop())
