import asyncio
import gc
import time

import pytest

from periplus.errors import DeniedError, FetchError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch import Fetch
from periplus.policy import Policy
from periplus.testing.servers.http import Fault, RangeServer


@pytest.fixture
def url(server, payload):
    server.files["a.bin"] = payload
    return f"{server.url}/a.bin"


def read(fetch, *args, **kwargs):
    return fetch.run(fetch.read(*args, **kwargs))


def test_a_range_and_the_objects_facts_come_from_one_request(fetch, server, url, payload):
    data, source = read(fetch, url, 1000, 500)
    assert data == payload[1000:1500]
    assert (source.url, source.size) == (url, len(payload))
    assert source.etag
    assert source.last_modified.tzinfo is not None
    assert [(r.method, r.range, r.sent) for r in server.log] == [("GET", (1000, 1500), 500)]
    assert server.log[0].headers["accept-encoding"] == "identity"


def test_a_range_is_cut_at_the_end_and_empty_past_it(fetch, url, payload):
    assert read(fetch, url, len(payload) - 5, 100)[0] == payload[-5:]
    data, source = read(fetch, url, len(payload) + 5, 100)
    assert (data, source.size) == (b"", len(payload))


def test_head_and_zero_lengths_move_no_bytes(fetch, server, url, payload):
    source = fetch.run(fetch.head(url))
    assert source.size == len(payload)
    assert read(fetch, url, 7, 0, expect=source) == (b"", source)
    assert sum(r.sent for r in server.log) == 0
    assert len(server.log) == 1


def test_a_tail_is_one_request(fetch, server, url, payload):
    data, source = fetch.run(fetch.tail(url, 100))
    assert (data, source.size) == (payload[-100:], len(payload))
    assert len(server.log) == 1
    assert fetch.run(fetch.tail(url, 10**6))[0] == payload
    server.faults["/a.bin"] = [Fault(kind="ignore-range")]
    assert fetch.run(fetch.tail(url, 100))[0] == payload[-100:]


def test_a_server_without_head_still_tells_its_size(fetch, server, url, payload):
    server.faults["*"] = [Fault(kind="no-head", times=-1)]
    assert fetch.run(fetch.head(url)).size == len(payload)


@pytest.mark.parametrize("content", [b"", b"x"])
def test_tiny_objects(fetch, server, content):
    server.files["tiny"] = content
    url = f"{server.url}/tiny"
    assert read(fetch, url, 0, 100)[0] == content
    assert fetch.run(fetch.tail(url, 100))[0] == content
    assert fetch.run(fetch.head(url)).size == len(content)


# Each fault, once: the right bytes arrive all the same.
CURED = [
    "status-503", "status-429", "status-500", "reset", "reset-body", "truncate", "short-range", "lie-start",
    "lie-length", "no-total", "ignore-range", "ignore-if-match", "no-etag", "chunked", "garbage", "stall", "trickle",
]  # fmt: skip


@pytest.mark.parametrize("kind", CURED)
@pytest.mark.parametrize("conditional", [False, True])
def test_one_fault_is_cured(fetch, server, url, payload, kind, conditional):
    source = fetch.run(fetch.head(url)) if conditional else None
    server.faults["/a.bin"] = [Fault(kind=kind, seconds=0.05)]
    assert read(fetch, url, 1000, 90_000, expect=source)[0] == payload[1000:91_000]


# Each fault, always: the right bytes, or an error of ours; never short or shifted bytes.
@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("status-503", FetchError),
        ("status-429", FetchError),
        ("reset", FetchError),
        ("reset-body", None),  # half comes each time, so it ends
        ("truncate", None),
        ("short-range", None),
        ("lie-start", FetchError),
        ("lie-length", FetchError),
        ("lie-total", StaleError),
        ("no-total", None),
        ("ignore-range", None),
        ("no-etag", None),
        ("chunked", None),
        ("gzip", FetchError),
        ("garbage", FetchError),
        ("status-403", DeniedError),
    ],
)
def test_a_lasting_fault_gives_right_bytes_or_an_error(server, url, payload, kind, outcome):
    with Fetch(retries=3, deadline=10.0) as fetch:
        source = fetch.run(fetch.head(url))
        server.faults["/a.bin"] = [Fault(kind=kind, times=-1)]
        start = len(payload) - 20_000
        if outcome is None:
            assert read(fetch, url, start, 20_000, expect=source)[0] == payload[start:]
        else:
            with pytest.raises(outcome) as caught:
                read(fetch, url, start, 20_000, expect=source)
            assert caught.value.url == url


def test_an_unknown_total_is_read_to_the_end(fetch, server, url, payload):
    server.faults["/a.bin"] = [Fault(kind="no-total", times=-1)]
    assert read(fetch, url, len(payload) - 50, 500)[0] == payload[-50:]


