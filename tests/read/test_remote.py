"""Reading over real HTTP: requests are merged and conditional, errors end everything, memory is bounded."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest

from periplus.errors import DecodeError, FetchError, MissingError, StaleError
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Catalog, Refs
from periplus.testing.servers.http import Fault, RangeServer

KIB = 1024


@pytest.fixture
def served(kit):
    """A raw array behind a server; as far as reading goes, any remote format."""
    open_things = []

    def make(shape, chunks, *, parts=1, gap=40, dtype="<i4", values=None, **options):
        array = kit.raw_array(shape, chunks, dtype=dtype)
        values = kit.values_of(shape, dtype) if values is None else values
        body, refs = kit.raw_bytes(values, array, rng=np.random.default_rng(1), parts=parts, gap=gap)
        server = RangeServer({"a.bin": body}, **options).start()
        fetch = Fetch(retries=2)
        open_things.extend([fetch.close, server.stop])
        source = fetch.run(fetch.head(server.url + "/a.bin"))
        server.log.clear()
        shelf = kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, kit.files_of([source]), fetch)
        shelf.values, shelf.server, shelf.body, shelf.refs = values, server, body, refs
        return shelf

    yield make
    for close in open_things:
        close()


def gets(shelf):
    return [r for r in shelf.server.log if r.method == "GET"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("parts", [1, 3])
def test_values_come_back_whole(served, workers, parts):
    shelf = served((60, 70), (16, 16), parts=parts)
    for key in (..., (slice(5, 50, 3), slice(60, 2, -7)), (7, 8)):
        np.testing.assert_array_equal(shelf.read("a", key, workers=workers), shelf.values[key])


def test_neighbours_share_one_request(served):
    shelf = served((256, 256), (32, 32))
    shelf.read("a")
    assert len(gets(shelf)) == 1
    assert all("if-match" in {k.lower() for k in r.headers} for r in gets(shelf))


def test_chunks_far_apart_are_asked_for_apart_and_nothing_between(served):
    shelf = served((8, 600 * KIB), (1, 600 * KIB), dtype="u1")
    shelf.read("a", (slice(0, 8, 3), slice(0, 5)))
    offsets = shelf.refs.offset[::3].tolist()
    wanted = 3 * 600 * KIB
    got = sum(r.sent for r in gets(shelf))
    assert len(gets(shelf)) <= 3
    assert wanted <= got <= wanted + 1000
    assert {r.range[0] for r in gets(shelf)} <= set(offsets)


def test_a_replaced_object_is_stale_and_a_deleted_one_missing(served):
    shelf = served((60, 70), (16, 16))
    shelf.server.files["a.bin"] = shelf.body[:100] + b"!" + shelf.body[101:]
    with pytest.raises(StaleError) as caught:
        shelf.read("a")
    assert caught.value.url == shelf.server.url + "/a.bin"
    del shelf.server.files["a.bin"]
    with pytest.raises(MissingError):
        shelf.read("a")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_chunk_that_does_not_decode_says_where_it_lies(served, workers):
    shelf = served((60, 64), (4, 64))
    refs = shelf.table.refs("a")
    refs.length[9] -= 5
    with pytest.raises(DecodeError) as caught:
        shelf.read("a", workers=workers)
    assert caught.value.url == shelf.server.url + "/a.bin"
    assert caught.value.offset == refs.offset[9]


def test_faults_of_the_server_are_ridden_out_or_raised(served):
    shelf = served((60, 70), (16, 16))
    shelf.server.faults["/a.bin"] = [Fault(kind="status-503"), Fault(kind="reset-body")]
    np.testing.assert_array_equal(shelf.read("a"), shelf.values)
    shelf.server.faults["/a.bin"] = [Fault(kind="status-403", times=-1)]
    with pytest.raises((FetchError, PermissionError)) as caught:
        shelf.read("a")
    assert "a.bin" in caught.value.url


def test_progress_rises_to_the_total_in_the_callers_thread(served):
    shelf = served((64, 64), (8, 8))
    seen = []

    def progress(done, total):
        assert threading.current_thread() is threading.main_thread()
        seen.append((done, total))

    shelf.read("a", progress=progress, workers=3)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (64, 64)


def test_an_interrupt_ends_threads_and_requests(served):
    shelf = served((40, 300 * KIB), (1, 300 * KIB), dtype="u1", latency=0.02)

    def progress(done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        shelf.read("a", progress=progress, workers=3, limits=Limits(memory_bytes=4 << 20))
    assert threading.active_count() <= before + 1  # the loop of Fetch stays
    assert len(gets(shelf)) < 40
    np.testing.assert_array_equal(shelf.read("a", (0, slice(0, 9))), shelf.values[0, :9])


def test_local_and_remote_files_may_be_mixed(served, raw_shelf, kit):
    near, far = raw_shelf((8, 8), (4, 4)), served((8, 8), (4, 4))
    refs = Refs(
        chunk=near.refs.chunk,
        offset=np.where([1, 0, 1, 0], near.refs.offset, far.refs.offset),
        length=near.refs.length,
        file=np.array([0, 1, 0, 1], np.int32),
    )
    sources = [near.table.files.source(0), far.table.files.source(0)]
    shelf = kit.Shelf(near.table.catalog, {"a": refs}, kit.files_of(sources), far.fetch)
    np.testing.assert_array_equal(shelf.read("a"), near.values)


@pytest.mark.parametrize("parts", [1, 2])
def test_memory_stays_within_the_budget_on_a_read_twenty_times_as_large(served, parts):
    budget = 2 << 20
    stored = np.random.default_rng(2).integers(0, 255, (160, 1 << 18), np.uint8)  # 40 MiB, of which 10 KiB are wanted
    shelf = served(stored.shape, (1, 1 << 18), dtype="u1", parts=parts, values=stored)
    key = (slice(None), slice(0, 1 << 18, 1 << 12))
    limits = Limits(memory_bytes=budget)
    shelf.read("a", (slice(0, 4), slice(0, 9)), limits=limits)
    gc.collect()
    tracemalloc.start()
    values = shelf.read("a", key, limits=limits, workers=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(values, shelf.values[key])
    assert peak < 1.25 * budget
