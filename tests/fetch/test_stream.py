import asyncio
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from periplus.errors import FetchError, MissingError, StaleError
from periplus.fetch import Fetch, merge
from periplus.testing.servers.http import Fault


@pytest.fixture
def places(server, payload, tmp_path, fetch):
    """Sources of the same bytes: a file, an HTTP server, memory."""
    server.files["a.bin"] = payload
    memory = f"memory://{secrets.token_hex(6)}"
    local = fetch.run(fetch.write(tmp_path / "a.bin", payload))
    return [local, fetch.run(fetch.head(f"{server.url}/a.bin")), fetch.run(fetch.write(memory, payload))]


def test_every_span_arrives_once_with_its_bytes(fetch, places, payload):
    rng = np.random.default_rng(5)
    file = rng.integers(0, 3, 200)
    offset = rng.integers(0, 299_000, 200)
    length = rng.integers(0, 1000, 200)
    spans = merge(file, offset, length, gap=500, largest=20_000, sources=places)
    got = dict(fetch.stream(spans, in_flight_bytes=50_000))
    assert sorted(got) == list(range(len(spans)))
    for i in range(200):
        if length[i]:
            start = spans.row_start[i]
            assert got[spans.row_span[i]][start : start + length[i]] == payload[offset[i] : offset[i] + length[i]]


def test_no_spans_no_requests(fetch, server, places):
    server.log.clear()
    assert list(fetch.stream(merge([], [], [], gap=0, largest=1, sources=places), in_flight_bytes=1)) == []
    assert server.log == []


def test_bytes_in_flight_stay_within_the_budget(fetch, server, places):
    server.latency = 0.02
    spans = merge(np.ones(40), np.arange(40) * 5000, np.full(40, 1000), gap=0, largest=1000, sources=places)
    most = 0
    for _ in fetch.stream(spans, in_flight_bytes=4000):
        most = max(most, server.open_connections)
    assert most <= 4
    server.log.clear()
    stream = fetch.stream(spans, in_flight_bytes=4000)
    next(stream)
    time.sleep(0.1)
    assert len(server.log) <= 4  # nobody asks, nothing more is fetched
    stream.close()


def test_a_span_larger_than_the_budget_still_comes(fetch, places, payload):
    spans = merge([1, 1], [0, 200_000], [100_000, 90_000], gap=0, largest=100_000, sources=places)
    assert {n: bytes(v) for n, v in fetch.stream(spans, in_flight_bytes=10)} == {
        0: payload[:100_000],
        1: payload[200_000:290_000],
    }


def test_spans_come_in_order_of_completion(fetch, server, places):
    server.faults["/a.bin"] = [Fault(kind="stall", seconds=0.5)]
    spans = merge([1] * 4, [0, 10_000, 20_000, 30_000], [10] * 4, gap=0, largest=10, sources=places)
    order = [number for number, _ in fetch.stream(spans, in_flight_bytes=10**6)]
    assert sorted(order) == [0, 1, 2, 3]
    assert order[-1] == 0 or order != sorted(order)


def test_the_first_error_ends_all_and_nothing_runs_on(fetch, server, places):
    server.latency = 0.05
    places[2] = places[2].__class__(url="memory://none/at/all", size=10)
    spans = merge([1] * 30 + [2], [*(np.arange(30) * 9000), 0], [10] * 31, gap=0, largest=10, sources=places)
    with pytest.raises(MissingError):
        list(fetch.stream(spans, in_flight_bytes=10**6))

    async def running():
        return len(asyncio.all_tasks())

    assert fetch.run(running()) == 1


def test_a_replaced_object_stops_the_stream(fetch, server, places, payload):
    server.files["a.bin"] = payload[::-1]
    spans = merge([1], [0], [10], gap=0, largest=10, sources=places)
    with pytest.raises(StaleError):
        list(fetch.stream(spans, in_flight_bytes=100))


def test_leaving_early_cancels_the_rest(fetch, server, places):
    server.latency = 0.2
    spans = merge([1] * 50, np.arange(50) * 5000, [10] * 50, gap=0, largest=10, sources=places)
    for _ in fetch.stream(spans, in_flight_bytes=10**6):
        break

    async def running():
        return len(asyncio.all_tasks())

    assert fetch.run(running()) == 1


# --- the bridge ----------------------------------------------------------------------------------------------------


def test_run_from_inside_the_loop_is_refused(fetch):
    async def inner():
        return 1

    async def outer():
        return fetch.run(inner())

    with pytest.raises(RuntimeError, match="inside the loop"):
        fetch.run(outer())


def test_run_works_while_the_caller_has_a_loop_of_its_own(fetch, places, payload):
    async def main():
        return fetch.run(fetch.read(places[1].url, 0, 4))[0]

    assert asyncio.run(main()) == payload[:4]


INTERRUPTED = """
import signal, sys, threading, os, time, asyncio, faulthandler
faulthandler.dump_traceback_later(20, exit=True)
from periplus.fetch import Fetch
fetch = Fetch()
state, started = [], threading.Event()
async def forever():
    started.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
        state.append("cleaned up")
        raise
def interrupt():
    started.wait()
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    fetch.run(forever())
except KeyboardInterrupt:
    print("interrupted", state, flush=True)
"""


