"""A remote index is queried by a few range reads, never downloaded, and never mixed with another version of itself."""

from __future__ import annotations

import numpy as np
import pytest

from periplus.errors import ConflictError, MissingError, StaleError
from periplus.fetch import Fetch
from periplus.model import Array, Catalog
from periplus.table import append_table, lock, memory_table, open_table, write_table
from periplus.testing.indexes import dense_refs, files_of, same_refs, stacked
from periplus.testing.servers.http import RangeServer

STEPS, ROWS, COLUMNS = 1500, 20, 30


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """900,000 rows in two forms: about 5 MB each."""
    folder = tmp_path_factory.mktemp("large")
    array = Array(
        name="a", dims=("time", "y", "x"), shape=(STEPS, ROWS, COLUMNS), chunks=(1, 1, 1), dtype=np.dtype("u1")
    )  # fmt: skip
    refs = dense_refs(array, files=STEPS)
    catalog, files = Catalog(arrays={"a": array}), files_of([str(folder / f"{n}.tif") for n in range(STEPS)])
    with Fetch() as fetch:
        for name in ("index.parquet", "index"):
            write_table(str(folder / name), catalog, [("a", refs)], files, fetch=fetch)
    return folder, memory_table(catalog, {"a": refs}, files)


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_opening_and_querying_takes_few_requests_and_few_bytes(large, fetch, name):
    folder, want = large
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 2
    with RangeServer(folder) as server:
        table = open_table(f"{server.url}/{name}", fetch=fetch)
        assert len(server.log) <= 3
        assert sum(request.sent for request in server.log) < 200_000
        window = [(700, 730), (5, 8), (10, 15)]
        got = table.refs("a", window)
        assert len(server.log) <= 8
        assert sum(request.sent for request in server.log) < size / 4
        before = len(server.log)
        series = table.refs("a", [(0, STEPS), (11, 12), (22, 23)])
        assert len(server.log) - before <= 4  # one for each block of time, at the same time
        before = len(server.log)
        table.refs("a", [(0, STEPS), (11, 12), (23, 24)])
        table.refs("a", [(0, STEPS), (11, 12), (24, 25)])
        assert len(server.log) - before <= 4  # from then on the decoded rows are at hand
    same_refs(got, want.refs("a", window))
    same_refs(series, want.refs("a", [(0, STEPS), (11, 12), (22, 23)]))


def test_column_chunks_are_fetched_at_the_same_time(large, fetch):
    folder, _ = large
    with RangeServer(folder, latency=0.2) as server:
        table = open_table(f"{server.url}/index.parquet", fetch=fetch)
        assert table.files is not None
        start = len(server.log)
        server.most_waiting = 0
        table.refs("a", [(0, STEPS), (11, 12), (22, 23)])
        requests = len(server.log) - start
    assert requests == 3
    assert server.most_waiting == 3


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_an_index_replaced_meanwhile_is_stale(tmp_path, fetch, name):
    catalog, refs, files = stacked(steps=1500)
    write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
    with RangeServer(tmp_path) as server:
        remote = open_table(f"{server.url}/{name}", fetch=fetch, allow=["s3://"])
        local = open_table(str(tmp_path / name), fetch=fetch, allow=["s3://"])
        catalog, refs, files = stacked(steps=1501, seed=5)
        write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
        for table in (remote, local):
            with pytest.raises(StaleError):
                table.refs("0/data")


def test_a_dataset_that_lost_a_part_says_so(tmp_path, fetch):
    catalog, refs, files = stacked(steps=2)
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    (part,) = (tmp_path / "i" / "chunks").iterdir()
    part.unlink()
    with pytest.raises(MissingError, match=f"a part of the index is missing.*{part.name}"):
        open_table(str(tmp_path / "i"), fetch=fetch, allow=["s3://"]).refs("0/data")


def test_a_small_index_is_read_whole_by_one_request_and_stays_what_it_was(tmp_path, fetch):
    catalog, refs, files = stacked(steps=3)
    write_table(str(tmp_path / "i.parquet"), catalog, refs.items(), files, fetch=fetch)
    with RangeServer(tmp_path) as server:
        table = open_table(f"{server.url}/i.parquet", fetch=fetch, allow=["s3://"])
        newer, more, others = stacked(steps=4, seed=5)
        write_table(str(tmp_path / "i.parquet"), newer, more.items(), others, fetch=fetch)
        same_refs(table.refs("0/data"), memory_table(catalog, refs, files).refs("0/data"))
        assert len(server.log) == 1


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.s3)])
def store(request):
    """A Fetch and a prefix in a store that one may write to."""
    if request.param == "memory":
        with Fetch() as one:
            yield one, "memory://box"
        return
    server = request.getfixturevalue("s3")
    with Fetch(storage_options=server.storage_options) as one:
        yield one, f"{server.url}/table"


def grown_by_one():
    catalog, refs, _ = stacked(steps=4)
    last = refs["0/data"].take(refs["0/data"].chunk[0] == 3)
    blocks = [("0/data", type(last)(chunk=last.chunk, offset=last.offset, length=last.length))]
    return catalog, blocks, files_of(["s3://bucket/new.tif"])


