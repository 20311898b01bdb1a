"""JPEG: the marker segments before the first scan, which declare size, sampling, restart interval and colours."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from periplus.errors import FormatError

START = b"\xff\xd8"
HUFFMAN_TABLES, ARITHMETIC_TABLES, EXTENSION = 0xC4, 0xCC, 0xC8
FIRST_RESTART, END, SCAN, QUANTISATION, INTERVAL = 0xD0, 0xD9, 0xDA, 0xDB, 0xDD
APP0, APP1, APP2, ADOBE, COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
FRAMES = frozenset(range(0xC0, 0xD0)) - {HUFFMAN_TABLES, ARITHMETIC_TABLES, EXTENSION}
"""Markers of frame headers."""
SEQUENTIAL = frozenset({0xC0, 0xC1})
"""Frames with Huffman codes and all bits of a value in one scan."""
LOSSLESS = 0xC3
PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
ARITHMETIC = 0xC9
"""The first of the frames with arithmetic coding; all later ones have it too."""
MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
"""A marker that has a length, or the end of the stream."""
RESTART = re.compile(rb"\xff[\xd0-\xd7]")
MOST_SEGMENTS = 4_096
"""Segments before the first scan; real streams have a few dozen."""
JFIF_BYTES, ADOBE_BYTES = 14, 12
"""The shortest segments that libjpeg recognises."""

JpegSegment: TypeAlias = "tuple[int, int, bytes | memoryview]"
"""Marker, offset of the marker, and the content after the length."""


@dataclass(slots=True)
class JpegHeader:
    """What the segments before the first scan declare; `add` each of them in their order."""

    kind: int = 0
    """The marker of the frame header; 0 until one was added."""
    frame_offset: int = 0
    bits: int = 0
    height: int = 0
    width: int = 0
    components: bytes = b""
    """Identifiers of the components."""
    factors: tuple[tuple[int, int], ...] = ()
    """Horizontal and vertical sampling factor of every component."""
    restart_interval: int = 0
    """Units between restart markers; 0 if there are none."""
    jfif: bool = False
    adobe: int | None = None
    """The colour transform of Adobe's segment: 0 for none, 1 for YCbCr, 2 for YCCK."""
    scan_offset: int = 0
    """Offset of the first scan's marker; 0 until it was added."""
    scan_components: int = 0
    data_offset: int = 0
    """Where the coded data of the first scan begin."""

    def add(self, marker: int, offset: int, body: bytes | memoryview) -> None:
        """Parse one segment; those that do not matter for decoding are ignored, as are further frame headers."""
        if marker in FRAMES and not self.kind:
            if len(body) < 6 or len(body) < 6 + 3 * body[5]:
                raise FormatError("the frame header of the JPEG stream is cut off", offset=offset)
            self.bits, self.height, self.width, count = struct.unpack_from(">BHHB", body)
            self.components = bytes(body[6 : 6 + 3 * count : 3])
            self.factors = tuple(divmod(both, 16) for both in body[7 : 6 + 3 * count : 3])
            self.kind, self.frame_offset = marker, offset
        elif marker == INTERVAL and len(body) >= 2:
            self.restart_interval = int.from_bytes(body[:2], "big")
        elif marker == APP0 and len(body) >= JFIF_BYTES and bytes(body[:5]) == b"JFIF\0":
            self.jfif = True
        elif marker == ADOBE and len(body) >= ADOBE_BYTES and bytes(body[:5]) == b"Adobe":
            self.adobe = body[11]
        elif marker == SCAN:
            self.scan_offset, self.data_offset = offset, offset + 4 + len(body)
            self.scan_components = body[0] if len(body) else 0

    @property
    def samples(self) -> int:
        return len(self.components)

    @property
    def single_scan(self) -> bool:
        """Whether the first scan has all components."""
        return self.scan_components == self.samples

    @property
    def sampled(self) -> bool:
        """Whether all sampling factors are valid."""
        return bool(self.factors) and all(0 < across <= 4 and 0 < down <= 4 for across, down in self.factors)

    @property
    def unit(self) -> tuple[int, int]:
        """Width and height in pixels of what is coded together; a single component is coded in blocks of 8 x 8."""
        if len(self.factors) == 1:
            return 8, 8
        return 8 * max(across for across, _ in self.factors), 8 * max(down for _, down in self.factors)

    @property
    def declared_colors(self) -> str | None:
        """YCbCr or RGB where three components declare it, by libjpeg's rules; None where they do not."""
        if self.jfif:
            return "YCbCr"
        if self.adobe is not None:
            return "YCbCr" if self.adobe else "RGB"
        return "RGB" if self.components == b"RGB" else None


def parse_header(data: bytes | memoryview) -> JpegHeader:
    """The header of a stream in memory; FormatError if it has no frame. Tables may be missing."""
    if bytes(data[:2]) != START:
        raise FormatError("the JPEG stream does not begin with its marker")
    header = JpegHeader()
    for segment in segments(data):
        header.add(*segment)
    if not header.kind:
        raise FormatError("the JPEG stream has no frame header")
    return header


def segments(data: bytes | memoryview) -> Iterator[JpegSegment]:
    """The segments after the start of a stream, up to and including its first scan, as far as they are complete.

    Bytes between segments are skipped, as all decoders do.
    """
    position = len(START)
    for _ in range(MOST_SEGMENTS):
        found = MARKER.search(data, position)
        if found is None or found.start() + 4 > len(data) or data[found.start() + 1] == END:
            return
        position = found.start()
        marker, end = data[position + 1], position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if end > len(data):
            return
        yield marker, position, data[position + 4 : end]
        if marker == SCAN:
            return
        position = max(end, position + 4)
    raise FormatError(f"the JPEG stream has more than {MOST_SEGMENTS} segments before its first scan")
