"""Answer the needs of a scan, for its file and its sidecars: from bytes at hand, otherwise by one round of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

from periplus.errors import DeniedError, FormatError, LimitError, MissingError, PeriplusError
from periplus.fetch import Fetch, LocalFile
from periplus.fetch.local.files import below as list_local
from periplus.harvest.scanning.head import FetchedHeader, HeaderBudget
from periplus.limits import Limits
from periplus.model import FirstSidecar, FolderListing, Found, Need, Source
from periplus.policy import WEB, scheme_of
from periplus.scan.sidecars import check_name, check_prefix

T = TypeVar("T")


class ByteRange(NamedTuple):
    """Bytes of the scanned file (empty name) or of a sidecar; the source must be unchanged."""

    name: str
    source: Source
    offset: int
    length: int


class FindFirst(NamedTuple):
    """The first of these sidecars that exists; the answer is its name, first bytes and source, or None."""

    names: tuple[str, ...]
    length: int


class ListFolder(NamedTuple):
    """The files below a folder; the answer is at most `most` names and sources, or the error for the scanner."""

    prefix: str
    deep: bool
    most: int


class DeniedSidecars(NamedTuple):
    """Sidecars that may not be accessed, and the one found among the others."""

    names: list[str]
    found: tuple[str, bytes, Source] | None


Wanted: TypeAlias = tuple[ByteRange, ...] | FindFirst | ListFolder
"""What a driver must fetch; byte ranges are answered with a list of bytes in their order."""
Fetching: TypeAlias = Generator[Wanted, Any, Any]


class ScanRequests:
    """The files of one scan, and the bytes that were fetched of them."""

    def __init__(
        self, header: FetchedHeader, budget: HeaderBudget, limits: Limits, *, look_for_sidecars: bool = True
    ) -> None:
        self._budget, self._limits, self._look_for_sidecars = budget, limits, look_for_sidecars
        self._headers: dict[str, FetchedHeader] = {"": header}
        self._listed: dict[str, Source] = {}
        self._most_listed = limits.listed
        self.refused: list[str] = []
        """Names of sidecars that may not be accessed."""

    def need(self, step: Need) -> Fetching:
        """The bytes of one range."""
        data = self._header(step.sidecar).find(step.offset, step.length)
        return (yield from self.round((step,)))[0] if data is None else data

    def round(self, needs: Sequence[Need]) -> Fetching:
        """The bytes of each range, in order; those that are not at hand are fetched together."""
        found: list[Any] = [self._header(need.sidecar).find(need.offset, need.length) for need in needs]
        missing = [k for k, data in enumerate(found) if data is None]
        if not missing:
            return tuple(found)
        kept: dict[str, list[Need]] = {}
        passing: dict[tuple[str, int, int], int] = {}
        ranges: list[ByteRange] = []
        for k in missing:
            need, source = needs[k], self._headers[needs[k].sidecar].source
            if not need.passing:
                kept.setdefault(need.sidecar, []).append(need)
            elif (need.sidecar, need.offset, need.length) not in passing:
                passing[need.sidecar, need.offset, need.length] = len(ranges)
                length = need.length if source.size is None else min(need.length, source.size - need.offset)
                ranges.append(ByteRange(need.sidecar, source, need.offset, length))
        for name, some in kept.items():
            header = self._headers[name]
            ranges += [ByteRange(name, header.source, *place) for place in header.plan(some)]
        answers = yield tuple(ranges)
        for each, data in list(zip(ranges, answers, strict=True))[len(passing) :]:
            self._headers[each.name].put(each.offset, data)
        for k in missing:
            need = needs[k]
            if need.passing:
                found[k] = answers[passing[need.sidecar, need.offset, need.length]]
                continue
            found[k] = self._headers[need.sidecar].find(need.offset, need.length)
            if found[k] is None:
                url = self._headers[need.sidecar].source.url
                raise FormatError("the file ends early", url=url, offset=need.offset)
        return tuple(found)

    def look(self, step: FirstSidecar) -> Fetching:
        """Name and Source of the first that exists; None if none does, or if sidecars are not looked for."""
        names = (
            tuple(check_name(name) for name in step.names if name not in self._headers)
            if self._look_for_sidecars
            else ()
        )
        if not names:
            return None
        found = yield FindFirst(names, min(step.head, self._limits.header_bytes))
        if isinstance(found, DeniedSidecars):
            self.refused += found.names
            found = found.found
        if found is None:
            return None
        name, data, source = found
        self._headers[name] = FetchedHeader(source, data, self._budget)
        return name, source

    def below(self, step: FolderListing) -> Fetching:
        """Sources by name, in order; or the error for the scanner."""
        prefix = check_prefix(step.prefix)
        if not self._look_for_sidecars:
            return FormatError("a folder is not listed for a URL with parameters, or with sidecars=False")
        found = yield ListFolder(prefix, step.deep, self._most_listed)
        if isinstance(found, PeriplusError):
            return found
        listed = dict(sorted(found))
        self._most_listed -= len(listed)
        self._listed |= listed
        return listed

    def used(self, founds: Sequence[Found]) -> tuple[tuple[Source, ...], tuple[int, ...]]:
        """The sidecars of these arrays, and for each array the sidecar that holds it, counted from 1; 0 is the file.

        The second is empty if the file itself holds all arrays.
        """
        names = list(dict.fromkeys(name for found in founds for name in (found.sidecar, *found.described_by) if name))
        sources = tuple(self._header(name).source for name in names)
        stored_in = tuple(1 + names.index(found.sidecar) if found.sidecar else 0 for found in founds)
        return sources, stored_in if any(stored_in) else ()

    def _header(self, name: str) -> FetchedHeader:
        """The fetched bytes of a file that exists."""
        header = self._headers.get(name)
        if header is None:
            if check_name(name) not in self._listed or name.endswith("/"):
                raise MissingError("no such file was found", url=name)
            header = self._headers[name] = FetchedHeader(self._listed[name], b"", self._budget)
        return header


def answer_local(file: LocalFile, path: str, wanted: Wanted, check: Callable[[str], object]) -> Any:
    """Answer from a local file and its folder."""
    folder = path.rpartition("/")[0]
    if isinstance(wanted, FindFirst):
        return _look_local(folder, wanted, check)
    if isinstance(wanted, ListFolder):
        below: list[tuple[str, Source]] = []
        try:
            check(f"{folder}/{wanted.prefix}")
            for source in list_local(f"{folder}/{wanted.prefix}", deep=wanted.deep):
                _take(below, source, f"{folder}/", wanted.most)
            return below
        except (FormatError, DeniedError) as error:
            return error
    files = {"": file}
    for each in wanted:
        if each.name not in files:
            check(f"{folder}/{each.name}")
            files[each.name] = LocalFile(f"{folder}/{each.name}", each.source)
    return [files[each.name].read_until_end(each.offset, each.length) for each in wanted]


def _look_local(folder: str, wanted: FindFirst, check: Callable[[str], object]) -> Any:
    refused = []
    found = None
    for name in wanted.names:
        try:
            check(f"{folder}/{name}")
            other = LocalFile(f"{folder}/{name}")
        except (MissingError, FormatError):  # missing, or not a regular file
            continue
        except DeniedError:
            refused.append(name)
            continue
        found = name, other.read_until_end(0, wanted.length), other.source
        break
    return DeniedSidecars(refused, found) if refused else found


def _take(found: list[tuple[str, Source]], source: Source, folder: str, most: int) -> None:
    """Add a Source with its path from a folder; LimitError if there are too many."""
    if len(found) == most:
        raise LimitError("the listing has more objects than `listed` in periplus.Limits allows one file", url=folder)
    found.append((source.url[len(folder) :], source))


async def answer_remote(fetch: Fetch, url: str, plain: str, wanted: Wanted) -> Any:
    """Answer from a remote object and its folder; `plain` is its URL without secrets."""
    if isinstance(wanted, ListFolder):
        folder = plain.rpartition("/")[0] + "/"
        below: list[tuple[str, Source]] = []
        try:
            async for source in fetch.below(folder + wanted.prefix, deep=wanted.deep):
                _take(below, source, folder, wanted.most)
            return below
        except (FormatError, DeniedError) as error:
            return error
    if isinstance(wanted, FindFirst):
        # Usually none of them exists: requested together, they take the time of one.
        urls = [_in_folder(url, name) for name in wanted.names]
        async with _running([fetch.read(each, 0, wanted.length) for each in urls]) as tasks:
            return await _first(wanted.names, tasks)
    urls = [_in_folder(url, each.name) if each.name else url for each in wanted]
    reads = [
        fetch.read(place, each.offset, each.length, expect=each.source)
        for place, each in zip(urls, wanted, strict=True)
    ]
    if len(reads) == 1:
        return [(await reads[0])[0]]
    async with _running(reads) as tasks:
        return [data for data, _ in await asyncio.gather(*tasks)]


def _in_folder(url: str, name: str) -> str:
    """The URL of a file in the folder of another, or below it."""
    if scheme_of(url) in WEB and ("?" in name or "#" in name):
        raise DeniedError(f"{name!r} is not the name of a file in the same folder")
    return f"{url.rpartition('/')[0]}/{name}"


@asynccontextmanager
async def _running(works: Sequence[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Run all concurrently; those still running at the end are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(names: Sequence[str], tasks: Sequence[asyncio.Future[tuple[bytes, Source]]]) -> Any:
    """The first of the files that exists."""
    refused = []
    found = None
    for name, task in zip(names, tasks, strict=True):
        try:
            found = name, *(await task)
            break
        except MissingError:
            continue
        except DeniedError:
            # Stores that cannot be listed also answer so for missing objects.
            refused.append(name)
    return DeniedSidecars(refused, found) if refused else found
