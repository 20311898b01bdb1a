"""Exif: metadata of cameras in a small TIFF structure inside JPEG and PNG files."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 9: 4, 10: 8}
EXIF_IFD, GPS_IFD = 0x8769, 0x8825
WORDS = {0x010E: "description", 0x010F: "make", 0x0110: "model", 0x0131: "software", 0x013B: "artist"}
ORIENTATION, CHANGED, TAKEN, PICTURES = 0x0112, 0x0132, 0x9003, 0xB001
CHANGED_OFFSET, TAKEN_OFFSET = 0x9010, 0x9011
OFFSET = re.compile(r"[+-](0\d|1[0-4]):[0-5]\d", re.ASCII)
"""Hours and minutes that a clock was ahead of UTC; written since Exif 2.31."""
MOST_ENTRIES = 512
MOST_VALUE = 4096
"""Bytes of a value worth keeping; notes of makers are larger."""

Fields = Mapping[int, Any]


def facts(data: bytes) -> tuple[dict[str, Any], datetime | None]:
    """Attributes, and when the picture was taken, in UTC if no offset is given; nothing if it is damaged."""
    order, main = _main(data)
    own, where = (_fields(data, main.get(tag), order) for tag in (EXIF_IFD, GPS_IFD))
    found: dict[str, Any] = {
        name: text for tag, name in WORDS.items() if isinstance(text := main.get(tag), str) and text
    }
    if main.get(ORIENTATION) in range(2, 9):
        found["orientation"] = main[ORIENTATION]
    stamps = ((own.get(TAKEN), own.get(TAKEN_OFFSET)), (main.get(CHANGED), own.get(CHANGED_OFFSET)))
    stamp, offset = next((pair for pair in stamps if isinstance(pair[0], str) and pair[0]), (None, None))
    if stamp:
        found["datetime"] = stamp
        if isinstance(offset, str) and OFFSET.fullmatch(offset):
            found["utc_offset"] = offset
    if position := _position(where):
        found["gps"] = position
    return found, _moment(stamp, found.get("utc_offset", "+00:00"))


def pictures(data: bytes) -> int | None:
    """The number of pictures that the index of a multi-picture file declares."""
    number = _main(data)[1].get(PICTURES)
    return number if isinstance(number, int) else None


def _main(data: bytes) -> tuple[str, dict[int, Any]]:
    """The byte order, and the values of the first directory; none if it is damaged."""
    order = ">" if data[:4] == b"MM\0*" else "<"
    if data[:4] not in (b"II*\0", b"MM\0*") or len(data) < 8:
        return order, {}
    return order, _fields(data, struct.unpack_from(order + "I", data, 4)[0], order)


def _fields(data: bytes, start: Any, order: str) -> dict[int, Any]:
    """Values of one directory by tag: a number, text, or a tuple of numbers; those outside the data are omitted."""
    fields: dict[int, Any] = {}
    if not isinstance(start, int) or not 8 <= start <= len(data) - 2:
        return fields
    (number,) = struct.unpack_from(order + "H", data, start)
    for n in range(min(number, MOST_ENTRIES, (len(data) - start - 2) // 12)):
        at = start + 2 + 12 * n
        tag, kind, count = struct.unpack_from(order + "HHI", data, at)
        size = SIZES.get(kind, 0) * count
        where = at + 8 if size <= 4 else struct.unpack_from(order + "I", data, at + 8)[0]
        if 0 < size <= MOST_VALUE and where + size <= len(data):
            fields.setdefault(tag, _value(data[where : where + size], kind, count, order))
    return fields


def _value(raw: bytes, kind: int, count: int, order: str) -> Any:
    if kind == 2:
        return raw.partition(b"\0")[0].decode("utf-8", "replace").strip()
    if kind in (5, 10):
        pairs = struct.unpack(f"{order}{2 * count}{'I' if kind == 5 else 'i'}", raw)
        return tuple(a / b if b else None for a, b in zip(pairs[::2], pairs[1::2], strict=True))
    values = struct.unpack(f"{order}{count}{ {1: 'B', 3: 'H', 4: 'I', 7: 'B', 9: 'i'}[kind] }", raw)
    return values[0] if count == 1 else values


def _position(where: Fields) -> dict[str, float]:
    """Degrees and metres of the GPS directory."""
    found: dict[str, float] = {}
    for name, side, tag, negative in (("latitude", 1, 2, "S"), ("longitude", 3, 4, "W")):
        parts = where.get(tag)
        if isinstance(parts, tuple) and len(parts) == 3 and None not in parts and isinstance(where.get(side), str):
            degrees = float(parts[0] + parts[1] / 60 + parts[2] / 3600)
            if degrees <= 180:
                found[name] = -degrees if where[side].upper() == negative else degrees
    height = where.get(6)
    if isinstance(height, tuple) and len(height) == 1 and height[0] is not None:
        found["altitude"] = -height[0] if where.get(5) == 1 else height[0]
    return found


def _moment(text: str | None, offset: str) -> datetime | None:
    sign, hours, minutes = offset[0], int(offset[1:3]), int(offset[4:6])
    ahead = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    try:
        return datetime.strptime((text or "")[:19], "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC) - ahead
    except (ValueError, OverflowError):
        return None
