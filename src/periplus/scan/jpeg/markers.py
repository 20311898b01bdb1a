"""The markers of a JPEG stream up to its first scan: how it is coded, and what they tell besides."""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Step
from periplus.scan import exif
from periplus.scan.blocks import Blocks
from periplus.scan.jpeg.bands import Frame
from periplus.scan.picture import held

HEAD_BYTES = 16_384
AHEAD_BYTES = 4_096
FRAMES = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive", 0xC3: "lossless", 0xC9: "arithmetic",
          0xCA: "progressive arithmetic"}  # fmt: skip
"""Frame headers that a decoder can start from."""
LOSSLESS = 0xC3
UNREAD = {**dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF, 0xDE), "a hierarchical JPEG"),
          0xCB: "a lossless JPEG in arithmetic coding", 0xF7: "JPEG-LS"}  # fmt: skip
"""Frame headers of what no decoder here can do."""
ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length."""
EXIF, SEVERAL, ADOBE, COMMENT, JFIF = 0xE1, 0xE2, 0xEE, 0xFE, 0xE0
HUFFMAN, QUANTISATION, INTERVAL, SCAN = 0xC4, 0xDB, 0xDD, 0xDA
DECODED = frozenset({*FRAMES, HUFFMAN, QUANTISATION, INTERVAL, SCAN, ADOBE, JFIF})
"""Markers that decide how a scan is decoded."""
MOST_JUNK = 65_536
SHORT = 4_096
"""Bytes of a comment worth keeping."""
RESOLUTION_UNITS = {1: "inch", 2: "centimetre"}


@dataclass(slots=True)
class Markers:
    """What the markers before the first scan say."""

    frame: int = 0
    bits: int = 0
    height: int = 0
    width: int = 0
    components: bytes = b""
    """Identifiers of the components."""
    sampling: bytes = b""
    restart: int = 0
    header: list[bytes] = field(default_factory=lambda: [b"\xff\xd8"])
    """What a decoder needs of the markers."""
    data: int = 0
    """Where the data of the first scan begin."""
    scanned: int = 0
    jfif: bool = False
    adobe: int | None = None
    moment: datetime | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def cut(self) -> Frame:
        """What decides whether the picture can be cut into bands."""
        return Frame(
            marker=self.frame,
            width=self.width,
            height=self.height,
            sampling=self.sampling,
            restart=self.restart,
            header=b"".join(self.header),
            data=self.data,
            scanned=self.scanned,
        )

    @property
    def inks(self) -> bool:
        """Whether the picture is in cyan, magenta, yellow and black, for print; four lossless bands are just data."""
        return len(self.components) == 4 and self.bits == 8 and self.frame != LOSSLESS


def walk(blocks: Blocks, limits: Limits, start: int = 0) -> Generator[Step, Any, Markers]:
    """Every marker of the stream at `start`, up to its first scan."""
    found = Markers()
    yield from blocks.hold("the header", start, 4, ahead=HEAD_BYTES)
    position, seen, junk = start + 2, 0, 0
    while True:
        yield from blocks.hold("a marker", position, 2, ahead=AHEAD_BYTES)
        lead, marker = held(blocks, position, 2)
        if lead != 0xFF or marker in (0x00, 0xFF):
            # Every decoder steps over fill and rubbish between markers.
            junk += 1
            if junk > MOST_JUNK:
                raise FormatError("no marker follows where one is expected", offset=position)
            position += 1
            continue
        seen += 1
        limits.check("the number of markers", seen, limits.tags, offset=position)
        if marker in ALONE:
            position += 2
            continue
        if marker in UNREAD:
            raise FormatError(f"{UNREAD[marker]} is not supported", offset=position)
        if marker == 0xD9:
            raise FormatError("the JPEG file ends before its image", offset=position)
        yield from blocks.hold("a marker", position + 2, 2)
        (length,) = struct.unpack(">H", held(blocks, position + 2, 2))
        if length < 2:
            raise FormatError("a marker has no length", offset=position)
        if marker == SEVERAL and length >= 6:
            # Colour profiles are here too, and may be large.
            yield from blocks.hold("a marker", position + 4, 4)
        several = marker == SEVERAL and length >= 6 and held(blocks, position + 4, 4) == b"MPF\0"
        if several or marker in DECODED or marker in (EXIF, COMMENT):
            yield from blocks.hold("a marker", position + 4, length - 2)
            body = held(blocks, position + 4, length - 2)
            _told(found, marker, body, position)
            if marker in DECODED:
                found.header.append(struct.pack(">BBH", 0xFF, marker, length) + body)
        position += 2 + length
        if marker == SCAN:
            found.data, found.scanned = position, body[0] if body else 0
            break
    if not found.frame:
        raise FormatError("the JPEG file has a scan before its frame header", offset=position)
    return found


def _told(found: Markers, marker: int, body: bytes, offset: int) -> None:
    if marker in FRAMES:
        if found.frame:
            raise FormatError("the JPEG file has two frame headers", offset=offset)
        if len(body) < 6 or len(body) < 6 + 3 * body[5]:
            raise FormatError("the frame header is cut off", offset=offset)
        found.frame = marker
        found.bits, found.height, found.width, number = struct.unpack_from(">BHHB", body)
        found.components, found.sampling = body[6 : 6 + 3 * number : 3], body[7 : 6 + 3 * number : 3]
        if not (found.width and found.height and number):
            raise FormatError(
                f"the frame header says {found.width} x {found.height} pixels of {number} components", offset=offset
            )
    elif marker == INTERVAL and len(body) >= 2:
        found.restart = int.from_bytes(body[:2], "big")
    elif marker == EXIF and body[:6] == b"Exif\0\0":
        told, moment = exif.facts(body[6:])
        found.attributes = {**told, **found.attributes}
        found.moment = found.moment or moment
    elif marker == SEVERAL and (number := exif.pictures(body[4:])) is not None:
        found.attributes["pictures"] = number
    elif marker == ADOBE and body[:5] == b"Adobe" and len(body) >= 12:
        found.adobe = body[11]
    elif marker == COMMENT and (text := body[:SHORT].decode("utf-8", "replace").strip("\0 \r\n\t")):
        found.attributes.setdefault("comment", text)
    elif marker == JFIF and body[:5] == b"JFIF\0" and len(body) >= 12:
        found.jfif = True
        unit, x, y = struct.unpack_from(">BHH", body, 7)
        if unit in RESOLUTION_UNITS and x and y:
            found.attributes["resolution"] = {"x": x, "y": y, "per": RESOLUTION_UNITS[unit]}
