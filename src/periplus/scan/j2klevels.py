"""Which bytes of every JPEG 2000 tile each lower resolution needs: a prefix, some tile-parts, or packets apart."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from periplus.codestream.packets import LRCP, RLCP, Bounds, Packets, count, ordered
from periplus.codestream.segments import PPT, SOT, Segment, Style, style
from periplus.errors import FormatError
from periplus.scan.j2kmarkers import Codestream
from periplus.scan.j2kpackets import Head

LARGEST_PACKETS = 1 << 21
LARGEST_ROWS = 1 << 20
"""Byte ranges of one level: more of them make an index that is larger than what it saves."""
LARGEST_PARTS = 65_535
SMALLEST_SIDE = 32
"""A resolution whose longer side is shorter than this is not offered: the one before it is small enough."""
SOD = b"\xff\x93"


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Byte ranges as columns, by tile and then in their order."""

    tile: NDArray[np.int64]
    part: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]

    def merged(self) -> Ranges:
        """Neighbours in the file that are neighbours in their tile as one range, numbered anew; empty ones left out."""
        keep = np.flatnonzero(self.length)
        tile, offset, length = self.tile[keep], self.offset[keep], self.length[keep]
        if not len(tile):
            return self
        joined = (tile[1:] == tile[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        starts = np.flatnonzero(np.concatenate([[True], ~joined]))
        return Ranges(tile[starts], ranks(tile[starts]), offset[starts], np.add.reduceat(length, starts))


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The byte ranges of every level that is offered."""

    ranges: tuple[Ranges, ...]
    """By level, the full resolution first."""
    parts: Ranges
    """Tile-parts as they are."""
    starts: tuple[tuple[bytes, ...], ...] | None = None
    """By level and tile: the start of a tile-part that holds nothing but the packets of this level, which follow."""

    def __len__(self) -> int:
        return len(self.ranges)


def ranks(tile: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows of the same tile come before each row of a sorted column."""
    return np.arange(len(tile)) - np.searchsorted(tile, tile)


def levels(
    facts: Codestream, parts: Ranges, heads: Sequence[Head] | None, own: Mapping[int, tuple[Segment, ...]]
) -> Levels:
    """What is offered, given the tile-parts, their headers where all were read, and the `own` segments of tiles."""
    if heads is not None:
        told: dict[int, tuple[Segment, ...]] = {}
        for tile, head in zip(parts.tile.tolist(), heads, strict=True):
            if head.own:
                told[tile] = told.get(tile, ()) + head.own
        own = told
    plain = Levels((parts.merged(),), parts)
    if facts.packed or any(marker == PPT for segments in own.values() for marker, _ in segments):
        return plain
    try:
        styles = {tile: style(facts.steps, facts.segments, segments) for tile, segments in own.items()}
    except FormatError:
        return plain
    most = min([facts.style.levels, *(one.levels for one in styles.values())])
    most = min(most, offered(facts))
    try:
        facts.at(most)
    except FormatError:
        return plain
    if most and facts.style.resolutions_first:
        return _prefixes(facts, parts, heads, styles, most)
    if most and heads is not None and not own:
        return _apart(facts, parts, heads, most) or plain
    return plain


def offered(facts: Codestream) -> int:
    """Lower resolutions in which every tile has a pixel, and the image is not tiny."""
    steps = max(step for pair in facts.steps for step in pair)
    for level in range(1, facts.style.levels + 1):
        sizes = facts.y.edges(level), facts.x.edges(level)
        uneven = steps > 1 and not _even(facts, level + 1)
        if uneven or any(0 in size for size in sizes) or max(map(sum, sizes)) < SMALLEST_SIDE:
            return level - 1
    return facts.style.levels


def aligned(facts: Codestream, level: int) -> bool:
    """Whether tiles begin at multiples of 2^level, and so make a grid at that level too; a single one always does."""
    places = [axis.origin | axis.size for axis in (facts.x, facts.y) if axis.tiles > 1]
    return not any(place & ((1 << level) - 1) for place in places)


def _even(facts: Codestream, level: int) -> bool:
    """Whether every tile begins at multiples of 2^level."""
    starts = (axis.start | (axis.origin | axis.size if axis.tiles > 1 else 0) for axis in (facts.x, facts.y))
    return not any(start & ((1 << level) - 1) for start in starts)


def _prefixes(
    facts: Codestream, parts: Ranges, heads: Sequence[Head] | None, styles: Mapping[int, Style], most: int
) -> Levels:
    """Where resolutions come first: the bytes up to the last packet needed, as far as that is known; else all."""
    counts = None if heads is None else _counted(facts, parts, heads, styles)
    if counts is not None and heads is not None:
        lengths = [_up_to(heads, parts, counts, facts.style.levels, level) for level in range(most + 1)]
    else:
        needed = _divided(facts, parts, styles)
        lengths = [np.where(parts.part < needed[level][parts.tile], parts.length, 0) for level in range(most + 1)]
    whole = np.zeros(facts.tiles, bool)
    whole[[tile for tile, one in styles.items() if not one.resolutions_first]] = True
    lengths = [np.where(whole[parts.tile], parts.length, length) for length in lengths]
    lengths[0] = parts.length
    return Levels(tuple(Ranges(parts.tile, parts.part, parts.offset, n).merged() for n in lengths), parts)


def _counted(
    facts: Codestream, parts: Ranges, heads: Sequence[Head], styles: Mapping[int, Style]
) -> NDArray[np.int64] | None:
    """(tile, resolution): packets up to and with each resolution; None where the lists are not as long."""
    listed = np.bincount(parts.tile, [len(head.sizes if head.sizes is not None else ()) for head in heads])
    counts = np.zeros((facts.tiles, facts.style.levels + 1), np.int64)
    for tile in range(facts.tiles):
        one, bounds = styles.get(tile, facts.style), facts.bounds(tile)
        if not one.resolutions_first:
            continue
        sites = [count(bounds, one.codings, resolution) for resolution in range(one.levels + 1)]
        # Levels are counted from the finest one, wherever a tile has more or fewer of them.
        totals = (np.cumsum(sites) * one.layers)[::-1][: facts.style.levels + 1][::-1]
        counts[tile, -len(totals) :] = totals
        if totals[-1] != listed[tile]:
            return None
    return counts


def _up_to(
    heads: Sequence[Head], parts: Ranges, counts: NDArray[np.int64], finest: int, level: int
) -> NDArray[np.int64]:
    """Bytes of every tile-part up to the last packet that a level needs."""
    lengths = np.zeros(len(heads), np.int64)
    tile, before = -1, 0
    for row, head in enumerate(heads):
        before = before if parts.tile[row] == tile else 0
        tile = int(parts.tile[row])
        sizes = head.sizes if head.sizes is not None else np.zeros(0, np.int64)
        wanted = min(max(int(counts[tile, finest - level]) - before, 0), len(sizes))
        lengths[row] = head.length + int(sizes[:wanted].sum()) if wanted else 0
        before += len(sizes)
    return lengths


def _divided(facts: Codestream, parts: Ranges, styles: Mapping[int, Style]) -> NDArray[np.int64]:
    """(level, tile): how many tile-parts hold a level, where their number says how the encoder divided tiles.

    Encoders begin a new one at every resolution, or at every layer, component or precinct within it. Where a foreign
    division has as many tile-parts by chance, the decoder notices that packets are missing.
    """
    number = np.bincount(parts.tile)
    everything = np.broadcast_to(number, (facts.style.levels + 1, facts.tiles))
    if int(number.min()) <= facts.style.levels:
        return everything
    shares = [
        _shares(facts.bounds(tile), styles.get(tile, facts.style), facts.style.levels) for tile in range(facts.tiles)
    ]
    for way in range(4):
        found = np.array([share[way] for share in shares]).T
        if np.array_equal(found[-1], number):
            return found[::-1]
    return everything


def _shares(bounds: Bounds, one: Style, levels: int) -> list[NDArray[np.int64]]:
    """Tile-parts up to and with each resolution, for each way to divide a tile."""
    if one.levels != levels or not one.resolutions_first:
        return [np.zeros(levels + 1, np.int64)] * 4
    sites = np.array([count(bounds, one.codings, resolution) for resolution in range(levels + 1)])
    components, single = len(one.codings), np.ones(levels + 1, np.int64)
    if one.progression in (LRCP, RLCP):
        ways = [single, single * one.layers, single * one.layers * components, sites * one.layers]
    else:
        ways = [single, sites // components, sites, sites * one.layers]
    return [np.cumsum(way) for way in ways]


def _apart(facts: Codestream, parts: Ranges, heads: Sequence[Head], most: int) -> Levels | None:
    """In any other order: the packets of a level one by one, behind a start of a tile-part of their own."""
    while most and not aligned(facts, most):
        most -= 1
    one = facts.style
    totals = [count(facts.bounds(tile), one.codings) * one.layers for tile in range(facts.tiles)]
    sizes = [head.sizes if head.sizes is not None else np.zeros(0, np.int64) for head in heads]
    listed = np.bincount(parts.tile, [len(size) for size in sizes])
    if not most or sum(totals) > LARGEST_PACKETS or not np.array_equal(listed, totals):
        return None
    # Where each packet lies: behind those before it in its tile-part.
    offset = np.concatenate(
        [at + head.length + np.cumsum(n) - n for at, head, n in zip(parts.offset, heads, sizes, strict=True)]
    )
    length = np.concatenate(sizes)
    tile = np.repeat(np.arange(facts.tiles), totals)
    finest = np.array([len(coding.precincts) for coding in one.codings])
    packets = [_packets(facts, number) for number in range(facts.tiles)]
    depth = np.concatenate([finest[found.component] - 1 - found.resolution for found in packets])
    if len(depth) != len(length):
        return None
    ranges, starts = [parts.merged()], [tuple[bytes, ...]()]
    for level in range(1, most + 1):
        if not _even(facts, level) and not all(_same(facts, n, found, level) for n, found in enumerate(packets)):
            break
        kept = depth >= level
        found = Ranges(tile[kept], tile[kept], offset[kept], length[kept]).merged()
        if len(found.tile) > LARGEST_ROWS or int(found.part.max()) >= LARGEST_PARTS:
            break
        held = np.bincount(found.tile, found.length, facts.tiles).astype(np.int64)
        ranges.append(found)
        starts.append(tuple(_start(number, size) for number, size in enumerate(held.tolist())))
    return Levels(tuple(ranges), parts, tuple(starts))


def _packets(facts: Codestream, tile: int) -> Packets:
    one = facts.style
    return ordered(facts.bounds(tile), one.codings, one.layers, one.progression, one.changes)


def _same(facts: Codestream, tile: int, packets: Packets, level: int) -> bool:
    """Whether the packets of a level keep their order where nothing else is there.

    Precincts are met where they begin, and those that an odd edge of a tile cuts at that edge: at a lower resolution
    two places may become one, and two packets change places.
    """
    one = facts.style
    left, top, right, bottom = (-(-place >> level) for place in facts.bounds(tile))
    codings = [replace(coding, precincts=coding.precincts[:-level]) for coding in one.codings]
    fewer = ordered((left, top, right, bottom), codings, one.layers, one.progression, one.changes)
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
    return struct.pack(">HHHIBB", SOT, 10, tile, 14 + length, 0, 1) + SOD
