"""Plan a read: split a key at the chunk edges and match the chunks with rows of the table. Pure NumPy, no I/O.

Keys are those of NumPy's basic indexing, and a wrong key raises what NumPy raises (IndexError, or ValueError for a step
of zero): the mistake is in the caller's program, not in a file.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Refs, Shape

Progress: TypeAlias = Callable[[int, int], None]
"""Called in the caller's thread with the chunks done so far and their total."""
CopySlices: TypeAlias = tuple[slice, slice]
"""Slices of the output and of the decoded chunk, both along one dimension."""


@dataclass(frozen=True, slots=True)
class AxisSelection:
    """The selection along one dimension: `count` elements from `start`, every `step`-th, or the listed ones."""

    start: int
    step: int
    """Always positive: a descending slice is read ascending and flipped at the end."""
    count: int
    flipped: bool = False
    dropped: bool = False
    """Selected by an integer, so that the result does not have this dimension."""
    listed: tuple[int, ...] | None = None
    """Positions in the order requested, where they are not a slice."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One axis for every dimension of the array."""

    axes: tuple[AxisSelection, ...]

    @property
    def shape(self) -> Shape:
        """Shape of the output before integers drop their dimension."""
        return tuple(axis.count for axis in self.axes)

    def oriented(self, out: NDArray[Any]) -> NDArray[Any]:
        """A view of the output in which every axis ascends as in the file."""
        if not any(axis.flipped for axis in self.axes):
            return out
        return out[tuple(slice(None, None, -1 if axis.flipped else 1) for axis in self.axes)]

    def restored(self, out: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A view of `out` with the dimensions that integers drop; ValueError where its shape or dtype is wrong."""
        kept = tuple(axis.count for axis in self.axes if not axis.dropped)
        if out.shape != kept or out.dtype != dtype:
            raise ValueError(f"out is {out.dtype} {out.shape}, the result {dtype} {kept}")
        return out[tuple(None if axis.dropped else slice(None) for axis in self.axes)]

    def result(self, out: NDArray[Any]) -> NDArray[Any]:
        """The output without the dimensions that integers drop; a scalar when none is left, as in NumPy."""
        if not any(axis.dropped for axis in self.axes):
            return out
        kept: NDArray[Any] = out[tuple(0 if axis.dropped else slice(None) for axis in self.axes)]
        return kept


def select(key: Any, shape: Shape) -> Selection:
    """A key of NumPy's basic indexing: integers, slices, an Ellipsis, fewer keys than dimensions."""
    return Selection(tuple(_axis(k, n, d) for d, (k, n) in enumerate(zip(_expand(key, len(shape)), shape))))


def select_outer(key: Any, shape: Shape) -> Selection:
    """Like `select`, but each dimension may also have a list of integers, independent of the others (as xarray's)."""
    axes = []
    for d, (k, n) in enumerate(zip(_expand(key, len(shape)), shape)):
        if isinstance(k, list | tuple | np.ndarray) and np.ndim(k) == 1:
            listed = tuple(_position(i, n, d) for i in np.asarray(k).tolist())
            axes.append(AxisSelection(0, 1, len(listed), listed=listed))
        else:
            axes.append(_axis(k, n, d))
    return Selection(tuple(axes))


def _expand(key: Any, ndim: int) -> list[Any]:
    keys = list(key) if isinstance(key, tuple) else [key]
    ellipses = [i for i, k in enumerate(keys) if isinstance(k, EllipsisType)]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if len(keys) - len(ellipses) > ndim:
        raise IndexError(f"too many indices: the array has {ndim} dimensions, but {len(keys)} were indexed")
    at = ellipses[0] if ellipses else len(keys)
    fill = [slice(None)] * (ndim - len(keys) + len(ellipses))
    return keys[:at] + fill + keys[at + len(ellipses) :]


def _position(k: Any, n: int, d: int) -> int:
    if k is None or isinstance(k, bool | np.bool_):
        raise IndexError("only integers, slices and an ellipsis are valid indices; np.newaxis and booleans are not")
    try:
        i = operator.index(k)
    except TypeError:
        raise IndexError(f"only integers, slices and an ellipsis are valid indices, not {type(k).__name__}") from None
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for dimension {d} with size {n}")
    return i + n if i < 0 else i


def _axis(k: Any, n: int, d: int) -> AxisSelection:
    if not isinstance(k, slice):
        return AxisSelection(_position(k, n, d), 1, 1, dropped=True)
    start, stop, step = k.indices(n)
    count = len(range(start, stop, step))
    if count == 0:
        return AxisSelection(0, 1, 0)
    if count == 1:
        return AxisSelection(start, 1, 1)
    if step < 0:
        return AxisSelection(start + (count - 1) * step, -step, count, flipped=True)
    return AxisSelection(start, step, count)


@dataclass(frozen=True, slots=True, eq=False)
class AxisSplit:
    """The selection along one axis, split at the chunk edges."""

    chunks: NDArray[np.int64]
    """Numbers of the chunks that contain selected elements, ascending."""
    copies: list[list[CopySlices]]
    """The slices to copy from each of them."""
    valid: list[int]
    """The size of each chunk inside the array."""
    single: bool
    """Whether every chunk has just one pair of slices."""

    @property
    def window(self) -> tuple[int, int]:
        return (int(self.chunks[0]), int(self.chunks[-1]) + 1) if len(self.chunks) else (0, 0)

    def find(self, chunk: NDArray[np.int32], into: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Write the index into `chunks` of each chunk number within the window; returns which are in it (None: all)."""
        first, stop = self.window
        if stop - first == len(self.chunks):
            np.subtract(chunk, first, out=into)
            return None
        into[:] = np.minimum(np.searchsorted(self.chunks, chunk), len(self.chunks) - 1)
        return np.equal(self.chunks[into], chunk)


def count_chunks(array: Array, selection: Selection) -> int:
    """Upper bound of the number of chunks in a selection, without listing them."""
    return math.prod(min(axis.count, _spanned(array, d, axis)) for d, axis in enumerate(selection.axes))


def _spanned(array: Array, d: int, axis: AxisSelection) -> int:
    if axis.listed is not None or (array.edges is not None and array.edges[d] is not None):
        return array.grid[d]
    size = array.chunks[d]
    return (axis.start + (axis.count - 1) * axis.step) // size - axis.start // size + 1


def split_axes(array: Array, selection: Selection) -> tuple[AxisSplit, ...]:
    """Split every axis of the selection at the chunk edges of the array."""
    return tuple(
        _split_slice(array, d, axis) if axis.listed is None else _split_list(array, d, axis.listed)
        for d, axis in enumerate(selection.axes)
    )


def _split_slice(array: Array, d: int, axis: AxisSelection) -> AxisSplit:
    # Plain integers, because every chunk gets slices anyway: a window of few chunks is planned in half the time.
    start, step, count = axis.start, axis.step, axis.count
    size, bound = array.chunks[d], array.shape[d]
    starts = None if array.edges is None or array.edges[d] is None else array.starts(d).tolist()
    chunks: Sequence[int]
    if count == 0:
        chunks = ()
    elif starts is not None:
        chunks = range(bisect_right(starts, start) - 1, bisect_right(starts, start + (count - 1) * step))
    elif step > size:  # every element is in another chunk; those between are skipped
        chunks = [(start + step * i) // size for i in range(count)]
    else:
        chunks = range(start // size, (start + (count - 1) * step) // size + 1)
    kept, copies, valid = [], [], []
    for chunk in chunks:
        low, high = (chunk * size, (chunk + 1) * size) if starts is None else (starts[chunk], starts[chunk + 1])
        high = min(high, bound)
        into, stop = max(-((start - low) // step), 0), min(-((start - high) // step), count)
        if into < stop:
            source = start + into * step - low
            kept.append(chunk)
            copies.append([(slice(into, stop), slice(source, source + (stop - into - 1) * step + 1, step))])
            valid.append(high - low)
    return AxisSplit(np.array(kept, np.int64), copies, valid, True)


def _split_list(array: Array, d: int, listed: Sequence[int]) -> AxisSplit:
    positions = np.asarray(listed, np.int64)
    owner = _chunk_of(array, d, positions)
    chunks = np.unique(owner)
    low, high = chunk_bounds(array, d, chunks)
    at = np.searchsorted(chunks, owner)
    source = positions - low[at]
    copies: list[list[CopySlices]] = [[] for _ in chunks]
    for into, (chunk, s) in enumerate(zip(at.tolist(), source.tolist())):
        before = copies[chunk]
        if before and before[-1][0].stop == into and before[-1][1].stop == s:  # continues the last slice
            target, origin = before[-1]
            before[-1] = (slice(target.start, into + 1), slice(origin.start, s + 1, 1))
        else:
            before.append((slice(into, into + 1), slice(s, s + 1, 1)))
    return AxisSplit(chunks, copies, (high - low).tolist(), all(len(p) == 1 for p in copies))


def _chunk_of(array: Array, d: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    if array.edges is None or array.edges[d] is None:
        return positions // array.chunks[d]
    return np.searchsorted(array.starts(d), positions, side="right") - 1


def chunk_bounds(array: Array, d: int, chunks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First element of each chunk along a dimension, and its end inside the array."""
    if array.edges is None or array.edges[d] is None:
        low = chunks * array.chunks[d]
        return low, low + np.minimum(array.chunks[d], array.shape[d] - low)
    starts = np.minimum(array.starts(d), array.shape[d])
    return starts[chunks], starts[chunks + 1]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkWork:
    """The chunks to read: their rows, and their positions in the splits."""

    refs: Refs
    """The rows to read; the rows of one chunk follow each other, in part order."""
    first: NDArray[np.int64]
    """First row of each chunk, and the number of rows: chunks + 1 values."""
    positions: NDArray[np.int64]
    """(ndim, chunks): index of each chunk into the splits."""
    missing: NDArray[np.int64]
    """(ndim, m): positions of chunks without a row, which read as fill."""

    def __len__(self) -> int:
        return int(self.positions.shape[1])


def match_rows(splits: Sequence[AxisSplit], refs: Refs) -> ChunkWork:
    """Match the rows of a chunk window with the splits; rows of chunks without selected elements are omitted.

    `refs` are ordered by chunk position, then part, as tables return them.
    """
    grid: Shape = tuple(len(c.chunks) for c in splits)
    positions = np.empty((len(splits), len(refs)), np.int64)
    masks = [inside for d, c in enumerate(splits) if (inside := c.find(refs.chunk[d], positions[d])) is not None]
    if masks and not (keep := np.logical_and.reduce(masks)).all():
        refs, positions = refs.take(keep), positions[:, keep]
    flat = np.zeros(len(refs), np.int64)
    for d, n in enumerate(grid):
        if n > 1:
            flat *= n
            flat += positions[d]
    first = np.arange(len(refs) + 1)
    if refs.part is not None or not (flat[1:] > flat[:-1]).all():
        new = np.append(True, flat[1:] != flat[:-1])[: len(refs)]
        first = np.append(np.flatnonzero(new), len(refs))
        positions, flat = positions[:, new], flat[new]
        _check_parts(refs, first)
        if not (flat[1:] > flat[:-1]).all():
            raise FormatError(
                "the rows are not in the order of their chunks, or the rows of a chunk do not follow each other"
            )
    missing = np.zeros((len(grid), math.prod(grid) - len(flat)), np.int64)
    if missing.size:
        absent = np.ones(math.prod(grid), bool)
        absent[flat] = False
        missing[...] = np.unravel_index(np.flatnonzero(absent), grid)
    return ChunkWork(refs, first, positions, missing)


def _check_parts(refs: Refs, first: NDArray[np.int64]) -> None:
    counts = np.diff(first)
    expected = np.arange(len(refs)) - np.repeat(first[:-1], counts)
    part = np.zeros(len(refs), np.int64) if refs.part is None else refs.part
    if not np.array_equal(part, expected):
        row = int(np.flatnonzero(part != expected)[0])
        chunk = tuple(refs.chunk[:, row].tolist())
        raise FormatError(f"chunk {chunk} has part {int(part[row])} where part {int(expected[row])} should be")
