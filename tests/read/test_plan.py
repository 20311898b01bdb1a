"""Planning against NumPy: any basic key on any chunk grid selects what NumPy selects."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.errors import FormatError
from periplus.model import Array, Refs, chunk_positions
from periplus.read.plan import count_chunks, match_rows, select, select_outer, split_axes


def array_of(shape, chunks, edges=None):
    return Array(
        name="a",
        dims=tuple(f"d{i}" for i in range(len(shape))),
        shape=shape,
        chunks=chunks,
        dtype=np.dtype("i4"),
        edges=edges,
    )


def refs_of(positions, **columns):
    n = positions.shape[1]
    return Refs(chunk=positions.astype(np.int32), offset=np.arange(n) * 10, length=np.full(n, 10), **columns)


def window_of(refs, splits):
    keep = np.ones(len(refs), bool)
    for d, c in enumerate(splits):
        low, high = c.window
        keep &= (refs.chunk[d] >= low) & (refs.chunk[d] < high)
    return refs.take(keep)


def gather(values, array, selection, *, absent=frozenset(), fill=-1):
    """Read through the plan, with the chunks cut out of `values` in memory."""
    splits = split_axes(array, selection)
    assert 0 in selection.shape or math.prod(len(c.chunks) for c in splits) <= count_chunks(array, selection)
    out = np.full(selection.shape, 12345, values.dtype)
    target = selection.oriented(out)
    positions = chunk_positions(array.grid)
    present = [i for i in range(positions.shape[1]) if tuple(positions[:, i].tolist()) not in absent]
    work = match_rows(splits, window_of(refs_of(positions[:, present]), splits))
    starts = [array.starts(d) for d in range(array.ndim)]
    for cells, is_missing in ((work.positions, False), (work.missing, True)):
        for i in range(cells.shape[1]):
            cell = cells[:, i].tolist()
            chunk = [int(c.chunks[k]) for c, k in zip(splits, cell)]
            block = values[tuple(slice(s[c], s[c + 1]) for s, c in zip(starts, chunk))]
            assert block.shape == tuple(c.valid[k] for c, k in zip(splits, cell))
            if not is_missing:
                assert work.refs.chunk[:, work.first[i]].tolist() == chunk
            for pieces in itertools.product(*(c.copies[k] for c, k in zip(splits, cell))):
                into, source = tuple(p[0] for p in pieces), tuple(p[1] for p in pieces)
                assert block[source].size > 0
                target[into] = fill if is_missing else block[source]
    return selection.result(out)


@st.composite
def grids(draw, max_dims=4):
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=0, max_size=max_dims)))
    chunks = tuple(draw(st.integers(1, 14)) for _ in shape)
    edges = None
    if draw(st.booleans()):
        edges = []
        for n in shape:
            sizes = []
            while sum(sizes) < n:
                sizes.append(draw(st.integers(1, n - sum(sizes))))
            edges.append(tuple(sizes) if draw(st.booleans()) else None)
        chunks = tuple(c if e is None else max(e, default=1) for c, e in zip(chunks, edges))
        edges = tuple(edges)
    return array_of(shape, chunks, edges)


def slices(n):
    ends = st.none() | st.integers(-n - 3, n + 3)
    return st.builds(slice, ends, ends, st.none() | st.integers(1, 15) | st.integers(-15, -1))


@st.composite
def keys(draw, shape):
    parts = [draw(slices(n) if n == 0 else slices(n) | st.integers(-n, n - 1)) for n in shape]
    parts = parts[: draw(st.integers(0, len(parts)))]
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), ...)
        tail = len(parts) - 1 - parts.index(...)
        parts[len(parts) - tail :] = [draw(slices(n)) for n in shape[len(shape) - tail :]] if tail else []
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_basic_key_selects_what_numpy_selects(data):
    array = data.draw(grids())
    key = data.draw(keys(array.shape))
    values = np.arange(math.prod(array.shape), dtype="i4").reshape(array.shape)
    expected = values[key]
    got = gather(values, array, select(key, array.shape))
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_array_equal(got, expected)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_outer_lists_select_what_numpy_ix_selects(data):
    array = data.draw(grids(max_dims=3))
    lists = [data.draw(st.lists(st.integers(-n, n - 1), max_size=8) if n else st.just([])) for n in array.shape]
    values = np.arange(math.prod(array.shape), dtype="i4").reshape(array.shape)
    expected = values
    for d, positions in enumerate(lists):
        expected = expected.take(positions, axis=d)
    got = gather(values, array, select_outer(tuple(lists), array.shape))
    np.testing.assert_array_equal(got, expected)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_missing_chunks_are_exactly_those_without_rows(data):
    array = data.draw(grids(max_dims=3))
    key = data.draw(keys(array.shape))
    positions = [tuple(p) for p in chunk_positions(array.grid).T.tolist()]
    absent = set(data.draw(st.lists(st.sampled_from(positions), max_size=10))) if positions else set()
    values = np.arange(math.prod(array.shape), dtype="i4").reshape(array.shape)
    expected = values.copy()
    for position in absent:
        expected[tuple(slice(array.starts(d)[c], array.starts(d)[c + 1]) for d, c in enumerate(position))] = -1
    got = gather(values, array, select(key, array.shape), absent=absent)
    np.testing.assert_array_equal(got, expected[key])


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ((0, 0, 0), IndexError),
        ((..., ...), IndexError),
        (5, IndexError),
        (-6, IndexError),
        (None, IndexError),
        ((slice(None), None), IndexError),
        (True, IndexError),
        (np.True_, IndexError),
        (1.5, IndexError),
        ("x", IndexError),
        ([0, 1], IndexError),
        (np.array([0, 1]), IndexError),
        (slice(None, None, 0), ValueError),
        (slice(0.5, 2), TypeError),
    ],
)
def test_a_bad_key_raises_what_numpy_raises(key, error):
    with pytest.raises(error):
        select(key, (5, 4))


def test_numpy_integers_are_integers():
    assert select((np.int64(3), np.uint8(1)), (5, 4)) == select((3, 1), (5, 4))


def test_a_step_over_chunks_asks_only_for_chunks_with_an_element():
    array = array_of((100,), (10,))
    (axis,) = split_axes(array, select(slice(5, None, 30), array.shape))
    assert axis.chunks.tolist() == [0, 3, 6, 9]


def test_one_element_of_an_astronomic_array_costs_nothing():
    n = 2**63 - 1
    array = array_of((n, n), (512, 512))
    splits = split_axes(array, select((-1, slice(10**15, 10**15 + 2)), array.shape))
    assert [c.window[1] - c.window[0] for c in splits] == [1, 1]
    assert splits[0].valid == [511]


def test_the_chunks_of_a_selection_are_counted_without_planning_it():
    vast = array_of((2**62, 100), (1, 30))
    assert count_chunks(vast, select((), vast.shape)) == 4 * 2**62
    assert count_chunks(vast, select(np.s_[:: 2**61, 5:65], vast.shape)) == 6
    assert count_chunks(vast, select(np.s_[7:9, -1], vast.shape)) == 2
    assert count_chunks(vast, select_outer(([3, 1], [0]), vast.shape)) == 2


def test_parts_of_a_chunk_are_grouped_in_order():
    array = array_of((4,), (2,))
    refs = refs_of(np.array([[0, 0, 1, 1, 1]]), part=np.array([0, 1, 0, 1, 2], np.uint16))
    work = match_rows(split_axes(array, select(..., array.shape)), refs)
    assert work.first.tolist() == [0, 2, 5]
    assert work.positions.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("chunks", "part"),
    [
        ([0, 0, 1], None),
        ([0, 0, 1], [0, 2, 0]),
        ([0, 0, 1], [0, 0, 0]),
        ([0, 1], [1, 0]),
        ([1, 0], None),
        ([0, 1, 0], None),
    ],
)
def test_rows_that_do_not_make_whole_chunks_are_refused(chunks, part):
    array = array_of((4,), (2,))
    refs = refs_of(np.array([chunks]), part=None if part is None else np.array(part, np.uint16))
    with pytest.raises(FormatError):
        match_rows(split_axes(array, select(..., array.shape)), refs)
