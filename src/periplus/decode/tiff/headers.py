"""Headers: what image streams say of their size, read before a native decoder is trusted with them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from periplus.decode.jpeg2000.build import check_weight
from periplus.decode.jpeg2000.header import LARGEST_LAYERS
from periplus.errors import DecodeError
from periplus.parse.jpeg2000.packets import Coding, blocks, count

LARGEST_TILES = 65_535
END = re.compile(rb"\xff\xd9")


@dataclass(frozen=True, slots=True)
class Header:
    """Width and height in pixels, samples a pixel, bits a sample (0 where the native decoder must say)."""

    width: int
    height: int
    samples: int
    bits: int


def jpeg2000(data: memoryview) -> Header:
    """The SIZ marker of a codestream, bare or in the boxes of a JP2 file; its tile-parts must lie in the data."""
    start = 0
    if bytes(data[4:8]) == b"jP  ":
        start = _box(data, b"jp2c")
    if bytes(data[start : start + 4]) != b"\xff\x4f\xff\x51":
        raise DecodeError("the JPEG 2000 codestream does not begin with its markers")
    fields = struct.unpack_from(">HH8IH", data, start + 4)
    length, _, right, bottom, left, top, tile_width, tile_height, tile_left, tile_top, samples = fields
    if not (left < right and top < bottom and tile_width and tile_height and tile_left <= left and tile_top <= top):
        raise DecodeError("the JPEG 2000 codestream declares an empty image")
    if length != 38 + 3 * samples or not 0 < samples <= 16_384:
        raise DecodeError("the JPEG 2000 codestream has a broken size marker")
    components = bytes(data[start + 42 : start + 42 + 3 * samples])
    bits = {(c & 0x7F) + 1 for c in components[::3]}
    if len(components) != 3 * samples or len(bits) != 1 or set(components[1::3]) | set(components[2::3]) != {1}:
        raise DecodeError("the JPEG 2000 codestream has components of different size or depth")
    tiles = -(-(right - tile_left) // tile_width) * -(-(bottom - tile_top) // tile_height)
    if tiles > LARGEST_TILES:
        raise DecodeError(f"the JPEG 2000 codestream declares {tiles} tiles")
    area = (min(tile_width, right - left), min(tile_height, bottom - top), samples, tiles)
    _codestream(data, start + 4 + length, tiles, area)
    return Header(right - left, bottom - top, samples, bits.pop())


def _codestream(data: memoryview, position: int, tiles: int, area: tuple[int, int, int, int]) -> None:
    """Walk the markers: sane coding styles, and every tile-part whole and of a tile that exists."""
    end = len(data)
    seen: set[int] = set()
    while position + 4 <= end:
        marker, length = struct.unpack_from(">HH", data, position)
        if marker == 0xFFD9:
            break
        if marker == 0xFF52:
            layers = int.from_bytes(data[position + 6 : position + 8], "big")
            if layers > LARGEST_LAYERS:
                raise DecodeError(f"the JPEG 2000 codestream declares {layers} quality layers")
            _weigh(bytes(data[position + 4 : position + 2 + length]), area, end)
        if marker == 0xFF90:
            tile, part = struct.unpack_from(">HI", data, position + 4)
            if tile >= tiles or (part and part < 14) or position + part > end:
                raise DecodeError("the JPEG 2000 codestream is cut off, or has a tile-part of no tile")
            seen.add(tile)
            _tile_style(data, position + 12, area)
            if part == 0:
                # Its length is not told, and native decoders take what is left for all of it. Data hold no marker.
                if END.search(data, position) is None:
                    raise DecodeError("the JPEG 2000 codestream is cut off: its end is missing")
                break
            position += part
            continue
        if length < 2 or marker < 0xFF00:
            raise DecodeError("the JPEG 2000 codestream has a broken marker")
        position += 2 + length
    if len(seen) != tiles:
        raise DecodeError(f"the JPEG 2000 codestream holds {len(seen)} of {tiles} tiles")


def _tile_style(data: memoryview, position: int, area: tuple[int, int, int, int]) -> None:
    """A coding style of a tile's own, weighed as that of the image is."""
    while position + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, position)
        if marker == 0xFF93 or length < 2:
            return
        if marker == 0xFF52:
            _weigh(bytes(data[position + 4 : position + 2 + length]), (*area[:3], 1), len(data))
        position += 2 + length


def _weigh(style: bytes, area: tuple[int, int, int, int], size: int) -> None:
    """Refuse a coding style that cuts tiles into more pieces than the bytes could fill: each costs a decoder memory."""
    width, height, samples, tiles = area
    if len(style) < 10 or style[5] > 32:
        raise DecodeError("the JPEG 2000 codestream has a broken coding style")
    levels = style[5] + 1
    sizes = style[10 : 10 + levels] if style[0] & 1 else b"\xff" * levels
    if len(sizes) != levels:
        raise DecodeError("the JPEG 2000 codestream has a broken coding style")
    coding = Coding(
        steps=(1, 1),
        precincts=tuple((one & 15, one >> 4) for one in sizes),
        blocks=((style[6] & 15) + 2, (style[7] & 15) + 2, 0),
    )
    codings = [coding] * samples
    bounds = (0, 0, width, height)
    check_weight(count(bounds, codings) * tiles, blocks(bounds, codings) * tiles, size)


def _box(data: memoryview, wanted: bytes) -> int:
    """Where the content of the first box of a kind begins."""
    position, end = 0, len(data)
    while position + 8 <= end:
        length, kind = struct.unpack_from(">I4s", data, position)
        head = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, position + 8)
            head = 16
        if kind == wanted:
            return position + head
        if length < head:
            break
        position += length
    raise DecodeError(f"the file has no {wanted.decode()} box")


def webp(data: memoryview) -> Header:
    """The first chunk of a WebP file; lossy ones carry 14-bit sizes, lossless ones 14 bits packed."""
    form, size, kind, chunk = struct.unpack_from("<4sI4s4s", data)
    if form != b"RIFF" or kind != b"WEBP" or size + 8 > len(data) + 1:
        raise DecodeError("the WebP stream is cut off or none")
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Header(width & 0x3FFF, height & 0x3FFF, 0, 8)
    if chunk == b"VP8L":
        (packed,) = struct.unpack_from("<I", data, 21)
        return Header((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, 0, 8)
    if chunk == b"VP8X":
        if data[20] & 0x02:
            raise DecodeError("the WebP stream is an animation")
        return Header(int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1, 0, 8)
    raise DecodeError("the WebP stream has no image")


def png(data: memoryview) -> Header:
    """The IHDR chunk."""
    if bytes(data[:8]) != b"\x89PNG\r\n\x1a\n" or bytes(data[12:16]) != b"IHDR":
        raise DecodeError("the PNG stream does not begin with its header")
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    samples = {0: 1, 2: 3, 4: 2, 6: 4}.get(colour)
    if samples is None:
        raise DecodeError("the PNG stream has a palette")
    return Header(width, height, samples, bits)
