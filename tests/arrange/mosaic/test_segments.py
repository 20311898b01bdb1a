"""Lines, segments and boxes against a brute look at every pixel."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.arrange.mosaic.overlap import PixelBox, coverage, first_overlap, intersection
from periplus.arrange.mosaic.segments import MOST_EDGES, chunk_edges, split_at

FILES = st.lists(
    st.tuples(st.integers(0, 60), st.lists(st.integers(1, 9), min_size=1, max_size=6)), min_size=1, max_size=6
)
BOXES = st.lists(
    st.builds(
        lambda top, left, high, wide: PixelBox(top, left, top + high, left + wide),
        st.integers(0, 30),
        st.integers(0, 30),
        st.integers(1, 20),
        st.integers(1, 20),
    ),
    min_size=1,
    max_size=7,
)


@given(FILES, st.integers(1, 12))
@settings(deadline=None)
def test_segments_cover_every_pixel_of_a_file_once(files: list[tuple[int, list[int]]], usual: int) -> None:
    starts = [first + np.cumsum([0, *sizes]).astype(np.int64) for first, sizes in files]
    grid, regular = chunk_edges(starts, usual)
    sizes = np.diff(grid)
    assert grid[0] == min(each[0] for each in starts)
    assert grid[-1] == max(each[-1] for each in starts)
    assert (sizes > 0).all()
    if regular:
        assert (sizes[:-1] == usual).all()
        assert sizes[-1] <= usual
    else:
        assert len(sizes) <= (MOST_EDGES + 1) * -(-int(grid[-1] - grid[0]) // usual)
    for each in starts:
        found = split_at(each, grid)
        pixels = []
        for chunk, cell, first, at, size in zip(*(column.tolist() for column in found), strict=True):
            begin = int(each[chunk]) + first
            assert begin == int(grid[cell]) + at
            assert begin + size <= min(int(each[chunk + 1]), int(grid[cell + 1]))
            pixels += range(begin, begin + size)
        assert pixels == list(range(int(each[0]), int(each[-1])))
        assert (np.diff(found.chunk) >= 0).all()


def pixels(box: PixelBox) -> set[tuple[int, int]]:
    return {(y, x) for y in range(box.top, box.bottom) for x in range(box.left, box.right)}


@given(BOXES)
@settings(deadline=None)
def test_overlaps_are_those_of_pixels(boxes: list[PixelBox]) -> None:
    named = dict(enumerate(boxes))
    pair = first_overlap(named)
    any_two = any(pixels(a) & pixels(b) for i, a in named.items() for b in boxes[:i])
    assert (pair is not None) == any_two
    if pair is not None:
        assert pixels(intersection(named[pair[0]], named[pair[1]])) == pixels(named[pair[0]]) & pixels(named[pair[1]])
        assert pair[0] > pair[1]


@given(BOXES, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_hidden_files_are_those_of_which_no_pixel_is_seen(boxes: list[PixelBox], random: np.random.Generator) -> None:
    named = dict(enumerate(boxes))
    order = list(named)
    random.shuffle(order)
    rank = {i: n for n, i in enumerate(order)}
    seen: dict[tuple[int, int], int] = {}
    for i in order:
        seen |= dict.fromkeys(pixels(named[i]), i)
    found = coverage(named, rank)
    assert found is not None
    assert sorted(found.hidden) == sorted(set(named) - set(seen.values()))
    top, left = min(box.top for box in boxes), min(box.left for box in boxes)
    area = (max(box.bottom for box in boxes) - top) * (max(box.right for box in boxes) - left)
    assert found.gaps == (len(seen) < area)
