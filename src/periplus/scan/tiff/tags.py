"""TIFF fields: the supported tags, how large they may be, and their values as Python numbers and text."""

from __future__ import annotations

import struct
from typing import TypeAlias

from periplus.errors import FormatError

Field: TypeAlias = tuple[int, int, int, bytes]
"""(tag, type, count, value bytes in the file's byte order)."""

NEW_SUBFILE_TYPE, SUBFILE_TYPE, WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 254, 255, 256, 257, 258, 259, 262
FILL_ORDER, DESCRIPTION, STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, STRIP_COUNTS = (
    266,
    270,
    273,
    274,
    277,
    278,
    279,
)
X_RESOLUTION, Y_RESOLUTION, PLANAR, T4_OPTIONS, T6_OPTIONS, RESOLUTION_UNIT = 282, 283, 284, 292, 293, 296
SOFTWARE, DATETIME, ARTIST, PREDICTOR, COLORMAP = 305, 306, 315, 317, 320
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_COUNTS, SUB_IFDS = 322, 323, 324, 325, 330
EXTRA_SAMPLES, SAMPLE_FORMAT, JPEG_TABLES = 338, 339, 347
JPEG_STREAM, JPEG_STREAM_LENGTH, JPEG_RESTARTS = 513, 514, 515
JPEG_QUANTISATION, JPEG_DC_TABLES, JPEG_AC_TABLES = 519, 520, 521
YCBCR_COEFFICIENTS, YCBCR_SUBSAMPLING, REFERENCE_BLACK_WHITE = 529, 530, 532
PIXEL_SCALE, TIE_POINTS, TRANSFORMATION, GEO_KEYS, GEO_DOUBLES, GEO_TEXT = 33550, 33922, 34264, 34735, 34736, 34737
GDAL_METADATA, GDAL_NODATA, RPC_COEFFICIENTS, LERC_PARAMETERS, NDPI_FORMAT = 42112, 42113, 50844, 50674, 65420

CODES = {
    1: "B", 2: "s", 3: "H", 4: "I", 5: "I", 6: "b", 7: "s", 8: "h", 9: "i",
    10: "i", 11: "f", 12: "d", 13: "I", 16: "Q", 17: "q", 18: "Q",
}  # fmt: skip
"""Type number to struct code; rationals (5, 10) are two integers."""
SIZES = {kind: struct.calcsize("=" + code) * (2 if kind in (5, 10) else 1) for kind, code in CODES.items()}
"""Bytes of one value, by type number."""
INTEGERS = frozenset({1, 3, 4, 6, 8, 9, 13, 16, 17, 18})
TEXT_BYTES = 4096
"""Longer descriptive text is dropped: attributes travel in every index."""

STRILES = frozenset({STRIP_OFFSETS, STRIP_COUNTS, TILE_OFFSETS, TILE_COUNTS})
STRUCTURE: dict[int, int] = {
    NEW_SUBFILE_TYPE: 8, SUBFILE_TYPE: 8, WIDTH: 8, HEIGHT: 8, BITS: 1 << 17, COMPRESSION: 8, PHOTOMETRIC: 8,
    FILL_ORDER: 8, SAMPLES: 8, ROWS_PER_STRIP: 8, PLANAR: 8, T4_OPTIONS: 8, T6_OPTIONS: 8, PREDICTOR: 8,
    TILE_WIDTH: 8, TILE_HEIGHT: 8, SUB_IFDS: 1 << 19, EXTRA_SAMPLES: 1 << 17, SAMPLE_FORMAT: 1 << 17,
    JPEG_TABLES: 1 << 16, JPEG_STREAM: 8, JPEG_STREAM_LENGTH: 8, JPEG_RESTARTS: 8,
    JPEG_QUANTISATION: 64, JPEG_DC_TABLES: 64, JPEG_AC_TABLES: 64, YCBCR_COEFFICIENTS: 24, YCBCR_SUBSAMPLING: 16,
    REFERENCE_BLACK_WHITE: 96, LERC_PARAMETERS: 64, NDPI_FORMAT: 8,
}  # fmt: skip
"""Tags that decide what the values are and how they are stored, with the most bytes each may take."""
GEOREFERENCING: dict[int, int] = {
    PIXEL_SCALE: 128, TIE_POINTS: 1 << 20, TRANSFORMATION: 256, GEO_KEYS: 1 << 15, GEO_DOUBLES: 1 << 16,
    GEO_TEXT: 1 << 17, RPC_COEFFICIENTS: 1 << 12,
}  # fmt: skip
DESCRIPTIVE: dict[int, int] = {
    DESCRIPTION: TEXT_BYTES, ORIENTATION: 8, X_RESOLUTION: 8, Y_RESOLUTION: 8, RESOLUTION_UNIT: 8,
    SOFTWARE: TEXT_BYTES, DATETIME: 64, ARTIST: TEXT_BYTES, COLORMAP: 3 * 256 * 2, GDAL_METADATA: 1 << 20,
    GDAL_NODATA: 256,
}  # fmt: skip
"""Tags that only describe an image, with the most bytes worth reading; larger ones, and ones outside the file, are
skipped, whereas any other tag would be an error."""
WANTED = {**STRUCTURE, **GEOREFERENCING, **DESCRIPTIVE, **dict.fromkeys(STRILES, 0)}
"""Lists of strips and tiles are as long as the limits allow."""


class Fields:
    """The fields of one directory, as numbers and text."""

    __slots__ = ("_fields", "order")

    def __init__(self, fields: tuple[Field, ...], order: str) -> None:
        self._fields = {field[0]: field for field in fields}
        self.order = order

    def __contains__(self, tag: int) -> bool:
        return tag in self._fields

    def raw(self, tag: int) -> bytes:
        field = self._fields.get(tag)
        return b"" if field is None else field[3]

    def numbers(self, tag: int) -> tuple[int | float, ...]:
        """Values of a numeric field, empty where the tag is absent; a rational with denominator zero is 0."""
        field = self._fields.get(tag)
        if field is None:
            return ()
        _, kind, count, value = field
        if kind in (2, 7):
            return tuple(value)
        if kind in (5, 10):
            parts = struct.unpack(f"{self.order}{2 * count}{CODES[kind]}", value)
            return tuple(n / d if d else 0.0 for n, d in zip(parts[::2], parts[1::2], strict=True))
        return struct.unpack(f"{self.order}{count}{CODES[kind]}", value)

    def integers(self, tag: int) -> tuple[int, ...]:
        """Values of a field of an integer type."""
        field = self._fields.get(tag)
        if field is None:
            return ()
        if field[1] not in INTEGERS:
            raise FormatError(f"tag {tag} has type {field[1]}, not an integer type")
        return struct.unpack(f"{self.order}{field[2]}{CODES[field[1]]}", field[3])

    def number(self, tag: int, default: int) -> int:
        """The first value of an integer field; FormatError where it is no whole number."""
        values = self.integers(tag)
        return values[0] if values else default

    def same(self, tag: int, default: int, samples: int) -> int:
        """The one value all samples share; FormatError where they differ."""
        values = set(self.numbers(tag)[:samples])
        if len(values) > 1:
            raise FormatError(f"samples differ in tag {tag}: {sorted(values)}; one array needs one type")
        return int(values.pop()) if values else default

    def text(self, tag: int) -> str:
        """Text of an ASCII field up to its first NUL; UTF-8 where it is, else Latin-1, as writers really do."""
        if tag not in self._fields:
            return ""
        value = self._fields[tag][3].partition(b"\0")[0]
        try:
            return value.decode().strip()
        except UnicodeDecodeError:
            return value.decode("latin-1").strip()
