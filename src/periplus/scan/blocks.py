"""The parts of a file a scanner holds, and the asking for parts it lacks; nothing is asked for twice without end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable
from typing import Any

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import Need, Source, Step

Ask = Generator[Step, Any, None]


class Held:
    """Byte ranges of one file, none of which another covers."""

    __slots__ = ("_blocks", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, bytes] = {}

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
        return None if place < 0 else (self._starts[place], self._blocks[self._starts[place]])

    def keep(self, start: int, block: bytes) -> None:
        """Add a block; no block is kept that another covers, so that later starts have later ends."""
        stop = start + len(block)
        before = self._nearest(start)
        if before is not None and before[0] + len(before[1]) >= stop:
            return
        first = last = bisect_left(self._starts, start)
        while last < len(self._starts) and self._starts[last] + len(self._blocks[self._starts[last]]) <= stop:
            del self._blocks[self._starts[last]]
            last += 1
        self._starts[first:last] = [start]
        self._blocks[start] = block


class Blocks:
    """What a scanner holds of one file, and the asking for more, within limits."""

    __slots__ = ("_held", "_limits", "asked", "locate", "seen", "size", "url")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.url = source.url
        self.size = source.size
        """Bytes in the file; None until the store or a short answer tells."""
        self.asked = 0
        self.seen = 0
        self._limits = limits
        self._held = Held()
        self.locate: Callable[[int, int], tuple[bytes, int] | None] = self._held.locate
        """Bytes that hold a range and where in them it starts, or None."""

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
        if self.locate(offset, length) is None:
            need = self._need(what, offset, length, ahead, sparse)
            self._take(what, length, need, (yield need))

    def hold_all(
        self, ranges: Iterable[tuple[str, int, int]], *, gap: int, ahead: int = 0, sparse: bool = False
    ) -> Ask:
        """Make sure every (what, offset, length) is at hand, in one round; those at most `gap` bytes apart as one."""
        wanted = sorted((r for r in ranges if self.locate(r[1], r[2]) is None), key=lambda r: r[1])
        joined: list[tuple[str, int, int]] = []
        for what, offset, length in wanted:
            self.check(what, offset, length)
            if joined and offset <= joined[-1][1] + joined[-1][2] + gap:
                first, start, _ = joined[-1]
                joined[-1] = first, start, max(joined[-1][2], offset + length - start)
            else:
                joined.append((what, offset, length))
        needs = tuple([self._need(*each, ahead, sparse) for each in joined])
        if len(needs) == 1:
            self._take(joined[0][0], joined[0][2], needs[0], (yield needs[0]))
        elif needs:
            for (what, _, length), need, answer in zip(joined, needs, (yield needs), strict=True):
                self._take(what, length, need, answer)

    def _need(self, what: str, offset: int, length: int, ahead: int, sparse: bool) -> Need:
        """What to ask for, counted."""
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
        return Need(offset, wish, sparse)

    def _take(self, what: str, length: int, need: Need, answer: bytes | memoryview) -> None:
        """Keep an answer, `length` bytes of which must be there."""
        block = bytes(answer[: need.length])
        if len(block) < need.length:
            self.size = need.offset + len(block)
        self._held.keep(need.offset, block)
        if len(block) < length:
            self.check(what, need.offset, length)
