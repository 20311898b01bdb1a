"""Scan one file: recognise its format, answer the needs of its scanner from memory, and fetch what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from periplus import scan
from periplus.errors import FormatError, PeriplusError, redact
from periplus.fetch import Fetch, LocalFile
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.head import FetchedHeader, HeaderBudget, HeadSize
from periplus.harvest.scanning.requests import ScanRequests, Wanted, answer_local, answer_remote
from periplus.limits import Limits, out_of_memory
from periplus.model import About, FirstSidecar, FolderListing, Found, Need, Source

Ranges: TypeAlias = Generator[Wanted, Any, "Harvested"]
HEADERS = "the headers of this file"
"""What a MemoryError in a scan is reported for."""

_URL_PARAMETERS = re.compile("[?;]|%3B", re.IGNORECASE)
"""Start of the parameters of a URL."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Harvested:
    """One file: its source, and either the arrays that were found or why it could not be read."""

    input: Input
    source: Source
    format: str = ""
    datetime: datetime | None = None
    """Time of the data: from the catalogue if it has one, otherwise from the file."""
    founds: tuple[Found, ...] = ()
    sidecars: tuple[Source, ...] = ()
    """Files that hold some of its arrays, or metadata of them."""
    stored_in: tuple[int, ...] = ()
    """For each array the sidecar with its bytes, counted from 1, or 0 for the file itself; empty if all are 0."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """`kind: message`."""
    raised: PeriplusError | None = None
    reused: bool = False
    """Unchanged since an earlier run: it was not read, and `founds` is empty."""
    skipped: bool = False
    """Optional, and not of a supported format."""
    nameless: bool = False
    """Its URL cannot be stored in an index."""
    number: int = -1
    """Position in the order of the inputs."""

    @property
    def group(self) -> str | None:
        return self.input.group


def scanned(
    item: Input,
    source: Source,
    head: bytes,
    size: HeadSize,
    limits: Limits,
    *,
    number: int = -1,
    look_for_sidecars: bool = True,
) -> Ranges:
    """Scan a file; a generator that yields what must be fetched, receives it, and returns the scanned file."""
    scanner = scan.sniff(head)
    if scanner is None:
        if item.optional:
            return Harvested(input=item, source=source, skipped=True, number=number)
        what = "the file is empty" if not head else "unsupported format"
        raise FormatError(what, url=source.url)
    founds: list[Found] = []
    about = About()
    budget = HeaderBudget(limits.header_bytes)
    header = FetchedHeader(source, head, budget)
    requests = ScanRequests(header, budget, limits, look_for_sidecars=look_for_sidecars)
    steps = scanner.scan(source, limits)
    try:
        step = next(steps)
        while True:
            if type(step) is Need:
                step = steps.send((yield from requests.need(step)))
            elif isinstance(step, tuple | list):
                step = steps.send((yield from requests.round(step)))
            elif type(step) is FirstSidecar:
                step = steps.send((yield from requests.look(step)))
            elif type(step) is FolderListing:
                listed = yield from requests.below(step)
                step = steps.throw(listed) if isinstance(listed, PeriplusError) else steps.send(listed)
            else:
                if type(step) is Found:
                    founds.append(step)
                elif type(step) is About:
                    about = step
                step = next(steps)
    except StopIteration:
        pass
    except PeriplusError as error:
        raise error.at(url=source.url) from None
    if not founds and not about.attributes:
        raise FormatError("there is no image or array in this file", url=source.url)
    size.observe(header.end)
    sidecars, stored_in = requests.used(founds)
    return Harvested(
        input=item,
        source=source,
        format=scanner.NAME,
        datetime=item.datetime or about.datetime,
        founds=tuple(founds),
        sidecars=sidecars,
        stored_in=stored_in,
        attributes={**about.attributes, "siblings_refused": requests.refused} if requests.refused else about.attributes,
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
    """A file that could not be read, with the reason."""
    source = source or item.source or Source(url=url or _URL_PARAMETERS.split(redact(item.url))[0])
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
    look_for_sidecars: bool = True,
    check: Callable[[str], object] = str,
) -> Harvested:
    """Scan a local file without an event loop; `check` raises for sidecars that may not be opened."""
    source = None
    try:
        file = LocalFile(path)
        source = file.source
        head = file.read_until_end(0, min(size.size, limits.header_bytes))
        ranges = scanned(item, source, head, size, limits, number=number, look_for_sidecars=look_for_sidecars)
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
    look_for_sidecars: bool = True,
) -> Harvested:
    """Scan a remote object: the first response has the header and etag; later ones must be of the same object."""
    source = None
    try:
        head, source = await fetch.read(item.url, 0, min(size.size, limits.header_bytes))
        if source.size is None:  # not every server gives the size with a range, and scanners read ahead
            source = replace(source, size=(await fetch.head(item.url)).size)
        has_folder = "?" not in item.url
        ranges = scanned(
            item, source, head, size, limits, number=number, look_for_sidecars=look_for_sidecars and has_folder
        )
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
