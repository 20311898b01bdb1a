"""A part: the references of many files as flat columns, in memory or mapped from a file of the journal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from mmap import MADV_DONTNEED, mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array, Inline, Refs, Shape, Source, chunk_positions

COLUMNS = {
    "offset": "<i8",
    "length": "<i8",
    "chunk": "<i4",
    "part": "<u2",
    "encoding": "<u2",
    "at": "<i8",
    "inline": "|u1",
    "crc32c": "<i8",
    "slots": "<i8",
    "groups": "<i8",
    "pieces": "<i8",
}
"""Columns of references, and of the position of each file: slot -> groups, one for each array -> spans -> rows."""
_SMALL = 1 << 16
"""Largest grid whose chunk positions are cached."""


class RowSpan(NamedTuple):
    """Rows of one array of one file in the columns."""

    start: int
    stop: int
    chunk: int
    """Start of its chunk positions; -1 if they are those of the whole grid in order."""
    parted: int = 0
    coded: int = 0
    inline: int = 0
    checksums: int = 0


SPAN = len(RowSpan._fields)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileFacts:
    """One file of a part, without its arrays."""

    source: Source
    format: str
    datetime: datetime | None
    attributes: Mapping[str, Any]
    sidecars: tuple[Source, ...] = ()
    stored_in: tuple[int, ...] = ()
    prefix: str = ""
    """Its group or series in the index it comes from."""


@dataclass(slots=True, kw_only=True, eq=False)
class HarvestPart:
    """References of files, by slot and array, without a Python object for each chunk."""

    arrays: Sequence[tuple[Array, ...]]
    """Arrays of each slot."""
    columns: Mapping[str, NDArray[Any]]
    maps: Sequence[mmap] = ()
    """Files that the columns are mapped from."""

    def release(self) -> None:
        """Release the mapped pages that were read so far, which count as memory of the process."""
        for each in self.maps:
            each.madvise(MADV_DONTNEED)

    def refs(self, slot: int, which: int) -> Refs:
        """References of an array of a file."""
        array, columns = self.arrays[slot][which], self.columns
        group = int(columns["slots"][slot]) + which
        first, last = columns["groups"][group : group + 2].tolist()
        spans = columns["pieces"].reshape(-1, SPAN)[first:last].tolist()
        return Refs.joined([self._piece(RowSpan(*row), array) for row in spans], array.ndim)

    def batch(self, slots: NDArray[np.intp], which: int) -> tuple[NDArray[np.intp], Refs]:
        """References of an array of many files, with the same number of dimensions in all of them.

        The first result is the position of the file of each row in `slots`.
        """
        columns = self.columns
        group = columns["slots"][slots] + which
        first, last = columns["groups"][group], columns["groups"][group + 1]
        pieces = columns["pieces"].reshape(-1, SPAN)[_ranges(first, last)]
        start, counts = pieces[:, 0], pieces[:, 1] - pieces[:, 0]
        rows = _ranges(start, pieces[:, 1])
        owner = np.repeat(np.repeat(np.arange(len(slots)), last - first), counts)
        piece = np.repeat(np.arange(len(pieces)), counts)
        arrays = [self.arrays[slot][which] for slot in slots.tolist()]
        grids = np.array([grid_of(array) for array in arrays], np.int64).reshape(len(arrays), arrays[0].ndim)
        chunk = self._positions(grids[owner], pieces[piece, 2], rows - start[piece])

        def column(name: str, flag: int, missing: int) -> NDArray[Any] | None:
            there = pieces[:, flag] != 0
            if not there.any():
                return None
            held = columns[name][rows]
            return held if there.all() else np.where(there[piece], held, held.dtype.type(missing))

        at = column("at", 5, -1)
        refs = Refs(
            chunk=chunk,
            offset=columns["offset"][rows],
            length=columns["length"][rows],
            part=column("part", 3, 0),
            encoding=column("encoding", 4, 0),
            inline=None if at is None else Inline(at, columns["inline"]),
            crc32c=column("crc32c", 6, -1),
        )
        return owner, refs

    def _positions(
        self, grid: NDArray[np.int64], stored: NDArray[np.int64], local: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Chunk positions of rows: `grid` is that of their array, `stored` the start of those of their span, or -1."""
        ndim = grid.shape[1]
        chunk = np.empty((ndim, len(local)), np.int32)
        rest = local
        for dim in reversed(range(ndim)):
            rest, chunk[dim] = np.divmod(rest, np.maximum(grid[:, dim], 1))
        listed = np.flatnonzero(stored >= 0)
        if listed.size:
            begin = stored[listed] + local[listed] * ndim
            for dim in range(ndim):
                chunk[dim, listed] = self.columns["chunk"][begin + dim]
        return chunk

    def _piece(self, piece: RowSpan, array: Array) -> Refs:
        rows, columns = slice(piece.start, piece.stop), self.columns
        count = piece.stop - piece.start
        if piece.chunk < 0:
            chunk = whole_grid(grid_of(array))
        else:
            chunk = columns["chunk"][piece.chunk : piece.chunk + array.ndim * count].reshape(count, array.ndim).T
        return Refs(
            chunk=chunk,
            offset=columns["offset"][rows],
            length=columns["length"][rows],
            part=columns["part"][rows] if piece.parted else None,
            encoding=columns["encoding"][rows] if piece.coded else None,
            inline=Inline(columns["at"][rows], columns["inline"]) if piece.inline else None,
            crc32c=columns["crc32c"][rows] if piece.checksums else None,
        )


