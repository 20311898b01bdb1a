"""Where the tile-parts of a JPEG 2000 codestream lie: from its table of lengths, else hopping from one to the next."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Step
from periplus.parse.jpeg2000.segments import COM, EOC, PLT, SOD, SOT, Segment
from periplus.scan.blocks import Blocks
from periplus.scan.jpeg2000.levels import divided, levels, offered
from periplus.scan.jpeg2000.markers import Codestream, main_header
from periplus.scan.jpeg2000.packets import head, heads
from periplus.scan.jpeg2000.ranges import Levels, Ranges, ranks

SOT_BYTES = 14
"""The start of a tile-part: its SOT segment and the marker after it."""
SMALL_BYTES = 1_024
"""Where the last RECENT tile-parts are shorter than this on average, the starts of many are read with one request."""
RECENT, TOGETHER = 4, 32
AHEAD_BYTES = 32_768
"""At most so much, and no more than a 512th of the codestream, is read at once for the starts of tile-parts."""
LARGEST_LISTED = 4_096
"""Tile-parts whose lists of packets are asked for where a table says already how long they are."""
LARGEST_HEADERS = 4_096
"""Headers of tile-parts that are looked into, where they hold more than they must."""


def scan_codestream(
    blocks: Blocks, offset: int, length: int | None, limits: Limits, *, absent: Sequence[int] = ()
) -> Generator[Step, Any, tuple[Codestream, Levels]]:
    """Facts and byte ranges of the codestream at a place in a file; a length of None means to the file's end.

    `absent` are tiles that it may lack.
    """
    end = blocks.size if length is None else offset + length
    if end is not None:
        blocks.check("the codestream", offset, end - offset)
    facts = yield from main_header(blocks, offset, end, limits)
    if end is None:
        end = blocks.size
    # Where the first tile-part lists its packets all of them do, and the lists are taken along.
    ahead = 0
    wanted = offered(facts) and not facts.packed
    if wanted:
        first = yield from head(blocks, facts.first, end)
        ahead = first.length if first is not None and (first.sizes is not None or facts.packets) else 0
    listed = None if end is None else (yield from _listed(blocks, facts, end))
    tile, start, size, odd = listed or (yield from _hop(blocks, facts, end, limits, ahead))
    counted = listed is None and end is not None and (yield from _counted(blocks, start, size, end))
    order = np.argsort(tile, kind="stable")
    tile = tile[order]
    present = np.unique(tile)
    known = np.union1d(present, np.array(absent, np.int64))
    if len(present) != facts.tiles and facts.holds(np.setdiff1d(np.arange(facts.tiles), known)).any():
        raise FormatError(f"the codestream holds {len(present)} of its {facts.tiles} tiles", offset=offset)
    parts = Ranges(tile, ranks(tile), start[order], size[order])
    if counted:
        return facts, Levels((parts.merged(),), parts)
    if ahead and listed is not None and (len(tile) > LARGEST_LISTED or divided(facts, parts)):
        # A table spared the way from one to the next: going it for the sake of packets must be worth it.
        ahead = 0
    found = (yield from heads(blocks, facts, parts.offset, parts.length, ahead)) if ahead else None
    own = {} if found is not None or not wanted else (yield from _own(blocks, odd, end))
    return facts, levels(facts, parts, found, own)


Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], dict[int, int]]
"""Tile, offset and length of tile-parts; and tiles by the offset of the tile-parts that have a longer header."""


def _own(blocks: Blocks, odd: dict[int, int], end: int | None) -> Generator[Step, Any, dict[int, tuple[Segment, ...]]]:
    """How tiles are coded in a way of their own, as far as is known which ones are."""
    found: dict[int, tuple[Segment, ...]] = {}
    for start, tile in list(odd.items())[:LARGEST_HEADERS]:
        read = yield from head(blocks, start, end)
        if read is not None and read.own:
            found[tile] = found.get(tile, ()) + read.own
    return found


def _listed(blocks: Blocks, facts: Codestream, end: int) -> Generator[Step, Any, Columns | None]:
    """Tile-parts as the main header lists them; None where the list does not fit the codestream."""
    if facts.lengths is None:
        return None
    tile, size = facts.lengths
    total = int(size.sum())
    if not len(tile) or size.min() < SOT_BYTES or tile.max() >= facts.tiles or not 1 <= end - facts.first - total <= 2:
        return None
    start = facts.first + np.concatenate([[0], np.cumsum(size)[:-1]])
    odd: dict[int, int] = {}
    # The first and the last one are looked at: a list that is off by anything does not survive both.
    for row in {0, len(tile) - 1}:
        at = int(start[row])
        yield from blocks.hold("a tile-part", at, SOT_BYTES, sparse=True)
        marker, number, declared, _, following = _start(blocks, at)
        if marker != SOT or number != tile[row] or declared not in (0, size[row]):
            return None
        if following not in (SOD, PLT, COM):
            odd[at] = number
    return tile, start, size, odd


def _hop(
    blocks: Blocks, facts: Codestream, end: int | None, limits: Limits, head: int
) -> Generator[Step, Any, Columns]:
    """Tile-parts one after the other; little more than their first bytes is asked for.

    `head` bytes of packet lengths are taken along at the start of each.
    """
    tile: list[int] = []
    start: list[int] = []
    size: list[int] = []
    seen: dict[int, int] = {}
    odd: dict[int, int] = {}
    position, ahead = facts.first, head
    while end is None or position + 2 < end:
        yield from blocks.hold("a tile-part", position, 2, ahead=SOT_BYTES - 2 + ahead, sparse=True)
        end = blocks.size if end is None else end
        place = blocks.locate(position, 2)
        if place is not None and place[0][place[1] : place[1] + 2] == EOC.to_bytes(2, "big"):
            break
        yield from blocks.hold("a tile-part", position, SOT_BYTES, sparse=True)
        marker, number, length, part, following = _start(blocks, position)
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
        if following not in (SOD, PLT, COM):
            odd[position] = number
        position += length
        ahead = head
        if len(size) >= RECENT and (recent := sum(size[-RECENT:])) < RECENT * SMALL_BYTES:
            ahead = max(
                head, min(TOGETHER * recent // RECENT, AHEAD_BYTES if end is None else (end - facts.first) >> 9)
            )
    return np.array(tile, np.int64), np.array(start, np.int64), np.array(size, np.int64), odd


def _counted(blocks: Blocks, start: NDArray[np.int64], size: NDArray[np.int64], end: int) -> Generator[Step, Any, bool]:
    """Whether the last tile-part counts the mark of the codestream's end, or lacks two bytes: coded data hold none.

    Only its packets tell which it is, when all of it is read; so no part of it is referred to alone.
    """
    if not len(start) or int(start[-1] + size[-1]) != end:
        return False
    at = int(start[-1])
    yield from blocks.hold("a tile-part", at, SOT_BYTES, sparse=True)
    yield from blocks.hold("the end of the codestream", end - 2, 2, sparse=True)
    place = blocks.locate(end - 2, 2)
    ended = place is not None and place[0][place[1] : place[1] + 2] == EOC.to_bytes(2, "big")
    return ended and _start(blocks, at)[2] != 0


def _start(blocks: Blocks, position: int) -> tuple[int, int, int, int, int]:
    """Marker, tile, length and number of the tile-part that begins at a position, and the marker that follows."""
    place = blocks.locate(position, SOT_BYTES)
    if place is None:
        raise FormatError("the codestream ends early", offset=position)
    raw = place[0][place[1] : place[1] + SOT_BYTES]
    if raw[12] != 0xFF or raw[2:4] != b"\0\x0a":
        return 0, 0, 0, 0, 0
    marker, _, tile, length, part, _, following = struct.unpack(">HHHIBBH", raw)
    return marker, tile, length, part, following