def test_an_interrupt_cancels_and_waits_for_the_clean_up():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", INTERRUPTED], capture_output=True, timeout=60
    )
    assert done.stdout.decode().strip() == "interrupted ['cleaned up']"
    assert done.returncode == 0
    assert b"Warning" not in done.stderr


EXITING = """
import sys
import threading
from periplus.fetch import Fetch
fetch = Fetch()
print(fetch.run(fetch.read(sys.argv[1], 0, 4))[0])
"""


def test_a_program_that_just_ends_warns_of_nothing(server, payload):
    server.files["a.bin"] = b"good"
    command = [sys.executable, "-W", "error", "-c", EXITING, f"{server.url}/a.bin"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.stdout.decode().strip() == "b'good'"
    assert done.stderr == b""


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, periplus.fetch, periplus.policy; print({'aiohttp', 'obstore', 'pyarrow'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout.strip() == b"set()"


def in_child(holds) -> bool:
    """Whether something holds in a forked child, which is given 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            code = 0 if holds() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("used_before", [False, True])
def test_it_works_in_a_forked_child(server, payload, used_before):
    server.files["a.bin"] = payload
    url = f"{server.url}/a.bin"
    with Fetch() as fetch:
        if used_before:
            fetch.run(fetch.read(url, 0, 1))
        assert in_child(lambda: fetch.run(fetch.read(url, 10, 20))[0] == payload[10:30])
        assert fetch.run(fetch.read(url, 0, 5))[0] == payload[:5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks_while_threads_read_harm_neither_side(server, payload):
    server.files["a.bin"] = payload
    url, stop = f"{server.url}/a.bin", threading.Event()

    with Fetch() as fetch, Fetch() as other:

        def work(number):
            count = 0
            while not stop.is_set():
                start = (number * 7919 + count * 31) % 100_000
                assert (other if count % 2 else fetch).run(fetch.read(url, start, 9))[0] == payload[start : start + 9]
                count += 1
            return count

        with ThreadPoolExecutor(3) as pool:
            busy = [pool.submit(work, number) for number in range(3)]
            try:
                good = [in_child(lambda: fetch.run(fetch.read(url, 10, 20))[0] == payload[10:30]) for _ in range(3)]
            finally:
                stop.set()
            assert all(one.result(20) for one in busy)
        assert good == [True] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_object_store_says_no_in_a_child_forked_after_it_was_used():
    """Its library's threads are not there: the child would wait forever."""
    with Fetch() as fetch:
        fetch.run(fetch.write("memory://forked/a.bin", b"0123456789"))

        def refused() -> bool:
            with pytest.raises(FetchError):
                fetch.run(fetch.read("memory://forked/a.bin", 2, 3))
            return True

        assert in_child(refused)
        assert bytes(fetch.run(fetch.read("memory://forked/a.bin", 2, 3))[0]) == b"234"


def test_it_travels_by_pickle_with_its_settings_and_without_showing_them(server, payload):
    server.files["a.bin"] = payload
    options = {"headers": {"Authorization": "Bearer SECRET"}}
    with Fetch(storage_options=options, retries=3) as fetch:
        fetch.run(fetch.read(f"{server.url}/a.bin", 0, 1))
        assert "SECRET" not in f"{fetch!r} {fetch}"
        other = pickle.loads(pickle.dumps(fetch))
    with other:
        other.run(other.read(f"{server.url}/a.bin", 0, 1))
    assert server.log[-1].headers["authorization"] == "Bearer SECRET"
    assert other.patience.retries == 3


def test_threads_share_one_fetch(fetch, places, payload):
    def work(k):
        for i in range(20):
            start = i * 100 + k
            assert fetch.run(fetch.read(places[k % 3].url, start, 50))[0] == payload[start : start + 50]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_secrets_are_in_no_error_log_or_traceback(server, caplog):
    import logging
    import traceback

    caplog.set_level(logging.DEBUG)
    options = {"headers": {"Authorization": "Bearer SECRET"}, "query": "sig=SECRET"}
    url = server.url.replace("//", "//user:SECRET@")
    for kind in ("status-503", "status-403", "reset", "garbage", "gzip", "redirect", "lie-start"):
        server.files["a.bin"] = bytes(100)
        location = "http://127.0.0.1:1/x?X-Amz-Signature=SECRET"
        server.faults["/a.bin"] = [Fault(kind=kind, times=-1, location=location)]
        with Fetch(storage_options=options, retries=1) as fetch:
            for attempt in (fetch.read(f"{url}/a.bin", 0, 10), fetch.head(f"{url}/a.bin")):
                try:
                    _, source = None, fetch.run(attempt)
                    assert "SECRET" not in repr(source)
                except (FetchError, OSError) as error:
                    text = "".join(traceback.format_exception(error)) + repr(error) + str(error.url)
                    # Source lines of this test are shown in a traceback; only values matter.
                    shown = [line for line in text.splitlines() if "fetch.run" not in line and "options" not in line]
                    assert "SECRET" not in "\n".join(shown)
    assert "SECRET" not in caplog.text
