"""Checks of a JPEG stream before libjpeg decodes it: libjpeg fills in missing data and only warns."""

from __future__ import annotations

import re

from periplus.errors import DecodeError, FormatError
from periplus.parse.jpeg import ARITHMETIC, END, MARKER, PROGRESSIVE, SCAN, SEQUENTIAL, JpegHeader, parse_header

MOST_SCANS = 100
"""Scans of a progressive JPEG; each costs a pass over the whole image, and real ones have about ten."""
LEAST_BITS = {0xC0: (8, 2), 0xC1: (8, 2), 0xC2: (8, 1), 0xC3: (1, 1)}
"""By the kind of a frame with Huffman codes: side of a coded block in pixels, and the fewest bits it takes."""
RESTART_OR_END = re.compile(rb"\xff([\xd0-\xd7\xd9])")
RESTART_CYCLE = bytes(range(0xD0, 0xD8))
"""Restart markers in the order they follow each other."""


def checked_header(data: memoryview) -> JpegHeader:
    """The header of a stream; DecodeError if it has none, or more scans than real streams have."""
    try:
        header = parse_header(data)
    except FormatError as error:
        raise DecodeError(error.message) from None
    if header.kind in PROGRESSIVE and len(find_scans(data, header.frame_offset)[0]) > MOST_SCANS:
        raise DecodeError(f"the JPEG stream has more than {MOST_SCANS} scans")
    return header


def check_length(header: JpegHeader, size: int, rows: int) -> None:
    """DecodeError if a stream of `size` bytes is too short for the first `rows` rows.

    A Huffman code has at least one bit; a block has two of them, a block of a first progressive scan and a lossless
    sample one. Arithmetic coding may take less.
    """
    side, bits = LEAST_BITS.get(header.kind, (0, 0))
    if not bits or not header.sampled:
        return
    widest, highest = (max(each) for each in zip(*header.factors, strict=True))
    blocks = sum(
        -(-header.width * across // (widest * side)) * -(-rows * down // (highest * side))
        for across, down in header.factors
    )
    if 8 * (size - header.frame_offset) < bits * blocks:
        raise DecodeError(f"the JPEG stream is cut off: {size} bytes do not hold {header.width} x {rows} pixels")


def check_restarts(header: JpegHeader, data: memoryview, rows: int) -> None:
    """DecodeError if restart markers of a single scan are missing or out of order in its first `rows` rows.

    libjpeg skips data between the markers it finds.
    """
    sequential = header.kind in SEQUENTIAL or header.kind == ARITHMETIC
    if not header.restart_interval or not sequential or not header.single_scan or not header.sampled:
        return
    width, height = header.unit
    units = -(-header.width // width) * -(-rows // height)
    wanted = -(-units // header.restart_interval) - 1
    found = b"".join(RESTART_OR_END.findall(data, header.scan_offset)).partition(b"\xd9")[0]
    if len(found) < wanted or found[:wanted] != (RESTART_CYCLE * (wanted // 8 + 1))[:wanted]:
        raise DecodeError("the JPEG stream is damaged: restart markers are missing or out of order")


def find_scans(data: memoryview | bytes, frame_offset: int) -> tuple[list[int], int | None]:
    """Offsets of the scans of a stream, and of its end marker if it has one.

    Bytes after the end are not part of it: cameras append previews and films. The search stops at one scan too many.
    """
    found: list[int] = []
    position = frame_offset
    while len(found) <= MOST_SCANS and (following := MARKER.search(data, position)) is not None:
        position = following.start()
        if data[position + 1] == END:
            return found, position
        if data[position + 1] == SCAN and position + 4 < len(data):
            found.append(position)
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return found, None
