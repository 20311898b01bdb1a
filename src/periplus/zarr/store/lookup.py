"""Finds the rows of a chunk by its position: blocks of the grid, each loaded once, dense, and cached.

A Zarr reader requests chunk by chunk. One query of the table for each would take milliseconds; instead the first one
loads the rows of a block of the grid, as rows are grouped in the index, and the next ones are array lookups.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from periplus.errors import DeniedError
from periplus.forks import renewed
from periplus.model import Array, Refs, Shape, Source
from periplus.table.parquet.order import STEPS

if TYPE_CHECKING:
    from periplus.table import Table

BLOCK_CHUNKS = 1 << 16
"""Chunks of one block at most: about what a row group of an index holds."""
FEW_BLOCKS = 64
"""Blocks that are loaded one by one to list an array; beyond this, all rows are read at once."""
KEPT_BYTES = 96 << 20
"""Blocks that are kept, of all arrays together: three million rows."""


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """One byte range of a chunk, or its bytes where they are inline."""

    file: int
    offset: int
    length: int
    data: memoryview | None = None
    object: Source | None = None
    """Where it is in one of the many objects of a path template, which are not rows of the files table."""
    crc32c: int = -1
    """Checksum of the bytes; -1 where it is unknown."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The byte ranges of one chunk in order, and which encoding they have."""

    parts: tuple[ChunkPart, ...]
    encoding: int

    @property
    def length(self) -> int:
        return sum(part.length for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The rows of a window of the grid, and where those of each chunk begin among them."""

    origin: Shape
    shape: Shape
    first: NDArray[np.int32]
    """Chunks + 1 values."""
    refs: Refs
    objects: Mapping[int, Source] = field(default_factory=dict)
    """Objects of path templates, by the numbers in `refs.file`."""

    @property
    def nbytes(self) -> int:
        refs = self.refs
        columns = (refs.chunk, refs.offset, refs.length, refs.file, refs.part, refs.encoding, refs.crc32c, self.first)
        inline = 0 if refs.inline is None else refs.inline.at.nbytes + refs.inline.buffer.nbytes
        return sum(column.nbytes for column in columns if column is not None) + inline + 256 * len(self.objects)

    def rows(self, position: Shape) -> tuple[int, int]:
        """Which rows the chunk at a position of the window has."""
        cell = 0
        for p, o, n in zip(position, self.origin, self.shape):
            cell = cell * n + p - o
        return int(self.first[cell]), int(self.first[cell + 1])

    def get(self, position: Shape) -> StoredChunk | None:
        """The chunk at a position of the window; None where it has no row."""
        low, high = self.rows(position)
        if low == high:
            return None
        refs = self.refs
        parts = tuple([
            ChunkPart(
                0 if refs.file is None else int(refs.file[row]),
                int(refs.offset[row]),
                int(refs.length[row]),
                refs.inline_bytes(row),
                self.objects.get(int(refs.file[row])) if self.objects and refs.file is not None else None,
                -1 if refs.crc32c is None else int(refs.crc32c[row]),
            )
            for row in range(low, high)
        ])  # fmt: skip
        return StoredChunk(parts, 0 if refs.encoding is None else int(refs.encoding[low]))

    def present(self) -> NDArray[np.int32]:
        """(ndim, n): positions that have a row, in C order."""
        if not len(self.refs):
            return np.empty((len(self.shape), 0), np.int32)
        return self.refs.chunk[:, self.first[:-1][np.diff(self.first) > 0]]


class ChunkLookup:
    """Chunks of a table's arrays by position; safe to use from many threads."""

    _lock: threading.Lock
    _loading: dict[tuple[str, Shape], threading.Lock]

    def __init__(self, table: Table) -> None:
        self._table = table
        renewed(self, _lock=threading.Lock, _loading=dict)
        self._blocks: OrderedDict[tuple[str, Shape], Block] = OrderedDict()
        self._bytes = 0
        self._shapes: dict[str, Shape] = {}

    def _key(self, array: Array, position: Shape) -> tuple[str, Shape]:
        """The block that holds a position: its array and its first position."""
        return array.name, tuple([p - p % n for p, n in zip(position, self._shape(array))])

    def _shape(self, array: Array) -> Shape:
        shape = self._shapes.get(array.name)
        if shape is None:
            shape = self._shapes[array.name] = block_shape(array)
        return shape

    def known(self, array: Array, position: Shape) -> tuple[bool, StoredChunk | None]:
        """(whether it is known without reading the index, the chunk or None where it has no row)."""
        block = self._held(self._key(array, position))
        return (False, None) if block is None else (True, block.get(position))

    def find(self, array: Array, position: Shape) -> StoredChunk | None:
        """The chunk at a position of the grid; None where it has no row. May read the index."""
        return self._around(array, position).get(position)

    def rows(self, array: Array, position: Shape) -> tuple[Refs, Mapping[int, Source]]:
        """The rows of the chunk at a position of the grid, and objects of templates among them. May read the index."""
        block = self._around(array, position)
        return block.refs.take(slice(*block.rows(position))), block.objects

    def present(self, array: Array, begun: Shape = ()) -> Iterator[NDArray[np.int32]]:
        """(ndim, n): positions that have a row, those that begin so, in C order; some at a time. May read the index."""
        low = (*begun, *(0,) * (array.ndim - len(begun)))
        high = (*(b + 1 for b in begun), *array.grid[len(begun) :])
        steps = [range(a - a % n, b, n) for a, b, n in zip(low, high, self._shape(array))]
        if math.prod(map(len, steps)) > max(FEW_BLOCKS, self._table.rows // BLOCK_CHUNKS):
            # Mostly nothing: a grid may be far larger than the index has rows, and one question finds them all.
            chunk = self._table.refs(array.name, list(zip(low, high, strict=True))).chunk
            new = np.ones(chunk.shape[1], bool)
            new[1:] = (chunk[:, 1:] != chunk[:, :-1]).any(axis=0)
            yield chunk[:, new]
            return
        for corner in product(*steps):
            found = self.block(array, corner).present()
            yield found[:, (found[: len(begun)] == np.array(begun, np.int32)[:, None]).all(axis=0)]

    def _around(self, array: Array, position: Shape) -> Block:
        try:
            return self.block(array, position)
        except DeniedError:  # the policy denies a file of the block, perhaps not that of this chunk
            return self._load(array, position, (1,) * array.ndim)

    def block(self, array: Array, position: Shape) -> Block:
        """The block that holds a position; loaded if need be, by one thread while others wait for it."""
        key = self._key(array, position)
        found = self._held(key)
        if found is not None:
            return found
        with self._lock:
            turn = self._loading.setdefault(key, threading.Lock())
        try:
            with turn:
                found = self._held(key)
                if found is None:
                    found = self._load(array, key[1], block_shape(array))
                    self._keep(key, found)
                return found
        finally:
            with self._lock:
                self._loading.pop(key, None)

    def _held(self, key: tuple[str, Shape]) -> Block | None:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def _keep(self, key: tuple[str, Shape], block: Block) -> None:
        with self._lock:
            self._blocks[key] = block
            self._bytes += block.nbytes
            while self._bytes > KEPT_BYTES and len(self._blocks) > 1:
                self._bytes -= self._blocks.popitem(last=False)[1].nbytes

    def _load(self, array: Array, corner: Shape, most: Shape) -> Block:
        shape = tuple(min(n, g - c) for n, g, c in zip(most, array.grid, corner))
        found = self._table.refs(array.name, [(c, c + n) for c, n in zip(corner, shape)])
        refs, objects = self._table.objects(array, found)
        cell = np.zeros(len(refs), np.int64)
        for d, n in enumerate(shape):
            cell *= n
            cell += refs.chunk[d] - corner[d]
        # The table returns rows in order of position, so that the rows of a chunk are neighbours.
        first = np.searchsorted(cell, np.arange(math.prod(shape) + 1)).astype(np.int32)
        return Block(corner, shape, first, refs, objects)


def block_shape(array: Array) -> Shape:
    """Chunks of one block along each dimension: as rows are grouped in an index, many steps of a few lines of tiles.

    Trailing dimensions come whole so far as they fit, after up to 512 steps of the first where there are three.
    """
    grid = array.grid
    shape = [1] * len(grid)
    if len(grid) >= 3:
        shape[0] = max(1, min(grid[0], STEPS))
    left = BLOCK_CHUNKS // max(1, shape[0] if grid else 1)
    for d in range(len(grid) - 1, 0 if len(grid) >= 3 else -1, -1):
        shape[d] = max(1, min(grid[d], left))
        left //= shape[d]
    return tuple(shape)
