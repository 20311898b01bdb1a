"""The bytes of a file that a scanner has fetched so far, and requests for those it still needs, within limits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable
from typing import Any

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import Need, Source, Step

MOST_REPEATED = 8
"""How often the bytes of a file may be requested or parsed on average; overlapping structures repeat a few."""


class RangeCache:
    """Byte ranges of one file, none of which contains another."""

    __slots__ = ("_blocks", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, bytes] = {}

    def locate(self, offset: int, length: int) -> tuple[bytes, int] | None:
        """Bytes that contain a range, and where in them it starts; None if a part is missing.

        A range that spans several blocks is joined from them.
        """
        found = self._last_before(offset)
        if found is None:
            return None
        if offset + length <= found[0] + len(found[1]):
            return found[1], offset - found[0]
        pieces, position = [], offset
        while position < offset + length:
            found = self._last_before(position)
            if found is None or position >= found[0] + len(found[1]):
                return None
            pieces.append(found[1][position - found[0] : offset + length - found[0]])
            position = found[0] + len(found[1])
        return b"".join(pieces), 0

    def _last_before(self, position: int) -> tuple[int, bytes] | None:
        """Start and bytes of the last block that starts at or before a position, which also extends furthest."""
        index = bisect_right(self._starts, position) - 1
        return None if index < 0 else (self._starts[index], self._blocks[self._starts[index]])

    def add(self, start: int, block: bytes) -> None:
        """Add a block and drop those it contains, so that blocks with later starts have later ends."""
        stop = start + len(block)
        before = self._last_before(start)
        if before is not None and before[0] + len(before[1]) >= stop:
            return
        first = last = bisect_left(self._starts, start)
        while last < len(self._starts) and self._starts[last] + len(self._blocks[self._starts[last]]) <= stop:
            del self._blocks[self._starts[last]]
            last += 1
        self._starts[first:last] = [start]
        self._blocks[start] = block


class FileBuffer:
    """The bytes of one file that were fetched, and requests for more."""

    __slots__ = ("_cache", "_limits", "_parsed", "locate", "requested", "size")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.size = source.size
        """Bytes in the file; None until the store or a short answer reports it."""
        self.requested = 0
        self._parsed = 0
        self._limits = limits
        self._cache = RangeCache()
        self.locate: Callable[[int, int], tuple[bytes, int] | None] = self._cache.locate
        """Bytes that contain a range, and where in them it starts; None if it was not fetched."""

    @property
    def exhausted(self) -> bool:
        """Whether more bytes were requested or parsed than the header of a file may take."""
        return max(self.requested, self._parsed) > self._limits.header_bytes

    def check(self, what: str, offset: int, length: int) -> None:
        """FormatError if a range is known to end past the end of the file."""
        if self.size is not None and offset + length > self.size:
            raise FormatError(
                f"{what} ends past the end of the file ({offset} + {length} > {self.size})", offset=offset
            )

    def count_parsed(self, what: str, offset: int, length: int) -> None:
        """Count bytes that are parsed: structures of a file may share bytes, and each costs time again."""
        self._parsed += length
        if self._parsed > self._limits.header_bytes:
            raise self._over_limit(what, offset)
        if self.size is not None and self._parsed > MOST_REPEATED * self.size + MIB:
            raise FormatError(f"{what} shares its bytes with too many others", offset=offset)

    def read(
        self, what: str, offset: int, length: int, *, ahead: int = 0, sparse: bool = False
    ) -> Generator[Step, Any, bytes]:
        """The bytes of a range, requested if needed together with `ahead` more; see `require`."""
        yield from self.require(what, offset, length, ahead=ahead, sparse=sparse)
        return self.take(offset, length)

    def take(self, offset: int, length: int) -> bytes:
        """The bytes of a range that was required before."""
        found = self.locate(offset, length)
        if found is None:
            raise FormatError("the header ends past the end of the file", offset=offset)
        block, start = found
        return block[start : start + length]

    def require(
        self, what: str, offset: int, length: int, *, ahead: int = 0, sparse: bool = False
    ) -> Generator[Step, Any, None]:
        """Make sure that a range is in the buffer.

        A request includes up to `ahead` bytes after it; with `sparse` the driver does not read further ahead.
        """
        if self.locate(offset, length) is None:
            need = self._need(what, offset, length, ahead, sparse)
            self._add(what, length, need, (yield need))

    def require_all(
        self, ranges: Iterable[tuple[str, int, int]], *, gap: int, ahead: int = 0, sparse: bool = False
    ) -> Generator[Step, Any, None]:
        """Make sure that every (what, offset, length) is in the buffer, in one round.

        Ranges at most `gap` bytes apart are requested as one.
        """
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
            self._add(joined[0][0], joined[0][2], needs[0], (yield needs[0]))
        elif needs:
            for (what, _, length), need, answer in zip(joined, needs, (yield needs), strict=True):
                self._add(what, length, need, answer)

    def _need(self, what: str, offset: int, length: int, ahead: int, sparse: bool) -> Need:
        """The request for a range, counted against the limits."""
        self.check(what, offset, length)
        wanted = length + ahead if self.size is None else min(length + ahead, self.size - offset)
        self.requested += wanted
        if self.requested > self._limits.header_bytes:
            raise self._over_limit(what, offset)
        if self.size is not None and self.requested > MOST_REPEATED * self.size + MIB:
            raise FormatError(f"{what} overlaps bytes that were read too often", offset=offset)
        return Need(offset, wanted, sparse)

    def _over_limit(self, what: str, offset: int) -> LimitError:
        most = self._limits.header_bytes
        return LimitError(f"{what} takes the header past the limit of {most} bytes", offset=offset)

    def _add(self, what: str, length: int, need: Need, answer: bytes | memoryview) -> None:
        """Add an answer, which must have at least `length` bytes."""
        block = bytes(answer[: need.length])
        if len(block) < need.length:
            self.size = need.offset + len(block)
        self._cache.add(need.offset, block)
        if len(block) < length:
            self.check(what, need.offset, length)
