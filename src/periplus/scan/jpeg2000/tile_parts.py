"""Where the tile-parts of a JPEG 2000 codestream lie: from its table of lengths, else hopping from one to the next."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Step
from periplus.parse.jpeg2000.segments import COM, EOC, PLT, SOD, Segment, TilePartStart, parse_tile_part
from periplus.scan.buffer import FileBuffer
from periplus.scan.jpeg2000.levels import divided, levels, offered
from periplus.scan.jpeg2000.markers import Codestream, main_header
from periplus.scan.jpeg2000.packets import head, heads
from periplus.scan.jpeg2000.ranges import Levels, Ranges, ranks

START_BYTES = 14
"""The start of a tile-part: its SOT segment and the marker after it."""
END = EOC.to_bytes(2, "big")
PLAIN = (SOD, PLT, COM)
"""Markers after the SOT segment of a tile-part that is coded as the main header declares."""
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
    file: FileBuffer, offset: int, length: int | None, limits: Limits, *, absent: Sequence[int] = ()
) -> Generator[Step, Any, tuple[Codestream, Levels]]:
    """Facts and byte ranges of the codestream at a place in a file; a length of None means to the file's end.

    `absent` are tiles that it may lack.
    """
    end = file.size if length is None else offset + length
    if end is not None:
        file.check("the codestream", offset, end - offset)
    facts = yield from main_header(file, offset, end, limits)
    if end is None:
        end = file.size
    # Where the first tile-part lists its packets all of them do, and the lists are taken along.
    ahead = 0
    wanted = offered(facts) and not facts.packed
    if wanted:
        first = yield from head(file, facts.first, end)
        ahead = first.length if first is not None and (first.sizes is not None or facts.packets) else 0
    listed = None if end is None else (yield from _listed(file, facts, end))
    tile, start, size, longer = listed or (yield from _hop(file, facts, end, limits, ahead))
    counted = listed is None and end is not None and (yield from _counted(file, start, size, end))
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
    found = (yield from heads(file, facts, parts.offset, parts.length, ahead)) if ahead else None
    own = {} if found is not None or not wanted else (yield from _own(file, longer, end))
    return facts, levels(facts, parts, found, own)


Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], dict[int, int]]
"""Tile, offset and length of tile-parts; and tiles by the offset of the tile-parts that have a longer header."""


def _own(
    file: FileBuffer, longer: dict[int, int], end: int | None
) -> Generator[Step, Any, dict[int, tuple[Segment, ...]]]:
    """How tiles are coded in a way of their own, as far as is known which ones are."""
    found: dict[int, tuple[Segment, ...]] = {}
    for start, tile in list(longer.items())[:LARGEST_HEADERS]:
        read = yield from head(file, start, end)
        if read is not None and read.own:
            found[tile] = found.get(tile, ()) + read.own
    return found


def _listed(file: FileBuffer, facts: Codestream, end: int) -> Generator[Step, Any, Columns | None]:
    """Tile-parts as the main header lists them; None where the list does not fit the codestream."""
    if facts.lengths is None:
        return None
    tile, size = facts.lengths
    total = int(size.sum())
    if (
        not len(tile)
        or size.min() < START_BYTES
        or tile.max() >= facts.tiles
        or not 1 <= end - facts.first - total <= 2
    ):
        return None
    start = facts.first + np.concatenate([[0], np.cumsum(size)[:-1]])
    longer: dict[int, int] = {}
    # The first and the last one are looked at: a list that is off by anything does not survive both.
    for row in {0, len(tile) - 1}:
        at = int(start[row])
        begun, following = yield from _read_start(file, at)
        if begun is None or begun.tile != tile[row] or begun.length not in (0, size[row]):
            return None
        if following not in PLAIN:
            longer[at] = begun.tile
    return tile, start, size, longer


def _hop(
    file: FileBuffer, facts: Codestream, end: int | None, limits: Limits, head: int
) -> Generator[Step, Any, Columns]:
    """Tile-parts one after the other; little more than their first bytes is asked for.

    `head` bytes of packet lengths are taken along at the start of each.
    """
    tile: list[int] = []
    start: list[int] = []
    size: list[int] = []
    seen: dict[int, int] = {}
    longer: dict[int, int] = {}
    position, ahead = facts.first, head
    while end is None or position + 2 < end:
        marker = yield from file.read("a tile-part", position, 2, ahead=START_BYTES - 2 + ahead, sparse=True)
        end = file.size if end is None else end
        if marker == END:
            break
        begun, following = yield from _read_start(file, position)
        if begun is None or begun.tile >= facts.tiles:
            raise FormatError("expected a tile-part of an existing tile", offset=position)
        number, length = begun.tile, begun.length
        if begun.number != seen.get(number, 0) % 256:
            raise FormatError(f"the tile-parts of tile {number} are out of order", offset=position)
        if length == 0:
            if end is None:
                raise FormatError("a last tile-part without a length, in a file of unknown size", offset=position)
            length = end - position
        if length < START_BYTES or (end is not None and position + length > end):
            raise FormatError("a tile-part runs past the end of the codestream", offset=position)
        limits.check("the number of tile-parts", len(tile) + 1, min(limits.chunks, 255 * 65_535), offset=position)
        tile.append(number)
        start.append(position)
        size.append(length)
        seen[number] = seen.get(number, 0) + 1
        if following not in PLAIN:
            longer[position] = number
        position += length
        ahead = head
        if len(size) >= RECENT and (recent := sum(size[-RECENT:])) < RECENT * SMALL_BYTES:
            ahead = max(
                head, min(TOGETHER * recent // RECENT, AHEAD_BYTES if end is None else (end - facts.first) >> 9)
            )
    return np.array(tile, np.int64), np.array(start, np.int64), np.array(size, np.int64), longer


def _counted(
    file: FileBuffer, start: NDArray[np.int64], size: NDArray[np.int64], end: int
) -> Generator[Step, Any, bool]:
    """Whether the last tile-part counts the mark of the codestream's end, or lacks two bytes: coded data hold none.

    Only its packets tell which it is, when all of it is read; so no part of it is referred to alone.
    """
    if not len(start) or int(start[-1] + size[-1]) != end:
        return False
    at = int(start[-1])
    begun, _ = yield from _read_start(file, at)
    last = yield from file.read("the end of the codestream", end - 2, 2, sparse=True)
    return last == END and begun is not None and begun.length != 0


def _read_start(file: FileBuffer, position: int) -> Generator[Step, Any, tuple[TilePartStart | None, int]]:
    """The start of the tile-part at a position, None if there is none, and the marker that follows it."""
    raw = yield from file.read("a tile-part", position, START_BYTES, sparse=True)
    begun = parse_tile_part(raw) if raw[12] == 0xFF else None
    return begun, int.from_bytes(raw[12:], "big")
