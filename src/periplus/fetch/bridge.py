"""The one bridge between sync and async code: an event loop in a background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """A running event loop; `stop` cancels what runs, calls the closers and ends the thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._thread = threading.Thread(target=self._main, name="periplus-fetch", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def inside(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return threading.current_thread() is self._thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; an interrupt of the waiting thread cancels it and waits until it has ended."""
        if self.inside():
            coroutine.close()
            raise RuntimeError("run() was called from inside the loop; await the coroutine instead")
        future = self.submit(_settled(coroutine))
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self.cancel(future)
            raise

    def cancel(self, *futures: Future[Any]) -> None:
        """Cancel, and return when the tasks behind have run their clean-up."""
        for future in futures:
            future.cancel()
        self.submit(_drain()).result()

    def stop(self) -> None:
        """Cancel every task, close what was opened, end the thread. Safe to call twice."""
        if self.loop.is_closed() or self.inside():
            return
        if self._thread.is_alive():
            self.submit(self._shutdown()).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()

    async def _shutdown(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in self.closers:
            await close()
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


async def _settled(coroutine: Coroutine[Any, Any, T]) -> T:
    return await coroutine


async def _drain() -> None:
    """Let cancelled tasks take the steps their `finally` blocks need."""
    for _ in range(3):
        await asyncio.sleep(0)
