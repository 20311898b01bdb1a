"""What was asked for, one file at a time: globs, folders, text lists and STAC documents become inputs."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from periplus.errors import DeniedError, FormatError, LimitError, MissingError, PeriplusError, redact
from periplus.fetch import Fetch
from periplus.harvest import stac
from periplus.model import Source
from periplus.policy import WEB, canonical, is_local, scheme_of

LIST_BYTES = 512 << 20
"""Largest text list or STAC document that is read."""
_GLOB = re.compile(r"[*?\[]")
_SIDECAR = re.compile(r"\.(aux\.xml|prj|wld|tfw|tiff?w|jgw|jpe?gw|pgw|pngw|j2w|jp2w)$", re.IGNORECASE)
"""Files that lie beside images and tell of them; a shell that spells out a glob names them too."""
_FILE = re.compile(r"\.[a-z][a-z0-9]*$", re.IGNORECASE)
_LISTS = (".txt", ".json", ".geojson", ".parquet", ".geoparquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file to index, and what is known of it before it is opened."""

    url: str
    datetime: datetime | None = None
    """When the data were taken, as a catalogue says."""
    group: str | None = None
    series: str | None = None
    source: Source | None = None
    """Facts from a listing."""
    optional: bool = False
    """From a whole folder, by a glob with an open end, or a sidecar: passed over when it is no format we know."""
    error: PeriplusError | None = None
    """Why there is no file to read: an item of a catalogue without what was asked for."""


@dataclass(slots=True)
class Notes:
    """What expanding noticed, for the summary."""

    warnings: list[str] = field(default_factory=list)
    skipped: int = 0
    catalogs: int = 0
    """STAC documents that were read."""


async def expand(
    urls: Sequence[str], fetch: Fetch, *, assets: stac.Assets = None, notes: Notes | None = None
) -> AsyncIterator[Input]:
    """Every file that `urls` name, in order.

    A URL is a file; a glob; a folder or bucket (all below it; files of unknown formats are passed over); a text file of
    URLs (`.txt`, one a line, `#` begins a comment); a STAC Item, ItemCollection or API response (`.json`, `.geojson`);
    or stac-geoparquet (`.parquet`). `assets` chooses among the assets of STAC items.
    """
    notes = Notes() if notes is None else notes
    for url in urls:
        found = 0
        async for item in _expand_one(url, fetch, assets, notes, lists=True):
            found += 1
            yield item
        if not found:
            notes.warnings.append(f"nothing matches {redact(url)}")
    if assets is not None and not notes.catalogs:
        raise ValueError("assets= chooses among the assets of STAC items, and none of the inputs holds any")


async def _expand_one(
    url: str, fetch: Fetch, assets: stac.Assets, notes: Notes, *, lists: bool
) -> AsyncIterator[Input]:
    if not url or "\x00" in url:
        raise FormatError("an empty or unreadable path was given")
    local, glob = is_local(url), is_glob(url)
    if lists and not glob and _suffix(url) in _LISTS:
        async for item in _listed(url, fetch, assets, notes):
            yield item
        return
    if not local and not glob and not url.endswith("/"):
        if not (lists and await _is_folder(url, fetch)):
            yield Input(url=url, optional=_SIDECAR.search(url) is not None)
            return
        url += "/"
    try:
        async for item in _found(url, fetch, assets, notes, lists=lists):
            yield item
    except MissingError:
        if not local or glob or url.endswith("/"):
            raise
        yield Input(url=url)  # a plain name that is absent: it becomes a row that says so


async def _is_folder(url: str, fetch: Fetch) -> bool:
    """Whether a URL without a slash at its end, nor the suffix of a file, names a bucket or a folder of one."""
    if scheme_of(url) in WEB or _FILE.search(url):
        return False
    if not url.partition("://")[2].partition("/")[2]:
        return True
    try:
        await fetch.head(url)
    except MissingError:
        async for _ in fetch.find(url + "/"):
            return True
    except PeriplusError:
        pass  # said where the file itself is asked for
    return False


