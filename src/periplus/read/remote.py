"""Remote files: spans are streamed, complete chunks go to decoding threads, within the memory budget."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from periplus.fetch import Fetch
from periplus.fetch.cost import gap, largest, small_gap, tasks_of
from periplus.fetch.merge import Spans, merge
from periplus.model import Source
from periplus.read.place import Placer
from periplus.read.plan import ChunkWork, Progress

TASK_BYTES = 64 << 10
"""Least stored bytes of a decoding task: submitting one costs as much as decoding a few kilobytes."""

Ready = tuple[int, bytes | memoryview]
"""A chunk and its bytes."""


def read_remote(
    work: ChunkWork,
    place: Placer,
    *,
    fetch: Fetch,
    sources: Mapping[int, Source],
    workers: int,
    memory_bytes: int,
    progress: Progress | None,
) -> None:
    """Fetch, decode and place every chunk; half the memory is for spans in flight, a quarter for chunks that wait."""
    kinds = {source.url.partition(":")[0]: source.url for source in sources.values()}
    queue = _DecodeQueue(place, workers, memory_bytes // 4)
    done = 0
    with queue:
        for rows in _batches(work, memory_bytes // 4):
            refs = work.refs
            spans = merge(
                np.zeros(len(rows), np.int32) if refs.file is None else refs.file[rows],
                refs.offset[rows],
                _lengths(work)[rows],
                gap=min((gap(url) for url in kinds.values()), default=0),
                least=min((small_gap(url) for url in kinds.values()), default=0),
                largest=min(min((largest(url) for url in kinds.values()), default=1), max(memory_bytes // 8, 1)),
                sources=sources,
            )
            parts = _PartCollector(work, rows, spans)
            queue.put(parts.inline(), 0)
            with closing(fetch.stream(spans, in_flight_bytes=max(memory_bytes // 2, 1))) as stream:
                for span, data in stream:
                    queue.put(parts.add(span, data), len(data))
                    if progress is not None and queue.done > done:
                        done = queue.done
                        progress(done, len(work))
        queue.drain()
    if progress is not None and len(work) > done:
        progress(len(work), len(work))


def _lengths(work: ChunkWork) -> NDArray[np.int64]:
    """Bytes to fetch for each row: 0 for inline rows."""
    inline = work.refs.inline
    return work.refs.length if inline is None else np.where(inline.held, 0, work.refs.length)


def _batches(work: ChunkWork, budget: int) -> Iterator[NDArray[np.int64]]:
    """Rows to fetch together; small batches where chunks have several parts, which wait for each other in memory."""
    if len(work.refs) == len(work):
        yield np.arange(len(work.refs))
        return
    stored = np.cumsum(np.add.reduceat(_lengths(work), work.first[:-1]))
    first = 0
    while first < len(work):
        before = int(stored[first - 1]) if first else 0
        stop = max(int(np.searchsorted(stored, before + budget, side="right")), first + 1)
        yield np.arange(work.first[first], work.first[stop])
        first = stop


class _PartCollector:
    """Joins the parts of chunks as their spans arrive."""

    def __init__(self, work: ChunkWork, rows: NDArray[np.int64], spans: Spans) -> None:
        self._work = work
        chunk = np.searchsorted(work.first, rows, side="right") - 1
        self._counts = np.diff(work.first)
        order = np.argsort(spans.row_span, kind="stable")
        self._bounds = np.searchsorted(spans.row_span[order], np.arange(len(spans) + 1))
        self._order, self._rows, self._chunk, self._start = order, rows, chunk, spans.row_start
        self._parts: dict[int, dict[int, bytes]] = {}

    def inline(self) -> list[Ready]:
        """Chunks that are entirely inline; keeps the inline parts of the others."""
        ready: list[Ready] = []
        for i in self._order[: self._bounds[0]].tolist():
            row = int(self._rows[i])
            ready += self._put(int(self._chunk[i]), row, self._work.refs.inline_bytes(row) or b"")
        return ready

    def add(self, span: int, data: memoryview) -> list[Ready]:
        """Chunks that this span completes."""
        ready: list[Ready] = []
        for i in self._order[self._bounds[span] : self._bounds[span + 1]].tolist():
            row, chunk, start = int(self._rows[i]), int(self._chunk[i]), int(self._start[i])
            ready += self._put(chunk, row, data[start : start + int(self._work.refs.length[row])])
        return ready

    def _put(self, chunk: int, row: int, data: bytes | memoryview) -> list[Ready]:
        count = int(self._counts[chunk])
        if count == 1:
            return [(chunk, data)]
        parts = self._parts.setdefault(chunk, {})
        parts[row] = bytes(data)  # a copy, so that a waiting part does not keep its span in memory
        if len(parts) < count:
            return []
        del self._parts[chunk]
        return [(chunk, b"".join(parts[row] for row in sorted(parts)))]


class _DecodeQueue:
    """Chunks that wait for the decoding threads, limited in bytes; the first error stops all."""

    def __init__(self, place: Placer, workers: int, budget: int) -> None:
        self._place, self._workers, self._budget = place, workers, budget
        self._change = threading.Condition()
        self._bytes = 0
        self._tasks = 0
        self._failure: BaseException | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.done = 0
        """Chunks placed so far."""

    def __enter__(self) -> _DecodeQueue:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._failure = self._failure or error
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def put(self, ready: list[Ready], held: int) -> None:
        """Decode these chunks, which keep `held` bytes in memory; waits until the budget allows it."""
        if self._workers == 1:
            for chunk, data in ready:
                self._place(chunk, data)
                self.done += 1
            return
        groups = tasks_of(ready, lambda item: len(item[1]), TASK_BYTES)
        if not groups:
            return
        with self._change:
            self._change.wait_for(lambda: self._failure or self._bytes == 0 or self._bytes + held <= self._budget)
            if self._failure is not None:
                raise self._failure
            self._bytes += held
            self._tasks += len(groups)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="periplus-decode")
        pending = [len(groups)]
        for group in groups:
            self._pool.submit(self._decode, group, held, pending)

    def drain(self) -> None:
        """Wait for all chunks; raises the first error."""
        with self._change:
            self._change.wait_for(lambda: self._failure or self._tasks == 0)
            if self._failure is not None:
                raise self._failure

    def _decode(self, group: list[Ready], held: int, pending: list[int]) -> None:
        placed = 0
        try:
            while group and self._failure is None:
                chunk, data = group.pop()
                self._place(chunk, data)
                placed += 1
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            with self._change:
                self._failure = self._failure or error
        finally:
            with self._change:
                self.done += placed
                self._tasks -= 1
                pending[0] -= 1
                self._bytes -= held if pending[0] == 0 else 0
                self._change.notify_all()