def test_an_index_in_an_object_store_is_written_appended_and_read(store):
    fetch, prefix = store
    catalog, refs, files = stacked(steps=3)
    for name in ("index.parquet", "index"):
        write_table(f"{prefix}/{name}", catalog, refs.items(), files, fetch=fetch)
        table = open_table(f"{prefix}/{name}", fetch=fetch, allow=["s3://"])
        same_refs(table.refs("0/data"), memory_table(catalog, refs, files).refs("0/data"))
    append_table(f"{prefix}/index", *grown_by_one(), fetch=fetch)
    table = open_table(f"{prefix}/index", fetch=fetch, allow=["s3://"])
    assert len(table.refs("0/data")) == 4 * 24
    assert table.files.path[-1] == "s3://bucket/new.tif"
    assert table.sql("select count(*) as n from chunks").to_pylist() == [{"n": 4 * 24 + 18}]


def test_the_slower_of_two_writers_to_a_store_is_told(store):
    fetch, prefix = store
    catalog, refs, files = stacked(steps=3)
    write_table(f"{prefix}/race", catalog, refs.items(), files, fetch=fetch)
    grown, blocks, new = grown_by_one()

    def slow():
        append_table(f"{prefix}/race", *grown_by_one(), fetch=fetch)
        yield from blocks

    with pytest.raises(ConflictError, match="another writer"):
        append_table(f"{prefix}/race", grown, slow(), new, fetch=fetch)
    assert len(open_table(f"{prefix}/race", fetch=fetch, allow=["s3://"]).refs("0/data")) == 4 * 24


def names_in(fetch, prefix):
    async def found():
        return sorted([source.url.removeprefix(prefix) async for source in fetch.find(prefix)])

    return fetch.run(found())


def test_a_lock_left_in_a_store_says_what_to_do(fetch, monkeypatch):
    monkeypatch.setattr("periplus.table.lock.PATIENCE", 0.3)
    catalog, refs, files = stacked(steps=3)
    write_table("memory://locked/index", catalog, refs.items(), files, fetch=fetch)
    before = names_in(fetch, "memory://locked/index/")
    fetch.run(fetch.write("memory://locked/index/.lock", b"host\x1b 17 token"))
    with pytest.raises(ConflictError, match=r"another writer \(host\? 17 token\).*remove this lock.*\.lock"):
        append_table("memory://locked/index", catalog, [], files_of([]), fetch=fetch)
    fetch.run(fetch.delete("memory://locked/index/.lock"))
    append_table("memory://locked/index", catalog, [], files_of([]), fetch=fetch)
    assert names_in(fetch, "memory://locked/index/") == before  # nothing that told the time is left


def test_the_lock_of_a_dead_committer_is_taken_over(store, monkeypatch):
    fetch, prefix = store
    catalog, refs, files = stacked(steps=3)
    write_table(f"{prefix}/dead", catalog, refs.items(), files, fetch=fetch)
    fetch.run(fetch.write(f"{prefix}/dead/.lock", b"a committer that was killed"))
    monkeypatch.setattr("periplus.table.lock.LIFE", -60.0)  # it is as if it had been written long ago
    append_table(f"{prefix}/dead", *grown_by_one(), fetch=fetch)
    assert len(open_table(f"{prefix}/dead", fetch=fetch, allow=["s3://"]).refs("0/data")) == 4 * 24


def test_of_two_who_find_a_dead_lock_one_takes_it(fetch, monkeypatch):
    monkeypatch.setattr("periplus.table.lock.LIFE", -60.0)
    monkeypatch.setattr("periplus.table.lock.PATIENCE", 0.0)
    fetch.run(fetch.write("memory://two/index/.lock", b"a committer that was killed"))
    found = lock._dead("memory://two/index/.lock", fetch)
    with lock.locked("memory://two/index/", fetch):
        monkeypatch.setattr(lock, "_dead", lambda url, fetch: found)  # the other had looked before
        with pytest.raises(ConflictError, match="another writer"), lock.locked("memory://two/index/", fetch):
            pytest.fail("two hold the lock")


def test_a_committer_that_slept_over_its_lock_writes_nothing(fetch, monkeypatch):
    catalog, refs, files = stacked(steps=3)
    write_table("memory://slept/index", catalog, refs.items(), files, fetch=fetch)
    before = names_in(fetch, "memory://slept/index/")
    monkeypatch.setattr("periplus.table.lock.HELD", 0.0)
    with pytest.raises(ConflictError, match="took so long"):
        append_table("memory://slept/index", *grown_by_one(), fetch=fetch)
    assert names_in(fetch, "memory://slept/index/") == before
    assert len(open_table("memory://slept/index", fetch=fetch, allow=["s3://"]).refs("0/data")) == 3 * 24


def test_parts_are_fetched_at_the_same_time(tmp_path, fetch):
    catalog, refs, files = stacked(steps=1)
    write_table(str(tmp_path / "index"), catalog, refs.items(), files, fetch=fetch)
    for steps in range(2, 8):
        catalog, refs, _ = stacked(steps=steps)
        last = refs["0/data"].take(refs["0/data"].chunk[0] == steps - 1)
        block = type(last)(chunk=last.chunk, offset=last.offset, length=last.length)
        new = files_of([f"s3://bucket/{steps}.tif"])
        append_table(str(tmp_path / "index"), catalog, [("0/data", block)], new, fetch=fetch)
    with RangeServer(tmp_path, latency=0.2) as server:
        table = open_table(f"{server.url}/index/", fetch=fetch, allow=["s3://"])
        server.most_waiting = 0
        assert len(table.refs("0/data")) == 7 * 24
        assert server.most_waiting == 7
        assert len(server.log) == 1 + 7
        table.sql("select count(*) from chunks")
        assert len(server.log) == 1 + 7  # small parts came with their footers
