"""PNG: the header chunk, and the chunks of a file in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from periplus.errors import FormatError

MAGIC = b"\x89PNG\r\n\x1a\n"
LARGEST = 1 << 31
GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
DEPTHS = {GRAY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GRAY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}
BANDS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGB_ALPHA: 4}
HEADER_BYTES = 33
"""The magic number and the header chunk with its checksum."""


@dataclass(frozen=True, slots=True)
class PngHeader:
    """What the header chunk declares."""

    width: int
    height: int
    bits: int
    color: int
    """The colour type."""
    interlaced: bool

    @property
    def bands(self) -> int:
        return BANDS[self.color]


def parse_png_header(head: bytes | memoryview) -> PngHeader:
    """The header of a file from its first bytes, checked."""
    if bytes(head[:8]) != MAGIC or bytes(head[8:16]) != b"\0\0\0\rIHDR" or len(head) < HEADER_BYTES - 4:
        raise FormatError("not a PNG: the magic number or the header is missing", offset=0)
    width, height, bits, color, compression, filtering, interlace = struct.unpack_from(">IIBBBBB", head, 16)
    if not (0 < width < LARGEST and 0 < height < LARGEST):
        raise FormatError(f"the PNG header declares {width} x {height} pixels", offset=16)
    if bits not in DEPTHS.get(color, ()):
        raise FormatError(f"a PNG of colour type {color} with {bits} bits does not exist", offset=24)
    if compression or filtering or interlace > 1:
        raise FormatError("the PNG header names a compression, filter or interlacing that does not exist", offset=26)
    return PngHeader(width, height, bits, color, bool(interlace))


def png_chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, stop) of the content of every chunk of a file in memory, which four bytes of checksum follow.

    The last one may stop after the end of the data.
    """
    position = len(MAGIC)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        yield kind, position + 8, position + 8 + length
        position += 12 + length
