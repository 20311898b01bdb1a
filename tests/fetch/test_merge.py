import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.errors import FormatError
from periplus.fetch import merge

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5_000), st.integers(0, 300)), max_size=60)


def columns(rows):
    table = np.asarray(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


@given(ROWS, st.integers(0, 500), st.integers(1, 2_000))
@settings(max_examples=60, deadline=None)
def test_every_row_finds_its_own_bytes_in_its_span(rows, gap, largest):
    file, offset, length = columns(rows)
    contents = [np.random.default_rng(k).integers(0, 256, 6_000, np.uint8).tobytes() for k in range(4)]
    spans = merge(file, offset, length, gap=gap, largest=largest)
    fetched = [contents[f][a:b] for f, a, b in zip(spans.file, spans.start, spans.stop)]
    for i in range(len(rows)):
        if length[i] == 0:
            assert spans.row_span[i] == -1
            continue
        start = spans.row_start[i]
        got = fetched[spans.row_span[i]][start : start + length[i]]
        assert got == contents[file[i]][offset[i] : offset[i] + length[i]]


@given(ROWS, st.integers(0, 500), st.integers(1, 2_000))
@settings(max_examples=60, deadline=None)
def test_spans_are_no_longer_and_no_more_than_needed(rows, gap, largest):
    file, offset, length = columns(rows)
    spans = merge(file, offset, length, gap=gap, largest=largest)
    longest = max([largest, *length.tolist()])
    assert (spans.stop - spans.start <= longest).all()
    assert (spans.stop > spans.start).all()
    assert len(spans) <= np.count_nonzero(length)
    for f in np.unique(spans.file):
        mine = spans.file == f
        start, stop = spans.start[mine], spans.stop[mine]
        assert (np.diff(start) >= 0).all()
        # Neighbours that were kept apart are far apart, or would have been too long together.
        for k in range(len(start) - 1):
            assert start[k + 1] - stop[k] > gap or stop[k + 1] - start[k] > largest


@given(ROWS, st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_without_a_limit_the_spans_are_the_plain_greedy_ones(rows, gap):
    file, offset, length = columns(rows)
    spans = merge(file, offset, length, gap=gap, largest=1 << 40)
    expected = []
    for f, a, n in sorted((r for r in rows if r[2]), key=lambda r: (r[0], r[1])):
        if expected and expected[-1][0] == f and a - expected[-1][2] <= gap:
            expected[-1][2] = max(expected[-1][2], a + n)
        else:
            expected.append([f, a, a + n])
    assert np.column_stack([spans.file, spans.start, spans.stop]).tolist() == expected


def test_the_same_range_twice_is_fetched_once_even_if_long():
    spans = merge([0, 0, 0], [10, 10, 20], [100, 100, 5], gap=0, largest=8)
    assert len(spans) == 1
    assert spans.row_start.tolist() == [0, 0, 10]


def test_many_rows_merge_to_spans_of_at_most_the_largest_size():
    n = 100_000
    rng = np.random.default_rng(3)
    offset = rng.permutation(n).astype(np.int64) * 1000
    spans = merge(np.zeros(n, np.int32), offset, np.full(n, 900), gap=100, largest=1 << 20)
    assert (spans.stop - spans.start <= 1 << 20).all()
    assert (spans.stop - spans.start).sum() < n * 1000


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (5, -1), (2**63 - 1, 2)])
def test_ranges_that_cannot_be_are_refused(offset, length):
    with pytest.raises(FormatError):
        merge([0], [offset], [length], gap=0, largest=10)


def test_small_rows_far_apart_do_not_bring_along_what_lies_between_them():
    offset = np.arange(16) * 100_000
    wide = merge(np.zeros(16, int), offset, np.full(16, 8_000), gap=1 << 18, largest=1 << 24)
    assert len(wide) == 1
    near = merge(np.zeros(16, int), offset, np.full(16, 8_000), gap=1 << 18, least=1 << 14, largest=1 << 24)
    assert len(near) == 16
    assert (near.stop - near.start).sum() == 16 * 8_000
    # Gaps as long as the rows beside them, and small ones, are still read over.
    assert len(merge([0, 0], [0, 100_000], [50_000, 60_000], gap=1 << 18, least=1 << 14, largest=1 << 24)) == 1
    assert len(merge([0, 0], [0, 10_000], [10, 10], gap=1 << 18, least=1 << 14, largest=1 << 24)) == 1
