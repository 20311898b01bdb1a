"""Row bands of a JPEG stream: restart intervals of a scan, completed with the segments before it to a whole stream."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from periplus.decode.scratch import Buffer, stream
from periplus.decode.settings import encoded, number
from periplus.errors import DecodeError, FormatError
from periplus.parse.jpeg import FIRST_RESTART, RESTART, SEQUENTIAL, parse_header

END = b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class BandDecoding:
    """What all bands of one picture have in common."""

    header: bytes
    """The segments before the data of the scan."""
    height_at: int
    """Where in the header the number of rows is stored."""
    rows: int
    """Rows of a full band."""
    margin: int
    """Rows that a band shares with the one before it and with the one after it."""
    unit: int
    """Rows that are coded together."""
    across: int
    """Units in a row of units."""
    interval: int

    @property
    def most_rows(self) -> int:
        """Rows that are decoded for one band at most."""
        return self.rows + 2 * self.margin

    def complete(self, data: Buffer, rows: int) -> tuple[bytes, int]:
        """A whole stream of the band and the rows it shares with its neighbours, and the row where the band begins."""
        body = bytes(stream(data))
        last = body.endswith(END)
        first = RESTART.match(body) is None
        above = 0 if first else self.margin
        body = body[0 if first else 2 : -2 if last else None]
        restarts = [found.start() for found in RESTART.finditer(body)]
        stored, rest = divmod((len(restarts) + 1) * self.interval, self.across)
        stored = (stored + bool(rest)) * self.unit
        declared = above + rows if last else min(above + self.rows + self.margin, stored)
        if stored < above + rows or stored > self.most_rows + self.unit * max(1, self.interval // self.across):
            raise DecodeError(f"a band of {rows} rows does not have {len(restarts) + 1} restart intervals")
        numbered = bytearray(body)
        for count, restart in enumerate(restarts):
            numbered[restart + 1] = FIRST_RESTART + count % 8
        head = bytearray(self.header)
        struct.pack_into(">H", head, self.height_at, declared)
        return bytes(head) + numbered + END, above


def band_decoding(configuration: Mapping[str, Any], rows: int) -> BandDecoding:
    """The bands that the settings of a jpeg codec describe, or FormatError."""
    raw = encoded("jpeg", configuration, "header") or b""
    margin = number("jpeg", configuration, "margin", 0, 1 << 16, 0)
    header = parse_header(raw)
    if header.kind not in SEQUENTIAL or not header.width or not header.sampled or header.data_offset != len(raw):
        raise FormatError("jpeg codec: the header is not one of a JPEG in restart intervals")
    width, height = header.unit
    if rows % height or margin % height or not header.restart_interval:
        raise FormatError(f"jpeg codec: bands of {rows} rows are not between restart markers")
    across = -(-header.width // width)
    return BandDecoding(raw, header.frame_offset + 5, rows, margin, height, across, header.restart_interval)
