"""Rows of many arrays at once: the same as array by array, and refused where those are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from periplus.errors import FormatError
from periplus.model import Bundle
from periplus.table import open_table, write_table
from periplus.table.collection.bundles import Bundled, apart, bundled
from periplus.table.parquet.row_groups import row_groups
from periplus.testing.indexes import indexes, same_refs, stacked


def as_bundles(catalog, refs, seed):
    """The rows in two bundles, mixed and in no order."""
    whole = bundled([(catalog.arrays[name], one) for name, one in refs.items()])
    rows = np.random.default_rng(seed).permutation(len(whole))
    for half in (rows[::2], rows[1::2]):
        yield replace(whole, owner=whole.owner[half], refs=whole.refs.take(half), levels=None)


@settings(max_examples=settings.default.max_examples // 2)
@given(indexes())
def test_row_groups_of_bundles_are_those_of_single_arrays(index):
    catalog, refs, files = index
    one = list(row_groups(refs.items(), catalog, files.size))
    two = list(row_groups(Bundled(as_bundles(catalog, refs, 1), catalog.arrays), catalog, files.size))
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert (list(a.names), a.dims, a.levels.tolist()) == (list(b.names), b.dims, b.levels.tolist())
        assert a.owner.tolist() == b.owner.tolist()
        same_refs(a.refs, b.refs)
    found = {name: rows for group in two for name, rows in apart(group, catalog.arrays)}
    assert {name: len(rows) for name, rows in refs.items() if len(rows)} == {n: len(r) for n, r in found.items()}


@pytest.mark.parametrize("form", ["i.parquet", "i", "i.duckdb"])
def test_an_index_written_from_bundles_is_read_in_bundles(tmp_path, fetch, form):
    catalog, refs, files = stacked()
    blocks = Bundled(as_bundles(catalog, refs, 2), catalog.arrays)
    table = write_table(str(tmp_path / form), catalog, blocks, files, fetch=fetch)
    for name in refs:
        same_refs(table.refs(name), refs[name])
    again = open_table(str(tmp_path / form), fetch=fetch, trust=True, allow=["s3://bucket/"]).blocks()
    assert isinstance(again, Bundled)
    assert sum(map(len, again.bundles)) == table.rows


def changed(bundle: Bundle, **columns) -> Bundle:
    return replace(bundle, refs=replace(bundle.refs, **columns))


HOSTILE = {
    "a position outside the grid": lambda b: changed(b, chunk=b.refs.chunk + np.int32([[0], [0], [0], [99]])),
    "a position that is null": lambda b: changed(b, chunk=np.where(np.arange(len(b)) == 7, -1, b.refs.chunk)),
    "a dimension that is missing": lambda b: replace(changed(b, chunk=b.refs.chunk[:3]), dims=b.dims[:3]),
    "a dimension too many": lambda b: replace(
        changed(b, chunk=np.concatenate([b.refs.chunk, b.refs.chunk[:1]])), dims=(*b.dims, "z")
    ),
    "a negative offset": lambda b: changed(b, offset=b.refs.offset - (1 << 40)),
    "an offset past the file": lambda b: changed(b, offset=b.refs.offset + (1 << 41)),
    "offsets that overflow": lambda b: changed(b, offset=np.full(len(b), np.iinfo(np.int64).max)),
    "an encoding that is not listed": lambda b: changed(b, encoding=np.full(len(b), 1, np.uint16)),
    "a file that is not listed": lambda b: changed(b, file=np.full(len(b), 9, np.int32)),
    "neither file nor bytes": lambda b: changed(b, file=np.full(len(b), -1, np.int32)),
    "a column that is too short": lambda b: changed(b, length=b.refs.length[:-1]),
    "rows of no array": lambda b: replace(b, owner=b.owner + np.int32(5)),
    "an unknown array": lambda b: replace(b, names=["0/data", "9/data"]),
    "rows that come twice": lambda b: replace(
        b, owner=np.append(b.owner, b.owner[:1]), refs=b.refs.take(np.append(np.arange(len(b)), 0))
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_bundles_are_refused_where_their_rows_would_be(case):
    catalog, refs, files = stacked()
    whole = bundled([(catalog.arrays[name], one) for name, one in refs.items()])
    blocks = Bundled([HOSTILE[case](whole)], catalog.arrays)
    with pytest.raises(FormatError):
        list(row_groups(blocks, catalog, files.size))
