"""Headers of JPEG 2000 tile-parts: coding that differs from the main header, and lengths of packets (PLT, PLM)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.limits import MIB
from periplus.model import Step
from periplus.parse.jpeg2000.segments import COM, PLT, SOD, SOT_BYTES, Segment
from periplus.scan.buffer import FileBuffer
from periplus.scan.jpeg2000.markers import Codestream

PLAIN_BYTES = 14
"""A header with nothing in it but the SOT segment and SOD."""
LARGEST_SEGMENTS = 512
LARGEST_BYTES = 4 * MIB
"""Most bytes of tile-part headers that are read to offer lower resolutions."""
LARGEST_SHARE = 8
"""At most one of this many bytes of the tile-parts is read for that."""


@dataclass(frozen=True, slots=True, eq=False)
class TilePartHeader:
    """The header of one tile-part."""

    length: int
    """SOT and SOD included."""
    own: tuple[Segment, ...]
    """Segments by which the tile overrides the main header."""
    sizes: NDArray[np.int64] | None
    """Bytes of its packets, if they are listed."""


def heads(
    file: FileBuffer, facts: Codestream, offset: NDArray[np.int64], length: NDArray[np.int64], usual: int
) -> Generator[Step, Any, list[TilePartHeader] | None]:
    """The headers of all tile-parts; None if one is damaged or lacks packet lengths, or together they are too long.

    `usual` is the length of the header of the first tile-part.
    """
    listed = _listed(facts, offset, length)
    if listed is None and usual * len(offset) > min(LARGEST_BYTES, int(length.sum()) // LARGEST_SHARE):
        return None
    if listed is None:
        # In one round, unless they were read on the way from one tile-part to the next.
        firsts = zip(offset.tolist(), np.minimum(usual, length).tolist(), strict=True)
        starts = [("the header of a tile-part", *place) for place in firsts]
        yield from file.require_all(starts, gap=0, sparse=True)
    found: list[TilePartHeader] = []
    spent = 0
    for row, (start, size) in enumerate(zip(offset.tolist(), length.tolist(), strict=True)):
        sizes = None if listed is None else listed[row]
        if sizes is not None and size - int(sizes.sum()) == PLAIN_BYTES:
            found.append(TilePartHeader(PLAIN_BYTES, (), sizes))
            continue
        read = yield from head(file, start, start + size, usual)
        if read is None or (spent := spent + read.length) > LARGEST_BYTES:
            return None
        sizes = read.sizes if sizes is None else sizes
        # A last tile-part without a length includes the end marker of the codestream.
        if sizes is None or size - read.length - int(sizes.sum()) not in (0, 2):
            return None
        found.append(TilePartHeader(read.length, read.own, sizes))
    return found


def _listed(facts: Codestream, offset: NDArray[np.int64], length: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
    """Packet lengths by the list in the main header, for rows in another order than that of the file."""
    if len(facts.packets) != len(offset):
        return None
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(offset)
    for row, raw in zip(np.argsort(offset).tolist(), facts.packets, strict=True):
        found[row] = numbers(np.frombuffer(raw, np.uint8))
        if not 0 < int(found[row].sum()) <= int(length[row]) - PLAIN_BYTES:
            return None
    return found


def head(file: FileBuffer, start: int, end: int | None, usual: int = 0) -> Generator[Step, Any, TilePartHeader | None]:
    """The header of the tile-part at an offset; None if it is damaged."""
    position, tables, own = start + SOT_BYTES, [], []
    if usual and (end is None or end - start > usual):
        yield from file.require("the header of a tile-part", start, usual, sparse=True)
    for _ in range(LARGEST_SEGMENTS):
        marker = int.from_bytes((yield from file.read("the header of a tile-part", position, 2, sparse=True)), "big")
        if marker == SOD:
            break
        size = int.from_bytes((yield from file.read("the header of a tile-part", position + 2, 2, sparse=True)), "big")
        if marker < 0xFF50 or size < 2 or (end is not None and position + 2 + size > end):
            return None
        if marker != COM:
            content = yield from file.read("the header of a tile-part", position + 4, size - 2, sparse=True)
            if marker == PLT:
                tables.append(content)
            else:
                own.append((marker, content))
        position += 2 + size
    else:
        return None
    file.count_parsed("the header of a tile-part", start, position - start)
    raw = np.frombuffer(b"".join(table[1:] for table in sorted(tables, key=lambda table: table[:1])), np.uint8)
    return TilePartHeader(position + 2 - start, tuple(own), numbers(raw) if tables else None)


def numbers(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers of seven bits a byte, the highest first; the eighth bit is set if more follow."""
    last = np.flatnonzero(raw < 128)
    if not len(last):
        return np.zeros(0, np.int64)
    starts = np.concatenate([[0], last[:-1] + 1])
    if int((last - starts).max()) > 4:
        return np.zeros(0, np.int64)
    place = np.repeat(last, last - starts + 1) - np.arange(last[-1] + 1)
    return np.add.reduceat((raw[: last[-1] + 1] & 127).astype(np.int64) << (7 * place), starts)
