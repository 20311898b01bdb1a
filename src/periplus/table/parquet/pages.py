"""The pages of a Parquet column chunk: what they decompress to by their own headers, whatever the footer declares."""

from __future__ import annotations

from typing import NamedTuple

from periplus.errors import FormatError
from periplus.table.parquet.footer import I32, STRUCT, ThriftReader, signed

DELTA_BYTE_ARRAY = 7
"""An encoding in which a value repeats the beginning of the one before it: a page may hold far more than its size."""
UNCOMPRESSED, COMPRESSED, DATA, DATA_V2 = 2, 3, 5, 8
"""Fields of a page header."""
VALUES, ENCODING, ENCODING_V2 = 1, 2, 4
"""Fields of the header of a data page."""


class Pages(NamedTuple):
    """What the pages of a column chunk hold."""

    decompressed: int
    """Bytes of all pages."""
    expanded: int
    """Bytes that values may take where their encoding repeats the value before; 0 for other encodings."""


def pages(data: bytes | memoryview) -> Pages:
    """Sum up the page headers of a column chunk; FormatError where they are damaged."""
    walk = ThriftReader(data)
    decompressed = expanded = 0
    try:
        while walk.at < len(walk.data):
            size = stored = -1
            values = encoding = 0
            for field, kind in walk.fields():
                if field in (UNCOMPRESSED, COMPRESSED) and kind == I32:
                    number = signed(walk.varint())
                    size, stored = (number, stored) if field == UNCOMPRESSED else (size, number)
                elif field in (DATA, DATA_V2) and kind == STRUCT:
                    values, encoding = _data_page(walk, ENCODING if field == DATA else ENCODING_V2)
                else:
                    walk.skip(kind)
            if size < 0 or stored < 0 or walk.at + stored > len(walk.data):
                raise FormatError("a page of the Parquet file is outside its column chunk")
            walk.at += stored
            decompressed += size
            expanded += values * size if encoding == DELTA_BYTE_ARRAY else 0
    except IndexError:
        raise FormatError("a page header of the Parquet file is cut off") from None
    return Pages(decompressed, expanded)


def _data_page(walk: ThriftReader, place: int) -> tuple[int, int]:
    values = encoding = 0
    for field, kind in walk.fields():
        if field in (VALUES, place) and kind == I32:
            number = signed(walk.varint())
            values, encoding = (number, encoding) if field == VALUES else (values, number)
        else:
            walk.skip(kind)
    return max(values, 0), encoding
