"""The bridge between threads and the loop: it ends cleanly, whoever still waits."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from periplus.errors import FetchError
from periplus.fetch.bridge import Bridge


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
    for _ in range(100):
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
