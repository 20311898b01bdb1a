"""The marker segments of a JPEG stream up to its first scan: how it is coded, and its metadata."""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Step
from periplus.parse.jpeg import (
    ADOBE,
    APP0,
    APP1,
    APP2,
    COMMENT,
    END,
    HUFFMAN_TABLES,
    INTERVAL,
    LOSSLESS,
    QUANTISATION,
    SCAN,
    START,
    JpegHeader,
)
from periplus.scan import exif
from periplus.scan.buffer import FileBuffer

HEAD_BYTES = 16_384
AHEAD_BYTES = 4_096
CODINGS = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive", 0xC3: "lossless", 0xC9: "arithmetic",
           0xCA: "progressive arithmetic"}  # fmt: skip
"""Frame headers that a decoder can start from."""
UNSUPPORTED = {**dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF, 0xDE), "a hierarchical JPEG"),
               0xCB: "a lossless JPEG in arithmetic coding", 0xF7: "JPEG-LS"}  # fmt: skip
"""Frame headers that no decoder here supports."""
WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
DECODED = frozenset({*CODINGS, HUFFMAN_TABLES, QUANTISATION, INTERVAL, SCAN, ADOBE, APP0})
"""Markers of segments that decide how a scan is decoded."""
MOST_FILL = 65_536
COMMENT_BYTES = 4_096
"""Bytes of a comment worth keeping."""
RESOLUTION_UNITS = {1: "inch", 2: "centimetre"}


@dataclass(slots=True)
class JpegMarkers:
    """What the segments before the first scan declare."""

    header: JpegHeader = field(default_factory=JpegHeader)
    decoded: list[bytes] = field(default_factory=lambda: [START])
    """The segments that a decoder needs, as stored."""
    moment: datetime | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def inks(self) -> bool:
        """Whether values are cyan, magenta, yellow and black; four bands of a lossless JPEG are any data."""
        return self.header.samples == 4 and self.header.bits == 8 and self.header.kind != LOSSLESS


def read_markers(file: FileBuffer, limits: Limits, start: int = 0) -> Generator[Step, Any, JpegMarkers]:
    """Every segment of the stream at `start`, up to its first scan."""
    found = JpegMarkers()
    yield from file.require("the header", start, 4, ahead=HEAD_BYTES)
    position, count, fill = start + 2, 0, 0
    while not found.header.data_offset:
        lead, marker = yield from file.read("a marker", position, 2, ahead=AHEAD_BYTES)
        if lead != 0xFF or marker in (0x00, 0xFF):
            # Every decoder skips fill bytes and unknown ones between segments.
            fill += 1
            if fill > MOST_FILL:
                raise FormatError("no marker follows where one is expected", offset=position)
            position += 1
            continue
        count += 1
        limits.check("the number of markers", count, limits.tags, offset=position)
        if marker in WITHOUT_LENGTH:
            position += 2
            continue
        if marker in UNSUPPORTED:
            raise FormatError(f"{UNSUPPORTED[marker]} is not supported", offset=position)
        if marker == END:
            raise FormatError("the JPEG file ends before its image", offset=position)
        length = int.from_bytes((yield from file.read("a marker", position + 2, 2)), "big")
        if length < 2:
            raise FormatError("a marker has no length", offset=position)
        # A colour profile has the same marker as the list of pictures, and may be large.
        wanted = marker in DECODED or marker in (APP1, COMMENT)
        if marker == APP2 and length >= 6:
            wanted = (yield from file.read("a marker", position + 4, 4)) == b"MPF\0"
        if wanted:
            body = yield from file.read("a marker", position + 4, length - 2)
            _add(found, marker, position, body)
        position += 2 + length
    if not found.header.kind:
        raise FormatError("the JPEG file has a scan before its frame header", offset=position)
    return found


def _add(found: JpegMarkers, marker: int, offset: int, body: bytes) -> None:
    header = found.header
    if marker in CODINGS and header.kind:
        raise FormatError("the JPEG file has two frame headers", offset=offset)
    if marker in DECODED:
        header.add(marker, offset, body)
        found.decoded.append(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body)
    if marker in CODINGS and not (header.width and header.height and header.samples):
        size = f"{header.width} x {header.height} pixels of {header.samples} components"
        raise FormatError(f"the frame header declares {size}", offset=offset)
    if marker == APP1 and body[:6] == b"Exif\0\0":
        attributes, moment = exif.facts(body[6:])
        found.attributes = {**attributes, **found.attributes}
        found.moment = found.moment or moment
    elif marker == APP2 and (number := exif.pictures(body[4:])) is not None:
        found.attributes["pictures"] = number
    elif marker == COMMENT and (text := body[:COMMENT_BYTES].decode("utf-8", "replace").strip("\0 \r\n\t")):
        found.attributes.setdefault("comment", text)
    elif marker == APP0 and header.jfif and body[:5] == b"JFIF\0" and len(body) >= 12:
        unit, x, y = struct.unpack_from(">BHH", body, 7)
        if unit in RESOLUTION_UNITS and x and y:
            found.attributes["resolution"] = {"x": x, "y": y, "per": RESOLUTION_UNITS[unit]}
