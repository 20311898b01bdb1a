"""PNG: one picture a file, of 1 to 16 bits, gray, colour or palette, perhaps with alpha; its pixels are one chunk."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Source, Step, Steps, codecnames
from periplus.scan import exif
from periplus.scan.blocks import Blocks
from periplus.scan.picture import Reading, held, picture_array, scan_picture, whole_file

NAME = "png"
MAGIC = b"\x89PNG\r\n\x1a\n"
HEAD_BYTES = 4_096
AHEAD_BYTES = 4_096
LARGEST = 1 << 31
SHORT = 65_536
"""Bytes of a chunk that tells something; larger ones are stepped over."""
TELLING = frozenset({b"PLTE", b"tRNS", b"pHYs", b"gAMA", b"sBIT", b"tEXt", b"eXIf"})
GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
DEPTHS = {GRAY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GRAY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}
BANDS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGB_ALPHA: 4}
PHOTOMETRIC = {GRAY: "min_is_black", RGB: "rgb", PALETTE: "palette", GRAY_ALPHA: "min_is_black", RGB_ALPHA: "rgb"}


@dataclass(slots=True)
class _Picture:
    """What the chunks before the pixels say."""

    width: int
    height: int
    bits: int
    colour: int
    moment: datetime | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Metadata that could not be read."""


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is a PNG."""
    return bytes(head[:8]) == MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """The one array of a PNG file: values as stored, palettes as indices."""
    yield from scan_picture(source, limits, _read)


def _read(blocks: Blocks, limits: Limits) -> Reading:
    picture = yield from _walk(blocks, limits)
    return _array(picture, limits), whole_file(blocks), picture.moment, tuple(picture.unread)


def _walk(blocks: Blocks, limits: Limits) -> Generator[Step, Any, _Picture]:
    """Every chunk up to the first with pixels."""
    yield from blocks.hold("the header", 0, 33, ahead=HEAD_BYTES)
    picture = _header(held(blocks, 0, 29))
    position, seen = 33, 0
    while True:
        yield from blocks.hold("a chunk", position, 8, ahead=AHEAD_BYTES)
        length, kind = struct.unpack(">I4s", held(blocks, position, 8))
        seen += 1
        limits.check("the number of chunks of the file", seen, limits.tags, offset=position)
        if kind == b"IDAT":
            break
        if kind == b"IEND" or length >= LARGEST:
            raise FormatError("the PNG file ends before its image", offset=position)
        if kind == b"IHDR":
            raise FormatError("the PNG file has a second header", offset=position)
        if kind in TELLING and length <= SHORT:
            yield from blocks.hold("a chunk", position + 8, length + 4)
            body, check = held(blocks, position + 8, length), held(blocks, position + 8 + length, 4)
            sound = zlib.crc32(body, zlib.crc32(kind)) == int.from_bytes(check, "big")
            whole = sound and length and length % 3 == 0 and "colormap" not in picture.attributes
            if kind == b"PLTE" and picture.colour == PALETTE and not whole:
                raise FormatError("the palette of the PNG file is damaged", offset=position)
            # Others only tell something of the pixels; they are as good without it.
            if sound:
                _told(picture, kind, body)
            else:
                picture.unread.append(f"the chunk {kind.decode('ascii')} fails its check")
        position += 12 + length
    if picture.colour == PALETTE and "colormap" not in picture.attributes:
        raise FormatError("the PNG file has no palette", offset=position)
    return picture


def _header(head: bytes) -> _Picture:
    if head[:8] != MAGIC or head[8:16] != b"\0\0\0\rIHDR":
        raise FormatError("not a PNG: the magic number or the header is missing", offset=0)
    width, height, bits, colour, compression, filtering, interlace = struct.unpack_from(">IIBBBBB", head, 16)
    if not (0 < width < LARGEST and 0 < height < LARGEST):
        raise FormatError(f"the PNG header says {width} x {height} pixels", offset=16)
    if bits not in DEPTHS.get(colour, ()):
        raise FormatError(f"a PNG of colour type {colour} with {bits} bits does not exist", offset=24)
    if compression or filtering or interlace > 1:
        raise FormatError("the PNG header names a compression, filter or interlacing that does not exist", offset=26)
    return _Picture(width, height, bits, colour)


def _told(picture: _Picture, kind: bytes, body: bytes) -> None:
    found, bands = picture.attributes, BANDS[picture.colour]
    if kind == b"PLTE" and picture.colour == PALETTE:
        found["colormap"] = [list(body[n : n + 3]) for n in range(0, len(body) - 2, 3)][: 1 << picture.bits]
    elif kind == b"tRNS":
        _transparent(picture, body)
    elif kind == b"pHYs" and len(body) == 9 and body[8] == 1:
        x, y = struct.unpack_from(">II", body)
        if x and y:
            found["resolution"] = {"x": x, "y": y, "per": "metre"}
    elif kind == b"gAMA" and len(body) == 4:
        found["gamma"] = int.from_bytes(body, "big") / 100_000
    elif kind == b"sBIT" and len(body) == (3 if picture.colour == PALETTE else bands):
        found["significant_bits"] = list(body)
    elif kind == b"tEXt" and body.count(b"\0"):
        key, _, text = body.partition(b"\0")
        found.setdefault("text", {}).setdefault(key.decode("latin-1"), text.decode("latin-1"))
    elif kind == b"eXIf":
        told, picture.moment = exif.facts(body)
        picture.attributes = {**told, **found}


def _transparent(picture: _Picture, body: bytes) -> None:
    """The one value that means nothing, or the alpha of every palette entry."""
    if picture.colour == PALETTE:
        picture.attributes["colormap_alpha"] = list(body[: 1 << picture.bits])
    elif picture.colour in (GRAY, RGB) and len(body) == 2 * BANDS[picture.colour]:
        values = [int(v) & (1 << picture.bits) - 1 for v in struct.unpack(f">{len(body) // 2}H", body)]
        picture.attributes.update({"_FillValue": values[0]} if len(values) == 1 else {"transparent_colour": values})


def _array(picture: _Picture, limits: Limits) -> Array:
    bands = BANDS[picture.colour]
    attributes = {**picture.attributes, "photometric": PHOTOMETRIC[picture.colour]}
    if picture.colour in (GRAY_ALPHA, RGB_ALPHA):
        attributes["extra_samples"] = ["alpha"]
    configuration = {"width": picture.width, "height": picture.height, "bands": bands, "bits": picture.bits}
    codec = {"name": codecnames.PNG, "configuration": configuration}
    return picture_array((bands, picture.height, picture.width), picture.bits, Encoding((codec,)), attributes, limits)
