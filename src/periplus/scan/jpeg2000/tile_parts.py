"""Offsets of the tile-parts of a JPEG 2000 codestream: from its table of lengths, else from one to the next."""

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
from periplus.scan.jpeg2000.headers import head, heads
from periplus.scan.jpeg2000.levels import divided, levels, offered
from periplus.scan.jpeg2000.markers import Codestream, main_header
from periplus.scan.jpeg2000.ranges import LevelRanges, TileRanges, ranks

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
"""Most tile-parts whose packet lists are read if a table already gives their lengths."""
LARGEST_HEADERS = 4_096
"""Most headers of tile-parts that are read because they contain more than the required segments."""


def scan_codestream(
    file: FileBuffer, offset: int, length: int | None, limits: Limits, *, absent: Sequence[int] = ()
) -> Generator[Step, Any, tuple[Codestream, LevelRanges]]:
    """The header and byte ranges of the codestream at an offset; without a length it extends to the end of the file.

    `absent` are tiles that may be missing.
    """
    end = file.size if length is None else offset + length
    if end is not None:
        file.check("the codestream", offset, end - offset)
    facts = yield from main_header(file, offset, end, limits)
    if end is None:
        end = file.size
    # If the first tile-part lists its packets, all do, and the lists are read on the way.
    ahead = 0
    wanted = offered(facts) and not facts.packed
    if wanted:
        first = yield from head(file, facts.first, end)
        ahead = first.length if first is not None and (first.sizes is not None or facts.packets) else 0
    listed = None if end is None else (yield from _listed(file, facts, end))
    tile, start, size, longer = listed or (yield from _walk_tile_parts(file, facts, end, limits, ahead))
    counted = listed is None and end is not None and (yield from _counted(file, start, size, end))
    order = np.argsort(tile, kind="stable")
    tile = tile[order]
    present = np.unique(tile)
    known = np.union1d(present, np.array(absent, np.int64))
    if len(present) != facts.size.tiles and facts.holds(np.setdiff1d(np.arange(facts.size.tiles), known)).any():
        raise FormatError(f"the codestream holds {len(present)} of its {facts.size.tiles} tiles", offset=offset)
    parts = TileRanges(tile, ranks(tile), start[order], size[order])
    if counted:
        return facts, LevelRanges((parts.merged(),), parts)
    if ahead and listed is not None and (len(tile) > LARGEST_LISTED or divided(facts, parts)):
        # With a table of lengths no tile-part is read; reading all of them for their packets must be worth it.
        ahead = 0
    found = (yield from heads(file, facts, parts.offset, parts.length, ahead)) if ahead else None
    own = {} if found is not None or not wanted else (yield from _own(file, longer, end))
    return facts, levels(facts, parts, found, own)


Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], dict[int, int]]
"""Tile, offset and length of tile-parts; and tiles by the offset of the tile-parts that have a longer header."""


def _own(
    file: FileBuffer, longer: dict[int, int], end: int | None
) -> Generator[Step, Any, dict[int, tuple[Segment, ...]]]:
    """Segments by which tiles override the main header, as far as the start of a tile-part shows that it has some."""
    found: dict[int, tuple[Segment, ...]] = {}
    for start, tile in list(longer.items())[:LARGEST_HEADERS]:
        read = yield from head(file, start, end)
        if read is not None and read.own:
            found[tile] = found.get(tile, ()) + read.own
    return found


def _listed(file: FileBuffer, facts: Codestream, end: int) -> Generator[Step, Any, Columns | None]:
    """Tile-parts as the main header lists them; None if the list does not fit the codestream."""
    if facts.lengths is None:
        return None
    tile, size = facts.lengths
    total = int(size.sum())
    if (
        not len(tile)
        or size.min() < START_BYTES
        or tile.max() >= facts.size.tiles
        or not 1 <= end - facts.first - total <= 2
    ):
        return None
    start = facts.first + np.concatenate([[0], np.cumsum(size)[:-1]])
    longer: dict[int, int] = {}
    # A table with any error does not fit both the first and the last tile-part.
    for row in {0, len(tile) - 1}:
        at = int(start[row])
        begun, following = yield from _read_start(file, at)
        if begun is None or begun.tile != tile[row] or begun.length not in (0, size[row]):
            return None
        if following not in PLAIN:
            longer[at] = begun.tile
    return tile, start, size, longer


def _walk_tile_parts(
    file: FileBuffer, facts: Codestream, end: int | None, limits: Limits, head: int
) -> Generator[Step, Any, Columns]:
    """Tile-parts one after the other, reading little more than their first bytes.

    `head` bytes of packet lengths are read at the start of each.
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
        if begun is None or begun.tile >= facts.size.tiles:
            raise FormatError("expected a tile-part of an existing tile", offset=position)
        number, length = begun.tile, begun.length
        if begun.number != seen.get(number, 0) % 256:
            raise FormatError(f"the tile-parts of tile {number} are out of order", offset=position)
        if length == 0:
            if end is None:
                raise FormatError(
                    "the last tile-part has no length, and the size of the file is unknown", offset=position
                )
            length = end - position
        if length < START_BYTES or (end is not None and position + length > end):
            raise FormatError("a tile-part ends past the end of the codestream", offset=position)
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
    """Whether the length of the last tile-part includes the end marker, or the tile-part lacks two bytes.

    Only decoding all its packets shows which it is, so no part of it may be read alone.
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
