"""Rows by position: the same as one query of the table for each chunk would give, at no query for each."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
import zarr
from zarr.core.sync import _collect_aiterator, sync

from periplus.errors import FormatError
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Files, Inline, Refs, Source, chunk_positions
from periplus.table import memory_table
from periplus.testing.indexes import RAW, dense_refs, files_of, inline_list, stacked
from periplus.zarr.store import lookup as module
from periplus.zarr.store.batch import Batches
from periplus.zarr.store.lookup import ChunkLookup, block_shape
from periplus.zarr.store.store import IndexStore


def rows(chunk):
    return None if chunk is None else [(p.file, p.offset, p.length, p.data) for p in chunk.parts]


def asked(table, array, position):
    """The rows of one chunk by a query of its own."""
    refs = table.refs(array.name, [(p, p + 1) for p in position])
    file = [0] * len(refs) if refs.file is None else refs.file.tolist()
    data = inline_list(refs)
    found = [(f, o, n, d) for f, o, n, d in zip(file, refs.offset.tolist(), refs.length.tolist(), data, strict=True)]
    return found or None


def sparse(grid, seed):
    """An array of that grid with holes, chunks of one to three parts, some of them inline, in two encodings."""
    rng = np.random.default_rng(seed)
    array = Array(name="a", dims=tuple(f"d{i}" for i in range(len(grid))), shape=grid, chunks=(1,) * len(grid),
                  dtype=np.dtype("u1"), encodings=(Encoding(RAW), Encoding(RAW[:1])))  # fmt: skip
    positions = chunk_positions(grid)
    positions = positions[:, rng.random(positions.shape[1]) < 0.7]
    counts = rng.integers(1, 4, positions.shape[1])
    total = int(counts.sum())
    length = rng.integers(0, 9, total)
    inline = rng.random(total) < 0.2
    refs = Refs(
        chunk=np.repeat(positions, counts, axis=1), offset=np.where(inline, 0, rng.integers(0, 1 << 40, total)),
        length=length, file=np.where(inline, -1, rng.integers(0, 3, total)).astype(np.int32),
        part=np.concatenate([np.arange(n) for n in counts] or [[]]).astype(np.uint16),
        encoding=np.repeat(rng.integers(0, 2, positions.shape[1]), counts).astype(np.uint16),
        inline=Inline.of([bytes(int(n)) if there else None for n, there in zip(length, inline, strict=True)]),
    )  # fmt: skip
    order = rng.permutation(total)
    files = files_of([f"s3://b/{n}" for n in range(3)], size=1 << 41)
    return array, memory_table(Catalog(arrays={"a": array}), {"a": refs.take(order)}, files)


@pytest.mark.parametrize("most", [1, 7, 40, 1 << 16])
@pytest.mark.parametrize("grid", [(30,), (7, 9), (5, 3, 4), (3, 2, 4, 3), (1, 1, 1)])
def test_every_chunk_has_the_rows_that_the_table_gives(grid, most, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHUNKS", most)
    array, table = sparse(grid, seed=most)
    found = ChunkLookup(table)
    for position in map(tuple, chunk_positions(grid).T.tolist()):
        expected = asked(table, array, position)
        assert rows(found.find(array, position)) == expected
        known, chunk = found.known(array, position)
        assert known
        assert rows(chunk) == expected
        if chunk is not None:
            assert chunk.encoding == table.refs("a", [(p, p + 1) for p in position]).encoding[0]


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ((8660, 1, 36, 71), (512, 1, 1, 71)),
        ((5, 1, 36, 71), (5, 1, 36, 71)),
        ((400, 300), (218, 300)),
        ((1_000_000,), (65536,)),
        ((2000, 2000, 2000), (512, 1, 128)),
        ((0, 4, 4), (1, 4, 4)),
        ((), ()),
    ],
)
def test_blocks_are_cut_as_rows_lie_in_an_index(grid, expected):
    array = Array(name="a", dims=tuple(f"d{i}" for i in range(len(grid))), shape=grid, chunks=(1,) * len(grid),
                  dtype=np.dtype("u1"), encodings=(Encoding(RAW),))  # fmt: skip
    assert block_shape(array) == expected


def test_a_series_and_a_map_ask_the_table_once_a_block(monkeypatch):
    catalog, refs, files = stacked(steps=600, rows=3, columns=4)
    table = memory_table(catalog, refs, files)
    queries = []
    plain = type(table).refs

    def counted(self, *args):
        queries.append(1)
        return plain(self, *args)

    monkeypatch.setattr(type(table), "refs", counted)
    found = ChunkLookup(table)
    array = catalog.arrays["0/data"]
    for step in range(600):
        found.find(array, (step, 0, 1, 2))
    assert len(queries) == 2
    for y in range(3):
        for x in range(4):
            found.find(array, (17, 0, y, x))
    assert len(queries) == 2


def test_only_so_many_rows_are_kept(monkeypatch):
    catalog, refs, files = stacked(steps=40)
    monkeypatch.setattr(module, "BLOCK_CHUNKS", 40)
    monkeypatch.setattr(module, "KEPT_BYTES", 20_000)
    found = ChunkLookup(memory_table(catalog, refs, files))
    array = catalog.arrays["0/data"]
    for position in chunk_positions(array.grid).T.tolist():
        found.find(array, tuple(position))
    assert 1 <= len(found._blocks) < 24
    assert found._bytes <= 20_000
    assert found._bytes == sum(block.nbytes for block in found._blocks.values())


def test_threads_that_want_the_same_block_load_it_once(monkeypatch):
    catalog, refs, files = stacked()
    table = memory_table(catalog, refs, files)
    entered, go, queries = threading.Event(), threading.Event(), []
    plain = type(table).refs

    def slow(self, *args):
        queries.append(1)
        entered.set()
        assert go.wait(60)
        return plain(self, *args)

    monkeypatch.setattr(type(table), "refs", slow)
    found = ChunkLookup(table)
    array = catalog.arrays["0/data"]
    threads = [threading.Thread(target=found.find, args=(array, (n % 5, 0, 0, n % 6))) for n in range(8)]
    for thread in threads:
        thread.start()
    assert entered.wait(60)
    go.set()
    for thread in threads:
        thread.join()
    assert len(queries) == 1
    assert not found._loading


def test_a_bad_row_is_told_and_can_be_asked_for_again():
    array = Array(
        name="a",
        dims=("x",),
        shape=(4,),
        chunks=(1,),
        dtype=np.dtype("u1"),
        encodings=(Encoding(({"name": "bytes"},)),),
    )
    refs = Refs(chunk=np.array([[0, 1]], np.int32), offset=np.array([0, -5]), length=np.array([1, 1]))
    found = ChunkLookup(memory_table(Catalog(arrays={"a": array}), {"a": refs}, files_of(["s3://b/a"])))
    for _ in range(2):
        with pytest.raises(FormatError):
            found.find(array, (0,))


def test_chunks_that_vary_in_size_are_presented_as_regular_ones(tmp_path):
    values = np.arange(1, 13 * 9 + 1).reshape(13, 9).astype("<i4")
    edges = (4, 2, 7), (5, 4)
    array = Array(name="a", dims=("y", "x"), shape=(13, 9), chunks=(7, 5), dtype=np.dtype("i4"), fill=-1,
                  encodings=(Encoding(RAW),), edges=edges)  # fmt: skip
    blocks, offsets, at = [], [], 0
    for y in range(3):
        for x in range(2):
            top, left = sum(edges[0][:y]), sum(edges[1][:x])
            blocks.append(values[top : top + edges[0][y], left : left + edges[1][x]].tobytes())
            offsets.append(at)
            at += len(blocks[-1])
    path = tmp_path / "a.bin"
    path.write_bytes(b"".join(blocks))
    keep = [0, 1, 3, 4, 5]  # one is missing, and reads as fill
    refs = Refs(
        chunk=chunk_positions((3, 2)), offset=np.array(offsets), length=np.array([len(b) for b in blocks])
    ).take(keep)
    files = Files.of([Source(url=str(path), size=at)], format="raw")
    store = IndexStore(memory_table(Catalog(arrays={"a": array}), {"a": refs}, files), Fetch())
    assert store.layout.leaves["a"].why == "its chunks vary in size"
    expected = values.copy()
    expected[4:6, :5] = -1
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], expected)


def test_parts_and_inline_bytes_are_joined_in_order_and_cut_to_ranges(tmp_path):
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype

    body = np.random.default_rng(0).bytes(3000)
    path = tmp_path / "a.bin"
    path.write_bytes(body)
    array = Array(
        name="a",
        dims=("x",),
        shape=(1000,),
        chunks=(1000,),
        dtype=np.dtype("u1"),
        encodings=(Encoding(({"name": "bytes"},)),),
    )
    refs = Refs(
        chunk=np.zeros((1, 5), np.int32), offset=np.array([2000, 0, 100, 0, 2500]),
        length=np.array([300, 200, 400, 0, 100]), file=np.array([0, -1, 0, 0, 0], np.int32),
        part=np.arange(5, dtype=np.uint16), inline=Inline.of([None, body[:200], None, None, None]),
    )  # fmt: skip
    files = Files.of([Source(url=str(path), size=3000)], format="raw")
    store = IndexStore(memory_table(Catalog(arrays={"a": array}), {"a": refs}, files), Fetch())
    whole = body[2000:2300] + body[:200] + body[100:500] + body[2500:2600]
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], np.frombuffer(whole, np.uint8))
    rng = np.random.default_rng(1)
    for low, high in np.sort(rng.integers(0, 1001, (40, 2)), axis=1).tolist():
        for asked, expected in (
            (RangeByteRequest(low, high), whole[low:high]),
            (OffsetByteRequest(low), whole[low:]),
            (SuffixByteRequest(high), whole[1000 - high :]),
        ):
            found = asyncio.run(store.get("a/c/0", default_buffer_prototype(), asked))
            assert found.to_bytes() == expected, asked


def test_arrays_of_no_dimension_no_extent_and_odd_types_are_read(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(64)))
    files = replace(files_of([str(path)], size=64), etag=[None], last_modified=np.array(["NaT"], "M8[us]"))
    facts = {
        "scalar": ((), (), (), "u4", RAW, None, [()], 4),
        "empty": (("a", "b"), (0, 10), (1, 5), "u2", RAW, None, [], 0),
        "complex": (("k",), (2,), (1,), "c8", RAW, 1 + 2j, [(1,)], 8),
        "bool": (("q",), (4,), (2,), "bool", ({"name": "bytes"},), True, [(0,)], 2),
    }
    arrays, refs = {}, {}
    for name, (dims, shape, chunks, dtype, codecs, fill, positions, length) in facts.items():
        arrays[name] = Array(name=name, dims=dims, shape=shape, chunks=chunks, dtype=np.dtype(dtype), fill=fill,
                             encodings=(Encoding(codecs),))  # fmt: skip
        count = len(positions)
        chunk = np.array(positions, np.int32).reshape(count, len(dims)).T
        refs[name] = Refs(chunk=chunk, offset=np.zeros(count, np.int64), length=np.full(count, length))
    store = IndexStore(memory_table(Catalog(arrays=arrays), refs, files), Fetch())
    group = zarr.open_group(store, mode="r")
    assert group["scalar"][()] == 0x03020100
    assert group["empty"][...].shape == (0, 10)
    assert group["complex"][0] == 1 + 2j
    assert group["complex"][1] == np.frombuffer(bytes(range(8)), "c8")[0]
    assert group["bool"][...].tolist() == [False, True, True, True]
    chunks = [key for key in sync(_collect_aiterator(store.list())) if not key.endswith("zarr.json")]
    assert chunks == ["scalar/c", "complex/c/1", "bool/c/0"]


def test_one_lost_file_fails_only_those_who_want_it(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(b"0123456789")
    table = memory_table(*_nothing(), files_of([str(path) for path in paths], size=10))

    def source(file):
        from periplus.model import Source

        return Source(url=table.files.path[file], size=10)

    batches = Batches(Fetch(), source)

    async def ask():
        return await asyncio.gather(
            batches.read(0, 2, 3), batches.read(1, 0, 4), batches.read(0, 4, 4), return_exceptions=True
        )

    first, second, third = asyncio.run(ask())
    assert bytes(first) == b"234"
    assert isinstance(second, KeyError)
    assert bytes(third) == b"4567"


def _nothing():
    array = Array(name="a", dims=("x",), shape=(1,), chunks=(1,), dtype=np.dtype("u1"), encodings=(Encoding(RAW),))
    return Catalog(arrays={"a": array}), {"a": dense_refs(array)}


@pytest.mark.parametrize("page", [1, 3, 1024])
def test_a_listing_has_every_key_whatever_the_size_of_its_pages(page, monkeypatch):
    monkeypatch.setattr("periplus.zarr.store.store.PAGE", page)
    _, table = sparse((5, 3, 4), 3)
    held = {"/".join(map(str, place)) for place in table.refs("a").chunk.T.tolist()}
    store = IndexStore(table, Fetch())
    keys = sync(_collect_aiterator(store.list()))
    assert sorted(keys) == sorted({"zarr.json", "a/zarr.json", *(f"a/c/{place}" for place in held)})
