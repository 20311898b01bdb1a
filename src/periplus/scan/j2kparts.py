"""Where the tile-parts of a JPEG 2000 codestream lie: from its table of lengths, else hopping from one to the next."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Need
from periplus.scan.blocks import Blocks
from periplus.scan.j2kmarkers import COC, COD, EOC, POC, PPT, SOD, SOT, Codestream, main_header
from periplus.scan.j2kpackets import PLT, needed

SOT_BYTES = 14
"""The start of a tile-part: its SOT segment and the marker after it."""
SMALL_BYTES = 1_024
"""Where tile-parts are shorter than this on average, the starts of many are read with one request."""
AHEAD_BYTES = 32_768
LARGEST_SEGMENTS = 512
"""In the header of a tile-part; with more of them no lower resolutions are looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Tile-parts as columns, by tile and then in their order."""

    tile: NDArray[np.int64]
    part: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    needed: NDArray[np.int64] | None = None
    """(level, tile-part): bytes of each that each lower resolution needs, where packets have known lengths."""

    def at(self, level: int, levels: int) -> Ranges:
        """Only what a level needs, as far as that is known; whole tiles where nothing is."""
        length = self.length
        if level and self.needed is not None:
            length = self.needed[level]
        elif level and self.parts() == {levels + 1}:
            # Encoders divide tiles so by resolution; the decoder fails where this one did not.
            length = np.where(self.part < levels + 1 - level, self.length, 0)
        keep = length > 0
        return Ranges(self.tile[keep], self.part[keep], self.offset[keep], length[keep])

    def merged(self) -> Ranges:
        """Neighbours in the file that are neighbours in their tile as one range, numbered anew."""
        if not len(self.tile):
            return self
        joined = (self.tile[1:] == self.tile[:-1]) & (self.offset[1:] == self.offset[:-1] + self.length[:-1])
        starts = np.flatnonzero(np.concatenate([[True], ~joined]))
        tile, offset = self.tile[starts], self.offset[starts]
        return Ranges(tile, _ranks(tile), offset, np.add.reduceat(self.length, starts))

    def parts(self) -> set[int]:
        """How many tile-parts tiles have."""
        return {int(n) for n in np.unique(np.bincount(self.tile))}


def scan_codestream(
    blocks: Blocks, offset: int, length: int | None, limits: Limits
) -> Generator[Need, Any, tuple[Codestream, Ranges]]:
    """Facts and tile-parts of the codestream at a place in a file; a length of None means to the file's end."""
    end = blocks.size if length is None else offset + length
    if end is not None:
        blocks.check("the codestream", offset, end - offset)
    facts = yield from main_header(blocks, offset, end, limits)
    if end is None:
        end = blocks.size
    head = 0
    if facts.resolutions_first:
        uniform, head = yield from _uniform(blocks, facts, end)
        facts = replace(facts, resolutions_first=uniform)
    listed = None if end is None else (yield from _listed(blocks, facts, end))
    tile, start, size = listed or (yield from _hop(blocks, facts, end, limits, head))
    order = np.argsort(tile, kind="stable")
    tile = tile[order]
    present = len(np.unique(tile))
    if present != facts.tiles:
        raise FormatError(f"the codestream holds {present} of its {facts.tiles} tiles", offset=offset)
    ranges = Ranges(tile, _ranks(tile), start[order], size[order])
    if head and facts.resolutions_first and ranges.parts() != {facts.levels + 1}:
        ranges = replace(ranges, needed=(yield from needed(blocks, facts, tile, ranges.offset, ranges.length, head)))
    return facts, ranges


Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _ranks(tile: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows of the same tile come before each row of a sorted column."""
    return np.arange(len(tile)) - np.searchsorted(tile, tile)


def _listed(blocks: Blocks, facts: Codestream, end: int) -> Generator[Need, Any, Columns | None]:
    """Tile-parts as the main header lists them; None where the list does not fit the codestream."""
    if facts.lengths is None:
        return None
    tile, size = facts.lengths
    total = int(size.sum())
    if not len(tile) or size.min() < SOT_BYTES or tile.max() >= facts.tiles or not 0 <= end - facts.first - total <= 2:
        return None
    start = facts.first + np.concatenate([[0], np.cumsum(size)[:-1]])
    # The first and the last one are looked at: a list that is off by anything does not survive both.
    for row in {0, len(tile) - 1}:
        at = int(start[row])
        yield from blocks.hold("a tile-part", at, SOT_BYTES, sparse=True)
        marker, number, declared, _ = _start(blocks, at)
        if marker != SOT or number != tile[row] or declared not in (0, size[row]):
            return None
    return tile, start, size


def _hop(
    blocks: Blocks, facts: Codestream, end: int | None, limits: Limits, head: int
) -> Generator[Need, Any, Columns]:
    """Tile-parts one after the other; little more than their first bytes is asked for.

    `head` bytes of packet lengths are taken along at the start of each.
    """
    tile: list[int] = []
    start: list[int] = []
    size: list[int] = []
    seen: dict[int, int] = {}
    position, ahead = facts.first, head
    while end is None or position + 2 < end:
        yield from blocks.hold("a tile-part", position, 2, ahead=SOT_BYTES - 2 + ahead, sparse=True)
        end = blocks.size if end is None else end
        place = blocks.locate(position, 2)
        if place is not None and place[0][place[1] : place[1] + 2] == EOC.to_bytes(2, "big"):
            break
        yield from blocks.hold("a tile-part", position, SOT_BYTES, sparse=True)
        marker, number, length, part = _start(blocks, position)
        if marker != SOT or number >= facts.tiles:
            raise FormatError("there is no tile-part, or one of no tile, where one should be", offset=position)
        if part != seen.get(number, 0) % 256:
            raise FormatError(f"the tile-parts of tile {number} are out of order", offset=position)
        if length == 0:
            if end is None:
                raise FormatError("a last tile-part without a length, in a file of unknown size", offset=position)
            length = end - position
        if length < SOT_BYTES or (end is not None and position + length > end):
            raise FormatError("a tile-part runs past the end of the codestream", offset=position)
        limits.check("the number of tile-parts", len(tile) + 1, min(limits.chunks, 255 * 65_535), offset=position)
        tile.append(number)
        start.append(position)
        size.append(length)
        seen[number] = seen.get(number, 0) + 1
        position += length
        ahead = AHEAD_BYTES if len(tile) > 3 and position - facts.first < SMALL_BYTES * len(tile) else head
    return np.array(tile, np.int64), np.array(start, np.int64), np.array(size, np.int64)


def _uniform(blocks: Blocks, facts: Codestream, end: int | None) -> Generator[Need, Any, tuple[bool, int]]:
    """Whether the first tile-part has no order of packets or number of resolutions of its own.

    And how long its header is, where that lists the lengths of packets; else 0.
    """
    position, listed = facts.first + SOT_BYTES - 2, False
    for _ in range(LARGEST_SEGMENTS):
        yield from blocks.hold("the header of a tile-part", position, 2, sparse=True)
        marker = _number(blocks, position, 2)
        if marker == SOD:
            return True, position + 2 - facts.first if listed else 0
        if marker in (POC, PPT):
            break
        yield from blocks.hold("the header of a tile-part", position, 14, sparse=True)
        length = _number(blocks, position + 2, 2)
        if marker < 0xFF50 or length < 2 or (end is not None and position + 2 + length > end):
            break
        if marker == COD:
            order, layers = _number(blocks, position + 5, 1), _number(blocks, position + 6, 2)
            own = (order, layers, _number(blocks, position + 9, 1))
            if own != (facts.progression, facts.layers, facts.levels):
                break
        if marker == COC and _number(blocks, position + (6 if facts.components < 257 else 7), 1) != facts.levels:
            break
        listed |= marker == PLT
        position += 2 + length
    return False, 0


def _number(blocks: Blocks, offset: int, length: int) -> int:
    place = blocks.locate(offset, length)
    if place is None:
        raise FormatError("the codestream ends early", offset=offset)
    return int.from_bytes(place[0][place[1] : place[1] + length], "big")


def _start(blocks: Blocks, position: int) -> tuple[int, int, int, int]:
    """Marker, tile, length and number of the tile-part that begins at a position."""
    place = blocks.locate(position, SOT_BYTES)
    if place is None:
        raise FormatError("the codestream ends early", offset=position)
    raw = place[0][place[1] : place[1] + SOT_BYTES]
    if raw[12] != 0xFF or raw[2:4] != b"\0\x0a":
        return 0, 0, 0, 0
    return int.from_bytes(raw[:2], "big"), int.from_bytes(raw[4:6], "big"), int.from_bytes(raw[6:10], "big"), raw[10]
