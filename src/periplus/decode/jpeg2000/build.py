"""The tile-parts of one JPEG 2000 tile, checked and completed to a codestream at one level."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from periplus.decode.jpeg2000.header import CodestreamHeader
from periplus.decode.jpeg2000.packets import check_numbers, split_packets
from periplus.errors import DecodeError, FormatError
from periplus.parse.jpeg2000.packets import RPCL, Bounds, count_precincts
from periplus.parse.jpeg2000.segments import (
    COM,
    PLT,
    PPM,
    PPT,
    SOP,
    SOT_BYTES,
    CodingStyle,
    Segment,
    TilePartStart,
    pack_segments,
    pack_tile_part,
    parse_tile_part,
    segment_ranges,
)
from periplus.parse.jpeg2000.segments import SOD as SOD_MARKER

SOD, EOC = b"\xff\x93", b"\xff\xd9"
INDEXES = frozenset({PLT, COM})
"""Segments that a decoder does not need, and that are wrong for part of a codestream."""
POISON = b"\xff\x7f" * 6
"""Ones: a decoder that reads them as the header of a packet fails on a length with too many digits. A decoder that has
all packets of its level never reads them; without them it would silently fill missing packets with zeros."""
SMALL_BLOCKS, BLOCKS_A_BYTE = 1 << 18, 64
"""Code-blocks that a tile may have, however few its bytes are, and more of them by the byte. Each costs a decoder some
200 bytes and a microsecond before it is known to hold nothing."""
LARGEST_PARTS = 255
TilePart: TypeAlias = tuple[int, int, list[tuple[int, int, int]]]
"""Start and end of a tile-part, and marker, start and end of the segments in its header."""
Packet: TypeAlias = tuple[tuple[int, int, int, int], memoryview, memoryview]
"""Layer, resolution, component and precinct of a packet, its header and its body."""


def parts_of(data: memoryview, *, cut: bool, several: bool = False) -> dict[int, list[TilePart]]:
    """The tile-parts of each tile; DecodeError unless they are complete and in order.

    If the tile may be `cut`, its last tile-parts may be missing or end early. With `several` there may be more tiles
    than one.
    """
    position, end, tile, most = 0, len(data), -1, 0
    found: dict[int, list[TilePart]] = {}
    parts: list[TilePart] = []
    while position < end:
        if bytes(data[position : position + 2]) == EOC and end - position == 2 and parts:
            break
        if end - position < 14:
            raise DecodeError("a tile-part of the codestream is cut off")
        begun = parse_tile_part(data, position)
        if begun is not None and begun.tile != tile and (several or not found) and begun.tile not in found:
            _check_number(parts, most)
            found[begun.tile] = parts = []
            tile, most = begun.tile, 0
        if begun is None or begun.number != len(parts) % 256 or begun.tile != tile:
            raise DecodeError("the tile-parts are not those of one tile, in order")
        length = begun.length
        whole = length or end - position
        if length == 0 and bytes(data[end - 2 : end]) == EOC:
            whole -= 2
        if cut:
            whole = length = min(whole, end - position)
        if whole < 14 or position + whole > end:
            raise DecodeError("a tile-part of the codestream is cut off")
        parts.append((position, position + whole, _segments(data, position + 12, position + whole)))
        position += length or end - position
        most = max(most, begun.parts)
    if not parts:
        raise DecodeError("there is no tile-part")
    if not cut:
        _check_number(parts, most)
    return found


def ended(header: CodestreamHeader, tiles: dict[int, list[TilePart]], data: memoryview) -> dict[int, list[TilePart]]:
    """Tile-parts without the end marker of the codestream, which the last one may include if it has no length.

    A tile-part that lacks bytes looks the same, and native decoders may fill them in: DecodeError if some are missing.
    """
    (tile, parts) = list(tiles.items())[-1]
    (start, stop, segments) = parts[-1]
    (length,) = struct.unpack_from(">I", data, start + 6)
    counted = length and not header.level and stop == len(data) and bytes(data[stop - 2 : stop]) == EOC
    if length and not counted:
        return tiles
    shorter = [*parts[:-1], (start, stop - 2 if counted else stop, segments)]
    style, (body, heads) = header.style(_all_own(data, shorter)), _bodies(header, data, shorter)
    for _ in split_packets(style, header.bounds(tile), body, heads, header.level, exact=bool(counted)):
        pass
    return {**tiles, tile: shorter}


def check_packets(header: CodestreamHeader, tiles: Mapping[int, list[TilePart]], data: memoryview) -> None:
    """DecodeError if numbered packets are out of order."""
    for parts in tiles.values():
        if header.style(_all_own(data, parts)).markers & SOP:
            check_numbers(memoryview(_joined_bodies(data, parts)))


def _check_number(parts: list[TilePart], most: int) -> None:
    if len(parts) < most:
        raise DecodeError(f"the tile has {most} tile-parts, and {len(parts)} of them are here")


def _segments(data: memoryview, position: int, end: int) -> list[tuple[int, int, int]]:
    """Marker, start and end of every segment between the SOT of a tile-part and its data."""
    try:
        return list(segment_ranges(data, position, end, until=SOD_MARKER))
    except FormatError:
        raise DecodeError("the header of a tile-part is damaged") from None


def codestream(header: CodestreamHeader, tile: int, bounds: Bounds, data: memoryview, parts: list[TilePart]) -> bytes:
    """A codestream of one tile, numbered 0, with its tile-parts renumbered and its coding reduced to the level."""
    own = _own(data, parts)
    everything = [segment for segments in own for segment in segments]
    weigh(header, {tile: parts}, data)
    if len(parts) > LARGEST_PARTS and not any(marker == PPT for marker, _ in everything):
        parts, own, data = _joined(parts, everything, data)
    if not header.level:
        pieces: list[bytes | memoryview] = [header.written(bounds)]
        for number, (start, stop, _) in enumerate(parts):
            pieces += [_start(stop - start - 12, number, len(parts)), data[start + 12 : stop]]
        return b"".join([*pieces, EOC])
    style = header.style(everything)
    packed = any(marker in (PPM, PPT) for marker, _ in (*header.segments, *everything))
    # Precincts of components with different divisions may be reordered if a tile begins at an odd pixel.
    if packed or not style.resolutions_first or (style.progression == RPCL and not style.even):
        packets = _sorted_packets(header, style, (header.bounds(tile), bounds), data, parts)
        return _assembled(header, bounds, packets, everything)
    pieces = [header.written(bounds)]
    for number, ((start, stop, segments), mine) in enumerate(zip(parts, own, strict=True)):
        body = segments[-1][2] if segments else start + 12
        end = POISON if number == len(parts) - 1 else b""
        lead = pack_segments(header.cut(mine))
        length = len(lead) + stop - body + len(end)
        pieces += [_start(length, number, len(parts)), lead, data[body:stop], end]
    return b"".join([*pieces, EOC])


def check_weight(precincts: int, blocks: int, size: int) -> None:
    """DecodeError if a native decoder would take memory and time out of proportion to the bytes."""
    if precincts > size:
        raise DecodeError(f"the tile has {precincts} packets or more, and {size} bytes to hold them")
    if blocks > max(SMALL_BLOCKS, BLOCKS_A_BYTE * size):
        raise DecodeError(f"the tile has {blocks} code-blocks in {size} bytes")


def _start(length: int, number: int, count: int) -> bytes:
    """The SOT segment of a tile-part of so many further bytes."""
    return pack_tile_part(TilePartStart(0, SOT_BYTES + length, number, count))


def _joined(
    parts: list[TilePart], own: list[Segment], data: memoryview
) -> tuple[list[TilePart], list[list[Segment]], memoryview]:
    """More tile-parts than can be numbered as one."""
    lead = pack_segments(own)
    whole = memoryview(b"".join([bytes(12), lead, SOD, _joined_bodies(data, parts)]))
    return [(0, len(whole), _segments(whole, 12, len(whole)))], [own], whole


def of_components(
    header: CodestreamHeader,
    kinds: Sequence[Sequence[int]],
    tile: int,
    bounds: Bounds,
    data: memoryview,
    parts: list[TilePart],
) -> Iterator[bytes]:
    """Codestreams of some components of the tile each, those of one all of one depth and with the same steps.

    Components without values in the tile are omitted.
    """
    own = _all_own(data, parts)
    packets = _sorted_packets(header, header.style(own), (header.bounds(tile), bounds), data, parts)
    for chosen in kinds:
        left, top, right, bottom = smaller = stepped(bounds, header.size.steps[chosen[0]])
        if left < right and top < bottom:
            mine = set(chosen)
            fewer, spoken = header.only(chosen, own)
            yield _assembled(fewer, smaller, [packet for packet in packets if packet[0][2] in mine], spoken)


def weigh(header: CodestreamHeader, tiles: Mapping[int, list[TilePart]], data: memoryview) -> None:
    """DecodeError if tiles together are out of proportion to their bytes."""
    weights = [header.weight(_all_own(data, parts), header.bounds(n, header.level)) for n, parts in tiles.items()]
    precincts, blocks = (sum(column) for column in zip(*weights, strict=True))
    check_weight(precincts, blocks, len(data) + sum(len(segment) for _, segment in header.segments))


def stepped(bounds: Bounds, steps: tuple[int, int]) -> Bounds:
    """Of the values of a component with these steps."""
    left, top, right, bottom = bounds
    across, down = steps
    return -(-left // across), -(-top // down), -(-right // across), -(-bottom // down)


def _own(data: memoryview, parts: list[TilePart]) -> list[list[Segment]]:
    """The coding segments of each tile-part."""
    return [
        [(marker, bytes(data[first + 4 : last])) for marker, first, last in segments if marker not in INDEXES]
        for *_, segments in parts
    ]


def _all_own(data: memoryview, parts: list[TilePart]) -> list[Segment]:
    return [segment for segments in _own(data, parts) for segment in segments]


def _sorted_packets(
    header: CodestreamHeader, style: CodingStyle, bounds: tuple[Bounds, Bounds], data: memoryview, parts: list[TilePart]
) -> list[Packet]:
    """The packets of the lower resolutions, layer by layer, whatever order they were in."""
    whole, smaller = bounds
    packets = sorted(
        split_packets(style, whole, *_bodies(header, data, parts), header.level),
        key=lambda packet: packet[0],
    )
    kept = [replace(c, precincts=c.precincts[: len(c.precincts) - header.level]) for c in style.codings]
    if len(packets) != style.layers * count_precincts(smaller, kept):
        raise DecodeError("the changes of packet order omit packets")
    return packets


def _bodies(header: CodestreamHeader, data: memoryview, parts: list[TilePart]) -> tuple[memoryview, memoryview | None]:
    """The joined bodies of tile-parts, and the packet headers if they are stored separately."""
    heads = header.packed
    for _, _, segments in parts:
        # Each tile-part's own tables, in their order.
        tables = sorted(bytes(data[first + 4 : last]) for marker, first, last in segments if marker == PPT)
        heads = (heads or b"") + b"".join(table[1:] for table in tables) if tables else heads
    return memoryview(_joined_bodies(data, parts)), None if heads is None else memoryview(heads)


def _joined_bodies(data: memoryview, parts: list[TilePart]) -> bytes:
    return b"".join(data[segments[-1][2] if segments else start + 12 : stop][2:] for start, stop, segments in parts)


def _assembled(header: CodestreamHeader, bounds: Bounds, packets: list[Packet], own: list[Segment]) -> bytes:
    """A codestream of one tile-part of these packets."""
    lead = pack_segments(header.cut(own, plain=True)) + SOD
    length = len(lead) + sum(len(head) + len(rest) for _, head, rest in packets)
    pieces: list[bytes | memoryview] = [header.written(bounds, plain=True), _start(length, 0, 1), lead]
    for _, head, rest in packets:
        pieces += [head, rest]
    return b"".join([*pieces, EOC])
