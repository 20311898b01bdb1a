"""Marker segments of a JPEG 2000 codestream: parsed, packed and reduced to a level; and the coding style."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from periplus.errors import FormatError
from periplus.parse.jpeg2000.packets import LRCP, RLCP, RPCL, ComponentCoding, OrderChange

SOC, SIZ, SOT, SOD, EOC = 0xFF4F, 0xFF51, 0xFF90, 0xFF93, 0xFFD9
COD, COC, QCD, QCC, RGN, POC, PPM, PPT, PLM, PLT, TLM, CRG, COM = (
    0xFF52, 0xFF53, 0xFF5C, 0xFF5D, 0xFF5E, 0xFF5F, 0xFF60, 0xFF61, 0xFF57, 0xFF58, 0xFF55, 0xFF63, 0xFF64,
)  # fmt: skip
BARE = range(0xFF30, 0xFF40)
"""Markers without content, reserved for extensions, which are skipped."""
PRECINCTS, SOP, EPH = 0x01, 0x02, 0x04
"""Bits of a coding style: precinct sizes follow; packets may begin with a marker, their headers end with one."""
LARGEST_LEVELS = 32
MOST_LAYERS = 1_024
"""Quality layers; real files have a few dozen at most, and each costs a pass over all packets."""
SOT_BYTES = 12
"""Bytes of the segment that starts a tile-part."""
ORDER_CHANGES = {1: struct.Struct(">BBHBBB"), 2: struct.Struct(">BHHBHB")}
"""The items of a change of packet order, by the bytes that name a component: first resolution and component, then ends
of layers, resolutions and components, and the order."""
EXTENDED = 0x80
"""In place of the number of levels: another segment describes them."""

Segment: TypeAlias = tuple[int, bytes]
"""Marker, and what follows its length."""
Coding: TypeAlias = tuple[tuple[tuple[int, int], ...], tuple[int, int, int]]
"""Precincts and code-blocks, as in ComponentCoding."""


@dataclass(frozen=True, slots=True)
class CodingStyle:
    """The coding style of a tile, which decides the packets it has and their order."""

    progression: int
    layers: int
    markers: int
    """The bits SOP and EPH of the coding style."""
    codings: tuple[ComponentCoding, ...]
    """By component."""
    changes: tuple[OrderChange, ...]
    """Of the order of packets (POC)."""
    levels: int
    """Lower resolutions that every component has."""

    @property
    def even(self) -> bool:
        """Whether all components are cut alike, so that none of their precincts change places at another level."""
        return len({(coding.steps, coding.precincts) for coding in self.codings}) == 1

    @property
    def resolutions_first(self) -> bool:
        """Whether the packets of a resolution all come before those of the next, in every component."""
        plain = not self.changes and len({len(coding.precincts) for coding in self.codings}) == 1
        return plain and (self.progression in (RLCP, RPCL) or (self.progression == LRCP and self.layers == 1))


def segment_ranges(
    data: bytes | memoryview, position: int, end: int, *, until: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Marker, start and stop of every segment from a position up to the marker `until`, or up to `end` without one."""
    while position < end:
        marker = int.from_bytes(data[position : position + 2], "big")
        if marker == until:
            return
        if marker in BARE and until != SOD:
            position += 2
            continue
        size = int.from_bytes(data[position + 2 : position + 4], "big")
        stop = position + 2 + size
        if marker < 0xFF50 or marker == SOT or size < 2 or position + 4 > end or stop > end:
            raise FormatError(f"a header of the codestream is damaged or cut off at marker {marker:04X}")
        yield marker, position, stop
        position = stop
    if until is not None:
        raise FormatError("a header of the codestream is cut off")


def read_segments(data: bytes | memoryview, position: int, end: int, *, until: int | None = None) -> list[Segment]:
    """The segments of `segment_ranges`, with their content."""
    ranges = segment_ranges(data, position, end, until=until)
    return [(marker, bytes(data[start + 4 : stop])) for marker, start, stop in ranges]


class TilePartStart(NamedTuple):
    """The SOT segment of a tile-part."""

    tile: int
    length: int
    """Bytes from the segment to the end of the tile-part; 0 if it extends to the end of the codestream."""
    number: int
    parts: int
    """Tile-parts of the tile; 0 if not declared."""


def parse_tile_part(data: bytes | memoryview, position: int = 0) -> TilePartStart | None:
    """The start of a tile-part at a position; None if there is none."""
    if position + SOT_BYTES > len(data):
        return None
    marker, size, tile, length, number, parts = struct.unpack_from(">HHHIBB", data, position)
    return TilePartStart(tile, length, number, parts) if (marker, size) == (SOT, SOT_BYTES - 2) else None


def pack_tile_part(start: TilePartStart) -> bytes:
    """The SOT segment."""
    return struct.pack(">HHHIBB", SOT, SOT_BYTES - 2, start.tile, start.length, start.number, start.parts)


def pack_segments(segments: Iterable[Segment]) -> bytes:
    """Segments as they stand in a file."""
    return b"".join(struct.pack(">HH", marker, len(data) + 2) + data for marker, data in segments)


