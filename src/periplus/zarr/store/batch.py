"""Fetches byte ranges together that are requested in one turn of the event loop.

zarr-python requests chunk by chunk, some concurrently. Adjacent ranges of a file are then one request, and local ones
one job for a thread. Remote requests run on the loop of Fetch; the caller's loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from periplus.errors import FetchError
from periplus.fetch.cost import gap, largest, tasks_of
from periplus.model import Source
from periplus.policy import is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch

JOB_BYTES = 1 << 20
"""Local bytes that one thread reads before another is used: enough to be worth a thread, little enough to share."""


@dataclass(slots=True)
class _QueuedRange:
    file: int
    start: int
    stop: int
    answer: asyncio.Future[memoryview]


@dataclass(slots=True)
class _Span:
    """Neighbouring ranges of one file."""

    source: Source
    start: int
    stop: int
    wants: list[_QueuedRange]

    def give(self, data: bytes) -> None:
        view = memoryview(data)
        for want in self.wants:
            if not want.answer.done():
                want.answer.set_result(view[want.start - self.start : want.stop - self.start])

    def fail(self, error: BaseException) -> None:
        for want in self.wants:
            if not want.answer.done():
                want.answer.set_exception(error)


class Batches:
    """Reads ranges of a table's files from any event loop, those requested in one turn of it together."""

    def __init__(self, fetch: Fetch, source: Callable[[int], Source]) -> None:
        self._fetch = fetch
        self._source = source
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_QueuedRange]] = WeakKeyDictionary()
        self._running: set[asyncio.Task[None]] = set()

    async def read(self, file: int, offset: int, length: int) -> memoryview:
        """Exactly these bytes of the file, which must still be what was indexed."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._launch, loop)
        want = _QueuedRange(file, offset, offset + length, loop.create_future())
        waiting.append(want)
        return await want.answer

    def _launch(self, loop: asyncio.AbstractEventLoop) -> None:
        wants = self._waiting.pop(loop, [])
        try:
            spans = self._merged(wants)
        except Exception as error:  # noqa: BLE001 - raised in every waiting caller
            for want in wants:
                want.answer.set_exception(error)
            return
        local = [span for span in spans if is_local(span.source.url)]
        for job in tasks_of(local, lambda span: span.stop - span.start, JOB_BYTES):
            self._start(loop, self._read_local(job))
        for span in spans:
            if not is_local(span.source.url):
                self._start(loop, self._read_remote(span))

    def _start(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        self._running.add(task)  # the loop itself keeps only a weak hold
        task.add_done_callback(self._running.discard)

    def _merged(self, wants: list[_QueuedRange]) -> list[_Span]:
        spans: list[_Span] = []
        last = -1
        for want in sorted(wants, key=lambda w: (w.file, w.start)):
            span = spans[-1] if spans and want.file == last else None
            if span is not None:
                near = want.start - span.stop <= gap(span.source.url)
                if near and max(want.stop, span.stop) - span.start <= largest(span.source.url):
                    span.stop = max(span.stop, want.stop)
                    span.wants.append(want)
                    continue
            source = self._source(want.file) if span is None else span.source
            spans.append(_Span(source, want.start, want.stop, [want]))
            last = want.file
        return spans

    async def _read_local(self, spans: list[_Span]) -> None:
        try:
            found = await asyncio.to_thread(self._pread, spans)
        except BaseException as error:
            for span in spans:
                span.fail(_carried(error))
            if not isinstance(error, Exception):
                raise
            return
        for span, data in zip(spans, found, strict=True):
            if isinstance(data, Exception):
                span.fail(data)
            else:
                span.give(data)

    def _pread(self, spans: list[_Span]) -> list[bytes | Exception]:
        """The bytes of each span, or its error: one lost file must not fail the others."""
        found: list[bytes | Exception] = []
        for span in spans:
            try:
                file = self._fetch.local(span.source)
                if file is None:
                    raise FetchError("this is not a local file", url=span.source.url)
                found.append(file.read(span.start, span.stop - span.start))
            except Exception as error:  # noqa: BLE001 - raised in the waiting callers
                found.append(error)
        return found

    async def _read_remote(self, span: _Span) -> None:
        try:
            length = span.stop - span.start
            data, _ = await self._fetch.read(span.source.url, span.start, length, expect=span.source)
        except BaseException as error:
            span.fail(_carried(error))
            if not isinstance(error, Exception):
                raise
        else:
            span.give(data)


def _carried(error: BaseException) -> BaseException:
    """The error for waiting callers; the cancellation of another task must not cancel theirs."""
    return error if isinstance(error, Exception) else FetchError("the read was cancelled")
