"""Byte ranges of JPEG 2000 tiles as columns: those of a level, and those of all levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TileRanges:
    """Byte ranges as columns, by tile and then in their order."""

    tile: NDArray[np.int64]
    part: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]

    def merged(self) -> TileRanges:
        """Neighbours in the file that are neighbours in their tile as one range, renumbered; empty ranges omitted."""
        keep = np.flatnonzero(self.length)
        tile, offset, length = self.tile[keep], self.offset[keep], self.length[keep]
        if not len(tile):
            return self
        joined = (tile[1:] == tile[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        starts = np.flatnonzero(np.concatenate([[True], ~joined]))
        return TileRanges(tile[starts], ranks(tile[starts]), offset[starts], np.add.reduceat(length, starts))


@dataclass(frozen=True, slots=True, eq=False)
class LevelRanges:
    """The byte ranges of every level that is offered."""

    ranges: tuple[TileRanges, ...]
    """By level, the full resolution first."""
    parts: TileRanges
    """Tile-parts as stored."""
    starts: tuple[tuple[bytes, ...], ...] | None = None
    """By level and tile: the start of a tile-part that holds nothing but the packets of this level, which follow."""

    def __len__(self) -> int:
        return len(self.ranges)


def ranks(tile: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows of the same tile come before each row of a sorted column."""
    return np.arange(len(tile)) - np.searchsorted(tile, tile)
