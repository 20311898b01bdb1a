"""The parts of a file a scanner holds, and the asking for parts it lacks; nothing is asked for twice without end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
        """Bytes that hold a range and where in them it starts, or None; a range across blocks is joined from them."""
        found = self._nearest(offset)
        if found is None:
            return None
        if offset + length <= found[0] + len(found[1]):
            return found[1], offset - found[0]
        pieces, position = [], offset
        while position < offset + length:
            found = self._nearest(position)
            if found is None or position >= found[0] + len(found[1]):
                return None
            pieces.append(found[1][position - found[0] : offset + length - found[0]])
            position = found[0] + len(found[1])
        return b"".join(pieces), 0

    def _nearest(self, position: int) -> tuple[int, bytes] | None:
        """Start and bytes of the last block that starts at or before a position: the one that goes on furthest."""
        place = bisect_right(self._starts, position) - 1
        return None if place < 0 else (self._starts[place], self._held[self._starts[place]])

    def _keep(self, start: int, block: bytes) -> None:
        """Add a block; no block is kept that another covers, so that later starts have later ends."""
        stop = start + len(block)
        before = self._nearest(start)
        if before is not None and before[0] + len(before[1]) >= stop:
            return
        first = last = bisect_left(self._starts, start)
        while last < len(self._starts) and self._starts[last] + len(self._held[self._starts[last]]) <= stop:
            del self._held[self._starts[last]]
            last += 1
        self._starts[first:last] = [start]
        self._held[start] = block

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
        self._keep(offset, block)
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