def test_a_truncated_answer_is_resumed_where_it_broke(fetch, server, url, payload):
    server.faults["/a.bin"] = [Fault(kind="truncate")]
    assert read(fetch, url, 0, 200_000)[0] == payload[:200_000]
    assert [r.range for r in server.log] == [(0, 200_000), (100_000, 200_000)]


def test_an_object_replaced_between_two_parts_is_never_mixed(fetch, server, url, payload):
    class Swapping(dict):
        def get(self, key, default=None):
            self.count = getattr(self, "count", 0) + 1
            if self.count == 2:
                self["a.bin"] = payload[::-1]
            return super().get(key, default)

    server.files = Swapping(server.files)
    server.faults["/a.bin"] = [Fault(kind="truncate")]
    assert read(fetch, url, 0, 200_000)[0] == payload[::-1][:200_000]


def test_a_server_that_ignores_ranges_is_refused_far_into_a_file(fetch, server):
    server.files["big"] = bytes(10 << 20)
    server.faults["/big"] = [Fault(kind="ignore-range", times=-1)]
    with pytest.raises(FetchError, match="ignores Range"):
        read(fetch, f"{server.url}/big", 9 << 20, 10)


@pytest.mark.parametrize("change", ["same size", "smaller", "larger", "deleted"])
@pytest.mark.parametrize("fault", [None, "ignore-if-match", "no-etag"])
def test_a_replaced_object_is_stale(fetch, server, url, payload, change, fault):
    if fault == "no-etag":
        server.faults["/a.bin"] = [Fault(kind="no-etag")]
        server.modified["a.bin"] = 1_600_000_000.0
    source = fetch.run(fetch.head(url))
    new = {"same size": payload[::-1], "smaller": payload[:1000], "larger": payload + b"x"}.get(change)
    if new is None:
        del server.files["a.bin"]
    else:
        server.files["a.bin"] = new
        server.modified["a.bin"] = 1_700_000_000.0
    if fault == "no-etag" and change == "same size":
        # Neither tags nor dates: nothing tells the two apart, so dates must be there.
        source = source.__class__(url=url, size=source.size, last_modified=read_date(1_600_000_000))
    elif fault is not None:
        server.faults["/a.bin"] = [Fault(kind=fault)]
    with pytest.raises(MissingError if new is None else StaleError):
        read(fetch, url, 0, 10, expect=source)


def read_date(seconds):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)


def test_a_weak_entity_tag_is_compared_but_not_sent(fetch, server, url):
    source = fetch.run(fetch.head(url))
    weak = source.__class__(url=url, size=source.size, etag="W/" + source.etag)
    read(fetch, url, 0, 10, expect=weak)
    assert "if-match" not in server.log[-1].headers
    with pytest.raises(StaleError):
        read(fetch, url, 0, 10, expect=source.__class__(url=url, size=source.size, etag='W/"other"'))


def test_a_missing_object_is_missing(fetch, server):
    for attempt in (fetch.head(f"{server.url}/none"), fetch.read(f"{server.url}/none", 0, 5)):
        with pytest.raises(MissingError):
            fetch.run(attempt)
    assert len(server.log) == 2


def test_nobody_listening_is_a_fetch_error_in_time():
    with Fetch(retries=2, deadline=5.0) as fetch, pytest.raises(FetchError, match="no answer"):
        read(fetch, "http://127.0.0.1:1/a", 0, 10)


# --- waiting -------------------------------------------------------------------------------------------------------


def test_retry_after_is_waited_for(fetch, server, url):
    server.faults["/a.bin"] = [Fault(kind="status-429", retry_after="1")]
    begin = time.monotonic()
    read(fetch, url, 0, 10)
    assert time.monotonic() - begin >= 1.0


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(server, url):
    server.faults["/a.bin"] = [Fault(kind="status-503", retry_after="3600")]
    with Fetch(deadline=5.0) as fetch, pytest.raises(FetchError, match="503"):
        read(fetch, url, 0, 10)


def test_the_deadline_is_kept(server, url):
    server.faults["/a.bin"] = [Fault(kind="stall", seconds=30.0, times=-1)]
    with Fetch(deadline=0.5, stall=20.0) as fetch, pytest.raises(FetchError, match=r"within 0\.5 s"):
        read(fetch, url, 0, 10)


def test_a_stalled_answer_is_asked_for_again(server, url, payload):
    server.faults["/a.bin"] = [Fault(kind="trickle", seconds=30.0)]
    with Fetch(stall=0.3) as fetch:
        assert read(fetch, url, 0, 50_000)[0] == payload[:50_000]
    assert server.log[-1].range == (25_000, 50_000)


