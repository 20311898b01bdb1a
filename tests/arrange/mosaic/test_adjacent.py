"""Cuts along one dimension: clashes are found exactly where a brute look at every pixel finds them."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.arrange.mosaic.adjacent import ChunkBoundaries

FILES = st.lists(
    st.tuples(st.integers(-20, 20), st.lists(st.integers(1, 6), min_size=1, max_size=4)), min_size=1, max_size=8
)


@given(FILES)
@settings(deadline=None)
def test_chunks_are_taken_or_clash_pixel_by_pixel(files: list[tuple[int, list[int]]]) -> None:
    boundaries = ChunkBoundaries()
    owner: dict[int, tuple[int, int]] = {}
    for first, sizes in files:
        edges = np.cumsum([0, *sizes]).astype(np.int64)
        chunks = [(first + int(a), first + int(b)) for a, b in pairwise(edges)]
        expected = any(owner.get(pixel, chunk) != chunk for chunk in chunks for pixel in range(*chunk))
        assert boundaries.conflict(first, edges) == expected
        if expected:
            continue
        boundaries.add(first, edges)
        owner.update({pixel: chunk for chunk in chunks for pixel in range(*chunk)})
    low, high = min(owner), max(owner) + 1
    sizes_found = boundaries.sizes(4)
    assert sizes_found.sum() == high - low
    starts = low + np.cumsum([0, *sizes_found[:-1]])
    found = {(int(a), int(a + n)) for a, n in zip(starts, sizes_found, strict=True)}
    assert set(owner.values()) <= found
    for start, stop in found - set(owner.values()):
        assert stop - start <= 4
        assert not any(pixel in owner for pixel in range(start, stop))
