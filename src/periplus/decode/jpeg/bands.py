"""JPEG in bands: some restart intervals of a scan, with the markers from the codec's settings, made a whole stream."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from periplus.decode.scratch import Buffer, stream
from periplus.decode.settings import number
from periplus.errors import DecodeError, FormatError

RESTART = re.compile(rb"\xff[\xd0-\xd7]")
FIRST_RESTART = 0xD0
END = b"\xff\xd9"
FRAMES, INTERVAL, SCAN = (0xC0, 0xC1), 0xDD, 0xDA


@dataclass(frozen=True, slots=True)
class Band:
    """What bands of one picture share."""

    header: bytes
    """Markers up to the data of the scan."""
    height_at: int
    """Where the header says how many rows there are."""
    rows: int
    """Of a full band."""
    margin: int
    """Rows that a band has of the one before it and of the one after it."""
    unit: int
    across: int
    interval: int

    @property
    def most(self) -> int:
        """Rows that are decoded for one band at most."""
        return self.rows + 2 * self.margin

    def whole(self, data: Buffer, rows: int) -> tuple[bytes, int]:
        """A stream that holds the band and what it shares with its neighbours, and the row where the band begins."""
        body = bytes(stream(data))
        last = body.endswith(END)
        first = RESTART.match(body) is None
        above = 0 if first else self.margin
        body = body[0 if first else 2 : -2 if last else None]
        marks = [found.start() for found in RESTART.finditer(body)]
        there, left = divmod((len(marks) + 1) * self.interval, self.across)
        there = (there + bool(left)) * self.unit
        declared = above + rows if last else min(above + self.rows + self.margin, there)
        if there < above + rows or there > self.most + self.unit * max(1, self.interval // self.across):
            raise DecodeError(f"a band of {rows} rows does not have {len(marks) + 1} restart intervals")
        counted = bytearray(body)
        for count, mark in enumerate(marks):
            counted[mark + 1] = FIRST_RESTART + count % 8
        head = bytearray(self.header)
        struct.pack_into(">H", head, self.height_at, declared)
        return bytes(head) + counted + END, above


def band_of(configuration: Mapping[str, Any], rows: int) -> Band:
    """The bands that the settings of a jpeg codec speak of, or FormatError."""
    try:
        header = base64.b64decode(configuration.get("header", ""), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise FormatError("jpeg codec: header is not base64 text") from None
    margin = number("jpeg", configuration, "margin", 0, 1 << 16, 0)
    try:
        at, sampling, width, interval = _frame(header)
    except (struct.error, IndexError):
        raise FormatError("jpeg codec: the header is cut off") from None
    wide, unit = (8 * (1 if len(sampling) == 1 else max(side)) for side in zip(*sampling, strict=True))
    if rows % unit or margin % unit or not interval:
        raise FormatError(f"jpeg codec: bands of {rows} rows do not lie between restart markers")
    return Band(header, at, rows, margin, unit, -(-width // wide), interval)


def _frame(header: bytes) -> tuple[int, list[tuple[int, int]], int, int]:
    """Where the height is, the sampling factors of the components, the width and the restart interval."""
    found: tuple[int, list[tuple[int, int]], int] | None = None
    position, interval = 2, 0
    while position < len(header):
        lead, marker, length = struct.unpack_from(">BBH", header, position)
        end = position + 2 + length
        if lead != 0xFF or length < 2 or end > len(header):
            break
        if marker in FRAMES and found is None:
            _, _, width, count = struct.unpack_from(">BHHB", header, position + 4)
            factors = [divmod(header[position + 11 + 3 * n], 16) for n in range(count)]
            if width and count and all(0 < a <= 4 and 0 < b <= 4 for a, b in factors):
                found = position + 5, factors, width
        elif marker == INTERVAL:
            (interval,) = struct.unpack_from(">H", header, position + 4)
        elif marker == SCAN and end == len(header) and header[:2] == b"\xff\xd8" and found is not None:
            return *found, interval
        position = end
    raise FormatError("jpeg codec: the header is not one of a JPEG in restart intervals")
