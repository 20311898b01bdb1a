"""References: byte ranges in files and inline bytes, as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.model.arrays import Shape

GATHERED = 1 << 18
"""Bytes of inline rows that are moved together: each takes 8 bytes of positions meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """Bytes of rows that the index itself holds: where those of each row begin in one buffer."""

    at: NDArray[np.int64]
    """First byte of each row in `buffer`, -1 where its bytes are in a file; a row has exactly `Refs.length` bytes."""
    buffer: NDArray[np.uint8]

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> Inline | None:
        """The bytes of a few rows; None where all of them are in files."""
        if all(item is None for item in items):
            return None
        ends = np.cumsum([len(item or b"") for item in items], dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        at = np.where([item is None for item in items], -1, starts)
        return cls(at, np.frombuffer(b"".join(item or b"" for item in items), np.uint8))

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which rows have their bytes here."""
        return self.at >= 0

    def take(self, rows: Any) -> Inline:
        """Those of the given rows, over the same buffer."""
        return Inline(self.at[rows], self.buffer)

    def packed(self, length: NDArray[np.int64]) -> Inline:
        """The same bytes one after the other in the order of rows, and no others; not copied where they are so."""
        held = self.held
        sizes = np.where(held, length, 0)
        ends = np.cumsum(sizes, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        starts = ends - sizes
        shift = self.at - starts
        moved = shift[held & (sizes > 0)]
        if not (moved != moved[:1]).any():  # all rows are as far from their new places as the first
            first = int(moved[0]) if len(moved) else 0
            return Inline(np.where(held, starts, -1), self.buffer[first : first + total])
        out = np.empty(total, np.uint8)
        row = 0
        while row < len(ends):
            begin = int(starts[row])
            stop = max(row + 1, int(np.searchsorted(ends, begin + GATHERED, side="right")))
            end = int(ends[stop - 1])
            if stop == row + 1:
                out[begin:end] = self.buffer[max(int(self.at[row]), 0) :][: end - begin]
            else:
                places = np.repeat(shift[row:stop], sizes[row:stop])
                places += np.arange(begin, end)
                out[begin:end] = self.buffer[places]
            row = stop
        return Inline(np.where(held, starts, -1), out)

    def trimmed(self, length: NDArray[np.int64]) -> Inline:
        """The same, without bytes of other rows where these are most of the buffer."""
        used = int(length[self.held].sum())
        return self.packed(length) if 2 * used < self.buffer.size else self

    @classmethod
    def joined(cls, pieces: Sequence[tuple[Inline | None, int]]) -> Inline | None:
        """Those of rows that came in pieces of so many rows each; buffers that pieces share are there once."""
        if all(inline is None for inline, _ in pieces):
            return None
        places: dict[int, int] = {}
        buffers: list[NDArray[np.uint8]] = []
        columns, end = [], 0
        for inline, count in pieces:
            if inline is None:
                columns.append(np.full(count, -1, np.int64))
                continue
            if id(inline.buffer) not in places:
                places[id(inline.buffer)] = end
                buffers.append(inline.buffer)
                end += inline.buffer.size
            columns.append(np.where(inline.held, inline.at + places[id(inline.buffer)], -1))
        return cls(np.concatenate(columns), buffers[0] if len(buffers) == 1 else np.concatenate(buffers))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refs:
    """Stored byte ranges of one array, as columns of equal length; never one Python object per chunk."""

    chunk: NDArray[np.int32]
    """(ndim, n): chunk position along each dimension."""
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    file: NDArray[np.int32] | None = None
    """Row of the files table; None while only one file is meant. -1 where the bytes are inline."""
    part: NDArray[np.uint16] | None = None
    """Order of a chunk's byte ranges; None where every chunk is one range."""
    encoding: NDArray[np.uint16] | None = None
    """Index into Array.encodings; None where all are 0."""
    inline: Inline | None = None
    """Bytes that the index holds, where a range is not in a file; None where all are in files."""
    crc32c: NDArray[np.int64] | None = None
    """Checksum of the bytes of each range, -1 where it is unknown; None where all are."""

    def __len__(self) -> int:
        return int(self.offset.shape[0])

    def inline_bytes(self, row: int) -> memoryview | None:
        """The inline bytes of a row; None where they are in a file."""
        if self.inline is None or self.inline.at[row] < 0:
            return None
        at = int(self.inline.at[row])
        return self.inline.buffer[at : at + int(self.length[row])].data

    @classmethod
    def empty(cls, ndim: int) -> Refs:
        """No references, of an array with that many dimensions."""
        none = np.empty(0, np.int64)
        return cls(chunk=np.empty((ndim, 0), np.int32), offset=none, length=none)

    @classmethod
    def joined(cls, pieces: Sequence[Refs], ndim: int) -> Refs:
        """References of one array that came in pieces, or in none; a column that some pieces lack is 0 for them, and
        the checksum -1."""
        if not pieces:
            return cls.empty(ndim)
        if len(pieces) == 1:
            return pieces[0]

        def column(name: str, dtype: type, lacking: int = 0) -> Any:
            found = [(getattr(piece, name), len(piece)) for piece in pieces]
            if all(values is None for values, _ in found):
                return None
            return np.concatenate(
                [np.full(count, lacking, dtype) if values is None else values for values, count in found]
            )

        return cls(
            chunk=np.concatenate([piece.chunk for piece in pieces], axis=1),
            offset=np.concatenate([piece.offset for piece in pieces]),
            length=np.concatenate([piece.length for piece in pieces]),
            file=column("file", np.int32),
            part=column("part", np.uint16),
            encoding=column("encoding", np.uint16),
            inline=Inline.joined([(piece.inline, len(piece)) for piece in pieces]),
            crc32c=column("crc32c", np.int64, -1),
        )

    def take(self, rows: Any) -> Refs:
        """The given rows (an index array, a mask or a slice)."""
        return Refs(
            chunk=self.chunk[:, rows],
            offset=self.offset[rows],
            length=self.length[rows],
            file=None if self.file is None else self.file[rows],
            part=None if self.part is None else self.part[rows],
            encoding=None if self.encoding is None else self.encoding[rows],
            inline=None if self.inline is None else self.inline.take(rows),
            crc32c=None if self.crc32c is None else self.crc32c[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bundle:
    """Stored byte ranges of many arrays, in columns as a table has them: no Python object per array but its name."""

    names: Sequence[str]
    """Of the arrays."""
    owner: NDArray[np.int32]
    """Array of each row: a number in `names`."""
    dims: tuple[str, ...]
    """All dimensions that any of the arrays has."""
    refs: Refs
    """`chunk` has a row for each of `dims`; -1 where the array lacks that dimension."""
    levels: NDArray[np.uint8] | None = None
    """Pyramid level of each array, where it is known."""

    def __len__(self) -> int:
        return len(self.refs)


def chunk_positions(grid: Shape) -> NDArray[np.int32]:
    """(ndim, n) positions of every chunk of a grid in C order."""
    return np.indices(grid, dtype=np.int32).reshape(len(grid), math.prod(grid))
