"""The size that an image stream in a TIFF declares, checked before a native decoder is called."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from periplus.decode.jpeg2000.build import check_weight
from periplus.decode.jpeg2000.header import CodestreamHeader, header_of
from periplus.errors import DecodeError, FormatError
from periplus.parse.jpeg2000.boxes import boxes
from periplus.parse.jpeg2000.segments import (
    COC,
    COD,
    SOD,
    SOT,
    SOT_BYTES,
    Segment,
    parse_tile_part,
    read_segments,
    segment_ranges,
)
from periplus.parse.png import PALETTE, parse_png_header

CODESTREAM = b"\xff\x4f"
END = re.compile(rb"\xff\xd9")


class StreamSize(NamedTuple):
    """Width and height in pixels, samples a pixel, bits a sample; 0 if only the native decoder knows."""

    width: int
    height: int
    samples: int
    bits: int


def jpeg2000(data: memoryview) -> StreamSize:
    """A codestream, bare or in the boxes of a JP2 file, whose tile-parts must all be in the data."""
    start = 0
    if bytes(data[4:8]) == b"jP  ":
        start = next((begin for kind, begin, _ in boxes(data) if kind == b"jp2c"), len(data))
    if bytes(data[start : start + 2]) != CODESTREAM:
        raise DecodeError("the JPEG 2000 codestream does not begin with its markers")
    try:
        return _codestream(data[start:])
    except FormatError as error:
        raise DecodeError(error.message) from None


def _codestream(data: memoryview) -> StreamSize:
    first = len(CODESTREAM)
    for _, _, stop in segment_ranges(data, first, len(data), until=SOT):
        first = stop
    header = header_of(bytes(data[:first]), 0)
    size = header.size
    if len(set(size.depths)) > 1 or set(size.steps) != {(1, 1)}:
        raise DecodeError("the JPEG 2000 codestream has components of different size or depth")
    _check_coding(header, (), size.tiles, len(data))
    _check_tile_parts(data, first, header)
    right, bottom, left, top = size.grid[:4]
    return StreamSize(right - left, bottom - top, size.count, size.depths[0])


def _check_tile_parts(data: memoryview, position: int, header: CodestreamHeader) -> None:
    """DecodeError unless every tile-part is complete, belongs to a tile that exists, and all tiles are there."""
    end, tiles = len(data), header.size.tiles
    seen: set[int] = set()
    while position + 4 <= end and bytes(data[position : position + 2]) != b"\xff\xd9":
        part = parse_tile_part(data, position)
        if part is None:
            raise DecodeError("the JPEG 2000 codestream has a damaged marker")
        if part.tile >= tiles or (part.length and part.length < SOT_BYTES + 2) or position + part.length > end:
            raise DecodeError("the JPEG 2000 codestream is cut off, or has a tile-part of no tile")
        seen.add(part.tile)
        own = read_segments(data, position + SOT_BYTES, position + part.length if part.length else end, until=SOD)
        if any(marker in (COD, COC) for marker, _ in own):
            _check_coding(header, own, 1, end)
        if part.length == 0:
            # Native decoders read to the end of the data as the last tile-part; coded data contain no end marker.
            if END.search(data, position) is None:
                raise DecodeError("the JPEG 2000 codestream is cut off: its end is missing")
            break
        position += part.length
    if len(seen) != tiles:
        raise DecodeError(f"the JPEG 2000 codestream holds {len(seen)} of {tiles} tiles")


def _check_coding(header: CodestreamHeader, own: Iterable[Segment], tiles: int, length: int) -> None:
    """DecodeError if tiles are divided into more parts than the bytes could fill, since each costs memory."""
    right, bottom, left, top, width, height, *_ = header.size.grid
    precincts, blocks = header.weight(own, (0, 0, min(width, right - left), min(height, bottom - top)))
    check_weight(precincts * tiles, blocks * tiles, length)


def png(data: memoryview) -> StreamSize:
    """A PNG file without a palette."""
    try:
        header = parse_png_header(data)
    except FormatError as error:
        raise DecodeError(error.message) from None
    if header.color == PALETTE:
        raise DecodeError("the PNG stream has a palette")
    return StreamSize(header.width, header.height, header.bands, header.bits)


def webp(data: memoryview) -> StreamSize:
    """The first chunk of a WebP file; lossy ones carry 14-bit sizes, lossless ones 14 bits packed."""
    form, size, kind, chunk = struct.unpack_from("<4sI4s4s", data)
    if form != b"RIFF" or kind != b"WEBP" or size + 8 > len(data) + 1:
        raise DecodeError("the WebP stream is cut off or none")
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return StreamSize(width & 0x3FFF, height & 0x3FFF, 0, 8)
    if chunk == b"VP8L":
        (packed,) = struct.unpack_from("<I", data, 21)
        return StreamSize((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, 0, 8)
    if chunk == b"VP8X":
        if data[20] & 0x02:
            raise DecodeError("the WebP stream is an animation")
        return StreamSize(int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1, 0, 8)
    raise DecodeError("the WebP stream has no image")
