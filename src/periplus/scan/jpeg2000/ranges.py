"""Byte ranges of JPEG 2000 tiles as columns: whole tile-parts, and the single packets that a level needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from periplus.parse.jpeg2000.packets import PacketOrder, count_precincts, packet_order
from periplus.parse.jpeg2000.segments import TilePartStart, pack_tile_part
from periplus.scan.jpeg2000.headers import TilePartHeader
from periplus.scan.jpeg2000.markers import Codestream

LARGEST_PACKETS = 1 << 21
LARGEST_ROWS = 1 << 20
"""Byte ranges of one level: more of them make an index that is larger than what it saves."""
LARGEST_PARTS = 65_535
SOD = b"\xff\x93"


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


def packet_levels(
    facts: Codestream, parts: TileRanges, heads: Sequence[TilePartHeader], most: int
) -> LevelRanges | None:
    """The packets of up to `most` levels, each level after a tile-part header of its own; None if there are none."""
    while most and not aligned(facts, most):
        most -= 1
    one = facts.style
    sizes = [head.sizes if head.sizes is not None else np.zeros(0, np.int64) for head in heads]
    if not most or sum(map(len, sizes)) > LARGEST_PACKETS:
        return None
    there = np.unique(parts.tile)
    totals = [count_precincts(facts.bounds(tile), one.codings) * one.layers for tile in there.tolist()]
    listed = np.bincount(parts.tile, [len(size) for size in sizes])
    if not np.array_equal(listed[there], totals):
        return None
    # Each packet follows the ones before it in its tile-part.
    offset = np.concatenate(
        [at + head.length + np.cumsum(n) - n for at, head, n in zip(parts.offset, heads, sizes, strict=True)]
    )
    length = np.concatenate(sizes)
    tile = np.repeat(there, totals)
    depth, steady = _depths(facts, most, there.tolist())
    if len(depth) != len(length):
        return None
    ranges, starts = [parts.merged()], [tuple[bytes, ...]()]
    for level in range(1, steady + 1):
        kept = depth >= level
        found = TileRanges(tile[kept], tile[kept], offset[kept], length[kept]).merged()
        if len(found.tile) > LARGEST_ROWS or int(found.part.max()) >= LARGEST_PARTS:
            break
        held = np.bincount(found.tile, found.length, facts.size.tiles).astype(np.int64)
        ranges.append(found)
        starts.append(tuple(_start(number, size) for number, size in enumerate(held.tolist())))
    return LevelRanges(tuple(ranges), parts, tuple(starts))


def aligned(facts: Codestream, level: int) -> bool:
    """Whether tiles begin at multiples of 2^level, and so make a grid at that level too; a single one always does."""
    places = [axis.origin | axis.size for axis in (facts.x, facts.y) if axis.tiles > 1]
    return not any(place & ((1 << level) - 1) for place in places)


def at_multiples(facts: Codestream, across: int, down: int) -> bool:
    """Whether every tile begins at multiples of these."""
    for axis, unit in ((facts.x, across), (facts.y, down)):
        places = [axis.start, axis.origin, axis.size] if axis.tiles > 1 else [axis.start]
        if any(place % unit for place in places):
            return False
    return True


def even(facts: Codestream, level: int) -> bool:
    """Whether every tile begins at multiples of 2^level of the components' values."""
    return at_multiples(facts, facts.x.step << level, facts.y.step << level)


def _depths(facts: Codestream, most: int, tiles: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """How many levels below the finest of its component each packet of the tiles is, in their order.

    And up to which level packets keep that order where nothing else is there.
    """
    one, steady = facts.style, most
    finest = np.array([len(coding.precincts) for coding in one.codings])
    known: dict[tuple[int, ...], NDArray[np.int64]] = {}
    unit, found = _unit(facts), []
    for tile in tiles:
        left, top, right, bottom = bounds = facts.bounds(tile)
        # Tiles of the same size and position relative to the precincts have the same packets.
        like = right - left, bottom - top, left % unit, top % unit, left == 0, top == 0
        if like not in known:
            packets = packet_order(bounds, one.codings, one.layers, one.progression, one.changes)
            known[like] = finest[packets.component] - 1 - packets.resolution
            uneven = (level for level in range(1, steady + 1) if not even(facts, level))
            steady = next((level - 1 for level in uneven if not _same(facts, tile, packets, level)), steady)
        found.append(known[like])
    return np.concatenate(found), steady


def _unit(facts: Codestream) -> int:
    """Tiles whose offsets differ by a multiple of this have the same position relative to the precincts.

    A precinct larger than the image divides nothing; only whether a tile begins with it matters.
    """
    unit = 1
    for coding in facts.style.codings:
        for resolution, sizes in enumerate(coding.precincts):
            shift = len(coding.precincts) - 1 - resolution
            for step, size, end in zip(coding.steps, sizes, (facts.x.stop, facts.y.stop), strict=True):
                whole = step << (shift + size)
                unit = math.lcm(unit, whole if whole < end else step << shift)
    return unit


def _same(facts: Codestream, tile: int, packets: PacketOrder, level: int) -> bool:
    """Whether the packets of a level keep their order where nothing else is there.

    Precincts are ordered by their origin, or by the tile edge that cuts them: at a lower resolution two of these may
    coincide, and two packets swap.
    """
    one = facts.style
    left, top, right, bottom = (-(-place >> level) for place in facts.bounds(tile))
    codings = [replace(coding, precincts=coding.precincts[:-level]) for coding in one.codings]
    fewer = packet_order((left, top, right, bottom), codings, one.layers, one.progression, one.changes)
    finest = np.array([len(coding.precincts) for coding in one.codings])
    kept = packets.resolution < finest[packets.component] - level
    return all(
        np.array_equal(column[kept], other)
        for column, other in (
            (packets.layer, fewer.layer),
            (packets.resolution, fewer.resolution),
            (packets.component, fewer.component),
            (packets.precinct, fewer.precinct),
        )
    )


def _start(tile: int, length: int) -> bytes:
    return pack_tile_part(TilePartStart(tile, 14 + length, 0, 1)) + SOD