def coding_style(
    steps: Sequence[tuple[int, int]], main: Iterable[Segment], tile: Iterable[Segment] = ()
) -> CodingStyle:
    """The style of a tile, whose own segments override those of the main header.

    `steps` are the horizontal and vertical subsampling of every component.
    """
    count, wide = len(steps), component_bytes(len(steps))
    changes: list[OrderChange] = []
    own: dict[int, Coding] = {}
    default: bytes | None = None
    for segments in (list(main), list(tile)):
        # A tile's style for all components overrides the main header's style for one of them.
        for data in [data for marker, data in segments if marker == COD]:
            default = data
            own.clear()
        for data in [data for marker, data in segments if marker == COC]:
            component = int.from_bytes(data[:wide], "big")
            if len(data) < wide + 6:
                raise FormatError("the coding style of the codestream is broken")
            if component < count:
                own[component] = _coding(data, wide + 1, data[wide])
        changes = [change for marker, data in segments if marker == POC for change in _changes(data, count)] or changes
    if default is None or len(default) < 10:
        raise FormatError("the codestream has no coding style")
    usual = _coding(default, 5, default[0])
    layers = int.from_bytes(default[2:4], "big")
    if default[1] > 4:
        raise FormatError(f"the codestream declares progression order {default[1]}, which does not exist")
    if not 0 < layers <= MOST_LAYERS:
        raise FormatError(f"the codestream declares {layers} quality layers")
    # Most of thousands of components are equal, and forged headers have as many as possible.
    alike = {step: ComponentCoding(step, *usual) for step in set(steps)}
    overrides = {n: ComponentCoding(steps[n], *coding) for n, coding in own.items()}
    every = [*own.values(), *([usual] if len(own) < count else [])]
    return CodingStyle(
        progression=default[1],
        layers=layers,
        markers=default[0] & (SOP | EPH),
        codings=tuple(overrides.get(n) or alike[step] for n, step in enumerate(steps)),
        changes=tuple(changes),
        levels=min(len(precincts) for precincts, _ in every) - 1,
    )


def component_bytes(components: int) -> int:
    """Bytes that name a component."""
    return 1 if components < 257 else 2


def _coding(data: bytes, at: int, style: int) -> Coding:
    """Precincts and code-blocks of a component; `at` is the place of the number of levels."""
    if len(data) < at + 5:
        raise FormatError("the coding style of the codestream is broken")
    if data[at] & EXTENDED or data[at + 4] > 1:
        raise FormatError("decompositions and wavelets of part 2 of JPEG 2000 are not read")
    if data[at] > LARGEST_LEVELS:
        raise FormatError("the coding style of the codestream is broken")
    levels, wide, high, how = data[at], data[at + 1] + 2, data[at + 2] + 2, data[at + 3]
    sizes = data[at + 5 : at + 6 + levels] if style & PRECINCTS else b"\xff" * (levels + 1)
    if len(sizes) != levels + 1 or any(not size & 15 or not size >> 4 for size in sizes[1:]):
        raise FormatError("the coding style of the codestream lacks sizes of precincts")
    if wide > 10 or high > 10 or wide + high > 12:
        raise FormatError("the code-blocks of the codestream are larger than can be")
    return tuple((size & 15, size >> 4) for size in sizes), (wide, high, how)


def _changes(data: bytes, components: int) -> list[OrderChange]:
    layout = ORDER_CHANGES[component_bytes(components)]
    if not data or len(data) % layout.size:
        raise FormatError("the changes of packet order in the codestream are broken")
    found = []
    for first, begin, layers, resolutions, end, order in layout.iter_unpack(data):
        if order > 4:
            raise FormatError("the changes of packet order in the codestream are broken")
        # In one byte, 256 components can only be written as 0.
        found.append(OrderChange(first, begin, layers, resolutions, min(end or 1 << 16, components), order))
    return found


def is_reversible(marker: int, data: bytes, components: int) -> bool:
    """Whether a segment of coding style names the wavelet that loses nothing."""
    at = 9 if marker == COD else component_bytes(components) + 5
    return data[at : at + 1] == b"\x01"


def reduce_segment(marker: int, data: bytes, level: int, components: int) -> bytes:
    """A segment of coding or quantisation without its finest `level` levels; others as they are."""
    wide = component_bytes(components)
    if not level:
        return data
    if marker == COD:
        return _fewer(data, 5, bool(data[0] & PRECINCTS), level)
    if marker == COC:
        return _fewer(data, wide + 1, bool(data[wide] & PRECINCTS), level)
    if marker in (QCD, QCC):
        at = 0 if marker == QCD else wide
        size = {0: 1, 1: 0, 2: 2}.get(data[at] & 0x1F)
        if size is None:
            raise FormatError("the quantisation of the codestream is none we know")
        if size and len(data) - 3 * level * size < at + 1 + size:
            raise FormatError("the quantisation of the codestream lacks steps")
        return data[: len(data) - 3 * level * size] if size else data
    return data


def reduce_order_changes(data: bytes, components: int, resolutions: int) -> bytes:
    """Changes of packet order where only the lowest resolutions are left; empty where nothing is."""
    layout = ORDER_CHANGES[component_bytes(components)]
    changes = [change for change in layout.iter_unpack(data) if change[0] < resolutions]
    return b"".join(layout.pack(*change[:3], min(change[3], resolutions), *change[4:]) for change in changes)


def _fewer(data: bytes, at: int, precincts: bool, level: int) -> bytes:
    levels = data[at]
    if level > levels:
        raise FormatError(f"the codestream has {levels} lower resolutions, not {level}")
    cut = data[:at] + bytes([levels - level]) + data[at + 1 :]
    return cut[: len(cut) - level] if precincts else cut
