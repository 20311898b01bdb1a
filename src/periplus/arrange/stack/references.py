"""References of a stack, block by block: up to 512 steps at a time, and never more rows than fit in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.collect.collect import owners
from periplus.arrange.entry import Lookup
from periplus.arrange.stack.member import Layer
from periplus.model import Array, Inline, Refs

STEPS = 512
"""Steps in a block: long enough for a time series to be read from few row groups, short enough for a map."""
ROWS = 1 << 22
"""Rows in a block, about 150 MB of columns."""


class Place(NamedTuple):
    """One file in one layer."""

    step: int
    entry: int
    array: int
    """Number of the array in the entry."""
    codes: NDArray[np.uint16]
    """Numbers in the layer of the pipelines of the file's array."""


def stacked_blocks(
    places: Sequence[tuple[Layer, Sequence[Place]]], lookup: Lookup, files: Mapping[int, int]
) -> Iterator[tuple[str, Refs]]:
    """(array name, Refs) of every layer; `files` gives the file id of an entry."""
    for layer, row in places:
        for start in range(0, len(row), STEPS):
            block = row[start : start + STEPS]
            slabs = _slabs(layer.like, len(block))
            for slab in slabs:
                pieces = [lookup(p.entry, p.array) for p in block]
                if len(slabs) > 1:
                    pieces = [_rows(piece, *slab) for piece in pieces]
                refs = _joined(layer.like, block, pieces, files)
                if len(refs):
                    yield layer.name, refs


def _slabs(array: Array, steps: int) -> list[tuple[int, int]]:
    """Ranges of chunk rows (of the last dimension but one) small enough for all steps of a block together."""
    grid = array.grid
    rows = grid[-2] if len(grid) >= 2 else 1
    each = max(1, ROWS // max(1, steps * math.prod(grid) // max(1, rows)))
    return [(low, min(low + each, rows)) for low in range(0, rows, each)] or [(0, 0)]


def _rows(refs: Refs, low: int, high: int) -> Refs:
    row = refs.chunk[-2]
    return refs.take((row >= low) & (row < high))


def _joined(array: Array, block: Sequence[Place], pieces: Sequence[Refs], files: Mapping[int, int]) -> Refs:
    counts = np.array([len(piece) for piece in pieces], dtype=np.int64)
    chunk = np.empty((array.ndim + 1, int(counts.sum())), dtype=np.int32)
    chunk[0] = np.repeat(np.array([p.step for p in block], dtype=np.int32), counts)
    np.concatenate([piece.chunk for piece in pieces], axis=1, out=chunk[1:])
    return Refs(
        chunk=chunk,
        offset=np.concatenate([piece.offset for piece in pieces]),
        length=np.concatenate([piece.length for piece in pieces]),
        file=np.concatenate([owners(piece, files[p.entry]) for piece, p in zip(pieces, block, strict=True)]),
        part=_parts(pieces),
        encoding=_encodings(block, pieces, counts),
        inline=Inline.joined([(piece.inline, len(piece)) for piece in pieces]),
    )


def _parts(pieces: Sequence[Refs]) -> NDArray[np.uint16] | None:
    if all(piece.part is None for piece in pieces):
        return None
    return np.concatenate([np.zeros(len(p), np.uint16) if p.part is None else p.part for p in pieces])


def _encodings(block: Sequence[Place], pieces: Sequence[Refs], counts: NDArray[np.int64]) -> NDArray[np.uint16] | None:
    if all(piece.encoding is None for piece in pieces):
        first = np.array([p.codes[0] if len(p.codes) else 0 for p in block], dtype=np.uint16)
        return np.repeat(first, counts) if first.any() else None
    column = np.concatenate(
        [
            np.full(len(piece), p.codes[0], np.uint16) if piece.encoding is None else p.codes[piece.encoding]
            for piece, p in zip(pieces, block, strict=True)
        ]
    )
    return column if column.any() else None
