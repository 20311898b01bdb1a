"""PNG files: one picture of 1 to 16 bits, gray, colour or palette, with or without alpha, stored as one chunk."""

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
from periplus.parse.png import (
    GRAY,
    GRAY_ALPHA,
    HEADER_BYTES,
    LARGEST,
    MAGIC,
    PALETTE,
    RGB,
    RGB_ALPHA,
    PngHeader,
    parse_png_header,
)
from periplus.scan import exif
from periplus.scan.buffer import FileBuffer
from periplus.scan.single_picture import Reading, picture_array, scan_picture, whole_file

NAME = "png"
HEAD_BYTES = 4_096
AHEAD_BYTES = 4_096
MOST_BYTES = 65_536
"""Bytes of a metadata chunk; larger ones are skipped."""
METADATA = frozenset({b"PLTE", b"tRNS", b"pHYs", b"gAMA", b"sBIT", b"tEXt", b"eXIf"})
PHOTOMETRIC = {GRAY: "min_is_black", RGB: "rgb", PALETTE: "palette", GRAY_ALPHA: "min_is_black", RGB_ALPHA: "rgb"}


@dataclass(slots=True)
class _PngMetadata:
    """What the chunks before the pixels declare."""

    header: PngHeader
    moment: datetime | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Metadata that could not be read."""


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a PNG file."""
    return bytes(head[:8]) == MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """The one array of a PNG file: values as stored, palettes as indices."""
    yield from scan_picture(source, limits, _read)


def _read(file: FileBuffer, limits: Limits) -> Reading:
    picture = yield from _read_chunks(file, limits)
    return _array(picture, limits), whole_file(file), picture.moment, tuple(picture.unread)


def _read_chunks(file: FileBuffer, limits: Limits) -> Generator[Step, Any, _PngMetadata]:
    """The metadata in the chunks before the pixels."""
    head = yield from file.read("the header", 0, HEADER_BYTES, ahead=HEAD_BYTES)
    picture = _PngMetadata(parse_png_header(head))
    position, count = HEADER_BYTES, 0
    while True:
        length, kind = struct.unpack(">I4s", (yield from file.read("a chunk", position, 8, ahead=AHEAD_BYTES)))
        count += 1
        limits.check("the number of chunks of the file", count, limits.tags, offset=position)
        if kind == b"IDAT":
            break
        if kind == b"IEND" or length >= LARGEST:
            raise FormatError("the PNG file ends before its image", offset=position)
        if kind == b"IHDR":
            raise FormatError("the PNG file has a second header", offset=position)
        if kind in METADATA and length <= MOST_BYTES:
            raw = yield from file.read("a chunk", position + 8, length + 4)
            body, checksum = raw[:length], int.from_bytes(raw[length:], "big")
            valid = zlib.crc32(body, zlib.crc32(kind)) == checksum
            if kind == b"PLTE" and picture.header.color == PALETTE:
                complete = valid and length and length % 3 == 0 and "colormap" not in picture.attributes
                if not complete:
                    raise FormatError("the palette of the PNG file is damaged", offset=position)
            # The pixels can be read without any other of these chunks.
            if valid:
                _add(picture, kind, body)
            else:
                picture.unread.append(f"the chunk {kind.decode('ascii')} fails its checksum")
        position += 12 + length
    if picture.header.color == PALETTE and "colormap" not in picture.attributes:
        raise FormatError("the PNG file has no palette", offset=position)
    return picture


def _add(picture: _PngMetadata, kind: bytes, body: bytes) -> None:
    found, bands = picture.attributes, picture.header.bands
    if kind == b"PLTE" and picture.header.color == PALETTE:
        found["colormap"] = [list(body[n : n + 3]) for n in range(0, len(body) - 2, 3)][: 1 << picture.header.bits]
    elif kind == b"tRNS":
        _transparent(picture, body)
    elif kind == b"pHYs" and len(body) == 9 and body[8] == 1:
        x, y = struct.unpack_from(">II", body)
        if x and y:
            found["resolution"] = {"x": x, "y": y, "per": "metre"}
    elif kind == b"gAMA" and len(body) == 4:
        found["gamma"] = int.from_bytes(body, "big") / 100_000
    elif kind == b"sBIT" and len(body) == (3 if picture.header.color == PALETTE else bands):
        found["significant_bits"] = list(body)
    elif kind == b"tEXt" and body.count(b"\0"):
        key, _, text = body.partition(b"\0")
        found.setdefault("text", {}).setdefault(key.decode("latin-1"), text.decode("latin-1"))
    elif kind == b"eXIf":
        attributes, picture.moment = exif.facts(body)
        picture.attributes = {**attributes, **found}


def _transparent(picture: _PngMetadata, body: bytes) -> None:
    """The value of transparent pixels, or the alpha of every palette entry."""
    if picture.header.color == PALETTE:
        picture.attributes["colormap_alpha"] = list(body[: 1 << picture.header.bits])
    elif picture.header.color in (GRAY, RGB) and len(body) == 2 * picture.header.bands:
        values = [int(v) & (1 << picture.header.bits) - 1 for v in struct.unpack(f">{len(body) // 2}H", body)]
        picture.attributes.update({"_FillValue": values[0]} if len(values) == 1 else {"transparent_colour": values})


def _array(picture: _PngMetadata, limits: Limits) -> Array:
    header = picture.header
    attributes = {**picture.attributes, "photometric": PHOTOMETRIC[header.color]}
    if header.color in (GRAY_ALPHA, RGB_ALPHA):
        attributes["extra_samples"] = ["alpha"]
    configuration = {"width": header.width, "height": header.height, "bands": header.bands, "bits": header.bits}
    encoding = Encoding(({"name": codecnames.PNG, "configuration": configuration},))
    return picture_array((header.bands, header.height, header.width), header.bits, encoding, attributes, limits)
