"""Files beside the one that is scanned: which of them are there, and the parts of them that were fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from periplus.errors import DeniedError, FormatError, MissingError
from periplus.fetch import Fetch, LocalFile
from periplus.harvest.head import Header
from periplus.limits import Limits
from periplus.model import Beside, Found, Need, Source


class Wanted(NamedTuple):
    """Bytes to fetch.

    Those of the file itself are answered with bytes. With `names`, the first of these files beside it that is there is
    meant: the answer is its name, bytes and facts, or None. With `expect` too it is known to be there, and the answer
    is its bytes.
    """

    offset: int
    length: int
    names: tuple[str, ...] = ()
    expect: Source | None = None


Fetching = Generator[Wanted, Any, Any]


class Siblings:
    """What is known of the files beside one."""

    def __init__(self, limits: Limits, *, sought: bool = True) -> None:
        self._limits, self._sought = limits, sought
        self._headers: dict[str, Header] = {}
        self.refused: list[str] = []
        """Names that we were not allowed to look at."""

    def look(self, step: Beside) -> Fetching:
        """Name and Source of the first that is there; None where none is, or they are not sought."""
        names = tuple(name for name in step.names if name not in self._headers) if self._sought else ()
        if not names:
            return None
        found = yield Wanted(0, min(step.head, self._limits.header_bytes), names)
        if isinstance(found, Refused):
            self.refused += found.names
            found = found.found
        if found is None:
            return None
        name, data, source = found
        self._headers[name] = Header(source, data, most=self._limits.header_bytes)
        return name, source

    def answer(self, step: Need) -> Fetching:
        """Bytes of a file that is there."""
        header = self._headers[step.sibling]
        return (yield from held(header, step, (step.sibling,), header.source))

    def used(self, founds: list[Found]) -> tuple[tuple[Source, ...], tuple[int, ...]]:
        """The files that hold or tell of arrays, and for every array the one that holds it, counted from 1; 0 is own.

        The second is empty where the file itself holds all of them.
        """
        names = list(dict.fromkeys(name for found in founds for name in (found.sibling, *found.told_by) if name))
        sources = tuple(self._headers[name].source for name in names)
        homes = tuple(1 + names.index(found.sibling) if found.sibling else 0 for found in founds)
        return sources, homes if any(homes) else ()


class Refused(NamedTuple):
    """Files beside one that we may not look at, and the one found among the others."""

    names: list[str]
    found: tuple[str, bytes, Source] | None


def held(header: Header, step: Need, names: tuple[str, ...] = (), expect: Source | None = None) -> Fetching:
    """The bytes a scanner needs, from memory or fetched."""
    data = header.find(step.offset, step.length)
    if data is None and step.passing:
        size = header.source.size
        length = step.length if size is None else min(step.length, size - step.offset)
        return (yield Wanted(step.offset, length, names, expect))
    if data is None:
        start, length = header.want(step.offset, step.length, sparse=step.sparse)
        header.put(start, (yield Wanted(start, length, names, expect)))
        data = header.find(step.offset, step.length)
        if data is None:
            raise FormatError("the file ends early", url=header.source.url, offset=step.offset)
    return data


def answer_local(file: LocalFile, path: str, wanted: Wanted, check: Callable[[str], object]) -> Any:
    """What is wanted of a local file, or of those in its folder."""
    if not wanted.names:
        return file.read_until_end(wanted.offset, wanted.length)
    folder = path.rpartition("/")[0]
    refused = []
    found = None
    for name in wanted.names:
        try:
            check(f"{folder}/{name}")
            other = LocalFile(f"{folder}/{name}", wanted.expect)
        except (MissingError, FormatError) as error:  # not there, or no file that can be read: a folder, a pipe
            if wanted.expect is not None:
                raise error from None
            continue
        except DeniedError:
            refused.append(name)
            continue
        data = other.read_until_end(wanted.offset, wanted.length)
        if wanted.expect is not None:
            return data
        found = name, data, other.source
        break
    return Refused(refused, found) if refused else found


async def answer_remote(fetch: Fetch, url: str, source: Source, wanted: Wanted) -> Any:
    """What is wanted of a remote object, or of those in its folder; one that is not there costs one request."""
    if not wanted.names:
        return (await fetch.read(url, wanted.offset, wanted.length, expect=source))[0]
    folder = url.rpartition("/")[0]
    if wanted.expect is not None:
        return (await fetch.read(f"{folder}/{wanted.names[0]}", wanted.offset, wanted.length, expect=wanted.expect))[0]
    # Mostly none of them is there: asked for all at once, they cost the time of one.
    tasks = [
        asyncio.ensure_future(fetch.read(f"{folder}/{name}", wanted.offset, wanted.length)) for name in wanted.names
    ]
    try:
        return await _first(wanted.names, tasks)
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
