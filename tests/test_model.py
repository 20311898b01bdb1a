"""Inline bytes as columns: however rows are taken, joined and packed, each keeps its bytes; scopes of coordinates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from periplus.model import Array, Catalog, Coordinate, Inline, Refs
from periplus.model import refs as refs_module
from periplus.table.parquet.buffers import blobs, to_inline
from periplus.testing.indexes import inline_list

ROWS = st.lists(st.none() | st.binary(max_size=12), max_size=12)


def refs_of(items: list[bytes | None]) -> Refs:
    count = len(items)
    return Refs(
        chunk=np.zeros((1, count), np.int32),
        offset=np.zeros(count, np.int64),
        length=np.array([len(item or b"") for item in items], np.int64),
        inline=Inline.of(items),
    )


@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_rows_keep_their_inline_bytes(pieces, data):
    refs = Refs.joined([refs_of(items) for items in pieces], 1)
    items = [item for piece in pieces for item in piece]
    assert inline_list(refs) == items
    order = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=20)) if items else []
    taken = refs.take(np.array(order, np.intp))
    want = [items[row] for row in order]
    assert inline_list(taken) == want
    if taken.inline is not None:
        for other in (taken.inline.packed(taken.length), taken.inline.trimmed(taken.length)):
            again = Refs(chunk=taken.chunk, offset=taken.offset, length=taken.length, inline=other)
            assert inline_list(again) == want
    assert blobs(taken.inline, taken.length).to_pylist() == want


def test_many_and_large_rows_are_packed_in_turns(monkeypatch):
    monkeypatch.setattr(refs_module, "GATHERED", 16)
    items = [bytes([n]) * (40 if n % 7 == 0 else n % 5) if n % 3 else None for n in range(100)]
    refs = refs_of(items).take(slice(None, None, -1))
    packed = refs.inline.packed(refs.length)
    assert packed.buffer.tobytes() == b"".join(item or b"" for item in reversed(items))
    joined = Refs.joined([refs.take(slice(0, 50)), refs.take(slice(50, None))], 1)
    assert joined.inline.buffer is refs.inline.buffer  # not copied


@given(ROWS, st.sampled_from(["binary", "large_binary", "dictionary"]), st.integers(0, 3))
def test_arrow_columns_become_inline_bytes(items, kind, skipped):
    plain = pa.array(items, pa.large_binary() if kind == "large_binary" else pa.binary())
    column = plain.dictionary_encode() if kind == "dictionary" else plain
    whole = pa.chunked_array([column.slice(skipped), column])
    inline, sizes = to_inline(whole)
    want = items[skipped:] + items
    assert sizes.tolist() == [len(item or b"") for item in want]
    assert [None if at < 0 else inline.buffer[at : at + n].tobytes() for at, n in zip(inline.at, sizes)] == want


def test_an_array_has_the_nearest_coordinates_whose_dimensions_it_has():
    def along(*dims):
        return Coordinate(name="time", dims=dims, values=np.zeros((1,) * len(dims)))

    root, middle, near = along("time"), along("time", "scan"), along("time")
    catalog = Catalog(arrays={}, coordinates={"time": root, "a/time": middle, "a/b/time": near, "label": root})

    def found(name, *dims):
        array = Array(name=name, dims=dims, shape=(1,) * len(dims), chunks=(1,) * len(dims), dtype=np.dtype("u1"))
        return catalog.coordinates_of(array)

    assert found("a/b/data", "time") == {"time": near, "label": root}
    assert found("a/b/c/d/data", "time", "scan")["time"] is near
    assert found("a/data", "time", "scan")["time"] is middle
    assert found("a/data", "time")["time"] is root  # the nearer one has a dimension more
    assert found("ab/data", "time")["time"] is root
    assert found("a/b/data", "x") == {}
    assert found("time2", "time") == {"time": root, "label": root}
