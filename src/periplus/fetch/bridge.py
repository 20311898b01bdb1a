"""The one bridge between sync and async code: an event loop in a background thread, shared by all who need one."""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakSet

from periplus.errors import FetchError
from periplus.forks import nothing, renewed

T = TypeVar("T")
CLOSED = "the connections were closed while they were in use"
PATIENCE = 1.0
"""Seconds that the end of a program waits for threads of the object stores."""


def settle() -> None:
    """Wait until no thread of the object stores is about to hand a result to a loop.

    Such a thread lets go of the interpreter for a moment inside `call_soon_threadsafe`, with its result reported. A
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


_OWNER: ContextVar[Bridge | None] = ContextVar("periplus_bridge", default=None)
"""The bridge that a task, or the task that started it, came over."""


def _owned(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """The loop's task factory: a bridge records its tasks, to cancel them and no others."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    owner = _OWNER.get()
    if owner is not None:
        owner.tasks.add(task)
    return task


class _Loop:
    """A running event loop, which all bridges share: a thread and its descriptors for each would soon be too many."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(_owned)
        self.bridges: set[Bridge] = set()
        self.thread = threading.Thread(target=self._main, name="periplus-fetch", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self.loop.close()
            raise FetchError("this process cannot start another thread") from None

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


class _Shared:
    """The loop that runs while there is a bridge."""

    _lock: threading.Lock
    _running: _Loop | None

    def __init__(self) -> None:
        renewed(self, _lock=threading.Lock, _running=nothing)

    def enter(self, bridge: Bridge) -> _Loop:
        with self._lock:
            if self._running is None:
                self._running = _Loop()
            self._running.bridges.add(bridge)
            return self._running

    def leave(self, home: _Loop, bridge: Bridge) -> None:
        """The last one ends the loop."""
        with self._lock:
            home.bridges.discard(bridge)
            if not home.bridges:
                self._running = None
                home.loop.call_soon_threadsafe(home.loop.stop)

    def finish(self) -> None:
        """Stop all bridges: at the end of the program."""
        home = self._running
        for bridge in () if home is None else tuple(home.bridges):
            bridge.stop()


_shared = _Shared()
atexit.register(_shared.finish)


class Bridge:
    """A way from threads to the loop; `stop` cancels what came over it, calls the closers and ends an unused loop."""

    def __init__(self) -> None:
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._lock = threading.RLock()  # the garbage collector may call `release` in any thread
        self._ending: Future[None] | None = None
        self._left = threading.Event()
        self._home = _shared.enter(self)
        self.loop = self._home.loop

    def inside(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return threading.current_thread() is self._home.thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine. What was submitted before `stop` is cancelled by it; nothing is taken after that."""
        try:
            return self._within(asyncio.run_coroutine_threadsafe, coroutine, self.loop)
        except FetchError:
            coroutine.close()
            raise

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop's thread; the tasks it starts are cancelled by `stop`."""
        self._within(self.loop.call_soon_threadsafe, function, *arguments)

    def _within(self, function: Callable[..., T], *arguments: Any) -> T:
        context = copy_context()
        context.run(_OWNER.set, self)
        with self._lock:
            if self._ending is not None:
                raise FetchError(CLOSED)
            return context.run(function, *arguments)

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
            with suppress(ValueError):  # still running, after an interrupt of the waiting for it: the loop ends it
                outer.close()
                coroutine.close()

    def release(self) -> None:
        """Begin to cancel every task that came this way and to close what was opened; nothing is waited for.

        For the garbage collector: the thread in which it runs may hold any lock.
        """
        if not self._home.thread.is_alive():
            return  # also in a forked child, which has but one thread
        with self._lock:
            if self._ending is None:
                # Held here, since the loop keeps only a weak hold on its tasks.
                self._ending = asyncio.run_coroutine_threadsafe(self._leave(), self.loop)

    def stop(self) -> None:
        """Cancel every task that came this way and close what was opened. Safe to call twice, and from the loop."""
        if not self._home.thread.is_alive():
            return
        self.release()
        if not self.inside():
            self._left.wait()
            if not self._home.bridges:
                self._home.thread.join()

    async def _leave(self) -> None:
        """Runs on the loop, so that no thread that begins the end takes the lock of the loop."""
        try:
            await self._end()
        finally:
            _shared.leave(self._home, self)
            self._left.set()

    async def _end(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in self.tasks if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in self.closers:
            await close()
        await asyncio.sleep(0)  # waiters of a finished task run in the next iteration of the loop
