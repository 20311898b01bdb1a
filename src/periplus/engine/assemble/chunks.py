"""Chunks for dask: the stored ones of arrays, and the groups of them that one task reads at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from periplus.limits import MIB, Limits
from periplus.model import Array

BANDS = "bands"
TASK_BYTES = 8 * MIB
"""What one task reads, each value counted as four bytes or more: up to 16 MiB once it is float64. Of 2, 4, 8, 16 and
32 MiB this was the fastest for NDVI, on disk and over HTTP with 20 ms latency. Smaller tasks wait for more round trips;
the memory of larger ones, of which an expression holds several copies, is returned to the system after each step."""
MOST_CHUNKS = 1 << 20
"""Chunks along a dimension that are offered to dask, which lists them all in memory."""

Sizes = int | tuple[int, ...]
"""Chunk size along a dimension, or all sizes where they differ."""
Axis = tuple[str, int, Sizes]
"""A dimension as arrays of one Dataset share it: its name, size and stored chunks."""


class PreferredChunks(dict[Any, Sizes]):
    """Stored chunks by dimension; `get` with the size of a dimension returns the groups of them that a task reads.

    xarray calls `get(dim, size)` for the chunks of dask where the user chose none, and `get(dim)` to warn of chunks
    that split stored ones. With one value for both, it would also warn of chunks that split groups, which is harmless.
    """

    def __init__(self, stored: Mapping[Any, Sizes], grouped: Mapping[Any, Sizes]) -> None:
        super().__init__(stored)
        self.grouped = dict(grouped)

    def get(self, dim: Any, default: Any = None) -> Any:
        return super().get(dim) if default is None else self.grouped.get(dim, default)

    def renamed(self, names: Mapping[Any, Any]) -> PreferredChunks:
        """The same sizes for dimensions of other names."""
        return PreferredChunks(*({names.get(dim, dim): n for dim, n in one.items()} for one in (self, self.grouped)))


def chunk_encoding(array: Array, dims: tuple[Any, ...], groups: Mapping[Axis, int]) -> dict[str, Any]:
    """The chunks of an array along some of its dimensions, as xarray and dask use them."""
    axes = [axis for axis in axes_of(array) if axis[0] in dims]
    few = [axis for axis in axes if _count(axis) <= MOST_CHUNKS * groups[axis]]
    stored = {name: chunks for name, _, chunks in few}
    grouped = {axis[0]: _grouped(axis, groups[axis]) for axis in few}
    return {
        "preferred_chunks": PreferredChunks(stored, grouped),
        "chunksizes": tuple(c if isinstance(c, int) else max(c) for _, _, c in axes),
    }


def group_chunks(arrays: Iterable[Array], limits: Limits) -> dict[Axis, int]:
    """How many stored chunks of the arrays of a Dataset one task reads, along each of their dimensions.

    The dimension with most pieces is doubled first, so that a series at a point and an image of one date are both read
    by few tasks, each with many requests at once. Bands that are stored apart stay apart: one reads few of them.
    """
    room: dict[tuple[Axis, ...], int] = {}
    for array in arrays:
        axes = axes_of(array)
        room[axes] = min(_chunks_in_task(array, limits), room.get(axes, TASK_BYTES))
    # x first: along it, chunks are adjacent in most files.
    counts = {axis: 1 for axes in room for axis in reversed(axes)}

    def pieces(axis: Axis) -> int:
        return -(-_count(axis) // counts[axis])

    def fits(axis: Axis) -> bool:
        return all(2 * math.prod(counts[a] for a in axes) <= most for axes, most in room.items() if axis in axes)

    while larger := [axis for axis in counts if axis[0] != BANDS and pieces(axis) > 1 and fits(axis)]:
        counts[max(larger, key=pieces)] *= 2
    return {axis: -(-_count(axis) // max(pieces(axis), 1)) or 1 for axis in counts}  # of nearly equal size


def axes_of(array: Array) -> tuple[Axis, ...]:
    """The dimensions of an array, with the stored chunks along them."""
    edges = array.edges or (None,) * array.ndim
    sizes = zip(array.dims, array.shape, array.chunks, edges, strict=True)
    return tuple((dim, n, min(chunk, max(n, 1)) if listed is None else listed) for dim, n, chunk, listed in sizes)


def _count(axis: Axis) -> int:
    _, size, chunks = axis
    return -(-size // chunks) if isinstance(chunks, int) else len(chunks)


def _grouped(axis: Axis, count: int) -> Sizes:
    _, size, chunks = axis
    if isinstance(chunks, int):
        return min(count * chunks, max(size, 1))
    return tuple(sum(chunks[i : i + count]) for i in range(0, len(chunks), count))


def _chunks_in_task(array: Array, limits: Limits) -> int:
    """Chunks that a task may read; a value counts as four bytes at least, because integers mostly become floats."""
    values, size = max(math.prod(c for c in map(min, array.shape, array.chunks)), 1), array.dtype.itemsize
    return min(TASK_BYTES // (values * max(size, 4)), limits.read_bytes // (values * max(size, 1)))
