"""The parts of a file a scanner holds, and the asking for parts it lacks; nothing is asked for twice without end."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Generator, Iterable

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import Need, Source

Ask = Generator[Need, "bytes | memoryview", None]


class Blocks:
    """Byte ranges of one file that were answered so far."""

    __slots__ = ("_held", "_limits", "_starts", "asked", "seen", "size", "url")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.url = source.url
        self.size = source.size
        """Bytes in the file; None until the store or a short answer tells."""
        self.asked = 0
        self.seen = 0
        self._limits = limits
        self._starts: list[int] = []
        self._held: dict[int, bytes] = {}

    def locate(self, offset: int, length: int) -> tuple[bytes, int] | None:
        """The block that holds a range and where in it the range starts, or None."""
        place = bisect_right(self._starts, offset) - 1
        if place < 0:
            return None
        start = self._starts[place]
        block = self._held[start]
        return (block, offset - start) if offset + length <= start + len(block) else None

    def check(self, what: str, offset: int, length: int) -> None:
        """FormatError where a range is known to lie outside the file."""
        if self.size is not None and offset + length > self.size:
            raise FormatError(
                f"{what} ends past the end of the file ({offset} + {length} > {self.size})", url=self.url, offset=offset
            )

    def look(self, what: str, offset: int, length: int) -> None:
        """Count bytes that are made sense of; parts of a file may share them, and each time they cost anew."""
        self.seen += length
        if self.seen > self._limits.header_bytes:
            raise LimitError(
                f"{what} takes the header past the limit of {self._limits.header_bytes} bytes",
                url=self.url,
                offset=offset,
            )
        if self.size is not None and self.seen > 8 * self.size + MIB:
            raise FormatError(f"{what} shares its values with others, again and again", url=self.url, offset=offset)

    def hold(self, what: str, offset: int, length: int, *, ahead: int = 0, sparse: bool = False) -> Ask:
        """Make sure a range is at hand; `ahead` more bytes after it are welcome, and where `sparse` no others."""
        if self.locate(offset, length) is not None:
            return
        self.check(what, offset, length)
        wish = length + ahead if self.size is None else min(length + ahead, self.size - offset)
        self.asked += wish
        if self.asked > self._limits.header_bytes:
            raise LimitError(
                f"{what} takes the header past the limit of {self._limits.header_bytes} bytes",
                url=self.url,
                offset=offset,
            )
        if self.size is not None and self.asked > 8 * self.size + MIB:
            raise FormatError(f"{what} overlaps what was read before, again and again", url=self.url, offset=offset)
        answer = yield Need(offset, wish, sparse)
        block = answer if isinstance(answer, bytes) else bytes(answer)
        if len(block) > wish:
            block = block[:wish]
        if len(block) < wish:
            self.size = offset + len(block)
        known = self._held.get(offset)
        if known is None:
            insort(self._starts, offset)
        if known is None or len(known) < len(block):
            self._held[offset] = block
        if len(block) < length:
            raise FormatError(
                f"{what} ends past the end of the file ({offset} + {length} > {self.size})", url=self.url, offset=offset
            )

    def hold_all(self, ranges: Iterable[tuple[str, int, int]], *, gap: int) -> Ask:
        """Make sure every (what, offset, length) is at hand, asking once for ranges at most `gap` bytes apart."""
        wanted = sorted((r for r in ranges if self.locate(r[1], r[2]) is None), key=lambda r: r[1])
        while wanted:
            what, start, length = wanted[0]
            stop, count = start + length, 1
            for _, offset, more in wanted[1:]:
                if offset > stop + gap:
                    break
                stop, count = max(stop, offset + more), count + 1
            for name, offset, more in wanted[:count]:
                self.check(name, offset, more)
            yield from self.hold(what, start, stop - start)
            del wanted[:count]
