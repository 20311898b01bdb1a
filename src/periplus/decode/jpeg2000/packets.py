"""The packets of a JPEG 2000 tile, separated by parsing their headers, so that a resolution can be taken alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from periplus.errors import DecodeError
from periplus.parse.jpeg2000.packets import (
    Bounds,
    ComponentCoding,
    PacketOrder,
    component_extent,
    count_precincts,
    packet_order,
    precinct_grid,
)
from periplus.parse.jpeg2000.segments import EPH, SOP, CodingStyle

LARGEST_BLOCKS = 1 << 20
"""Code-blocks of one tile; real ones have a few thousand, and forged headers may declare any number."""
SMALL_PACKETS = 1 << 17
"""Packets that a tile may have, however few bytes are there: a lower resolution comes without those of the finest."""
LARGEST_PLANES = 82
"""Bit planes that a code-block can lack; more of them are no header of a packet."""
TERMINATED, BYPASSED, FAST = 0x04, 0x01, 0x40
"""Styles of code-blocks that have several lengths in one packet."""
UNKNOWN = 1 << 30
NUMBERED = re.compile(rb"\xff\x91\x00\x04(..)", re.DOTALL)
"""A SOP marker with the number of its packet. No coded data contain one."""


class _HeaderBits:
    """Bits of packet headers, the highest first; after a byte of ones the next one has but seven."""

    __slots__ = ("_data", "_last", "_left", "position")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0
        self._last = self._left = 0

    def bit(self) -> int:
        if not self._left:
            before, self._last = self._last, self._data[self.position]
            self.position += 1
            self._left = 7 if before == 0xFF else 8
        self._left -= 1
        return self._last >> self._left & 1

    def number(self, bits: int) -> int:
        value = 0
        for _ in range(bits):
            value = value << 1 | self.bit()
        return value

    def align(self) -> None:
        """To the next whole byte; a byte of ones at the end is followed by a stuffed one."""
        if self._last == 0xFF:
            self.position += 1
        self._last = self._left = 0


class _TagTree:
    """A tag tree: the smallest value of every four neighbours is coded only once."""

    __slots__ = ("_low", "_sizes", "_value", "_wide")

    def __init__(self, wide: int, high: int) -> None:
        self._wide, total = wide, 0
        # First node and width of every floor, with how many halvings lead to it; the top one first.
        self._sizes: list[tuple[int, int, int]] = []
        for floor in range(max(wide, high).bit_length() + 1):
            self._sizes.insert(0, (total, -(-wide >> floor), floor))
            total += -(-wide >> floor) * -(-high >> floor)
            if self._sizes[0][1] == -(-high >> floor) == 1:
                break
        self._low, self._value = [0] * total, [UNKNOWN] * total

    def below(self, bits: _HeaderBits, leaf: int, threshold: int) -> bool:
        """Whether the value of a leaf is below the threshold."""
        low = value = 0
        y, x = divmod(leaf, self._wide)
        for start, wide, floor in self._sizes:
            node = start + (y >> floor) * wide + (x >> floor)
            low = max(low, self._low[node])
            value = self._value[node]
            while low < threshold and low < value:
                if bits.bit():
                    self._value[node] = value = low
                else:
                    low += 1
            self._low[node] = low
        return value < threshold

    def settle(self, bits: _HeaderBits, leaf: int) -> None:
        """Read all there is of a leaf's value."""
        if not self.below(bits, leaf, LARGEST_PLANES):
            raise DecodeError("the header of a packet is damaged")


@dataclass(slots=True)
class _PrecinctBand:
    """Code-blocks of one precinct in one band, and their state after earlier layers."""

    size: int
    included: _TagTree
    planes: _TagTree
    digits: list[int]
    """Of the next length of every code-block; 0 while it was never included."""
    passes: list[int]
    """That the current run of every code-block holds."""
    runs: list[int]


def split_packets(
    style: CodingStyle, bounds: Bounds, data: memoryview, heads: memoryview | None, levels: int, *, exact: bool = False
) -> Iterator[tuple[tuple[int, int, int, int], memoryview, memoryview]]:
    """(layer, resolution, component, precinct), header and body of every packet, without the finest `levels`.

    `data` are the joined bodies of the tile-parts; `heads` the packet headers if they are stored separately. Headers
    are returned without the markers around them. With `exact`, nothing may follow the last packet.
    """
    total, size = count_precincts(bounds, style.codings) * style.layers, len(data if heads is None else heads)
    # Those of the finest levels need not be there.
    if total > (max(size, SMALL_PACKETS) if levels else size):
        raise DecodeError(f"the tile has {total} packets, more than its bytes can hold")
    packets = packet_order(bounds, style.codings, style.layers, style.progression, style.changes)
    kept = [resolution < len(style.codings[c].precincts) - levels for resolution, c in _pairs(packets)]
    last = max((n for n, keep in enumerate(kept) if keep), default=-1)
    if last >= size:
        raise DecodeError(f"the tile has {last + 1} packets, more than its bytes can hold")
    known: dict[tuple[int, int, int], list[_PrecinctBand]] = {}
    bits, position, blocks_left = _HeaderBits(data if heads is None else heads), 0, LARGEST_BLOCKS
    columns = (packets.layer, packets.resolution, packets.component, packets.precinct)
    try:
        for n, (layer, resolution, component, precinct) in enumerate(zip(*(c[: last + 1].tolist() for c in columns))):
            place = resolution, component, precinct
            position = _after_marker(data, position, b"\xff\x91", 6) if style.markers & SOP else position
            if heads is None:
                bits.position = position
            start = bits.position
            if place not in known:
                known[place] = _bands(bounds, style.codings[component], resolution, precinct, blocks_left)
                blocks_left -= sum(band.size for band in known[place])
            length = _length(bits, known[place], layer, style.codings[component].blocks[2])
            bits.align()
            stop = bits.position
            if style.markers & EPH:
                bits.position = _after_marker(data if heads is None else heads, stop, b"\xff\x92", 2)
                if bits.position == stop:
                    raise DecodeError("the header of a packet is damaged: no EPH marker follows it")
            position = bits.position if heads is None else position
            if position + length > len(data):
                raise DecodeError("a packet of the tile is cut off")
            if kept[n]:
                yield (
                    (layer, resolution, component, precinct),
                    (data if heads is None else heads)[start:stop],
                    data[position : position + length],
                )
            position += length
    except IndexError:
        raise DecodeError("the header of a packet is cut off") from None
    if exact and position != len(data):
        raise DecodeError("the packets of the tile do not end where its bytes do")


