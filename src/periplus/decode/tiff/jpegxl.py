"""The JPEG XL header: bit fields, least significant first, in a codestream or in boxes around it."""

from __future__ import annotations

from periplus.decode.tiff.headers import StreamSize
from periplus.errors import DecodeError
from periplus.parse.jpeg2000.boxes import boxes

BOXES = b"\0\0\0\x0cJXL \r\n\x87\n"
RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
"""Width to height, where the width is not stored."""
HEADER_BYTES = 64
SEQUENCE_BYTES = 4
"""The number of a partial codestream, before its content."""


class _BitFields:
    """A reader of little-endian bit fields."""

    def __init__(self, data: bytes) -> None:
        self._number = int.from_bytes(data, "little")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        if count > self._left:
            raise DecodeError("the JPEG XL header is cut off")
        value = self._number & ((1 << count) - 1)
        self._number >>= count
        self._left -= count
        return value

    def choose(self, *choices: tuple[int, int]) -> int:
        """One of four forms (constant, extra bits), by a two-bit selector."""
        constant, extra = choices[self.take(2)]
        return constant + self.take(extra)


def jpegxl(data: memoryview) -> StreamSize:
    """Size and depth of the first frame; samples are left to the decoder, which compares them with its output."""
    head = bytes(data[:HEADER_BYTES])
    if head.startswith(BOXES):
        head = _codestream(data)
    if head[:2] != b"\xff\x0a":
        raise DecodeError("the JPEG XL codestream does not begin with its marker")
    field = _BitFields(head[2:])
    width, height = _size(field)
    bits = 8
    if not field.take(1):
        if field.take(1):
            if field.take(3) != 0:
                raise DecodeError("the JPEG XL image has an orientation, which a tile cannot have")
            if field.take(1):
                _size(field)
            if field.take(2):
                raise DecodeError("the JPEG XL image has a preview or is an animation")
        usual = ((32, 0), (16, 0), (24, 0), (1, 6)) if field.take(1) else ((8, 0), (10, 0), (12, 0), (1, 6))
        bits = field.choose(*usual)
    return StreamSize(width, height, 0, bits)


def _size(field: _BitFields) -> tuple[int, int]:
    small = field.take(1)

    def length() -> int:
        return 8 * (field.take(5) + 1) if small else field.choose((1, 9), (1, 13), (1, 18), (1, 30))

    height = length()
    ratio = field.take(3)
    if ratio == 0:
        return length(), height
    across, down = RATIOS[ratio - 1]
    return height * across // down, height


def _codestream(data: memoryview) -> bytes:
    """The beginning of the codestream in a file of boxes."""
    for kind, start, _ in boxes(data):
        if kind in (b"jxlc", b"jxlp"):
            begin = start + (SEQUENCE_BYTES if kind == b"jxlp" else 0)
            return bytes(data[begin : begin + HEADER_BYTES])
    raise DecodeError("the JPEG XL file has no codestream")
