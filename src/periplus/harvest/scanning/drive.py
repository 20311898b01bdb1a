"""One file through its scanner: sniff, answer what it needs from memory, ask the world only for what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from periplus import scan
from periplus.errors import FormatError, PeriplusError, redact
from periplus.fetch import Fetch, LocalFile
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.head import Budget, Header, HeadSize
from periplus.harvest.scanning.requests import Asked, Wanted, answer_local, answer_remote
from periplus.limits import Limits, out_of_memory
from periplus.model import About, FirstSidecar, FolderListing, Found, Need, Source

Ranges: TypeAlias = Generator[Wanted, Any, "Harvested"]
HEADERS = "the headers of this file"
"""What a scan may lack memory for."""

_NAKED = re.compile("[?;]|%3B", re.IGNORECASE)
"""Where the parameters of a URL begin."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Harvested:
    """One file as harvested: its facts, and either what was found in it or why it could not be read."""

    input: Input
    source: Source
    format: str = ""
    datetime: datetime | None = None
    """When the data were taken: as its catalogue says, else as the file says."""
    founds: tuple[Found, ...] = ()
    sidecars: tuple[Source, ...] = ()
    """Files beside it that hold or tell of some of its arrays."""
    stored_in: tuple[int, ...] = ()
    """For every array the sidecar that holds its bytes, counted from 1, or 0 for the file itself; empty if all 0."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """`kind: message`."""
    raised: PeriplusError | None = None
    reused: bool = False
    """Known from an earlier run and unchanged: nothing was read, `founds` is empty."""
    skipped: bool = False
    """Came with a whole folder and is no format we know."""
    nameless: bool = False
    """The URL is one that no index may store."""
    number: int = -1
    """Place in the order asked for."""

    @property
    def group(self) -> str | None:
        return self.input.group


def scanned(
    item: Input, source: Source, head: bytes, size: HeadSize, limits: Limits, *, number: int = -1, siblings: bool = True
) -> Ranges:
    """Yields what must be fetched, takes the answers, and returns the file as harvested."""
    scanner = scan.sniff(head)
    if scanner is None:
        if item.optional:
            return Harvested(input=item, source=source, skipped=True, number=number)
        what = "the file is empty" if not head else "this is no format we read"
        raise FormatError(what, url=source.url)
    founds: list[Found] = []
    about = About()
    budget = Budget(limits.header_bytes)
    header = Header(source, head, budget)
    asked = Asked(header, budget, limits, sought=siblings)
    steps = scanner.scan(source, limits)
    try:
        step = next(steps)
        while True:
            if type(step) is Need:
                step = steps.send((yield from asked.need(step)))
            elif isinstance(step, tuple | list):
                step = steps.send((yield from asked.round(step)))
            elif type(step) is FirstSidecar:
                step = steps.send((yield from asked.look(step)))
            elif type(step) is FolderListing:
                listed = yield from asked.below(step)
                step = steps.throw(listed) if isinstance(listed, PeriplusError) else steps.send(listed)
            else:
                if type(step) is Found:
                    founds.append(step)
                elif type(step) is About:
                    about = step
                step = next(steps)
    except StopIteration:
        pass
    if not founds:
        raise FormatError("there is no image or array in this file", url=source.url)
    size.observe(header.end)
    sidecars, stored_in = asked.used(founds)
    return Harvested(
        input=item,
        source=source,
        format=scanner.NAME,
        datetime=item.datetime or about.datetime,
        founds=tuple(founds),
        sidecars=sidecars,
        stored_in=stored_in,
        attributes={**about.attributes, "siblings_refused": asked.refused} if asked.refused else about.attributes,
        number=number,
    )


def failed(
    item: Input,
    error: PeriplusError,
    source: Source | None = None,
    *,
    url: str | None = None,
    number: int = -1,
    nameless: bool = False,
) -> Harvested:
    """A file that could not be read, as a row that says why."""
    source = source or item.source or Source(url=url or _NAKED.split(redact(item.url))[0])
    return Harvested(
        input=item,
        source=source,
        datetime=item.datetime,
        error=f"{error.kind}: {error.message}" + (f" @ {error.offset}" if error.offset is not None else ""),
        raised=error,
        nameless=nameless,
        number=number,
    )


def harvest_local(
    item: Input,
    path: str,
    size: HeadSize,
    limits: Limits,
    *,
    number: int = -1,
    siblings: bool = True,
    check: Callable[[str], object] = str,
) -> Harvested:
    """A local file: opened once, read by `pread`, no event loop in between; `check` says if others may be opened."""
    source = None
    try:
        file = LocalFile(path)
        source = file.source
        head = file.read_until_end(0, min(size.size, limits.header_bytes))
        ranges = scanned(item, source, head, size, limits, number=number, siblings=siblings)
        try:
            wanted = next(ranges)
            while True:
                wanted = ranges.send(answer_local(file, path, wanted, check))
        except StopIteration as end:
            result: Harvested = end.value
            return result
    except PeriplusError as error:
        return failed(item, error.at(url=path), source, url=path, number=number)
    except MemoryError:
        return failed(item, out_of_memory(HEADERS, url=path), source, url=path, number=number)


async def harvest_remote(
    item: Input,
    plain: str,
    fetch: Fetch,
    size: HeadSize,
    limits: Limits,
    *,
    number: int = -1,
    siblings: bool = True,
) -> Harvested:
    """A remote object: the first response gives header and facts; later ones must be of the same object."""
    source = None
    try:
        head, source = await fetch.read(item.url, 0, min(size.size, limits.header_bytes))
        beside = siblings and "?" not in item.url
        ranges = scanned(item, source, head, size, limits, number=number, siblings=beside)
        try:
            wanted = next(ranges)
            while True:
                wanted = ranges.send(await answer_remote(fetch, item.url, plain, wanted))
        except StopIteration as end:
            result: Harvested = end.value
            return result
    except PeriplusError as error:
        return failed(item, error.at(url=plain), source, url=plain, number=number)
    except MemoryError:
        return failed(item, out_of_memory(HEADERS, url=plain), source, url=plain, number=number)
