"""Blocked order and C order: what they sort by, where they cut, and that twins are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.errors import FormatError
from periplus.model import chunk_positions
from periplus.table.parquet import order
from periplus.table.parquet.order import blocked, c_order


@st.composite
def positions(draw):
    rank = draw(st.integers(0, 4))
    grid = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chunk = chunk_positions(grid)
    chunk = chunk[:, random.permutation(chunk.shape[1])[: draw(st.integers(0, chunk.shape[1]))]]
    part = None
    if draw(st.booleans()):
        part = np.tile(np.arange(2, dtype=np.uint16), chunk.shape[1])
        chunk = np.repeat(chunk, 2, axis=1)
    far = np.array([draw(st.sampled_from([0, 5, 2**31 - 20])) for _ in range(rank)], np.int64)
    return (chunk + far[:, None]).astype(np.int32), part


def keys(chunk, part, rows, dims):
    columns = [chunk[d][rows].tolist() for d in dims]
    columns.append([0] * len(rows) if part is None else part[rows].tolist())
    return list(zip(*columns, strict=True))


@given(positions())
def test_c_order_is_sorted_and_complete(case):
    chunk, part = case
    rows = c_order(chunk, part)
    rows = np.arange(chunk.shape[1]) if rows is None else rows
    assert sorted(rows.tolist()) == list(range(chunk.shape[1]))
    got = keys(chunk, part, rows, range(chunk.shape[0]))
    assert got == sorted(got)


@settings(deadline=None)
@given(positions(), st.integers(1, 60), st.integers(1, 8))
def test_every_row_group_is_sorted_by_the_later_dimensions_then_the_first(case, most, steps):
    chunk, part = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "GROUP_ROWS", most)
        patch.setattr(order, "STEPS", steps)
        rows, ends = blocked(chunk, part)
    rank, count = chunk.shape
    assert sorted(rows.tolist()) == list(range(count))
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == count
    dims = [*range(1, rank), 0] if rank >= 3 else list(range(rank))
    for start, stop in zip([0, *ends], ends, strict=False):
        assert 0 < stop - start <= most
        got = keys(chunk, part, rows[start:stop], dims)
        assert got == sorted(got)
        if rank >= 3 and count > most:
            leading = chunk[0][rows[start:stop]]
            assert leading.max() - leading.min() < steps


def test_cuts_fall_between_lines_of_tiles():
    chunk = chunk_positions((512, 36, 71))
    rows, ends = blocked(chunk, None)
    y = chunk[1][rows]
    assert len(ends) == 18  # two lines of 512 x 71 rows are the most that fit
    assert all(y[stop - 1] != y[stop] for stop in ends[:-1])


@pytest.mark.parametrize("spread", [1, 2**29])
def test_twins_are_refused(spread):
    chunk = np.array([[0, 0, 1, 1, 0], [3, 2, 2, 3, 2]] * 3, np.int32) * spread
    for function in (blocked, c_order):
        with pytest.raises(FormatError, match="same chunk"):
            function(chunk, None)
        function(chunk, np.array([0, 0, 0, 0, 1], np.uint16))
