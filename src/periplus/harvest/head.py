"""How much of a file to read first: learned from the headers already seen, so that one request is usually enough."""

from __future__ import annotations

import threading
from collections import deque

from periplus.errors import LimitError
from periplus.model import Source

START = 32 << 10
LEAST = 16 << 10
MOST = 4 << 20
"""Largest first read: a header beyond it is better fetched by what the first part says."""
_ROUND = 4 << 10
_MEMORY = 1024
"""Headers remembered, the latest ones."""
_NEAR = 32 << 10
"""A piece this near to the header's end so far belongs to the header; one farther off lies elsewhere in the file."""


class HeadSize:
    """Bytes of the first read: what sufficed for 99 of 100 files so far."""

    __slots__ = ("_count", "_ends", "_lock", "_next", "size")

    def __init__(self, start: int = START) -> None:
        self.size = start
        self._ends: deque[int] = deque(maxlen=_MEMORY)
        self._count = 0
        self._next = 1
        self._lock = threading.Lock()

    def observe(self, end: int) -> None:
        """Learn where a file's header ended."""
        if end > MOST:
            return
        with self._lock:
            self._ends.append(end)
            self._count += 1
            if self._count >= self._next:
                # After 1, 2, 4, ... files, then every 64th: sorting a thousand numbers for each file would show.
                self._next = self._count + min(self._count, 64)
                ends = sorted(self._ends)
                enough = ends[min(len(ends) - 1, (len(ends) * 99) // 100)]
                self.size = max(LEAST, -(-enough // _ROUND) * _ROUND)


class Header:
    """The parts of one file that were fetched; says what to fetch when a scanner asks for more."""

    __slots__ = ("_ahead", "_budget", "_parts", "end", "source")

    def __init__(self, source: Source, head: bytes, *, most: int) -> None:
        self.source = source
        self._parts: list[tuple[int, memoryview]] = [(0, memoryview(head))]
        self._ahead = max(len(head), LEAST)
        self._budget = most - len(head)
        self.end = 0
        """Where the header ends, as far as the scanner went."""

    def find(self, offset: int, length: int) -> memoryview | None:
        """These bytes, fewer where the file ends; None where they must be fetched."""
        stop = offset + length
        if offset <= self.end + _NEAR and stop > self.end:
            self.end = stop
        size = self.source.size
        if size is not None and stop > size:
            if offset >= size:
                return memoryview(b"")
            stop = size
        for start, data in self._parts:
            if start <= offset and stop - start <= len(data):
                return data[offset - start : stop - start]
        return None

    def want(self, offset: int, length: int, *, sparse: bool = False) -> tuple[int, int]:
        """The range to fetch so that these bytes are there: each miss reads twice as far ahead as the last.

        A scanner that hops through a file says so (`sparse`), and gets what it asks for and no more.
        """
        if self.source.size is not None:
            length = min(length, self.source.size - offset)
        if length > self._budget:
            raise LimitError(
                f"the header wants {length} bytes more, over the limit for one file", url=self.source.url, offset=offset
            )
        if not sparse:
            self._ahead = min(self._ahead * 2, MOST)
            length = min(max(length, self._ahead), self._budget)
        if self.source.size is not None:
            length = min(length, self.source.size - offset)
        return offset, length

    def put(self, offset: int, data: bytes) -> None:
        """Keep what was fetched."""
        self._budget -= len(data)
        self._parts.append((offset, memoryview(data)))
