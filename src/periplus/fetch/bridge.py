"""The one bridge between sync and async code: an event loop in a background thread."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from types import FrameType
from typing import Any, TypeVar

from periplus.errors import FetchError

T = TypeVar("T")
CLOSED = "the connections were closed while they were in use"
PATIENCE = 1.0
"""Seconds that the end of a program waits for threads of the object stores."""


def settle() -> None:
    """Wait until no thread of the object stores is about to tell a loop of its result.

    Such a thread lets go of the interpreter for a moment inside `call_soon_threadsafe`, with its result told already. A
    program that ends just then takes the interpreter away from it, and Python before 3.14 aborts the whole process.
    """
    until = time.monotonic() + PATIENCE
    while _telling() and time.monotonic() < until:
        time.sleep(0.001)


def _telling() -> bool:
    ours = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    foreign = [frame for ident, frame in sys._current_frames().items() if ident not in ours]
    return any(_outermost(frame).f_code.co_name == "call_soon_threadsafe" for frame in foreign)


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


atexit.register(settle)


class Bridge:
    """A running event loop; `stop` cancels what runs, calls the closers and ends the thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._lock = threading.Lock()
        self._ended = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._main, name="periplus-fetch", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.loop.close()
            raise FetchError("this process cannot start another thread") from None

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def inside(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return threading.current_thread() is self._thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine. What was submitted before `stop` is cancelled by it; nothing is taken after that."""
        with self._lock:
            if self._ended:
                coroutine.close()
                raise FetchError(CLOSED)
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; an interrupt of the waiting thread cancels it and waits until it has ended."""
        if self.inside():
            coroutine.close()
            raise RuntimeError("run() was called from inside the loop; await the coroutine instead")
        task: list[asyncio.Task[Any] | None] = []

        async def main() -> T:
            task.append(asyncio.current_task())
            return await coroutine

        outer = main()
        try:
            future = self.submit(outer)
            try:
                return future.result()
            except CancelledError:
                raise FetchError(CLOSED) from None
            except BaseException:
                if not future.done():
                    self.loop.call_soon_threadsafe(lambda: [one.cancel() for one in task if one is not None])
                    wait([future])
                raise
        finally:
            # Both have ended, unless the loop ended before they began: then nobody else would close them.
            outer.close()
            coroutine.close()

    def stop(self) -> None:
        """Cancel every task, close what was opened, end the thread. Safe to call twice, and from the loop itself."""
        if self._pid != os.getpid():
            return  # a forked child: neither thread nor loop is its own
        with self._lock:
            ended, self._ended = self._ended, True
            if not ended:
                # Held here, since the loop keeps only a weak hold on its tasks.
                self._ending = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        if not self.inside():
            self._thread.join()

    async def _end(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in self.closers:
            await close()
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()
        await asyncio.sleep(0)  # those who wait for a task that has just ended are told in the next round
        self.loop.stop()
