"""The bounded cursor: scanners read every integer of a file with it, or from a slice they checked."""

from __future__ import annotations

import struct
from typing import Any

from periplus.errors import FormatError


class Cursor:
    """Reads numbers of one byte order from bytes that begin at `base` in the file; never past their end."""

    __slots__ = ("_order", "base", "data", "position")

    def __init__(self, data: bytes | memoryview, *, order: str = "<", base: int = 0) -> None:
        self.data = data
        self.base = base
        self.position = 0
        self._order = order

    def at(self, position: int) -> Cursor:
        """This cursor, moved to a position counted from the start of its bytes."""
        if not 0 <= position <= len(self.data):
            raise self.error(f"position {position} is outside the {len(self.data)} available bytes")
        self.position = position
        return self

    def need(self, count: int, size: int = 1) -> int:
        """Where `count` items of `size` bytes start, having checked that they are there; the cursor moves past them."""
        start = self.position
        if count < 0 or count * size > len(self.data) - start:
            raise self.error(f"{count} x {size} bytes are declared where {len(self.data) - start} remain")
        self.position = start + count * size
        return start

    def take(self, length: int) -> bytes:
        start = self.need(length)
        return bytes(self.data[start : start + length])

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Values of a struct layout without its byte order."""
        start = self.need(struct.calcsize(self._order + layout))
        return struct.unpack_from(self._order + layout, self.data, start)

    def digits(self, length: int, name: str = "a field", blank: int | None = None) -> int:
        """A number in ASCII decimal digits, blanks around it allowed; `blank` is the value of a blank field."""
        text = self.take(length).strip()
        if not text and blank is not None:
            return blank
        if not text.isdigit():
            raise self.error(f"{name} holds {text!r}, which is not a number")
        return int(text)

    def text(self, length: int) -> str:
        """Text without the NULs and blanks around it: UTF-8, else Latin-1, which NITF uses beyond ASCII."""
        stored = self.take(length)
        try:
            return stored.decode().strip("\0 ")
        except UnicodeDecodeError:
            return stored.decode("latin-1").strip("\0 ")

    def error(self, message: str) -> FormatError:
        return FormatError(message, offset=self.base + self.position)