def check_numbers(data: memoryview) -> None:
    """DecodeError if the numbers of packets do not ascend; decoders ignore them.

    Writers may omit numbers, and chunks of a lower level are without the packets of the finer ones.
    """
    last = -1
    for found in NUMBERED.findall(data):
        step = int.from_bytes(found, "big") - last & 0xFFFF
        if not 0 < step < 1 << 15:
            raise DecodeError("the packets of the tile are damaged: the numbers of their SOP markers do not ascend")
        last += step


def _pairs(packets: PacketOrder) -> Iterator[tuple[int, int]]:
    return zip(packets.resolution.tolist(), packets.component.tolist())


def _after_marker(data: memoryview, position: int, marker: bytes, size: int) -> int:
    """The position after a marker, if it is there."""
    return position + size if bytes(data[position : position + 2]) == marker else position


def _bands(
    bounds: Bounds, coding: ComponentCoding, resolution: int, precinct: int, blocks_left: int
) -> list[_PrecinctBand]:
    """The bands of one precinct: LL of the lowest resolution, else HL, LH and HH."""
    across, _ = precinct_grid(bounds, coding, resolution)
    shift = len(coding.precincts) - 1 - resolution
    down = 1 if resolution else 0
    found = []
    for offset in ((1, 0), (0, 1), (1, 1)) if resolution else ((0, 0),):
        counts = []
        for axis, place in ((0, precinct % across), (1, precinct // across)):
            size = coding.precincts[resolution][axis]
            first, _ = component_extent(bounds[axis], bounds[axis + 2], coding.steps[axis], shift)
            low = ((first >> size) + place) << size >> down
            high = low + (1 << size >> down)
            start, stop = (-(-bound // coding.steps[axis]) for bound in (bounds[axis], bounds[axis + 2]))
            if resolution:
                half = offset[axis] << shift
                start, stop = (-(-(bound - half) >> (shift + 1)) for bound in (start, stop))
            else:
                start, stop = (-(-bound >> shift) for bound in (start, stop))
            start, stop = max(start, low), min(stop, high)
            block = min(coding.blocks[axis], size - down)
            counts.append(-(-stop >> block) - (start >> block) if stop > start else 0)
        number = counts[0] * counts[1]
        blocks_left -= number
        if blocks_left < 0:
            raise DecodeError("the tile has too many code-blocks")
        if number:
            trees = _TagTree(counts[0], counts[1]), _TagTree(counts[0], counts[1])
            found.append(_PrecinctBand(number, *trees, [0] * number, [0] * number, [0] * number))
    return found


def _length(bits: _HeaderBits, bands: list[_PrecinctBand], layer: int, how: int) -> int:
    """Bytes of the body of the packet whose header begins here."""
    if not bits.bit():
        return 0
    total = 0
    for band in bands:
        for block in range(band.size):
            if band.digits[block]:
                if not bits.bit():
                    continue
            elif band.included.below(bits, block, layer + 1):
                band.planes.settle(bits, block)
                band.digits[block] = 3
            else:
                continue
            passes = _passes(bits)
            while bits.bit():
                band.digits[block] += 1
            if band.digits[block] > 32:
                raise DecodeError("the header of a packet is damaged")
            for run in _runs(band, block, passes, how):
                total += bits.number(band.digits[block] + run.bit_length() - 1)
    return total


def _passes(bits: _HeaderBits) -> int:
    """Coding passes that a packet adds to a code-block, 1 to 164."""
    if not bits.bit():
        return 1
    if not bits.bit():
        return 2
    number = bits.number(2)
    if number < 3:
        return 3 + number
    number = bits.number(5)
    return 6 + number if number < 31 else 37 + bits.number(7)


def _runs(band: _PrecinctBand, block: int, passes: int, how: int) -> Iterator[int]:
    """The coding passes of each run with its own length; a run may continue in the next packet."""
    if how & FAST:
        yield 1
        if passes > 1:
            yield passes - 1
        return
    if not how & (TERMINATED | BYPASSED):
        yield passes
        return
    while passes:
        most = 1 if how & TERMINATED else 10 if not band.runs[block] else 2 if band.runs[block] % 2 else 1
        taken = min(passes, most - band.passes[block])
        band.passes[block] += taken
        passes -= taken
        if band.passes[block] == most:
            band.passes[block] = 0
            band.runs[block] += 1
        yield taken
