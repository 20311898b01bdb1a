"""A mosaic whose files overlap or do not share chunk boundaries: each chunk is composed of pieces of stored chunks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import Lookup, file_column
from periplus.arrange.encodings import mosaic_encodings, unpacked
from periplus.arrange.mosaic.overlap import PixelBox
from periplus.arrange.mosaic.segments import FileSegments, chunk_edges, file_segments, regular_edges
from periplus.arrange.packing import packing_of
from periplus.errors import LimitError
from periplus.model import Array, Refs, Region, Shape

ROWS = 1 << 19
"""Pieces that are composed at a time, about 100 MB while they are sorted."""
MOST_PARTS = 1 << 16


class OverlayGrid(NamedTuple):
    """The chunks of an overlay."""

    edges: tuple[NDArray[np.int64], ...]
    """For each dimension the starts of chunks, and the end of the last."""
    regular: tuple[bool, ...]
    usual: Shape
    """Size of chunks along regular dimensions."""
    transparent: int | float | None
    """Nodata value that shows the files below; None if all pixels cover them."""
    physical: bool
    """Whether values are converted to physical ones."""


@dataclass(frozen=True, slots=True, eq=False)
class OverlayFile:
    """A file in an overlay."""

    sides: tuple[FileSegments, ...]
    """Its segments along each dimension."""
    codes: NDArray[np.int32]
    """(encoding of the file, kind of segment along each dimension, 3): number of the encoding as a piece, as a piece
    that follows one of the same encoding, and as a whole chunk (-1 if the piece does not fill its chunk)."""


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """An array and the files it is composed of."""

    array: Array
    files: Mapping[int, OverlayFile]
    """By entry."""
    order: Mapping[int, int]
    """Files with higher numbers cover those with lower ones."""

    def blocks(self, lookup: Lookup, numbers: Mapping[int, int]) -> Iterator[tuple[str, Refs]]:
        """References of all files; `numbers` is the number of the array in each entry."""
        entries = np.array(sorted(self.files, key=self.order.__getitem__), np.int64)
        chunk_rows = [self.files[i].sides[-2].segments.target for i in entries.tolist()]
        low, high = np.array([rows[0] for rows in chunk_rows]), np.array([rows[-1] for rows in chunk_rows])
        for slab in self._slabs():
            pieces = []
            for i in entries[(low < slab[1]) & (high >= slab[0])].tolist():
                refs = lookup(i, numbers[i])
                pieces.append((i, refs, split_refs(self.files[i], refs, slab)))
            composed = _compose([piece for piece in pieces if len(piece[2].source)])
            if composed is not None:
                yield self.array.name, composed

    def _slabs(self) -> Iterator[tuple[int, int]]:
        """Ranges of chunk rows whose pieces fit in memory."""
        rows = self.array.grid[-2]
        count = sum(math.prod(len(side.segments.chunk) for side in file.sides) for file in self.files.values())
        each = max(1, ROWS * rows // max(count, 1))
        for start in range(0, rows, each):
            yield start, min(start + each, rows)


def overlay(
    template: Array,
    members: Mapping[int, Array],
    boxes: Mapping[int, PixelBox],
    *,
    usual: Shape,
    transparent: int | float | None,
    physical: bool,
    overlaps: bool,
    order: Mapping[int, int],
) -> Overlay:
    """Compose files at their boxes; `template` is the array without its chunks and encodings."""
    origins = {i: (*(0 for _ in template.shape[:-2]), box.top, box.left) for i, box in boxes.items()}
    found = [
        chunk_edges((members[i].starts(d) + origin[d] for i, origin in origins.items()), usual[d])
        for d in range(template.ndim)
    ]
    # Chunks of bands are always regular: the bands that a file stores together are decoded together anyway.
    found[:-2] = [(regular_edges(n, size), True) for n, size in zip(template.shape[:-2], usual[:-2], strict=True)]
    regular = tuple(each for _, each in found)
    builder = OverlayBuilder(
        template.name, OverlayGrid(tuple(edges for edges, _ in found), regular, usual, transparent, physical)
    )
    # With chunks of one size, only files of the same phase can have pieces of the same encoding.
    phases = {i: tuple(n % size for n, size in zip(origin, usual, strict=True)) for i, origin in origins.items()}
    one_size = all(array.chunks == usual and array.edges is None for array in members.values())
    counts = Counter(phases.values()) if all(regular) and one_size else None
    files = {
        i: builder.file(members[i], origin, repeated=overlaps and (counts is None or counts[phases[i]] > 1))
        for i, origin in origins.items()
    }
    sizes = [None if each else np.diff(edges) for edges, each in found]
    array = replace(
        template,
        chunks=tuple(n if size is None else int(size.max()) for n, size in zip(usual, sizes, strict=True)),
        encodings=tuple(builder.encodings.encodings),
        edges=None if all(regular) else tuple(None if size is None else tuple(size.tolist()) for size in sizes),
    )
    return Overlay(array, files, order)


class OverlayBuilder:
    """Splits files into segments and numbers the encodings of their pieces; similar files share them."""

    def __init__(self, name: str, grid: OverlayGrid) -> None:
        self.encodings = mosaic_encodings(name)
        self.grid = grid
        self._codes: dict[Any, NDArray[np.int32]] = {}

    def file(self, array: Array, origin: Sequence[int], *, repeated: bool) -> OverlayFile:
        """A file at its origin; `repeated` if a piece of another file may have the encoding of one of its pieces."""
        grid = self.grid
        sides = tuple(
            file_segments(array, d, origin[d], grid.edges[d], regular=grid.regular[d], usual=grid.usual[d])
            for d in range(array.ndim)
        )
        key = (array.encodings, str(packing_of(array)), repeated, *(side.kinds for side in sides))
        if key not in self._codes:
            self._codes[key] = self._number(array, sides, repeated=repeated)
        return OverlayFile(sides, self._codes[key])

    def _number(self, array: Array, sides: tuple[FileSegments, ...], *, repeated: bool) -> NDArray[np.int32]:
        shape = len(array.encodings), *(len(side.kinds) for side in sides)
        codes = np.full((*shape, 3), -1, np.int32)
        for place in np.ndindex(*shape):
            kinds = [side.kinds[k] for side, k in zip(sides, place[1:], strict=True)]
            stored, shown = tuple(kind.stored for kind in kinds), tuple(kind.shown for kind in kinds)
            encoding = array.encodings[place[0]]
            extent = encoding.extent or stored
            region = Region(
                begin=tuple(kind.begin for kind in kinds),
                at=tuple(kind.at for kind in kinds),
                size=tuple(kind.size for kind in kinds),
                transparent=self.grid.transparent,
            )
            whole = unpacked(encoding, array) if self.grid.physical else encoding
            piece = replace(whole, extent=extent, region=region)
            if repeated:
                codes[(*place, 1)] = self.encodings.number(replace(piece, region=replace(region, layer=1)))
            codes[(*place, 0)] = self.encodings.number(piece)
            if all(kind.fills and kind.stored >= kind.shown for kind in kinds):
                codes[(*place, 2)] = self.encodings.number(replace(whole, extent=None if extent == shown else extent))
        return codes


class PieceColumns(NamedTuple):
    """References of files split into pieces."""

    chunk: NDArray[np.int64]
    """(ndim, n): chunk of the mosaic."""
    segment: NDArray[np.int64]
    """(ndim, n): segment of the file."""
    codes: NDArray[np.int32]
    """(3, n), as in OverlayFile."""
    source: NDArray[np.int64]
    """Row of the references of the file."""


def split_refs(file: OverlayFile, refs: Refs, slab: tuple[int, int]) -> PieceColumns:
    """References split at the chunks of the mosaic; only pieces in the chunk rows of the slab."""
    chunk = refs.chunk.astype(np.int64)
    counts = [side.counts[chunk[d]] for d, side in enumerate(file.sides)]
    pieces: NDArray[np.int64] = np.prod(counts, axis=0)
    rest = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    source = np.repeat(np.arange(len(refs)), pieces)
    segment = np.empty((len(counts), len(source)), np.int64)
    for d in reversed(range(len(counts))):
        rest, segment[d] = np.divmod(rest, counts[d][source])
        segment[d] += file.sides[d].first[chunk[d][source]]
    rows = file.sides[-2].segments.target[segment[-2]]
    inside = (rows >= slab[0]) & (rows < slab[1])
    source, segment = source[inside], segment[:, inside]
    encoding = np.zeros(len(source), np.intp) if refs.encoding is None else refs.encoding[source].astype(np.intp)
    kinds = [side.kind[k] for side, k in zip(file.sides, segment, strict=True)]
    return PieceColumns(
        chunk=np.stack([side.segments.target[k] for side, k in zip(file.sides, segment, strict=True)]),
        segment=segment,
        codes=file.codes[(encoding, *kinds)].T,
        source=source,
    )


def _compose(pieces: list[tuple[int, Refs, PieceColumns]]) -> Refs | None:
    """The pieces of some rows of chunks in order, including hidden ones: a later run may need them."""
    if not pieces:
        return None
    columns = PieceColumns(*(np.concatenate(each, axis=-1) for each in zip(*(p[2] for p in pieces), strict=True)))
    owner = np.repeat(np.arange(len(pieces)), [len(found.source) for _, _, found in pieces])
    part = np.concatenate(
        [np.zeros(len(c.source), np.int64) if refs.part is None else refs.part[c.source] for _, refs, c in pieces]
    )
    order = np.lexsort((part, *columns.segment[::-1], owner, *columns.chunk[::-1]))
    # A new chunk begins where the position changes, a new piece also where the file or its segment does.
    new_chunk = _changes(columns.chunk[:, order])
    new_piece = new_chunk | _changes(np.concatenate([owner[None], columns.segment])[:, order])
    begins = np.flatnonzero(new_piece)
    chunk = np.cumsum(new_chunk) - 1
    codes = _choose_codes(chunk[begins], columns.codes[:, order[begins]])[np.cumsum(new_piece) - 1]
    start = np.flatnonzero(np.diff(chunk, prepend=-1))
    number = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    if int(number.max()) >= MOST_PARTS:
        raise LimitError(f"a chunk of the mosaic would be composed of more than {MOST_PARTS} byte ranges")
    found = [replace(refs, file=file_column(refs, i)).take(c.source) for i, refs, c in pieces]
    return replace(
        Refs.joined(found, columns.chunk.shape[0]).take(order),
        chunk=columns.chunk[:, order].astype(np.int32),
        part=number.astype(np.uint16) if number.any() else None,
        encoding=codes.astype(np.uint16) if codes.any() else None,
    )


def _changes(columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    new = np.ones(columns.shape[1], bool)
    new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return new


def _choose_codes(chunk: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """The encoding of each piece: that of a whole chunk if it is the only piece and fills the chunk."""
    alone = np.ones(len(chunk), bool)
    alone[1:] &= chunk[1:] != chunk[:-1]
    alone[:-1] &= chunk[1:] != chunk[:-1]
    found: NDArray[np.int64] = np.where(alone & (codes[2] >= 0), codes[2], codes[0]).astype(np.int64)
    # Successive pieces of one encoding would be read as one piece in two parts, so every other has the second number.
    repeats = np.zeros(len(chunk), bool)
    repeats[1:] = (chunk[1:] == chunk[:-1]) & (found[1:] == found[:-1])
    if repeats.any():
        positions = np.arange(len(chunk))
        second = (positions - np.maximum.accumulate(np.where(repeats, 0, positions))) % 2 == 1
        found[second] = codes[1][second]
    return found
