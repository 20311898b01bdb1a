"""The bytes of every JPEG 2000 tile that each lower resolution needs: a prefix, some tile-parts, or single packets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.parse.jpeg2000.packets import LRCP, RLCP, Bounds, count_precincts
from periplus.parse.jpeg2000.segments import PPT, CodingStyle, Segment, coding_style
from periplus.scan.jpeg2000.headers import TilePartHeader
from periplus.scan.jpeg2000.markers import Codestream
from periplus.scan.jpeg2000.ranges import LevelRanges, TileRanges, at_multiples, packet_levels

LARGEST_WORK = 1 << 20
"""Most (tile, component, resolution) whose precincts are counted; each takes a microsecond."""
SMALLEST_SIDE = 32
"""A resolution whose longer side is shorter than this is not offered: the one before it is small enough."""


def levels(
    facts: Codestream, parts: TileRanges, heads: Sequence[TilePartHeader] | None, own: Mapping[int, tuple[Segment, ...]]
) -> LevelRanges:
    """The offered levels, from the tile-parts, their headers if all were read, and the `own` segments of tiles."""
    if heads is not None:
        overrides: dict[int, tuple[Segment, ...]] = {}
        for tile, head in zip(parts.tile.tolist(), heads, strict=True):
            if head.own:
                overrides[tile] = overrides.get(tile, ()) + head.own
        own = overrides
    plain = LevelRanges((parts.merged(),), parts)
    if facts.size.count * len(own) > LARGEST_WORK or not len(parts.tile):
        return plain
    if facts.packed or any(marker == PPT for segments in own.values() for marker, _ in segments):
        return plain
    try:
        styles = {tile: coding_style(facts.size.steps, facts.segments, segments) for tile, segments in own.items()}
    except FormatError:
        return plain
    most = min([facts.style.levels, *(one.levels for one in styles.values())])
    most = min(most, offered(facts))
    try:
        facts.at(most)
    except FormatError:
        return plain
    heads = None if _too_many(facts) else heads
    if most and facts.style.resolutions_first:
        # A prefix is one range of a tile, which every form of an index can express.
        return _prefixes(facts, parts, heads, styles, most)
    if most and heads is not None and not own:
        return packet_levels(facts, parts, heads, most) or plain
    return plain


def divided(facts: Codestream, parts: TileRanges) -> bool:
    """Whether the number of tile-parts alone shows which of them hold which resolution."""
    if not facts.style.resolutions_first or not facts.style.levels:
        return False
    needed = _divided(facts, parts, {})
    return bool((needed[-1] < needed[0]).all())


def _too_many(facts: Codestream) -> bool:
    """Whether counting precincts would take too long."""
    return facts.size.tiles * facts.size.count * (facts.style.levels + 1) > LARGEST_WORK


def offered(facts: Codestream) -> int:
    """Lower resolutions in which every tile has a pixel, and the image is not tiny."""
    if facts.joined:
        return 0
    for level in range(1, facts.style.levels + 1):
        sizes = facts.y.edges(level), facts.x.edges(level)
        # Tiles that begin at whole steps now must do so at that level too.
        uneven = len(set(facts.size.steps)) > 1 and not at_multiples(
            facts, facts.x.whole << level, facts.y.whole << level
        )
        if uneven or any(0 in size for size in sizes) or max(map(sum, sizes)) < SMALLEST_SIDE:
            return level - 1
    return facts.style.levels


def _prefixes(
    facts: Codestream,
    parts: TileRanges,
    heads: Sequence[TilePartHeader] | None,
    styles: Mapping[int, CodingStyle],
    most: int,
) -> LevelRanges:
    """Where resolutions come first: the bytes up to the last packet needed, as far as that is known; else all."""
    counts = None if heads is None else _counted(facts, parts, heads, styles)
    if counts is not None and heads is not None:
        lengths = [_up_to(heads, parts, counts, facts.style.levels, level) for level in range(most + 1)]
    else:
        needed = _divided(facts, parts, styles)
        lengths = [np.where(parts.part < needed[level][parts.tile], parts.length, 0) for level in range(most + 1)]
    whole = np.zeros(facts.size.tiles, bool)
    whole[[tile for tile, one in styles.items() if not one.resolutions_first]] = True
    lengths = [np.where(whole[parts.tile], parts.length, length) for length in lengths]
    lengths[0] = parts.length
    return LevelRanges(tuple(TileRanges(parts.tile, parts.part, parts.offset, n).merged() for n in lengths), parts)


def _counted(
    facts: Codestream, parts: TileRanges, heads: Sequence[TilePartHeader], styles: Mapping[int, CodingStyle]
) -> NDArray[np.int64] | None:
    """(tile, resolution): packets up to and with each resolution; None where the lists are not as long."""
    sizes = [len(head.sizes if head.sizes is not None else ()) for head in heads]
    listed = np.bincount(parts.tile, sizes, minlength=facts.size.tiles)
    counts = np.zeros((facts.size.tiles, facts.style.levels + 1), np.int64)
    for tile in np.unique(parts.tile).tolist():
        one, bounds = styles.get(tile, facts.style), facts.bounds(tile)
        if not one.resolutions_first:
            continue
        sites = [count_precincts(bounds, one.codings, resolution) for resolution in range(one.levels + 1)]
        # Levels are counted from the finest one, wherever a tile has more or fewer of them.
        totals = (np.cumsum(sites) * one.layers)[::-1][: facts.style.levels + 1][::-1]
        counts[tile, -len(totals) :] = totals
        if totals[-1] != listed[tile]:
            return None
    return counts


def _up_to(
    heads: Sequence[TilePartHeader], parts: TileRanges, counts: NDArray[np.int64], finest: int, level: int
) -> NDArray[np.int64]:
    """Bytes of every tile-part up to the last packet that a level needs."""
    lengths = np.zeros(len(heads), np.int64)
    tile, before = -1, 0
    for row, head in enumerate(heads):
        before = before if parts.tile[row] == tile else 0
        tile = int(parts.tile[row])
        sizes = head.sizes if head.sizes is not None else np.zeros(0, np.int64)
        missing = max(int(counts[tile, finest - level]) - before, 0)
        # A tile-part without packets counts too, where others follow.
        lengths[row] = head.length + int(sizes[: min(missing, len(sizes))].sum()) if missing else 0
        before += len(sizes)
    return lengths


def _divided(facts: Codestream, parts: TileRanges, styles: Mapping[int, CodingStyle]) -> NDArray[np.int64]:
    """(level, tile): how many tile-parts hold a level, if their number shows how the encoder divided tiles.

    Encoders begin a new one at every resolution, or at every layer, component or precinct within it. If another
    division has the same number of tile-parts by chance, the decoder detects that packets are missing.
    """
    number = np.bincount(parts.tile, minlength=facts.size.tiles)
    # A mask may declare tiles absent, and some hold nothing.
    there = number > 0
    everything = np.broadcast_to(number, (facts.style.levels + 1, facts.size.tiles))
    if int(number[there].min()) <= facts.style.levels or _too_many(facts):
        return everything
    shares = [
        _shares(facts.bounds(tile), styles.get(tile, facts.style), facts.style.levels)
        for tile in range(facts.size.tiles)
    ]
    for way in range(4):
        found = np.array([share[way] for share in shares]).T
        if np.array_equal(found[-1][there], number[there]):
            return found[::-1]
    return everything


def _shares(bounds: Bounds, one: CodingStyle, levels: int) -> list[NDArray[np.int64]]:
    """Tile-parts up to and with each resolution, for each way to divide a tile."""
    if one.levels != levels or not one.resolutions_first:
        return [np.zeros(levels + 1, np.int64)] * 4
    sites = np.array([count_precincts(bounds, one.codings, resolution) for resolution in range(levels + 1)])
    components, single = len(one.codings), np.ones(levels + 1, np.int64)
    if one.progression in (LRCP, RLCP):
        ways = [single, single * one.layers, single * one.layers * components, sites * one.layers]
    else:
        ways = [single, sites // components, sites, sites * one.layers]
    return [np.cumsum(way) for way in ways]
