"""A mosaic whose files lie across each other's chunks: every chunk is made of pieces, laid in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.collect.collect import owners
from periplus.arrange.entry import Lookup
from periplus.arrange.mosaic.overlay_file import Patch, Rows, cut
from periplus.errors import LimitError
from periplus.model import Array, Inline, Refs

ROWS = 1 << 19
"""Pieces laid at a time, about 100 MB while they are put in order."""
PARTS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Patchwork:
    """An array and the files it is laid of."""

    array: Array
    patches: Mapping[int, Patch]
    """By entry."""
    order: Mapping[int, int]
    """Files with higher numbers lie over those with lower ones."""

    def blocks(self, lookup: Lookup, which: Mapping[int, int]) -> Iterator[tuple[str, Refs]]:
        """References of all files; `which` is the number of the array in each entry."""
        numbers = np.array(sorted(self.patches, key=self.order.__getitem__), np.int64)
        cells = [self.patches[i].sides[-2].segments.cell for i in numbers.tolist()]
        low, high = np.array([c[0] for c in cells]), np.array([c[-1] for c in cells])
        for slab in self._slabs():
            pieces = []
            for i in numbers[(low < slab[1]) & (high >= slab[0])].tolist():
                found = lookup(i, which[i])
                pieces.append((i, found, cut(self.patches[i], found, slab)))
            laid = _laid([p for p in pieces if len(p[2].source)])
            if laid is not None:
                yield self.array.name, laid

    def _slabs(self) -> Iterator[tuple[int, int]]:
        """Rows of chunks, so many at a time that their pieces are no more than fit."""
        rows = self.array.grid[-2]
        count = sum(math.prod(len(side.segments.chunk) for side in patch.sides) for patch in self.patches.values())
        each = max(1, ROWS * rows // max(count, 1))
        for start in range(0, rows, each):
            yield start, min(start + each, rows)


def _laid(pieces: list[tuple[int, Refs, Rows]]) -> Refs | None:
    """The pieces of some rows of chunks in order, those as well that others hide: a later run may want them."""
    if not pieces:
        return None
    rows = Rows(*(np.concatenate(columns, axis=-1) for columns in zip(*(p[2] for p in pieces), strict=True)))
    counts = [len(p[2].source) for p in pieces]
    owner = np.repeat(np.arange(len(pieces)), counts)
    part = np.concatenate(
        [np.zeros(len(r.source), np.int64) if refs.part is None else refs.part[r.source] for _, refs, r in pieces]
    )
    order = np.lexsort((part, *rows.number[::-1], owner, *rows.cell[::-1]))
    # New chunks begin where the position changes, new pieces where the file or its segment does as well.
    group = _changes(rows.cell[:, order])
    piece = group | _changes(np.concatenate([owner[None], rows.number])[:, order])
    begins = np.flatnonzero(piece)
    chunk = np.cumsum(group) - 1
    codes = _codes(chunk[begins], rows.codes[:, order[begins]])[np.cumsum(piece) - 1]
    start = np.flatnonzero(np.diff(chunk, prepend=-1))
    number = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    if int(number.max()) >= PARTS:
        raise LimitError(f"a chunk of the mosaic would be made of more than {PARTS} byte ranges")
    return Refs(
        chunk=rows.cell[:, order].astype(np.int32),
        offset=np.concatenate([refs.offset[r.source] for _, refs, r in pieces])[order],
        length=np.concatenate([refs.length[r.source] for _, refs, r in pieces])[order],
        file=np.concatenate([owners(refs, i)[r.source] for i, refs, r in pieces])[order],
        part=number.astype(np.uint16) if number.any() else None,
        encoding=codes.astype(np.uint16) if codes.any() else None,
        inline=_inline(pieces, order),
    )


def _changes(columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    new = np.ones(columns.shape[1], bool)
    new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return new


def _codes(chunk: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """The pipeline of each piece: by itself where it alone fills its chunk, else as a piece beside the others."""
    alone = np.ones(len(chunk), bool)
    alone[1:] &= chunk[1:] != chunk[:-1]
    alone[:-1] &= chunk[1:] != chunk[:-1]
    found: NDArray[np.int64] = np.where(alone & (codes[2] >= 0), codes[2], codes[0]).astype(np.int64)
    # Two neighbours of one pipeline would be taken for one piece in two parts: every other has the second number.
    like = np.zeros(len(chunk), bool)
    like[1:] = (chunk[1:] == chunk[:-1]) & (found[1:] == found[:-1])
    if like.any():
        places = np.arange(len(chunk))
        odd = (places - np.maximum.accumulate(np.where(like, 0, places))) % 2 == 1
        found[odd] = codes[1][odd]
    return found


def _inline(pieces: list[tuple[int, Refs, Rows]], order: NDArray[np.intp]) -> Inline | None:
    held = Inline.joined([(refs.take(r.source).inline, len(r.source)) for _, refs, r in pieces])
    return None if held is None else held.take(order)
