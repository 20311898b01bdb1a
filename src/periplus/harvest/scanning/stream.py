"""Scan many files, in the order they finish: hundreds of remote files at a time, local files in a plain loop."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from periplus.errors import FormatError, PeriplusError
from periplus.fetch import Fetch, LocalFile
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.drive import Harvested, failed, harvest_local, harvest_remote
from periplus.harvest.scanning.head import HeadSize
from periplus.harvest.sidecars import KnownSidecars
from periplus.limits import Limits
from periplus.model import Source
from periplus.policy import WEB, is_local, scheme_of, storable

Known: TypeAlias = Callable[[str], Source | None]
"""The source of a URL in an earlier run; None if it was not in it."""
BATCH = 256
"""Local files handed over at a time; each hand-over costs a thread switch."""
LOCAL_THREADS = 16
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\\]|[\ud800-\udfff]")
"""Characters that stored paths may not have; surrogates stand for bytes that are not UTF-8."""
_SLOW_SECONDS = 0.002
"""If local files take this long, mostly waiting, they are on a network disk, and several are read at once."""


class LocalInput(NamedTuple):
    """A local file, which the caller reads."""

    number: int
    item: Input
    path: str


class InputPump:
    """Runs on the event loop of fetch: takes inputs, scans remote ones, and passes local ones to the caller."""

    def __init__(
        self,
        inputs: AsyncIterator[Input],
        fetch: Fetch,
        *,
        limits: Limits,
        known: Known,
        sidecars: KnownSidecars,
        check: bool,
        concurrency: int,
        look_for_sidecars: bool,
    ) -> None:
        self._inputs, self._fetch, self._limits = inputs, fetch, limits
        self._known, self._sidecars, self._check, self._look_for_sidecars = known, sidecars, check, look_for_sidecars
        self._size = HeadSize()
        self._ready: list[LocalInput | Harvested] = []
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeder: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._news, self._taken = asyncio.Event(), asyncio.Event()
        self._flights = asyncio.Semaphore(concurrency)
        self._most_pending = 2 * concurrency + 2 * BATCH
        """Most files in flight or ready: a slow caller delays the inputs instead of filling the memory."""
        self.total: int | None = None
        """Number of inputs, once all are known."""

    async def some(self) -> list[LocalInput | Harvested] | None:
        """Files that are ready, at least one; None at the end. An error of the inputs is raised here."""
        if self._feeder is None:
            self._feeder = asyncio.create_task(self._feed())
        while not self._ready:
            if self._broken is not None:
                raise self._broken
            if self._feeder.done() and not self._tasks:
                self._feeder.result()
                return None
            self._news.clear()
            await self._news.wait()
        batch, self._ready = self._ready, []
        self._taken.set()
        return batch

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = [*self._tasks, *([] if self._feeder is None else [self._feeder])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self) -> None:
        number = 0
        try:
            async for item in self._inputs:
                while len(self._ready) + len(self._tasks) >= self._most_pending:
                    self._taken.clear()
                    await self._taken.wait()
                number += self._take(item, number)
            self.total = number
        finally:
            self._news.set()

    def _take(self, item: Input, number: int) -> bool:
        """Start an input; returns whether it is new."""
        try:
            if item.error is not None:
                raise item.error
            plain = item.url if item.source is None else item.source.url
            if item.source is None or scheme_of(plain) in WEB:  # URLs of other listings are canonical
                plain = storable(plain, self._fetch.keep_query)
            if unwritable := _UNWRITABLE.search(plain):
                what = "is not UTF-8" if unwritable[0] > "\x7f" else "has a backslash or control character"
                raise FormatError(f"the name of the file {what}, so it cannot be stored in an index")
        except PeriplusError as error:
            self._give(failed(item, error, number=number, nameless=True))
            return True
        if plain in self._seen:  # given twice, for example by a list and a glob
            return False
        self._seen.add(plain)
        if item.optional and item.source is not None and item.source.size == 0:
            # Also an object `folder/` in a bucket, which listings report without its slash.
            self._give(Harvested(input=item, source=item.source, skipped=True, number=number))
        elif is_local(plain):
            self._give(LocalInput(number, item, plain))
        else:
            task = asyncio.create_task(self._remote(number, item, plain))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._news.set()
        self._taken.set()
        if not task.cancelled() and task.exception() is not None and self._feeder is not None:
            self._broken = task.exception()
            self._feeder.cancel()

    def _give(self, what: LocalInput | Harvested) -> None:
        self._ready.append(what)
        self._news.set()

    async def _remote(self, number: int, item: Input, plain: str) -> None:
        async with self._flights:
            before = self._known(plain)
            if before is not None:
                found = await self._current_source(item) if self._check else before
                if found is not None and unchanged(before, found) and await self._unchanged_sidecars(plain):
                    self._give(reused(item, before, number))
                    return
            size, limits, look_for_sidecars = self._size, self._limits, self._look_for_sidecars
            self._give(
                await harvest_remote(
                    item, plain, self._fetch, size, limits, number=number, look_for_sidecars=look_for_sidecars
                )
            )

    async def _unchanged_sidecars(self, url: str) -> bool:
        """Whether the sidecars of a file are unchanged; new ones are not looked for."""
        try:
            return not self._check or all(
                [unchanged(before, await self._fetch.head(before.url)) for before in self._sidecars(url)]
            )
        except PeriplusError:
            return False

    async def _current_source(self, item: Input) -> Source | None:
        """The current source of an object: from the listing, otherwise by a HEAD request; None if that fails."""
        if item.source is not None:
            return item.source
        try:
            return await self._fetch.head(item.url)
        except PeriplusError:
            return None  # reading it reports the error


def harvest_inputs(
    inputs: AsyncIterator[Input],
    fetch: Fetch,
    *,
    limits: Limits,
    known: Known = lambda _: None,
    sidecars: KnownSidecars = lambda _: (),
    check: bool = True,
    concurrency: int = 256,
    look_for_sidecars: bool = True,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> Iterator[list[Harvested]]:
    """Scanned files in batches, in the order they finish; memory does not grow with their number."""
    pump = InputPump(
        inputs,
        fetch,
        limits=limits,
        known=known,
        sidecars=sidecars,
        check=check,
        concurrency=concurrency,
        look_for_sidecars=look_for_sidecars,
    )
    local = _LocalReader(
        fetch, limits=limits, known=known, sidecars=sidecars, check=check, look_for_sidecars=look_for_sidecars
    )
    done = bad = 0
    try:
        while (ready := fetch.run(pump.some())) is not None:
            batch = [each for each in ready if isinstance(each, Harvested)]
            here = [each for each in ready if isinstance(each, LocalInput)]
            for part in (batch, *local.harvest(here)):
                if not part:
                    continue
                done += len(part)
                bad += sum(each.error is not None for each in part)
                yield part
                if progress is not None:
                    progress(done, pump.total, bad)
    finally:
        local.close()
        fetch.run(pump.close())


class _LocalReader:
    """Scans local files one after another; several at once if the disk turns out to be a network."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        limits: Limits,
        known: Known,
        sidecars: KnownSidecars,
        check: bool,
        look_for_sidecars: bool,
    ) -> None:
        self._free, self._look_for_sidecars, self._sidecars = fetch.policy.prefixes is None, look_for_sidecars, sidecars
        self._policy, self._limits, self._known, self._check = fetch.policy, limits, known, check
        self._size = HeadSize()
        self._pool: ThreadPoolExecutor | None = None
        self._timed = False
        """Whether the speed of the disk has been measured."""

    def harvest(self, files: Sequence[LocalInput]) -> Iterator[list[Harvested]]:
        start = 0
        while start < len(files):
            batch = files[start : start + (BATCH if self._timed else LOCAL_THREADS)]
            start += len(batch)
            if self._pool is not None:
                yield list(self._pool.map(self._one, batch))
                continue
            clock, work = time.perf_counter(), time.thread_time()
            yield [self._one(each) for each in batch]
            self._timed = True
            waited = time.perf_counter() - clock
            worked = time.thread_time() - work
            if len(batch) >= LOCAL_THREADS and waited > _SLOW_SECONDS * len(batch) and waited > 4 * worked:
                self._pool = ThreadPoolExecutor(LOCAL_THREADS, thread_name_prefix="periplus-harvest")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, each: LocalInput) -> Harvested:
        number, item, path = each
        try:
            if not self._free:
                self._policy.check(path)
            before = self._known(path)
            if before is not None and (not self._check or self._unchanged(before, item.source, path)):
                return reused(item, before, number)
        except PeriplusError as error:
            return failed(item, error, number=number)
        may = str if self._free else self._policy.check
        size, limits, look_for_sidecars = self._size, self._limits, self._look_for_sidecars
        return harvest_local(item, path, size, limits, number=number, look_for_sidecars=look_for_sidecars, check=may)

    def _unchanged(self, before: Source, now: Source | None, path: str) -> bool:
        """Whether a file is as it was; `now` is what a listing says of it, if it comes from one."""
        try:
            return unchanged(before, now or LocalFile(path).source) and all(
                unchanged(each, LocalFile(each.url).source) for each in self._sidecars(before.url)
            )
        except PeriplusError:
            return False


def reused(item: Input, before: Source, number: int) -> Harvested:
    """A file that was scanned in an earlier run."""
    return Harvested(input=item, source=before, datetime=item.datetime, reused=True, number=number)


def unchanged(before: Source, now: Source) -> bool:
    """Whether an object is unchanged: the same size, and the same etag or modification time."""
    if before.size is None or before.size != now.size:
        return False
    if before.etag is not None and now.etag is not None:
        return before.etag == now.etag
    if before.last_modified is None or now.last_modified is None:
        return False
    if is_local(before.url):
        return before.last_modified == now.last_modified
    # HTTP dates have whole seconds.
    return before.last_modified.replace(microsecond=0) == now.last_modified.replace(microsecond=0)


async def each_of(inputs: Sequence[Input]) -> AsyncIterator[Input]:
    """Inputs of a list."""
    for item in inputs:
        yield item
