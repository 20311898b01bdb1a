"""Packet lengths of JPEG 2000 tile-parts (PLT): how many bytes of each tile-part a lower resolution needs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import MIB
from periplus.model import Need
from periplus.scan.blocks import Blocks
from periplus.scan.j2kmarkers import SOD, Codestream

PLT = 0xFF58
SOT_BYTES = 12
LARGEST_SEGMENTS = 512
LARGEST_BYTES = 4 * MIB
"""Headers of tile-parts worth reading for the sake of lower resolutions."""
LARGEST_PACKETS = 1 << 20


def needed(
    blocks: Blocks,
    facts: Codestream,
    tile: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    first: int,
) -> Generator[Need, Any, NDArray[np.int64] | None]:
    """Bytes of each tile-part (rows sorted by tile) that each level needs; None where the lengths are not all there.

    `first` is the length of the header of the first tile-part.
    """
    if facts.precincts is None or first * len(tile) > LARGEST_BYTES:
        return None
    found = np.zeros((facts.levels + 1, len(tile)), np.int64)
    spent = total = row = 0
    while row < len(tile):
        stop = int(np.searchsorted(tile, tile[row], "right"))
        counts = _packets(facts, int(tile[row]))
        total += counts[-1]
        if total > LARGEST_PACKETS:
            return None
        before = 0
        for part in range(row, stop):
            read = yield from _header(blocks, int(offset[part]), int(offset[part] + length[part]), first)
            if read is None:
                return None
            head, sizes = read
            spent += head
            ends = head + np.concatenate([[0], np.cumsum(sizes)])
            if ends[-1] != length[part] or spent > LARGEST_BYTES:
                return None
            for level in range(facts.levels + 1):
                wanted = min(max(counts[facts.levels - level] - before, 0), len(sizes))
                found[level, part] = ends[wanted] if wanted else 0
            before += len(sizes)
        if before != counts[-1]:
            return None
        row = stop
    return found


def _packets(facts: Codestream, tile: int) -> list[int]:
    """Packets of a tile up to and with each resolution, the lowest first."""
    row, column = divmod(tile, facts.x.tiles)
    total, counts = 0, []
    for resolution, sizes in enumerate(facts.precincts or ()):
        shift = facts.levels - resolution
        number = 1
        for axis, place, size in ((facts.x, column, sizes[0]), (facts.y, row, sizes[1])):
            start, stop = ((bound + (1 << shift) - 1) >> shift for bound in axis.bounds(place))
            number *= ((stop + (1 << size) - 1) >> size) - (start >> size) if stop > start else 0
        total += number * facts.components * facts.layers
        counts.append(total)
    return counts


def _header(
    blocks: Blocks, start: int, end: int, usual: int
) -> Generator[Need, Any, tuple[int, NDArray[np.int64]] | None]:
    """Length of the header of a tile-part, SOT and SOD included, and the lengths of its packets."""
    position, tables = start + SOT_BYTES, []
    if end - start > usual:
        yield from blocks.hold("the header of a tile-part", start, usual, sparse=True)
    for _ in range(LARGEST_SEGMENTS):
        yield from blocks.hold("the header of a tile-part", position, 2, sparse=True)
        marker = int.from_bytes(_bytes(blocks, position, 2), "big")
        if marker == SOD:
            break
        yield from blocks.hold("the header of a tile-part", position, 4, sparse=True)
        size = int.from_bytes(_bytes(blocks, position + 2, 2), "big")
        if marker < 0xFF50 or size < 2 or position + 2 + size > end:
            return None
        if marker == PLT:
            yield from blocks.hold("the header of a tile-part", position, 2 + size, sparse=True)
            tables.append(_bytes(blocks, position + 4, size - 2))
        position += 2 + size
    else:
        return None
    blocks.look("the header of a tile-part", start, position - start)
    raw = np.frombuffer(b"".join(table[1:] for table in sorted(tables, key=lambda table: table[:1])), np.uint8)
    return position + 2 - start, _numbers(raw)


def _numbers(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers of seven bits a byte, the highest first; the eighth bit says that more follow."""
    last = np.flatnonzero(raw < 128)
    if not len(last):
        return np.zeros(0, np.int64)
    starts = np.concatenate([[0], last[:-1] + 1])
    if int((last - starts).max()) > 4:
        return np.zeros(0, np.int64)
    place = np.repeat(last, last - starts + 1) - np.arange(last[-1] + 1)
    return np.add.reduceat((raw[: last[-1] + 1] & 127).astype(np.int64) << (7 * place), starts)


def _bytes(blocks: Blocks, offset: int, length: int) -> bytes:
    place = blocks.locate(offset, length)
    if place is None:
        raise FormatError("the codestream ends early", offset=offset)
    return place[0][place[1] : place[1] + length]
