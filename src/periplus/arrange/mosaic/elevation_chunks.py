"""Cells of one spacing as chunks: each without the edges that others hold, and strips of those where one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from periplus.arrange.collect.collect import owners
from periplus.arrange.encodings import mosaic_book
from periplus.arrange.entry import Entry, Lookup
from periplus.model import Array, Codec, Encoding, Refs, Region

ROWS = 1 << 16
"""Rows of a block."""
NEIGHBOURS = ((1, -1), (1, 0), (0, -1))
"""(rows south, columns east) of the cells that repeat posts which a cell holds for all: south-west, south and west."""


class Strip(NamedTuple):
    """A file in a chunk."""

    entry: int
    code: int


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """An array and the files of each of its chunks, the one on top last."""

    array: Array
    chunks: Mapping[tuple[int, int], Sequence[Strip]]

    def blocks(self, lookup: Lookup) -> Iterator[tuple[str, Refs]]:
        rows: list[tuple[int, int, int, int]] = []
        pieces: list[Refs] = []
        for (row, column), strips in sorted(self.chunks.items()):
            part = 0
            for entry, code in strips:
                refs = lookup(entry, 0)
                pieces.append(replace(refs, file=owners(refs, entry)))
                rows += [(row, column, code, part + k) for k in range(len(refs))]
                part += len(refs)
            if len(rows) >= ROWS:
                yield self.array.name, _joined(rows, pieces)
                rows, pieces = [], []
        if rows:
            yield self.array.name, _joined(rows, pieces)


def lay(array: Array, cells: Mapping[tuple[int, int], Sequence[int]], entries: Sequence[Entry], *, valid: bool) -> Laid:
    """The cells at their places; with `valid`, null posts are taken from whichever file has them."""
    book = mosaic_book(array.name)
    last = array.grid[-1] - 1
    chunks: dict[tuple[int, int], list[Strip]] = {}
    for row, column in _touched(cells, array.grid[-2:]):
        own = cells.get((row, column), ())
        if own and not valid:
            (entry,) = own
            trims = {"trim_top": int(row > 0), "trim_right": int(column < last)}
            code = book.number(Encoding((_changed(_codec(entries[entry]), trims),)))
            chunks[row, column] = [Strip(entry, code)]
            continue
        strips: list[Strip] = []
        for south, east in (*NEIGHBOURS, (0, 0)):
            for entry in cells.get((row + south, column + east), ()):
                cell = entries[entry].arrays[0]
                region = _region(cell, row, column, south, east, last)
                encoding = Encoding(cell.encodings[0].codecs, extent=cell.chunks, region=region)
                code = book.number(encoding)
                if strips and strips[-1].code == code:
                    # Two neighbours of one encoding would be taken for one region in two parts.
                    code = book.number(replace(encoding, region=replace(region, layer=1)))
                strips.append(Strip(entry, code))
        chunks[row, column] = strips
    return Laid(replace(array, encodings=tuple(book.encodings)), chunks)


def _touched(cells: Mapping[tuple[int, int], Any], grid: tuple[int, ...]) -> list[tuple[int, int]]:
    """Chunks that some file has posts of."""
    found = set(cells)
    for row, column in cells:
        found |= {(row - south, column - east) for south, east in NEIGHBOURS}
    return sorted((row, column) for row, column in found if row >= 0 and column < grid[1])


def _region(cell: Array, row: int, column: int, south: int, east: int, last: int) -> Region:
    """What a cell `south` and `east` of a chunk holds of it."""
    _, posts, lines = cell.shape
    top, right = int(row > 0), int(column < last)
    high, wide = posts - top, lines - right
    # A neighbour in the south shows its first row of posts, one in the west its last column.
    y = (0, high - 1, 1) if south else (top, 0, high)
    x = (lines - 1, 0, 1) if east else (0, 0, wide)
    nodata = cell.fill if isinstance(cell.fill, int | float) else None
    return Region(begin=(0, y[0], x[0]), at=(0, y[1], x[1]), size=(1, y[2], x[2]), transparent=nodata)


def _codec(entry: Entry) -> Codec:
    (codec,) = entry.arrays[0].encodings[0].codecs
    return codec


def _changed(codec: Codec, settings: Mapping[str, Any]) -> Codec:
    return {**codec, "configuration": {**codec["configuration"], **settings}}


def _joined(rows: Sequence[tuple[int, int, int, int]], pieces: Sequence[Refs]) -> Refs:
    row, column, code, part = np.array(rows, np.int64).T
    return replace(
        Refs.joined(pieces, 3),
        chunk=np.stack([np.zeros_like(row), row, column]).astype(np.int32),
        part=part.astype(np.uint16) if part.any() else None,
        encoding=code.astype(np.uint16) if code.any() else None,
    )