async def _found(url: str, fetch: Fetch, assets: stac.Assets, notes: Notes, *, lists: bool) -> AsyncIterator[Input]:
    """A listing, or a local file with its facts."""
    glob = is_glob(url)
    itself = canonical(url) if is_local(url) else ""
    last = url.rstrip("/").rpartition("/")[2]
    async for source in fetch.find(url):
        whole_folder = last in ("*", "**") if glob else source.url != itself
        any_kind = whole_folder or (glob and last.endswith("*")) or _SIDECAR.search(source.url) is not None
        if glob and lists and not whole_folder and _suffix(source.url) in _LISTS:
            try:
                async for item in _listed(source.url, fetch, assets, notes):
                    yield item
            except FormatError as error:  # one document of many
                yield Input(url=source.url, error=error)
        else:
            yield Input(url=source.url, source=source, optional=any_kind)


async def _listed(url: str, fetch: Fetch, assets: stac.Assets, notes: Notes) -> AsyncIterator[Input]:
    """The files a document names."""
    suffix = _suffix(url)
    if suffix == ".txt":
        for line in _lines(await _whole(url, fetch), url):
            async for item in _expand_one(joined(url, line), fetch, assets, notes, lists=False):
                yield item
        return
    items: Sequence[stac.Item]
    if suffix in (".parquet", ".geoparquet"):
        from periplus.table.parquet.records import read_records

        items = await asyncio.to_thread(read_records, url, fetch=fetch, columns=stac.COLUMNS, needed=("assets",))
    else:
        items = stac.items_of(await _whole(url, fetch), url)
    notes.catalogs += 1
    count = 0
    bad: list[Input] = []
    for each in items:
        try:
            chosen = _assets(each, assets, url, alone=len(items) == 1)
        except FormatError as error:
            # One item of many is one failure; where all of them are, the request is at fault.
            bad.append(Input(url=url, error=error))
            continue
        if not chosen:
            notes.skipped += 1
        for item in chosen:
            count += 1
            yield item
    if bad and not count:
        raise bad[0].error or FormatError("no item can be read", url=url)
    for item in bad:
        yield item
    if items and not count:
        raise FormatError(f"no item has an asset {assets!r}; there are {stac.asset_names(items)}", url=url)


def _assets(item: stac.Item, assets: stac.Assets, url: str, *, alone: bool) -> list[Input]:
    """The files of one item."""
    place = stac.base_of(item, url, alone=alone)
    return [
        Input(url=joined(place, asset.href), datetime=asset.datetime, group=asset.group, series=asset.series)
        for asset in stac.choose(item, assets, url)
    ]


async def _whole(url: str, fetch: Fetch) -> bytes:
    data, source = await fetch.read(url, 0, LIST_BYTES)
    if source.size is not None and source.size > LIST_BYTES:
        raise LimitError(f"the list is {source.size} bytes, over the limit of {LIST_BYTES}", url=url)
    return data


def _lines(data: bytes, url: str) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError("the list of URLs is not UTF-8 text", url=url, offset=error.start) from None
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def joined(base: str, href: str) -> str:
    """A reference in a document against the document's own place; a remote document never names local files."""
    if is_local(base):
        if not is_local(href) or href.startswith("/") or href[:5].lower() == "file:":
            return href
        folder = canonical(base).rpartition("/")[0]
        return posixpath.normpath(f"{folder}/{href}") + ("/" if href.endswith("/") else "")
    if not is_local(href):
        return href
    if href[:5].lower() == "file:":
        raise DeniedError("a remote document names a local file", url=base)
    parts = urlsplit(base)
    path, mark, query = href.partition("?")
    folder = "" if path.startswith("/") else parts.path.rpartition("/")[0]
    # Normalising keeps `..` below the root, so no reference leads out of its host or bucket.
    plain = posixpath.normpath("/" + f"{folder}/{path}".lstrip("/"))
    return f"{parts.scheme}://{parts.netloc}{plain}" + ("/" if path.endswith("/") else "") + mark + query


def is_glob(url: str) -> bool:
    """Whether the URL is a pattern; the question mark of a web address is none."""
    if scheme_of(url) in WEB:
        return "*" in url.partition("?")[0]
    return _GLOB.search(url) is not None


def is_literal(url: str) -> bool:
    """Whether the URL names exactly one file."""
    return not is_glob(url) and not url.endswith("/") and _suffix(url) not in _LISTS


def _suffix(url: str) -> str:
    path = url if is_local(url) else url.partition("?")[0]
    return posixpath.splitext(path)[1].lower()
