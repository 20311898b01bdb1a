"""Which bytes of a file to read for its scanner: first as many as earlier headers had, then what is missing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from periplus.errors import LimitError
from periplus.fetch.cost import gap, small_gap
from periplus.model import Need, Source
from periplus.scan.buffer import RangeCache

START = 32 << 10
LEAST = 16 << 10
MOST = 4 << 20
"""Largest first read: beyond it, the scanner requests what it needs."""
_ROUND = 4 << 10
_MEMORY = 1024
"""Number of the latest headers that are remembered."""
_NEAR = 32 << 10
"""Bytes this close to the end of the header so far belong to it; those farther away are elsewhere in the file."""
_GAP = 64 << 10
"""Largest gap between two needs of a round that is read to save a request."""


class HeadSize:
    """Size of the first read: what was enough for 99 of 100 files so far."""

    __slots__ = ("_count", "_ends", "_lock", "_next", "size")

    def __init__(self, start: int = START) -> None:
        self.size = start
        self._ends: deque[int] = deque(maxlen=_MEMORY)
        self._count = 0
        self._next = 1
        self._lock = threading.Lock()

    def observe(self, end: int) -> None:
        """Record where the header of a file ended."""
        if end > MOST:
            return
        with self._lock:
            self._ends.append(end)
            self._count += 1
            if self._count >= self._next:
                # After 1, 2, 4, ... files, then every 64th: sorting a thousand numbers for each file would be slow.
                self._next = self._count + min(self._count, 64)
                ends = sorted(self._ends)
                enough = ends[min(len(ends) - 1, (len(ends) * 99) // 100)]
                self.size = max(LEAST, -(-enough // _ROUND) * _ROUND)


class HeaderBudget:
    """Bytes that a scan may still fetch, of the file and its sidecars."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most


class FetchedHeader:
    """The bytes of one file that were fetched, and which ranges to fetch for further needs."""

    __slots__ = ("_ahead", "_budget", "_cache", "end", "source")

    def __init__(self, source: Source, head: bytes, budget: HeaderBudget) -> None:
        self.source = source
        self._cache = RangeCache()
        self._cache.add(0, head)
        self._ahead = max(len(head), LEAST)
        self._budget = budget
        budget.left -= len(head)
        self.end = 0
        """End of the header, as far as the scanner has read it."""

    def find(self, offset: int, length: int) -> memoryview | None:
        """These bytes, or fewer at the end of the file; None if they must be fetched."""
        stop = offset + length
        if offset <= self.end + _NEAR and stop > self.end:
            self.end = stop
        size = self.source.size
        if size is not None and stop > size:
            if offset >= size:
                return memoryview(b"")
            stop = size
        found = self._cache.locate(offset, stop - offset)
        return None if found is None else memoryview(found[0])[found[1] : found[1] + stop - offset]

    def plan(self, needs: Sequence[Need]) -> list[tuple[int, int]]:
        """Ranges to fetch, as (offset, length), for the missing needs of a round; LimitError if they are too large.

        Needs that are close to each other share a range. Each round reads ahead twice as many bytes as the last, shared
        by its ranges. Nothing is read ahead for `sparse` needs.
        """
        runs = self._runs(needs)
        wanted = sum(run.stop - run.start for run in runs)
        if wanted > self._budget.left:
            raise LimitError(
                f"the header needs {wanted} more bytes, which exceeds the limit for one file",
                url=self.source.url,
                offset=runs[0].start,
            )
        spare = min(self._budget.left - wanted, MOST)
        spare -= self._bridge(runs, spare)
        if not all(run.sparse for run in runs):
            self._ahead = min(self._ahead * 2, MOST)
            share = self._ahead // len(runs)
            ends = [run.start for run in runs[1:]]
            ends.append(runs[-1].stop + share if self.source.size is None else self.source.size)
            for run, end in zip(runs, ends, strict=True):
                more = 0 if run.sparse else max(0, min(share - (run.stop - run.start), end - run.stop, spare))
                run.stop += more
                spare -= more
            _join(runs, [after.start == run.stop for run, after in pairwise(runs)])
        return [(run.start, run.stop - run.start) for run in runs]

    def put(self, offset: int, data: bytes) -> None:
        """Keep bytes that were fetched."""
        self._budget.left -= len(data)
        self._cache.add(offset, data)

    def _runs(self, needs: Sequence[Need]) -> list[_ByteRun]:
        """The needed bytes in order, without overlaps."""
        size = self.source.size
        runs: list[_ByteRun] = []
        for need in sorted(needs, key=lambda need: need.offset):
            stop = need.offset + need.length
            stop = stop if size is None else min(stop, size)
            if runs and need.offset <= runs[-1].stop:
                if stop > runs[-1].stop:
                    runs[-1].stop, runs[-1].sparse = stop, need.sparse
            else:
                runs.append(_ByteRun(need.offset, stop, need.sparse))
        return runs

    def _bridge(self, runs: list[_ByteRun], spare: int) -> int:
        """Join runs across gaps that cost less than a request, smallest first; returns the size of these gaps."""
        usual, small = min(_GAP, gap(self.source.url)), min(_GAP, small_gap(self.source.url))
        gaps = [after.start - run.stop for run, after in pairwise(runs)]
        most = [small if run.sparse or after.sparse else usual for run, after in pairwise(runs)]
        read, joined = 0, [False] * len(gaps)
        for k in sorted(range(len(gaps)), key=gaps.__getitem__):
            if gaps[k] <= most[k] and read + gaps[k] <= spare:
                read, joined[k] = read + gaps[k], True
        _join(runs, joined)
        return read


@dataclass(slots=True)
class _ByteRun:
    start: int
    stop: int
    sparse: bool


def _join(runs: list[_ByteRun], joined: Sequence[bool]) -> None:
    """Join each marked run with the next."""
    for k in reversed(range(len(joined))):
        if joined[k]:
            runs[k] = _ByteRun(runs[k].start, runs[k + 1].stop, runs[k + 1].sparse)
            del runs[k + 1]
