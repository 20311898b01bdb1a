"""What the markers of a JPEG stream say of it, read before libjpeg is trusted with it."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from periplus.decode.tiff.headers import Header
from periplus.errors import DecodeError

LARGEST_SCANS = 100
"""Scans of a progressive JPEG; each costs a pass over the whole image, and real ones have about ten."""
LARGEST_MARKERS = 4_096
"""Markers before the first scan of a JPEG; real ones have a few dozen at most."""
ROOM = {0xC0: (8, 2), 0xC1: (8, 2), 0xC2: (8, 1), 0xC3: (1, 1)}
"""By the kind of a JPEG with Huffman codes: pixels along the side of what is coded at once, and its fewest bits."""
PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
SEQUENTIAL = frozenset({0xC0, 0xC1})
"""With Huffman codes, one value after the other."""
ARITHMETIC = 0xC9
"""The first of the frame headers of arithmetic coding, which are the last ones."""
NO_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
INTERVAL, SCAN, END = 0xDD, 0xDA, 0xD9
APP0, ADOBE = 0xE0, 0xEE
MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
"""One that has a length, or ends the stream."""
RESTART = re.compile(rb"\xff([\xd0-\xd7\xd9])")
"""A restart, or the end."""
TURNS = bytes(range(0xD0, 0xD8))
"""Restarts as they follow each other."""


@dataclass(frozen=True, slots=True)
class JpegHeader(Header):
    """The size of a picture, and how it is coded."""

    kind: int
    """The marker of the frame header."""
    frame: int
    """Where that is."""
    scan: int
    """Where the first scan begins; the end of the stream, if it has none."""
    alone: bool
    """Whether the first scan has all samples."""
    interval: int
    """Units between restarts; 0 where there are none."""
    factors: tuple[tuple[int, int], ...]
    """Horizontal and vertical sampling of every component."""
    jfif: bool
    """Whether the stream is a JFIF file, whose three components are YCbCr."""
    adobe: int | None
    """The colour transform of Adobe's marker: 0 for none, 1 for YCbCr, 2 for YCCK."""
    names: bytes
    """Identifiers of the components."""

    @property
    def colours(self) -> str | None:
        """The colour space that three components declare by libjpeg's rules: YCbCr or RGB; None where they do not."""
        if self.jfif:
            return "YCbCr"
        if self.adobe is not None:
            return "YCbCr" if self.adobe else "RGB"
        return "RGB" if self.names == b"RGB" else None

    @property
    def several(self) -> bool:
        """Whether pixels are in several scans: of a progressive stream, or of components apart."""
        return self.kind in PROGRESSIVE or not self.alone


def jpeg(data: memoryview) -> JpegHeader:
    """The markers up to the first scan; tables may be missing."""
    if bytes(data[:2]) != b"\xff\xd8":
        raise DecodeError("the JPEG stream does not begin with its marker")
    position, end, frame, interval = 2, len(data), 0, 0
    jfif, adobe = False, None
    for _ in range(LARGEST_MARKERS):
        # Fill and rubbish between markers are stepped over, as every decoder does.
        following = MARKER.search(data, position)
        if following is None or following.start() + 4 > end:
            position = end
            break
        position = following.start()
        marker = data[position + 1]
        if marker in (SCAN, END):
            break
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAMES:
            frame = frame or position
        elif marker == INTERVAL and position + 6 <= end:
            interval = int.from_bytes(data[position + 4 : position + 6], "big")
        elif marker == APP0:
            jfif = jfif or bytes(data[position + 4 : position + 9]) == b"JFIF\0"
        elif marker == ADOBE and position + 16 <= end and bytes(data[position + 4 : position + 9]) == b"Adobe":
            adobe = data[position + 15]
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    if not frame or frame + 10 > end:
        raise DecodeError("the JPEG stream has no frame header")
    bits, height, width, samples = struct.unpack_from(">BHHB", data, frame + 4)
    first = bytes(data[position + 1 : position + 5 : 3])
    found = JpegHeader(
        width=width,
        height=height,
        samples=samples,
        bits=bits,
        kind=data[frame + 1],
        frame=frame,
        scan=min(position, end),
        alone=first == bytes([SCAN, samples]),
        interval=interval,
        factors=tuple(divmod(both, 16) for both in data[frame + 11 : frame + 10 + 3 * samples : 3]),
        jfif=jfif,
        adobe=adobe,
        names=bytes(data[frame + 10 : frame + 10 + 3 * samples : 3]),
    )
    if found.kind in PROGRESSIVE and len(jpeg_scans(data, frame)[0]) > LARGEST_SCANS:
        raise DecodeError(f"the JPEG stream has more than {LARGEST_SCANS} scans")
    return found


def check_room(header: JpegHeader, size: int, rows: int) -> None:
    """DecodeError where the first `rows` of a JPEG stream take more bits than it has: libjpeg would invent them all.

    A Huffman code has at least one bit; a block has two of them, a block of a first progressive scan and a sample
    without loss one. Arithmetic coding may do with less.
    """
    side, bits = ROOM.get(header.kind, (0, 0))
    if not bits or not _sampled(header):
        return
    widest, highest = (max(each) for each in zip(*header.factors, strict=True))
    units = sum(
        -(-header.width * across // (widest * side)) * -(-rows * down // (highest * side))
        for across, down in header.factors
    )
    if 8 * (size - header.frame) < bits * units:
        raise DecodeError(f"the JPEG stream is cut off: {size} bytes do not hold {header.width} x {rows} pixels")


def check_restarts(header: JpegHeader, data: memoryview, rows: int) -> None:
    """DecodeError where restarts of a single scan are missing or out of order in its first `rows`.

    libjpeg passes over what lies between those it finds, and only warns, which does not reach us.
    """
    sequential = header.kind in SEQUENTIAL or header.kind == ARITHMETIC
    if not header.interval or not sequential or not header.alone or not _sampled(header):
        return
    single = header.samples == 1
    widest, highest = (8 * (1 if single else max(each)) for each in zip(*header.factors, strict=True))
    units = -(-header.width // widest) * -(-rows // highest)
    wanted = -(-units // header.interval) - 1
    there = b"".join(RESTART.findall(data, header.scan)).partition(b"\xd9")[0]
    if len(there) < wanted or there[:wanted] != (TURNS * (wanted // 8 + 1))[:wanted]:
        raise DecodeError("the JPEG stream is damaged: restart markers are missing or out of order")


def _sampled(header: JpegHeader) -> bool:
    """Whether the sampling of components makes sense."""
    return bool(header.factors) and all(0 < across <= 4 and 0 < down <= 4 for across, down in header.factors)


def jpeg_scans(data: memoryview | bytes, frame: int) -> tuple[list[int], int | None]:
    """Where the scans of a JPEG stream begin, and where its end marker is, if it has one.

    What follows the end is no part of it: cameras append previews and films. No more scans are looked for than may be.
    """
    found: list[int] = []
    position = frame
    while len(found) <= LARGEST_SCANS and (following := MARKER.search(data, position)) is not None:
        position = following.start()
        if data[position + 1] == END:
            return found, position
        if data[position + 1] == SCAN and position + 4 < len(data):
            found.append(position)
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return found, None