@dataclass(slots=True, eq=False)
class PartBuilder:
    """Collects files until a part is full."""

    facts: list[FileFacts] = field(default_factory=list)
    rows: int = 0
    _arrays: list[tuple[Array, ...]] = field(default_factory=list)
    _pieces: list[RowSpan] = field(default_factory=list)
    _chunks: int = 0
    _bytes: int = 0
    _offset: list[NDArray[np.int64]] = field(default_factory=list)
    _length: list[NDArray[np.int64]] = field(default_factory=list)
    _chunk: list[NDArray[np.int32]] = field(default_factory=list)
    _part: dict[int, NDArray[np.uint16]] = field(default_factory=dict)
    _encoding: dict[int, NDArray[np.uint16]] = field(default_factory=dict)
    _at: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    _inline: list[NDArray[np.uint8]] = field(default_factory=list)
    _crc32c: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, fact: FileFacts, arrays: tuple[Array, ...], grids: Sequence[Shape], refs: Sequence[Refs]) -> int:
        """Add a file; returns its slot."""
        self._pieces += [self._piece(each, grid) for grid, each in zip(grids, refs, strict=True)]
        self._arrays.append(arrays)
        # Last: a file during which the run is interrupted is not part of the result.
        self.facts.append(fact)
        return len(self.facts) - 1

    def _piece(self, refs: Refs, grid: Shape) -> RowSpan:
        count, chunk = len(refs), -1
        start = self.rows
        if not is_whole(refs.chunk, grid):
            chunk, self._chunks = self._chunks, self._chunks + refs.chunk.size
            self._chunk.append(np.ascontiguousarray(refs.chunk.T, np.int32).reshape(-1))
        self._offset.append(refs.offset)
        self._length.append(refs.length)
        if refs.part is not None:
            self._part[start] = refs.part
        if refs.encoding is not None:
            self._encoding[start] = refs.encoding
        if refs.inline is not None:
            inline = refs.inline.packed(refs.length)
            self._inline.append(inline.buffer)  # first, so that an interrupt leaves no row without its bytes
            self._at[start] = np.where(inline.held, inline.at + self._bytes, -1)
            self._bytes += inline.buffer.size
        if refs.crc32c is not None:
            self._crc32c[start] = refs.crc32c
        self.rows += count
        flags = (refs.part is not None, refs.encoding is not None, refs.inline is not None, refs.crc32c is not None)
        return RowSpan(start, self.rows, chunk, *flags)

    def build(self) -> HarvestPart:
        """The part with all files that were added completely."""
        arrays = self._arrays[: len(self.facts)]
        kept = self._pieces[: sum(map(len, arrays))]
        rows = kept[-1].stop if kept else 0
        columns: dict[str, NDArray[Any]] = {
            "offset": _concatenated(self._offset, np.int64)[:rows],
            "length": _concatenated(self._length, np.int64)[:rows],
            "chunk": _concatenated(self._chunk, np.int32),
            **position_columns(arrays, [[piece] for piece in kept]),
        }
        sparse: dict[str, dict[int, Any]] = {
            "part": self._part,
            "encoding": self._encoding,
            "at": self._at,
            "crc32c": self._crc32c,
        }
        for name, pieces in sparse.items():
            if pieces:
                column = np.full(rows, -1 if name in ("at", "crc32c") else 0, dtype=COLUMNS[name])
                for start, values in pieces.items():
                    if start < rows:
                        column[start : start + len(values)] = values
                columns[name] = column
        if self._inline:
            columns["inline"] = np.concatenate(self._inline)
        return HarvestPart(arrays=arrays, columns=columns)


def position_columns(
    arrays: Sequence[tuple[Array, ...]], groups: Sequence[Sequence[RowSpan]]
) -> dict[str, NDArray[np.int64]]:
    """The columns with the position of the references of each slot and array; one group for each array, in order."""
    slots = np.cumsum([0, *(len(each) for each in arrays)], dtype=np.int64)
    starts = np.cumsum([0, *(len(group) for group in groups)], dtype=np.int64)
    pieces = np.array([piece for group in groups for piece in group], dtype=np.int64).reshape(-1)
    return {"slots": slots, "groups": starts, "pieces": pieces}


def grid_of(array: Array) -> Shape:
    """The chunk grid of an array, cached."""
    return _counted(array.shape, array.chunks, array.edges)


@lru_cache(maxsize=1024)
def _counted(shape: Shape, chunks: Shape, edges: tuple[tuple[int, ...] | None, ...] | None) -> Shape:
    dims = tuple(map(str, range(len(shape))))
    return Array(name="", dims=dims, shape=shape, chunks=chunks, dtype=np.dtype("u1"), edges=edges).grid


def _ranges(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers in half-open ranges, one range after the other."""
    counts = last - first
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def whole_grid(grid: Shape) -> NDArray[np.int32]:
    """Positions of all chunks of a grid in order; shared and read-only."""
    return _remembered(grid) if math.prod(grid) <= _SMALL else chunk_positions(grid)


@lru_cache(maxsize=64)
def _remembered(grid: Shape) -> NDArray[np.int32]:
    positions = chunk_positions(grid)
    positions.flags.writeable = False
    return positions


def is_whole(chunk: NDArray[np.int32], grid: Shape) -> bool:
    """Whether the positions are those of the whole grid in order."""
    return chunk.shape[1] == math.prod(grid) and bool((chunk == whole_grid(grid)).all())


def _concatenated(pieces: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)
