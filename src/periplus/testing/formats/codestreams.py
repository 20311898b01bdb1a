"""Rewrite JPEG 2000 codestreams: the same packets in other orders, packet lists and tile-parts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from periplus.decode.jpeg2000.header import CodestreamHeader, header_of
from periplus.decode.jpeg2000.packets import split_packets
from periplus.parse.jpeg2000.packets import Bounds, packet_order
from periplus.parse.jpeg2000.segments import (
    COC,
    COD,
    EPH,
    PLM,
    PLT,
    POC,
    PPM,
    PPT,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOP,
    Segment,
    coding_style,
    component_bytes,
    pack_segments,
    read_segments,
)
from periplus.testing.formats.jpeg2000 import split

Key: TypeAlias = tuple[int, int, int, int]
"""Layer, resolution, component and precinct."""
Packets: TypeAlias = dict[Key, tuple[bytes, bytes]]
"""Header and body of packets."""
TILE_MARKERS = (COD, COC, QCD, QCC, RGN, POC)
"""Markers by which a tile overrides the main header."""


def parse_packets(codestream: bytes) -> tuple[CodestreamHeader, dict[int, Packets], dict[int, list[Segment]]]:
    """The main header, and the packets and overriding segments of every tile."""
    raw, parts = split(codestream)
    header = header_of(raw, 0)
    found: dict[int, Packets] = {}
    own: dict[int, list[Segment]] = {}
    for tile in sorted({part.tile for part in parts}):
        bodies = b""
        for part in parts:
            if part.tile == tile:
                at = 12
                while part.data[at : at + 2] != b"\xff\x93":
                    marker, size = struct.unpack_from(">HH", part.data, at)
                    if marker in TILE_MARKERS:
                        own.setdefault(tile, []).append((marker, part.data[at + 4 : at + 2 + size]))
                    at += 2 + size
                bodies += part.data[at + 2 :]
        packets = split_packets(header.style(own.get(tile, ())), header.bounds(tile), memoryview(bodies), None, 0)
        found[tile] = {key: (bytes(head), bytes(body)) for key, head, body in packets}
    return header, found, own


def reordered(
    codestream: bytes,
    *,
    progression: int | None = None,
    changes: Sequence[tuple[int, int, int, int, int, int]] = (),
    orders: Mapping[int, int] | None = None,
    cuts: int = 1,
    packets: int | None = None,
    heads: int | None = None,
    markers: int = 0,
) -> bytes:
    """The same packets in another order, `cuts` tile-parts a tile.

    `changes` are those of the order in the main header (POC), `orders` the progressions of single tiles,
    `packets` the marker (PLT, PLM) that lists their lengths, `heads` the one (PPM, PPT) that holds their headers,
    `markers` the bits (SOP, EPH) of the markers around them.
    """
    header, tiles, own = parse_packets(codestream)
    main = [(marker, data) for marker, data in header.segments if marker != POC]
    main = [(m, _restyled(d, progression, markers) if m == COD else d) for m, d in main]
    if changes:
        wide = component_bytes(header.count)
        rows = [
            bytes([first]) + begin.to_bytes(wide, "big") + layers.to_bytes(2, "big") + bytes([resolutions])
            + end.to_bytes(wide, "big") + bytes([order])
            for first, begin, layers, resolutions, end, order in changes
        ]  # fmt: skip
        main.append((POC, b"".join(rows)))
    steps = header.size.steps
    lists, tables, bodies = b"", b"", []
    for tile, found in tiles.items():
        overrides = [(m, _restyled(d, progression, markers) if m == COD else d) for m, d in own.get(tile, [])]
        if orders and tile in orders:
            usual = next(data for marker, data in main if marker == COD)
            overrides = [(m, d) for m, d in overrides if m != COD] + [(COD, _restyled(usual, orders[tile], markers))]
        how = coding_style(steps, main, overrides)
        bounds = header.bounds(tile)
        assert bounds is not None
        order = packet_order(bounds, how.codings, how.layers, how.progression, how.changes)
        keys: list[Key] = list(
            zip(*(c.tolist() for c in (order.layer, order.resolution, order.component, order.precinct)), strict=True)
        )
        assert sorted(keys) == sorted(found)
        for number in range(cuts):
            mine = keys[len(keys) * number // cuts : len(keys) * (number + 1) // cuts]
            first = len(keys) * number // cuts
            pieces, headers = [], b""
            for place, key in enumerate(mine, first):
                head, body = found[key]
                head += b"\xff\x92" if markers & EPH else b""
                headers += head
                lead = b"\xff\x91\x00\x04" + (place & 0xFFFF).to_bytes(2, "big") if markers & SOP else b""
                pieces.append(lead + (body if heads else head + body))
            segments = list(overrides) if number == 0 else []
            lengths = b"".join(_seven(len(piece)) for piece in pieces)
            if packets == PLT:
                segments.append((PLT, bytes([0]) + lengths))
            if heads == PPT:
                segments.append((PPT, bytes([number]) + headers))
            lists += bytes([len(lengths)]) + lengths if packets == PLM else b""
            tables += len(headers).to_bytes(4, "big") + headers
            data = pack_segments(segments) + b"\xff\x93" + b"".join(pieces)
            bodies.append(
                struct.pack(">HHHIBB", 0xFF90, 10, tile, 12 + len(data), number % 256, cuts if cuts < 256 else 0) + data
            )
    if packets == PLM:
        main.append((PLM, bytes([0]) + lists))
    if heads == PPM:
        main.append((PPM, bytes([0]) + tables))
    return _sized(header, main) + b"".join(bodies) + b"\xff\xd9"


def joined_components(one: bytes, other: bytes, steps: tuple[int, int] = (1, 1)) -> bytes:
    """Two codestreams of one component each as one of two, the second coded in its own way (COC, QCC).

    With `steps` the second is that much smaller, tile by tile.
    """
    header, tiles, _ = parse_packets(one)
    second, more, _ = parse_packets(other)
    coding, sizes = (next(data for marker, data in second.segments if marker == kind) for kind in (COD, QCD))
    segments = [*header.segments, (COC, b"\x01" + coding[:1] + coding[5:]), (QCC, b"\x01" + sizes)]
    components = header.size.components + second.size.components[:1] + bytes(steps)
    both = CodestreamHeader(replace(header.size, components=components), tuple(segments), 0)
    body = b""
    for tile, found in tiles.items():
        found |= {(layer, r, 1, p): packet for (layer, r, _, p), packet in more[tile].items()}
        bounds = both.bounds(tile)
        assert bounds is not None
        body += _tile(both, tile, bounds, found)
    return _sized(both, segments) + body + b"\xff\xd9"


def with_tile_of(host: bytes, guest: bytes, tile: int) -> bytes:
    """A codestream with one tile of another, including its coding and quantisation."""
    raw, parts = split(host)
    other, new = split(guest)
    overrides = [segment for segment in read_segments(other, 2, len(other)) if segment[0] in (COD, QCD)]
    mine = [part for part in new if part.tile == tile]
    body = b""
    for part in (part if part.tile != tile else None for part in parts):
        if part is not None:
            body += part.data
            continue
        for number, given in enumerate(mine):
            extra = pack_segments(overrides) if number == 0 else b""
            size = struct.pack(">I", len(given.data) + len(extra))
            body += given.data[:6] + size + given.data[10:12] + extra + given.data[12:]
        mine = []
    return raw + body + b"\xff\xd9"


def _tile(header: CodestreamHeader, tile: int, bounds: Bounds, found: Packets) -> bytes:
    how = header.style(())
    order = packet_order(bounds, how.codings, how.layers, how.progression, how.changes)
    keys = zip(*(c.tolist() for c in (order.layer, order.resolution, order.component, order.precinct)), strict=True)
    data = b"\xff\x93" + b"".join(head + body for head, body in (found[key] for key in keys))
    return struct.pack(">HHHIBB", 0xFF90, 10, tile, 12 + len(data), 0, 1) + data


def _sized(header: CodestreamHeader, segments: Sequence[Segment]) -> bytes:
    return b"\xff\x4f" + pack_segments([(SIZ, header.size.pack()), *segments])


def _restyled(data: bytes, progression: int | None, markers: int) -> bytes:
    return bytes([data[0] & ~(SOP | EPH) | markers, data[1] if progression is None else progression]) + data[2:]


def _seven(value: int) -> bytes:
    """A number of seven bits a byte."""
    found = [value & 127]
    while value := value >> 7:
        found.append(value & 127 | 128)
    return bytes(found[::-1])
