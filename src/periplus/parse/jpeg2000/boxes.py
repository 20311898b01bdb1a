"""The boxes of JP2 files and their relatives (JPX, JPH, JPEG XL): kind, and where the content starts and stops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from periplus.errors import FormatError

SHORT_BYTES, LONG_BYTES = 8, 16
"""Bytes of a box header: with a length of four bytes, and with one of eight."""
MOST_BOXES = 1_024


class Box(NamedTuple):
    """Offsets of the content of one box; `stop` is None for a box that extends to an unknown end."""

    kind: bytes
    start: int
    stop: int | None


def has_long_header(head: bytes | memoryview) -> bool:
    """Whether the header of a box that begins so has 16 bytes."""
    return bytes(head[:4]) == b"\0\0\0\1"


def parse_box(head: bytes | memoryview, position: int, end: int | None) -> Box:
    """The box at a position whose header is `head`; one without a length extends to `end`."""
    length, kind, header = int.from_bytes(head[:4], "big"), bytes(head[4:8]), SHORT_BYTES
    if length == 0:
        return Box(kind, position + header, end)
    if length == 1:
        length, header = int.from_bytes(head[8:16], "big"), LONG_BYTES
    if length < header or len(head) < header:
        raise FormatError(f"a box declares a length of {length} bytes", offset=position)
    return Box(kind, position + header, position + length)


def boxes(data: bytes | memoryview, position: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, stop) of boxes in memory, up to the first damaged one.

    The last one may stop after the end of the data.
    """
    for _ in range(MOST_BOXES):
        if position + SHORT_BYTES > len(data):
            return
        try:
            kind, start, stop = parse_box(data[position : position + LONG_BYTES], position, len(data))
        except FormatError:
            return
        assert stop is not None
        yield kind, start, stop
        position = stop
