"""The rows of an array in C order, a bounded number at a time, for writers that number the chunks of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array, Refs
from periplus.zarr.codecs.translate import NotRepresentableError

if TYPE_CHECKING:
    from periplus.table.table import Table

ROWS = 1 << 22
"""Chunks of the grid in one slab: some 300 MB at worst."""
BLOCK = 512
"""Steps of the leading dimension that are stored together in our Parquet; slabs end where these end."""
SPARSE = 64
"""Chunks of the grid for each row beyond which a grid is read at once: it is mostly empty."""


@dataclass(frozen=True, slots=True, eq=False)
class Slab:
    """Rows of neighbouring chunks, sorted, with the parts of each chunk together."""

    refs: Refs
    first: NDArray[np.intp]
    """Row at which each chunk begins, and the number of rows."""
    place: NDArray[np.int64]
    """Number of each chunk in the grid, in C order."""

    def __len__(self) -> int:
        return len(self.place)

    @property
    def counts(self) -> NDArray[np.intp]:
        """Byte ranges of each chunk."""
        return np.diff(self.first)

    def part(self, low: int, high: int) -> Slab:
        """Some of the chunks."""
        start, stop = int(self.first[low]), int(self.first[high])
        return Slab(self.refs.take(slice(start, stop)), self.first[low : high + 1] - start, self.place[low:high])

    def joined(self, more: Slab) -> Slab:
        """These chunks and those that follow."""
        count = len(self.refs)
        return Slab(
            Refs.joined([self.refs, more.refs], len(self.refs.chunk)),
            np.append(self.first[:-1], more.first + count),
            np.append(self.place, more.place),
        )


def slabs(table: Table, array: Array) -> Iterator[Slab]:
    """All rows of an array; NotRepresentableError names a chunk whose parts cannot be one reference."""
    cells = math.prod(array.grid)
    if cells <= ROWS or cells > SPARSE * max(table.rows, 1):
        yield _slab(array, table.refs(array.name))
        return
    axis = next(d for d in range(array.ndim) if math.prod(array.grid[d + 1 :]) <= ROWS)
    step = max(ROWS // math.prod(array.grid[axis + 1 :]), 1)
    step = step // BLOCK * BLOCK if step > BLOCK else step
    rest = [(0, n) for n in array.grid[axis + 1 :]]
    for lead in itertools.product(*(range(n) for n in array.grid[:axis])):
        for start in range(0, array.grid[axis], step):
            stop = min(start + step, array.grid[axis])
            yield _slab(array, table.refs(array.name, [*((n, n + 1) for n in lead), (start, stop), *rest]))


def _slab(array: Array, refs: Refs) -> Slab:
    place = np.zeros(len(refs), np.int64)
    for column, count in zip(refs.chunk, array.grid, strict=True):
        place = place * count + column
    begins = np.ones(len(refs), bool)
    begins[1:] = place[1:] != place[:-1]
    rows = np.flatnonzero(begins)
    slab = Slab(refs, np.append(rows, len(refs)), place[rows])
    if len(slab) < len(refs):
        _check(slab)
    return slab


def _check(slab: Slab) -> None:
    """Several byte ranges of one chunk have one URL, and none is inline."""
    refs, first = slab.refs, slab.first[:-1]
    several = np.repeat(slab.counts > 1, slab.counts)
    wrong = np.zeros(len(refs), bool)
    if refs.file is not None:
        wrong = several & ((refs.file != np.repeat(refs.file[first], slab.counts)) | (refs.file < 0))
    if refs.inline is not None:
        wrong |= several & refs.inline.held
    if wrong.any():
        where = tuple(int(n) for n in refs.chunk[:, int(np.flatnonzero(wrong)[0])])
        raise NotRepresentableError(f"chunk {where} consists of parts of several files, or of inline parts")
