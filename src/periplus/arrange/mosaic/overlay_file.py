"""One file of a mosaic whose chunks are cut: its pieces, and the numbers of the encodings that say what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.encodings import mosaic_book
from periplus.arrange.mosaic.edges import Segments, segments
from periplus.arrange.packing import packing_of, unpacked
from periplus.model import Array, Refs, Region, Shape


class Canvas(NamedTuple):
    """The chunks of the mosaic."""

    lines: tuple[NDArray[np.int64], ...]
    """Along each dimension the starts of chunks, and the end of the last."""
    regular: tuple[bool, ...]
    usual: Shape
    """Size of chunks along regular dimensions."""
    clear: int | float | None
    """Value of pixels that show what lies beneath; None where all pixels cover."""
    packed: bool
    """Whether values are turned into physical ones."""


class Side(NamedTuple):
    """A file along one dimension: its segments, and which of few kinds each of them is."""

    segments: Segments
    begin: NDArray[np.int64]
    """First segment of each chunk of the file."""
    parts: NDArray[np.int64]
    """How many segments it has."""
    kind: NDArray[np.intp]
    kinds: tuple[tuple[int, ...], ...]
    """(first, at, size, stored size of the file's chunk, size of the mosaic's chunk, whether it fills that)."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """A file on the canvas."""

    sides: tuple[Side, ...]
    """Along each dimension."""
    codes: NDArray[np.int32]
    """(encoding of the file, kind along each dimension, 3): number of the encoding as a piece, as a piece beside its
    like, and by itself (-1 where the piece does not fill its chunk)."""


class Patches:
    """Makes the patches of an array's files; files alike share theirs."""

    def __init__(self, name: str, canvas: Canvas) -> None:
        self.book = mosaic_book(name)
        self.canvas = canvas
        self._codes: dict[Any, NDArray[np.int32]] = {}

    def of(self, array: Array, corner: Sequence[int], *, layered: bool) -> Patch:
        """The patch of a file; `layered` says that a piece of another file may have the same encoding as one of its."""
        canvas = self.canvas
        sides = tuple(
            _side(array, d, corner[d], canvas.lines[d], canvas.regular[d], canvas.usual[d]) for d in range(array.ndim)
        )
        key = (array.encodings, str(packing_of(array)), layered, *(side.kinds for side in sides))
        if key not in self._codes:
            self._codes[key] = self._numbered(array, sides, layered)
        return Patch(sides, self._codes[key])

    def _numbered(self, array: Array, sides: tuple[Side, ...], layered: bool) -> NDArray[np.int32]:
        shape = len(array.encodings), *(len(side.kinds) for side in sides)
        codes = np.full((*shape, 3), -1, np.int32)
        for place in np.ndindex(*shape):
            along = [side.kinds[k] for side, k in zip(sides, place[1:], strict=True)]
            begin, at, size, stored, chunk, fills = (tuple(kind[k] for kind in along) for k in range(6))
            plain = array.encodings[place[0]]
            extent = plain.extent or stored
            region = Region(begin=begin, at=at, size=size, transparent=self.canvas.clear)
            whole = unpacked(plain, array) if self.canvas.packed else plain
            part = replace(whole, extent=extent, region=region)
            if layered:
                codes[(*place, 1)] = self.book.number(replace(part, region=replace(region, layer=1)))
            codes[(*place, 0)] = self.book.number(part)
            if all(fills) and all(a >= b for a, b in zip(stored, chunk, strict=True)):
                codes[(*place, 2)] = self.book.number(replace(whole, extent=None if extent == chunk else extent))
        return codes


def _side(array: Array, dim: int, start: int, grid: NDArray[np.int64], regular: bool, usual: int) -> Side:
    starts = array.starts(dim) + start
    found = segments(starts, grid)
    chunks = np.arange(len(starts) - 1)
    begin = np.searchsorted(found.chunk, chunks)
    uneven = array.edges is not None and array.edges[dim] is not None
    stored = np.diff(starts)[found.chunk] if uneven else np.full(len(found.chunk), array.chunks[dim])
    shown = np.diff(grid)[found.cell]
    table = np.stack(
        [
            found.first,
            found.at,
            found.size,
            stored,
            np.full(len(shown), usual) if regular else shown,
            (found.first == 0) & (found.at == 0) & (found.size == shown),
        ],
        axis=1,
    )
    kinds, kind = np.unique(table, axis=0, return_inverse=True)
    count = np.diff(np.append(begin, len(found.chunk)))
    return Side(found, begin, count, kind.reshape(-1), tuple(tuple(row) for row in kinds.tolist()))


class Rows(NamedTuple):
    """References of files cut into pieces, as columns."""

    cell: NDArray[np.int64]
    """(ndim, n): chunk of the mosaic."""
    number: NDArray[np.int64]
    """(ndim, n): which segments of its file the piece is."""
    codes: NDArray[np.int32]
    """(3, n), as in Patch."""
    source: NDArray[np.int64]
    """Row of the file's references."""


def cut(patch: Patch, refs: Refs, slab: tuple[int, int]) -> Rows:
    """References cut at the chunks of the mosaic, of those whose row of chunks is within the slab."""
    chunk = refs.chunk.astype(np.int64)
    parts = [side.parts[chunk[d]] for d, side in enumerate(patch.sides)]
    pieces: NDArray[np.int64] = np.prod(parts, axis=0)
    rest = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    source = np.repeat(np.arange(len(refs)), pieces)
    number = np.empty((len(parts), len(source)), np.int64)
    for d in reversed(range(len(parts))):
        rest, number[d] = np.divmod(rest, parts[d][source])
        number[d] += patch.sides[d].begin[chunk[d][source]]
    rows = patch.sides[-2].segments.cell[number[-2]]
    inside = (rows >= slab[0]) & (rows < slab[1])
    source, number = source[inside], number[:, inside]
    encoding = np.zeros(len(source), np.intp) if refs.encoding is None else refs.encoding[source].astype(np.intp)
    kinds = [side.kind[k] for side, k in zip(patch.sides, number, strict=True)]
    return Rows(
        cell=np.stack([side.segments.cell[k] for side, k in zip(patch.sides, number, strict=True)]),
        number=number,
        codes=patch.codes[(encoding, *kinds)].T,
        source=source,
    )
