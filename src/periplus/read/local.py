"""Local files: threads that each read, decode and place chunks, without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

import numpy as np

from periplus.decode.scratch import scratch
from periplus.errors import FetchError
from periplus.fetch import Fetch, LocalFile
from periplus.fetch.cost import gap, small_gap
from periplus.fetch.merge import merge
from periplus.model import Source
from periplus.read.place import Placer
from periplus.read.plan import ChunkWork, Progress

FEW_CHUNKS = 2
"""Up to this many chunks are read in the caller's thread: starting threads would take longer."""
MERGE_CHUNKS = 24
"""From this many chunks on, neighbouring ones are merged into one read: finding them takes as long as a few reads."""
MERGE_BYTES = 256 << 10
"""Bytes up to which small neighbouring chunks are read by one call; larger reads gain nothing."""
SCRATCH_SLOT = -1
"""Number of the scratch buffer of each thread for stored bytes; decoders use others."""
LOCAL_URL = "/"
"""Any local URL: all have the same costs."""


def read_local(
    work: ChunkWork,
    place: Placer,
    *,
    fetch: Fetch,
    sources: Mapping[int, Source],
    workers: int,
    progress: Progress | None,
) -> None:
    """Read, decode and place every chunk of the work; the caller's thread is one of the workers."""
    tasks = _Tasks(work, place)
    total, done, turn = len(work), 0, iter(range(len(tasks)))
    failures: list[BaseException] = []
    lock = threading.Lock()

    def run_tasks(*, report: Progress | None = None) -> None:
        nonlocal done
        file, count = _OpenFile(fetch, sources), 0
        while True:
            with lock:
                done += count
                task = None if failures else next(turn, None)
            if report is not None and count:
                report(done, total)
            if task is None:
                return
            count = tasks.run(task, file)

    def run_in_thread() -> None:
        try:
            run_tasks()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failures.append(error)

    extra = min(workers, len(tasks)) - 1
    with _extra_threads(run_in_thread, extra, failures) if extra else nullcontext():
        run_tasks(report=progress)
    if failures:
        raise failures[0]
    if progress is not None and workers > 1:
        progress(total, total)


@contextmanager
def _extra_threads(target: Callable[[], None], count: int, failures: list[BaseException]) -> Iterator[None]:
    """Threads that run with that of the caller; they end with the block, and an error in it stops them."""
    threads = [threading.Thread(target=target, name=f"periplus-read-{i}") for i in range(count)]
    try:
        with suppress(
            RuntimeError
        ):  # no more threads can start: the running ones, at least the caller's, do all the work
            for thread in threads:
                thread.start()
        yield
    except BaseException as error:
        failures.append(error)
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()


class _OpenFile:
    """The file that one thread has open: neighbouring chunks are mostly in the same one."""

    def __init__(self, fetch: Fetch, sources: Mapping[int, Source]) -> None:
        self._fetch, self._sources = fetch, sources
        self._number = -1
        self._file: LocalFile | None = None

    def fill(self, number: int, offset: int, into: memoryview) -> None:
        if self._file is None or number != self._number:
            self._file = self._fetch.local(self._sources[number])
            self._number = number
            if self._file is None:
                raise FetchError("not a local file", url=self._sources[number].url)
        self._file.fill(offset, into)


class _Tasks:
    """The tasks of a read: spans of several chunks that one call reads, then single chunks, read part by part."""

    def __init__(self, work: ChunkWork, place: Placer) -> None:
        self._work, self._place = work, place
        self._start: list[int] = []
        self._single: list[int] = list(range(len(work)))
        if len(work) >= MERGE_CHUNKS and 2 * int(work.refs.length.min()) <= MERGE_BYTES:
            self._merge()

    def _merge(self) -> None:
        work, refs = self._work, self._work.refs
        rows = work.first[:-1]
        whole = (np.diff(work.first) == 1) & (refs.length[rows] > 0)
        if refs.inline is not None:
            whole &= ~refs.inline.held[rows]
        self._single = np.flatnonzero(~whole).tolist()
        chunks, rows = np.flatnonzero(whole), rows[whole]
        file = 0 if refs.file is None else refs.file[rows]
        length = refs.length[rows]
        spans = merge(
            file, refs.offset[rows], length, gap=gap(LOCAL_URL), least=small_gap(LOCAL_URL), largest=MERGE_BYTES
        )
        order = np.lexsort((spans.row_start, spans.row_span))
        self._chunk = chunks[order].tolist()
        self._begin = spans.row_start[order].tolist()
        self._end = (spans.row_start + length)[order].tolist()
        self._bounds = np.searchsorted(spans.row_span[order], np.arange(len(spans) + 1)).tolist()
        self._file, self._start = spans.file.tolist(), spans.start.tolist()
        self._length = (spans.stop - spans.start).tolist()

    def __len__(self) -> int:
        return len(self._start) + len(self._single)

    def run(self, task: int, file: _OpenFile) -> int:
        """Run one task; returns the number of chunks it placed."""
        if task >= len(self._start):
            chunk = self._single[task - len(self._start)]
            self._place(chunk, self._join(chunk, file))
            return 1
        data = scratch(SCRATCH_SLOT, self._length[task]).data
        file.fill(self._file[task], self._start[task], data)
        first, stop = int(self._bounds[task]), int(self._bounds[task + 1])
        for i in range(first, stop):
            self._place(self._chunk[i], data[self._begin[i] : self._end[i]])
        return stop - first

    def _join(self, chunk: int, file: _OpenFile) -> memoryview:
        """The parts of a chunk, joined."""
        refs, rows = self._work.refs, range(int(self._work.first[chunk]), int(self._work.first[chunk + 1]))
        lengths = refs.length[rows.start : rows.stop].tolist()
        whole = scratch(SCRATCH_SLOT, sum(lengths)).data
        end = 0
        for row, length in zip(rows, lengths):
            part, end = whole[end : end + length], end + length
            inline = refs.inline_bytes(row)
            if inline is not None:
                part[:] = inline
            elif length:
                file.fill(0 if refs.file is None else int(refs.file[row]), int(refs.offset[row]), part)
        return whole