def test_waiting_for_a_place_does_not_count_against_the_deadline(server, url):
    server.latency = 0.1
    with Fetch(deadline=1.0, per_host=1) as fetch:

        async def many():
            return await asyncio.gather(*(fetch.read(url, i, 1) for i in range(12)))

        assert len(fetch.run(many())) == 12  # one after the other, 0.1 s each


def test_a_third_of_all_requests_failing_stops_no_read(server, url, payload):
    kinds = ["status-503", "status-429", "reset", "truncate", "reset-body", "status-500"]
    server.faults["/a.bin"] = [Fault(kind=kind, chance=0.3, times=-1) for kind in kinds]
    with Fetch(retries=12) as fetch:

        async def many():
            return await asyncio.gather(*(fetch.read(url, 1000 * i, 900) for i in range(100)))

        for i, (data, _) in enumerate(fetch.run(many())):
            assert data == payload[1000 * i : 1000 * i + 900]
    assert len(server.log) <= 2 * 100


# --- limits and endings --------------------------------------------------------------------------------------------


def test_concurrency_is_limited_per_host_and_over_all(payload):
    with RangeServer({"a": payload}, latency=0.05) as one, RangeServer({"a": payload}, latency=0.05) as two:
        most = {"one": 0, "two": 0, "both": 0}

        async def many(fetch):
            tasks = [asyncio.create_task(fetch.read(f"{s.url}/a", i, 1)) for i in range(20) for s in (one, two)]
            while not all(task.done() for task in tasks):
                most["one"] = max(most["one"], one.open_connections)
                most["two"] = max(most["two"], two.open_connections)
                await asyncio.sleep(0.005)
            return await asyncio.gather(*tasks)

        with Fetch(concurrency=5, per_host=4) as fetch:
            fetch.run(many(fetch))
        assert most["one"] <= 4
        assert most["two"] <= 4


def test_cancelling_leaves_no_task_and_no_socket(server, url):
    server.latency = 5.0
    with Fetch() as fetch:

        async def cancelled():
            tasks = [asyncio.create_task(fetch.read(url, i, 10)) for i in range(20)]
            await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.05)
            return results, len(asyncio.all_tasks())

        results, tasks = fetch.run(cancelled())
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert tasks == 1
        until = time.monotonic() + 30.0
        while server.open_connections and time.monotonic() < until:
            time.sleep(0.02)
        assert server.open_connections == 0


def test_closing_while_requests_run_is_clean(server, url):
    server.latency = 5.0
    fetch = Fetch()
    future = fetch._connected().bridge.submit(fetch.read(url, 0, 10))
    time.sleep(0.2)
    fetch.close()
    assert future.cancelled()
    fetch.close()


def test_a_forgotten_fetch_closes_itself(server, url):
    fetch = Fetch()
    read(fetch, url, 0, 10)
    assert server.open_connections == 1
    del fetch
    gc.collect()
    until = time.monotonic() + 30.0
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.02)
    assert server.open_connections == 0


def test_a_closed_fetch_connects_anew(server, url, payload):
    fetch = Fetch()
    for _ in range(2):
        assert read(fetch, url, 0, 5)[0] == payload[:5]
        fetch.close()


def test_it_can_be_awaited_on_any_loop(fetch, url, payload):
    async def main():
        return await asyncio.gather(*(fetch.read(url, i, 5) for i in range(5)))

    assert [data for data, _ in asyncio.run(main())] == [payload[i : i + 5] for i in range(5)]
    assert [data for data, _ in asyncio.run(main())] == [payload[i : i + 5] for i in range(5)]


def test_http_lists_and_writes_nothing(fetch, server):
    async def listed(pattern):
        return [source async for source in fetch.find(pattern)]

    for pattern in ("/", "/a/*.tif", "/**"):
        with pytest.raises(FormatError, match="no listing"):
            fetch.run(listed(server.url + pattern))
    with pytest.raises(FetchError, match="read only"):
        fetch.run(fetch.write(server.url + "/a", b"x"))
    assert server.log == []


def test_one_url_with_a_query_is_found(fetch, server, payload):
    server.files["a.bin"] = payload

    async def found():
        return [source async for source in fetch.find(f"{server.url}/a.bin?band=4")]

    assert [source.url for source in fetch.run(found())] == [f"{server.url}/a.bin?band=4"]
    assert server.log[0].path == "/a.bin?band=4"


# --- redirects -----------------------------------------------------------------------------------------------------


@pytest.fixture
def canary(payload):
    with RangeServer({"a.bin": payload, "secret": b"secret"}, host="127.0.0.1") as other:
        yield other


def test_an_allowed_redirect_is_followed_and_the_name_kept(fetch, server, url, canary, payload):
    server.faults["/a.bin"] = [Fault(kind="redirect", location=f"{canary.url}/a.bin?X-Amz-Signature=s3cret", times=-1)]
    data, source = read(fetch, url, 10, 20)
    assert data == payload[10:30]
    assert source.url == url
    assert canary.log[0].range == (10, 30)


