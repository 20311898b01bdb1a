"""What a scan asks for, of its own file and of those beside it: at hand, else by one round of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

from periplus.errors import DeniedError, FormatError, LimitError, MissingError, PeriplusError
from periplus.fetch import Fetch, LocalFile
from periplus.fetch.local.files import below as list_local
from periplus.harvest.scanning.head import Budget, Header
from periplus.limits import Limits
from periplus.model import FirstSidecar, FolderListing, Found, Need, Source
from periplus.policy import WEB, scheme_of
from periplus.scan.sidecars import check_name, check_prefix

T = TypeVar("T")


class Range(NamedTuple):
    """Bytes of the scanned file (an empty name) or of one beside it, which must still be that one."""

    name: str
    source: Source
    offset: int
    length: int


class Look(NamedTuple):
    """The first of these files that is there: answered with its name, first bytes and facts, or None."""

    names: tuple[str, ...]
    length: int


class Below(NamedTuple):
    """What is below a folder: answered with Sources, or the error for the scanner; at most `most` of them."""

    prefix: str
    deep: bool
    most: int


class Refused(NamedTuple):
    """Files beside one that we may not look at, and the one found among the others."""

    names: list[str]
    found: tuple[str, bytes, Source] | None


Wanted: TypeAlias = tuple[Range, ...] | Look | Below
"""What a driver answers: ranges with a list of bytes in their order."""
Fetching: TypeAlias = Generator[Wanted, Any, Any]


class Asked:
    """The files that one scan is about, and what was fetched of them."""

    def __init__(self, header: Header, budget: Budget, limits: Limits, *, sought: bool = True) -> None:
        self._budget, self._limits, self._sought = budget, limits, sought
        self._headers: dict[str, Header] = {"": header}
        self._listed: dict[str, Source] = {}
        self._room = limits.listed
        self.refused: list[str] = []
        """Names that we were not allowed to look at."""

    def need(self, step: Need) -> Fetching:
        """The bytes of one range."""
        data = self._header(step.sibling).find(step.offset, step.length)
        return (yield from self.round((step,)))[0] if data is None else data

    def round(self, needs: Sequence[Need]) -> Fetching:
        """The bytes of every range, in order; those that are not at hand are fetched at once."""
        found: list[Any] = [self._header(need.sibling).find(need.offset, need.length) for need in needs]
        lacking = [k for k, data in enumerate(found) if data is None]
        if not lacking:
            return tuple(found)
        kept: dict[str, list[Need]] = {}
        passing: dict[tuple[str, int, int], int] = {}
        ranges: list[Range] = []
        for k in lacking:
            need, source = needs[k], self._headers[needs[k].sibling].source
            if not need.passing:
                kept.setdefault(need.sibling, []).append(need)
            elif (need.sibling, need.offset, need.length) not in passing:
                passing[need.sibling, need.offset, need.length] = len(ranges)
                length = need.length if source.size is None else min(need.length, source.size - need.offset)
                ranges.append(Range(need.sibling, source, need.offset, length))
        for name, some in kept.items():
            header = self._headers[name]
            ranges += [Range(name, header.source, *place) for place in header.plan(some)]
        answers = yield tuple(ranges)
        for each, data in list(zip(ranges, answers, strict=True))[len(passing) :]:
            self._headers[each.name].put(each.offset, data)
        for k in lacking:
            need = needs[k]
            if need.passing:
                found[k] = answers[passing[need.sibling, need.offset, need.length]]
                continue
            found[k] = self._headers[need.sibling].find(need.offset, need.length)
            if found[k] is None:
                url = self._headers[need.sibling].source.url
                raise FormatError("the file ends early", url=url, offset=need.offset)
        return tuple(found)

    def look(self, step: FirstSidecar) -> Fetching:
        """Name and Source of the first that is there; None where none is, or they are not sought."""
        names = tuple(check_name(name) for name in step.names if name not in self._headers) if self._sought else ()
        if not names:
            return None
        found = yield Look(names, min(step.head, self._limits.header_bytes))
        if isinstance(found, Refused):
            self.refused += found.names
            found = found.found
        if found is None:
            return None
        name, data, source = found
        self._headers[name] = Header(source, data, self._budget)
        return name, source

    def below(self, step: FolderListing) -> Fetching:
        """Sources by name, in order; or the error that the scanner gets."""
        prefix = check_prefix(step.prefix)
        if not self._sought:
            return FormatError("nothing may be listed beside a URL with parameters, or where siblings=False")
        found = yield Below(prefix, step.deep, self._room)
        if isinstance(found, PeriplusError):
            return found
        listed = dict(sorted(found))
        self._room -= len(listed)
        self._listed |= listed
        return listed

    def used(self, founds: Sequence[Found]) -> tuple[tuple[Source, ...], tuple[int, ...]]:
        """The files that hold or tell of arrays, and for every array the one that holds it, counted from 1; 0 is own.

        The second is empty where the file itself holds all of them.
        """
        names = list(dict.fromkeys(name for found in founds for name in (found.sibling, *found.told_by) if name))
        sources = tuple(self._header(name).source for name in names)
        stored_in = tuple(1 + names.index(found.sibling) if found.sibling else 0 for found in founds)
        return sources, stored_in if any(stored_in) else ()

    def _header(self, name: str) -> Header:
        """What was fetched of a file that is there."""
        header = self._headers.get(name)
        if header is None:
            if check_name(name) not in self._listed or name.endswith("/"):
                raise MissingError("no such file was found", url=name)
            header = self._headers[name] = Header(self._listed[name], b"", self._budget)
        return header


def answer_local(file: LocalFile, path: str, wanted: Wanted, check: Callable[[str], object]) -> Any:
    """What is wanted of a local file, or of those in its folder."""
    folder = path.rpartition("/")[0]
    if isinstance(wanted, Look):
        return _look_local(folder, wanted, check)
    if isinstance(wanted, Below):
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


def _look_local(folder: str, wanted: Look, check: Callable[[str], object]) -> Any:
    refused = []
    found = None
    for name in wanted.names:
        try:
            check(f"{folder}/{name}")
            other = LocalFile(f"{folder}/{name}")
        except (MissingError, FormatError):  # not there, or no file that can be read: a folder, a pipe
            continue
        except DeniedError:
            refused.append(name)
            continue
        found = name, other.read_until_end(0, wanted.length), other.source
        break
    return Refused(refused, found) if refused else found


def _take(found: list[tuple[str, Source]], source: Source, folder: str, most: int) -> None:
    """Add a Source with its path from a folder; LimitError where they are too many."""
    if len(found) == most:
        raise LimitError("the listing has more objects than `listed` in periplus.Limits allows one file", url=folder)
    found.append((source.url[len(folder) :], source))


async def answer_remote(fetch: Fetch, url: str, plain: str, wanted: Wanted) -> Any:
    """What is wanted of a remote object, or of those in its folder; `plain` is its URL without secrets."""
    if isinstance(wanted, Below):
        folder = plain.rpartition("/")[0] + "/"
        below: list[tuple[str, Source]] = []
        try:
            async for source in fetch.below(folder + wanted.prefix, deep=wanted.deep):
                _take(below, source, folder, wanted.most)
            return below
        except (FormatError, DeniedError) as error:
            return error
    if isinstance(wanted, Look):
        # Mostly none of them is there: asked for all at once, they cost the time of one.
        urls = [_beside(url, name) for name in wanted.names]
        async with _running([fetch.read(each, 0, wanted.length) for each in urls]) as tasks:
            return await _first(wanted.names, tasks)
    urls = [_beside(url, each.name) if each.name else url for each in wanted]
    reads = [
        fetch.read(place, each.offset, each.length, expect=each.source)
        for place, each in zip(urls, wanted, strict=True)
    ]
    if len(reads) == 1:
        return [(await reads[0])[0]]
    async with _running(reads) as tasks:
        return [data for data, _ in await asyncio.gather(*tasks)]


def _beside(url: str, name: str) -> str:
    """The URL of a file in the folder of another, or below it."""
    if scheme_of(url) in WEB and ("?" in name or "#" in name):
        raise DeniedError(f"{name!r} is not the name of a file in the folder of this one")
    return f"{url.rpartition('/')[0]}/{name}"


@asynccontextmanager
async def _running(works: Sequence[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """All of them at once; those that still run at the end are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(names: Sequence[str], tasks: Sequence[asyncio.Future[tuple[bytes, Source]]]) -> Any:
    """The first of the files that is there."""
    refused = []
    found = None
    for name, task in zip(names, tasks, strict=True):
        try:
            found = name, *(await task)
            break
        except MissingError:
            continue
        except DeniedError:
            # Stores that may not be listed answer so for what is not there, too.
            refused.append(name)
    return Refused(refused, found) if refused else found
