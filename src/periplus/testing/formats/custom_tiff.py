"""A TIFF writer for files that no library writes: any tags, wrong values, any chain of directories."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

BYTE, ASCII, SHORT, LONG, RATIONAL, DOUBLE, LONG8 = 1, 2, 3, 4, 5, 12, 16
CODES = {BYTE: "B", ASCII: "s", SHORT: "H", LONG: "I", RATIONAL: "I", DOUBLE: "d", LONG8: "Q"}

Tags = Mapping[int, "tuple[int, Any] | tuple[int, Any, int]"]
"""Tag to (type, values) or (type, values, the count to declare)."""


def image_tags(width: int, height: int, **changes: Any) -> dict[int, Any]:
    """Tags of a plain 8-bit image in one strip at offset 8; change them by number: `image_tags(4, 4, t259=7)`."""
    tags: dict[int, Any] = {
        256: (LONG, [width]), 257: (LONG, [height]), 258: (SHORT, [8]), 259: (SHORT, [1]), 262: (SHORT, [1]),
        273: (LONG, [8]), 277: (SHORT, [1]), 278: (LONG, [height]), 279: (LONG, [width * height]),
    }  # fmt: skip
    for name, value in changes.items():
        tag = int(name[1:])
        if value is None:
            tags.pop(tag, None)
        else:
            tags[tag] = value if isinstance(value, tuple) else (LONG, [value])
    return tags


def tiff(
    *directories: Tags, data: bytes = b"", order: str = "<", big: bool = False, following: Sequence[int] | None = None
) -> bytes:
    """A file of a header, `data` right after it, and a chain of directories with their values.

    `following` overrides the next directory of each: its number in the chain, or -1 for none.
    """
    width, lead = (8, 8) if big else (4, 2)
    start = 16 if big else 8
    at = start + len(data)
    starts, sizes = [], []
    for tags in directories:
        starts.append(at)
        body = sum(size for entry in tags.values() if (size := _size(entry)) > width)
        sizes.append(lead + len(tags) * (12 + 2 * width - 8) + width)
        at += sizes[-1] + body
    magic = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42)
    first = struct.pack(order + ("HHQ" if big else "I"), *((8, 0) if big else ()), starts[0] if starts else 0)
    pieces = [magic, first, data]
    for number, tags in enumerate(directories):
        target = (number + 1 if number + 1 < len(directories) else -1) if following is None else following[number]
        pieces.append(
            _directory(tags, starts[number] + sizes[number], order, big, starts[target] if target >= 0 else 0)
        )
    return b"".join(pieces)


def _packed(entry: Any, order: str) -> bytes:
    kind, values = entry[0], entry[1]
    if isinstance(values, bytes):
        return values
    return struct.pack(f"{order}{len(values)}{CODES[kind]}", *values)


def _size(entry: Any) -> int:
    return len(_packed(entry, "<"))


def _directory(tags: Tags, free: int, order: str, big: bool, following: int) -> bytes:
    width = 8 if big else 4
    pointer = order + ("Q" if big else "I")
    entries, values = [struct.pack(order + ("Q" if big else "H"), len(tags))], []
    for tag, entry in sorted(tags.items()):
        packed = _packed(entry, order)
        natural = len(packed) if isinstance(entry[1], bytes) else len(entry[1]) // (2 if entry[0] == RATIONAL else 1)
        count = entry[2] if len(entry) > 2 else natural
        entries.append(struct.pack(order + "HH", tag, entry[0]) + struct.pack(pointer, count))
        if len(packed) <= width:
            entries.append(packed.ljust(width, b"\0"))
        else:
            entries.append(struct.pack(pointer, free))
            values.append(packed)
            free += len(packed)
    return b"".join([*entries, struct.pack(pointer, following), *values])
