"""Chunks of an overlay along one dimension, and the segments of files within them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array

MOST_EDGES = 2
"""Edges for each chunk of the usual size; with more, chunks of the overlay do not follow those of the files."""


def chunk_edges(edges: Iterable[NDArray[np.int64]], usual: int) -> tuple[NDArray[np.int64], bool]:
    """Starts of all chunks and the end of the last, and whether they are regular.

    Chunks follow those of the files (`edges` has the edges of each file, in pixels of the mosaic) if they have few
    enough edges, so that no stored chunk is needlessly in two chunks of the mosaic. Otherwise they are regular.
    """
    distinct = np.unique(np.concatenate(list(edges)))
    first, end = int(distinct[0]), int(distinct[-1])
    regular = first + regular_edges(end - first, usual)
    if len(distinct) > MOST_EDGES * (len(regular) - 1) + 1:
        return regular, True
    gaps = np.flatnonzero(np.diff(distinct) > usual)
    more = [np.arange(distinct[k] + usual, distinct[k + 1], usual) for k in gaps.tolist()]
    found = np.sort(np.concatenate([distinct, *more])) if more else distinct
    return found, np.array_equal(found, regular)


def regular_edges(extent: int, size: int) -> NDArray[np.int64]:
    """Starts of chunks of one size, and the end of the last."""
    return np.append(np.arange(0, extent, size, dtype=np.int64), extent)


class Segments(NamedTuple):
    """Parts of a file along a dimension, each within one of its chunks and one chunk of the mosaic; as columns."""

    chunk: NDArray[np.int64]
    """Number of the chunk in the file; ascending."""
    target: NDArray[np.int64]
    """Number of the chunk in the mosaic."""
    begin: NDArray[np.int64]
    """First pixel, in the chunk of the file."""
    at: NDArray[np.int64]
    """First pixel, in the chunk of the mosaic."""
    size: NDArray[np.int64]


def split_at(starts: NDArray[np.int64], edges: NDArray[np.int64]) -> Segments:
    """The segments of a file whose chunks begin at `starts` (the last is their end), split at edges of the mosaic."""
    low, high = np.searchsorted(edges, [starts[0], starts[-1]], side="right")
    inside = edges[low:high]
    borders = np.unique(np.concatenate([starts, inside[inside < starts[-1]]]))
    begin = borders[:-1]
    chunk = np.searchsorted(starts, begin, side="right") - 1
    target = np.searchsorted(edges, begin, side="right") - 1
    return Segments(chunk, target, begin - starts[chunk], begin - edges[target], np.diff(borders))


class SegmentKind(NamedTuple):
    """What the encoding of a segment depends on, along one dimension."""

    begin: int
    at: int
    size: int
    stored: int
    """Size of the chunk in the file, as stored."""
    shown: int
    """Size of the chunk in the mosaic."""
    fills: int
    """1 if the segment is the whole chunk of the mosaic, otherwise 0."""


class FileSegments(NamedTuple):
    """The segments of a file along one dimension, and the few kinds they are of."""

    segments: Segments
    first: NDArray[np.int64]
    """Number of the first segment of each chunk of the file."""
    counts: NDArray[np.int64]
    """Number of segments of each chunk of the file."""
    kind: NDArray[np.intp]
    """For each segment its number in `kinds`."""
    kinds: tuple[SegmentKind, ...]


def file_segments(
    array: Array, dim: int, origin: int, edges: NDArray[np.int64], *, regular: bool, usual: int
) -> FileSegments:
    """Segments of a file that begins at `origin`; `usual` is the chunk size of a regular mosaic."""
    starts = array.starts(dim) + origin
    found = split_at(starts, edges)
    first = np.searchsorted(found.chunk, np.arange(len(starts) - 1))
    irregular = array.edges is not None and array.edges[dim] is not None
    stored = np.diff(starts)[found.chunk] if irregular else np.full(len(found.chunk), array.chunks[dim])
    shown = np.diff(edges)[found.target]
    table = np.stack(
        [
            found.begin,
            found.at,
            found.size,
            stored,
            np.full(len(shown), usual) if regular else shown,
            (found.begin == 0) & (found.at == 0) & (found.size == shown),
        ],
        axis=1,
    )
    kinds, kind = np.unique(table, axis=0, return_inverse=True)
    count = np.diff(np.append(first, len(found.chunk)))
    return FileSegments(found, first, count, kind.reshape(-1), tuple(SegmentKind(*row) for row in kinds.tolist()))