@pytest.mark.parametrize(
    "target",
    ["{canary}/secret", "//{host}/secret", "http://user@{host}/secret", "{canary}", "HTTP://{host}/secret"],
)
def test_a_redirect_out_of_what_is_allowed_is_denied_before_it_is_touched(server, url, canary, target):
    target = target.format(canary=canary.url, host=canary.url.partition("//")[2])
    server.faults["/a.bin"] = [Fault(kind="redirect", location=target, times=-1)]
    with Fetch(policy=Policy.beside(f"{server.url}/index.parquet")) as fetch:
        for attempt in (fetch.read(url, 0, 10), fetch.head(url), fetch.tail(url, 10)):
            with pytest.raises(DeniedError):
                fetch.run(attempt)
    assert canary.log == []


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "/etc/passwd\x00", "s3://bucket/x", "ftp://h/x", "data:,x", ""]
)
def test_a_redirect_out_of_the_web_is_refused(fetch, server, url, target):
    server.faults["/a.bin"] = [Fault(kind="redirect", location=target, times=-1)]
    with pytest.raises((DeniedError, FetchError)):
        read(fetch, url, 0, 10)


def test_a_circle_of_redirects_ends(fetch, server, url):
    server.faults["/a.bin"] = [Fault(kind="redirect", location=url, times=-1)]
    with pytest.raises(FetchError, match="redirects"):
        read(fetch, url, 0, 10)
    assert len(server.log) == 11


def test_credentials_stay_with_their_host(server, canary, payload):
    server.files["b.bin"] = payload
    server.faults["/a.bin"] = [Fault(kind="redirect", location=f"{canary.url}/a.bin", times=-1)]
    server.faults["/moved"] = [Fault(kind="redirect", location="/b.bin", times=-1)]
    options = {"headers": {"Authorization": "Bearer s3cret", "X-Api": "k3y"}, "query": "?sig=s1gned"}
    with Fetch(storage_options=options) as fetch:
        read(fetch, f"{server.url}/a.bin", 0, 10)
        read(fetch, f"{server.url}/moved", 0, 10)
    assert all("authorization" in r.headers and "sig=s1gned" in r.path for r in server.log)
    assert len(server.log) == 3
    for request in canary.log:
        assert "authorization" not in request.headers
        assert "x-api" not in request.headers
        assert "sig" not in request.path
    with Fetch() as fetch:
        read(fetch, f"{server.url.replace('//', '//name:pass@')}/a.bin", 0, 10)
    assert server.log[-1].headers["authorization"].startswith("Basic ")
    assert "authorization" not in canary.log[-1].headers


def test_a_private_address_behind_the_allowed_host_name_is_not_reached(server, url):
    with Fetch(policy=Policy.beside("https://data.example/index.parquet")) as fetch, pytest.raises(PeriplusError):
        read(fetch, url, 0, 1)
    assert server.log == []


def test_a_name_given_once_is_remembered_for_its_host_but_not_stored(fetch, server, url):
    source = fetch.run(fetch.head(url.replace("//", "//name:pass@")))
    assert source.url == url
    read(fetch, source.url, 0, 10, expect=source)
    assert server.log[-1].headers["authorization"].startswith("Basic ")
    with Fetch() as other:
        read(other, source.url, 0, 10)
    assert "authorization" not in server.log[-1].headers


def test_a_host_that_asks_for_a_pause_gets_it_for_all_requests(fetch, server, url):
    server.faults["/a.bin"] = [Fault(kind="status-429", retry_after="1")]

    async def staggered():
        begin = time.monotonic()
        first = asyncio.create_task(fetch.read(url, 0, 10))
        while not server.log:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        await fetch.read(url, 100, 10)
        waited = time.monotonic() - begin
        await first
        return waited

    assert fetch.run(staggered()) >= 1.0
    assert len(server.log) == 3


def test_readers_never_see_wrong_bytes_while_an_object_is_replaced(fetch, server):
    import threading

    server.files["a.bin"] = bytes(4096)
    stop = threading.Event()

    def replace():
        value = 0
        while not stop.is_set():
            value = (value + 1) % 256
            server.files["a.bin"] = bytes([value]) * 4096
            time.sleep(0.001)

    async def reads():
        good = stale = 0
        for _ in range(60):
            first, source = await fetch.read(f"{server.url}/a.bin", 0, 16)
            tries = (fetch.read(source.url, 64 * i, 64, expect=source) for i in range(10))
            for result in await asyncio.gather(*tries, return_exceptions=True):
                if isinstance(result, StaleError):
                    stale += 1
                else:
                    assert result[0] == first[:1] * 64
                    good += 1
        return good, stale

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        good, stale = fetch.run(reads())
    finally:
        stop.set()
        thread.join()
    assert stale
    assert good + stale == 600
