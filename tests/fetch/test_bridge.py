"""The bridge between threads and the loop: it ends cleanly, whoever still waits."""

from __future__ import annotations

import _thread
import asyncio
import gc
import threading

import pytest

from periplus.errors import FetchError
from periplus.fetch import bridge as bridge_module
from periplus.fetch.bridge import Bridge, settle


async def answer(seconds: float = 0.0) -> int:
    await asyncio.sleep(seconds)
    return 42


def test_a_bridge_that_was_stopped_refuses_work_and_leaves_no_coroutine_behind() -> None:
    bridge = Bridge()
    assert bridge.run(answer()) == 42
    bridge.stop()
    with pytest.raises(FetchError, match="closed"):
        bridge.run(answer())
    gc.collect()


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_those_who_wait_while_it_is_stopped_get_an_answer_or_an_error(seconds: float) -> None:
    for _ in range(30):
        bridge = Bridge()
        seen: list[object] = []

        def wait(bridge: Bridge = bridge, seen: list[object] = seen) -> None:
            try:
                seen.append(bridge.run(answer(seconds)))
            except FetchError as error:
                seen.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        bridge.stop()
        thread.join(10)
        assert not thread.is_alive()
        assert len(seen) == 1
    gc.collect()


def test_the_end_of_a_program_waits_for_a_foreign_thread_that_tells_a_loop_its_result() -> None:
    """As the threads of an object store do: Python knows them by their frames alone."""
    inside, go, told = threading.Event(), threading.Event(), []

    class Slow(asyncio.SelectorEventLoop):
        def _write_to_self(self) -> None:
            """The result is told, and the interpreter let go of."""
            inside.set()
            told.append(go.wait(5))

    settle()  # nobody is there: at once
    loop = Slow()
    _thread.start_new_thread(loop.call_soon_threadsafe, (print,))
    assert inside.wait(5)
    threading.Timer(0.05, go.set).start()
    settle()
    assert told == [True]
    loop.close()


def test_the_collector_releases_a_bridge_without_waiting():
    """The thread in which it runs may hold the lock of the loop that all bridges share."""
    bridge, other = Bridge(), Bridge()
    with bridge_module._shared._lock:
        bridge.release()
    bridge.stop()
    assert other.run(asyncio.sleep(0, 7)) == 7
    other.stop()
