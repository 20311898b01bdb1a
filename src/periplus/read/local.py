"""Local files: threads that each read, decode and place, with no event loop between them and the page cache."""

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
from periplus.read.plan import Work

FEW = 2
"""Chunks that are read one after the other in the caller's thread: starting threads would cost more than it saves."""
SEVERAL = 24
"""Chunks from which on it is worth finding out which of them are neighbours: that takes as long as a few reads."""
TOGETHER = 256 << 10
"""Bytes up to which small neighbouring chunks are read by one call; larger ones gain nothing by it."""
SLOT = -1
"""Scratch of each thread for stored bytes, beside that of decoders."""
HERE = "/"
"""Any local URL: all of them cost the same."""

Progress = Callable[[int, int], None]


def read_local(
    work: Work,
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

    def labour(*, tell: Progress | None = None) -> None:
        nonlocal done
        hands, count = _Hands(fetch, sources), 0
        while True:
            with lock:
                done += count
                task = None if failures else next(turn, None)
            if tell is not None and count:
                tell(done, total)
            if task is None:
                return
            count = tasks.run(task, hands)

    def helper() -> None:
        try:
            labour()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread and raised there
            failures.append(error)

    beside = min(workers, len(tasks)) - 1
    with _crew(helper, beside, failures) if beside else nullcontext():
        labour(tell=progress)
    if failures:
        raise failures[0]
    if progress is not None and workers > 1:
        progress(total, total)


@contextmanager
def _crew(labour: Callable[[], None], size: int, failures: list[BaseException]) -> Iterator[None]:
    """Threads that run beside the caller; none outlives the block, and an error in it stops them."""
    threads = [threading.Thread(target=labour, name=f"periplus-read-{i}") for i in range(size)]
    try:
        with suppress(RuntimeError):  # no more threads here: those that run, the caller's at least, do all the work
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


class _Hands:
    """The file one worker holds open: neighbouring chunks mostly lie in the same one."""

    def __init__(self, fetch: Fetch, sources: Mapping[int, Source]) -> None:
        self._fetch, self._sources = fetch, sources
        self._number = -1
        self._file: LocalFile | None = None

    def fill(self, number: int, offset: int, into: memoryview) -> None:
        if self._file is None or number != self._number:
            self._file = self._fetch.local(self._sources[number])
            self._number = number
            if self._file is None:
                raise FetchError("this is no local file", url=self._sources[number].url)
        self._file.fill(offset, into)


class _Tasks:
    """The work cut into tasks: spans of whole chunks, read by one call each, then chunks that are read part by part."""

    def __init__(self, work: Work, place: Placer) -> None:
        self._work, self._place = work, place
        self._start: list[int] = []
        self._singly: list[int] = list(range(len(work)))
        if len(work) >= SEVERAL and 2 * int(work.refs.length.min()) <= TOGETHER:
            self._merge()

    def _merge(self) -> None:
        work, refs = self._work, self._work.refs
        rows = work.first[:-1]
        whole = (np.diff(work.first) == 1) & (refs.length[rows] > 0)
        if refs.inline is not None:
            whole &= ~refs.inline.held[rows]
        self._singly = np.flatnonzero(~whole).tolist()
        chunks, rows = np.flatnonzero(whole), rows[whole]
        file = 0 if refs.file is None else refs.file[rows]
        length = refs.length[rows]
        spans = merge(file, refs.offset[rows], length, gap=gap(HERE), least=small_gap(HERE), largest=TOGETHER)
        order = np.lexsort((spans.row_start, spans.row_span))
        self._chunk = chunks[order].tolist()
        self._begin = spans.row_start[order].tolist()
        self._end = (spans.row_start + length)[order].tolist()
        self._bounds = np.searchsorted(spans.row_span[order], np.arange(len(spans) + 1)).tolist()
        self._file, self._start = spans.file.tolist(), spans.start.tolist()
        self._length = (spans.stop - spans.start).tolist()

    def __len__(self) -> int:
        return len(self._start) + len(self._singly)

    def run(self, task: int, hands: _Hands) -> int:
        """Do one task; the number of chunks it placed."""
        if task >= len(self._start):
            chunk = self._singly[task - len(self._start)]
            self._place(chunk, self._join(chunk, hands))
            return 1
        data = scratch(SLOT, self._length[task]).data
        hands.fill(self._file[task], self._start[task], data)
        first, stop = int(self._bounds[task]), int(self._bounds[task + 1])
        for i in range(first, stop):
            self._place(self._chunk[i], data[self._begin[i] : self._end[i]])
        return stop - first

    def _join(self, chunk: int, hands: _Hands) -> memoryview:
        """The bytes of a chunk, part after part."""
        refs, rows = self._work.refs, range(int(self._work.first[chunk]), int(self._work.first[chunk + 1]))
        lengths = refs.length[rows.start : rows.stop].tolist()
        whole = scratch(SLOT, sum(lengths)).data
        end = 0
        for row, length in zip(rows, lengths):
            part, end = whole[end : end + length], end + length
            inline = refs.inline_bytes(row)
            if inline is not None:
                part[:] = inline
            elif length:
                hands.fill(0 if refs.file is None else int(refs.file[row]), int(refs.offset[row]), part)
        return whole
