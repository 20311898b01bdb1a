"""Where the chunks of a mosaic begin and end along one dimension, and how the chunks of a file lie across them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MANY = 2
"""Lines for every chunk of the usual size beyond which the files have too many phases to follow each of them."""


class Segments(NamedTuple):
    """Stretches of a file along a dimension, each within one of its chunks and within one chunk of the mosaic."""

    chunk: NDArray[np.int64]
    """Number of the chunk in the file; ascending."""
    cell: NDArray[np.int64]
    """Number of the chunk in the mosaic."""
    first: NDArray[np.int64]
    """First pixel, in the file's chunk."""
    at: NDArray[np.int64]
    """First pixel, in the mosaic's chunk."""
    size: NDArray[np.int64]


def lines(edges: Iterable[NDArray[np.int64]], usual: int) -> tuple[NDArray[np.int64], bool]:
    """Starts of all chunks and the end of the last, and whether they are regular.

    They follow the chunks of the files (each file's edges are given, in pixels of the mosaic) where these are few
    enough: then no stored chunk is shown by two chunks without need. Otherwise they are regular.
    """
    distinct = np.unique(np.concatenate(list(edges)))
    first, end = int(distinct[0]), int(distinct[-1])
    plain = first + regular(end - first, usual)
    if len(distinct) > MANY * (len(plain) - 1) + 1:
        return plain, True
    gaps = np.flatnonzero(np.diff(distinct) > usual)
    more = [np.arange(distinct[k] + usual, distinct[k + 1], usual) for k in gaps.tolist()]
    found = np.sort(np.concatenate([distinct, *more])) if more else distinct
    return found, np.array_equal(found, plain)


def regular(extent: int, size: int) -> NDArray[np.int64]:
    """Starts of chunks of one size, and the end of the last."""
    return np.append(np.arange(0, extent, size, dtype=np.int64), extent)


def segments(starts: NDArray[np.int64], grid: NDArray[np.int64]) -> Segments:
    """The stretches of a file whose chunks begin at `starts` (and end at the last of them) on a mosaic's lines."""
    low, high = np.searchsorted(grid, [starts[0], starts[-1]], side="right")
    edges = np.unique(np.concatenate([starts, grid[low:high][grid[low:high] < starts[-1]]]))
    begin = edges[:-1]
    chunk = np.searchsorted(starts, begin, side="right") - 1
    cell = np.searchsorted(grid, begin, side="right") - 1
    return Segments(chunk, cell, begin - starts[chunk], begin - grid[cell], np.diff(edges))
