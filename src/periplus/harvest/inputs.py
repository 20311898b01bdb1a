"""Expand URLs to inputs, one for each file: globs, folders, text lists and STAC documents."""

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
"""Sidecars of images, which a glob that the shell expands includes as well."""
_FILE = re.compile(r"\.[a-z][a-z0-9]*$", re.IGNORECASE)
_JSON = (".json", ".geojson")
_LISTS = (".txt", *_JSON, ".parquet", ".geoparquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file to index, with what is known before it is opened."""

    url: str
    datetime: datetime | None = None
    """Time of the data, from a catalogue."""
    group: str | None = None
    series: str | None = None
    source: Source | None = None
    """Size, etag and modification time from a listing."""
    optional: bool = False
    """From a folder or an open-ended glob, or a sidecar: skipped if its format is not supported."""
    error: PeriplusError | None = None
    """Why there is no file to read: a catalogue item without the requested asset."""


@dataclass(slots=True)
class InputNotes:
    """Warnings and counts of expanding inputs, for the summary."""

    warnings: list[str] = field(default_factory=list)
    skipped: int = 0
    catalogs: int = 0
    """Number of STAC documents that were read."""


async def expand(
    urls: Sequence[str], fetch: Fetch, *, assets: stac.Assets = None, notes: InputNotes | None = None
) -> AsyncIterator[Input]:
    """All files of `urls`, in order.

    A URL is a file; a glob; a folder or bucket (all below it; files of unsupported formats are skipped, and if all are
    JSON, those with STAC items are read); a text file of URLs (`.txt`, one on each line, with comments after `#`); a
    STAC Item, ItemCollection or API response (`.json`, `.geojson`); or stac-geoparquet (`.parquet`). `assets` chooses
    among the assets of STAC items.
    """
    notes = InputNotes() if notes is None else notes
    for url in urls:
        found = 0
        try:
            async for item in _expand_one(url, fetch, assets, notes, lists=True):
                found += 1
                yield item
        except (FormatError, MissingError) as error:
            if len(urls) == 1:
                raise
            found += 1
            yield Input(url=url, error=error)  # one of several documents
        if not found:
            notes.warnings.append(f"nothing matches {redact(url)}")
    if assets is not None and not notes.catalogs:
        raise ValueError("assets= chooses among the assets of STAC items, and none of the inputs is one")


async def _expand_one(
    url: str, fetch: Fetch, assets: stac.Assets, notes: InputNotes, *, lists: bool
) -> AsyncIterator[Input]:
    if not url or "\x00" in url:
        raise FormatError("a path is empty or contains a null character")
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
        yield Input(url=url)  # a file that does not exist becomes a row with an error


async def _is_folder(url: str, fetch: Fetch) -> bool:
    """Whether a URL without a trailing slash and without a file extension is a bucket or a folder in one."""
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
        pass  # reading the file reports it
    return False


async def _found(
    url: str, fetch: Fetch, assets: stac.Assets, notes: InputNotes, *, lists: bool
) -> AsyncIterator[Input]:
    """The files of a listing, or a local file."""
    glob = is_glob(url)
    itself = canonical(url) if is_local(url) else ""
    last = url.rstrip("/").rpartition("/")[2]
    documents: list[Source] | None = []  # JSON files of a folder, as long as there is nothing else in it
    async for source in fetch.find(url):
        whole_folder = last in ("*", "**") if glob else source.url != itself
        any_kind = whole_folder or (glob and last.endswith("*")) or _SIDECAR.search(source.url) is not None
        if glob and lists and not whole_folder and _suffix(source.url) in _LISTS:
            async for item in _one_of_many(source, fetch, assets, notes):
                yield item
        elif lists and whole_folder and documents is not None and _suffix(source.url) in _JSON:
            documents.append(source)
        else:
            for document in documents or ():
                yield Input(url=document.url, source=document, optional=True)
            documents = None
            yield Input(url=source.url, source=source, optional=any_kind)
    for document in documents or ():
        async for item in _one_of_many(document, fetch, assets, notes, optional=True):
            yield item


async def _one_of_many(
    source: Source, fetch: Fetch, assets: stac.Assets, notes: InputNotes, *, optional: bool = False
) -> AsyncIterator[Input]:
    """The files that one of several documents lists; its error is a row."""
    try:
        async for item in _listed(source.url, fetch, assets, notes, optional=optional):
            yield item
    except FormatError as error:
        yield Input(url=source.url, error=error)


async def _listed(
    url: str, fetch: Fetch, assets: stac.Assets, notes: InputNotes, *, optional: bool = False
) -> AsyncIterator[Input]:
    """The files that a document lists; with `optional`, JSON that is not STAC items is skipped."""
    suffix = _suffix(url)
    if suffix == ".txt":
        for line in _lines(await _read_document(url, fetch), url):
            async for item in _expand_one(joined(url, line), fetch, assets, notes, lists=False):
                yield item
        return
    items: Sequence[stac.Item]
    if suffix in (".parquet", ".geoparquet"):
        from periplus.table.records import read_records

        items = await asyncio.to_thread(read_records, url, fetch=fetch, columns=stac.COLUMNS, needed=("assets",))
    else:
        try:
            items = stac.items_of(await _read_document(url, fetch), url)
        except FormatError:
            if not optional:
                raise
            notes.skipped += 1
            return
    notes.catalogs += 1
    count = 0
    bad: list[Input] = []
    for each in items:
        try:
            chosen = _assets(each, assets, url, alone=len(items) == 1)
        except FormatError as error:
            # A bad item among others is one failure; if all are bad, it is an error.
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
        raise FormatError(f"no item has an asset {assets!r}; the assets are {stac.asset_names(items)}", url=url)


def _assets(item: stac.Item, assets: stac.Assets, url: str, *, alone: bool) -> list[Input]:
    """The files of one item."""
    place = stac.base_of(item, url, alone=alone)
    return [
        Input(url=joined(place, asset.href), datetime=asset.datetime, group=asset.group, series=asset.series)
        for asset in stac.choose(item, assets, url)
    ]


async def _read_document(url: str, fetch: Fetch) -> bytes:
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
    """A reference in a document, resolved against its URL; a remote document cannot refer to local files."""
    if is_local(base):
        if not is_local(href) or href.startswith("/") or href[:5].lower() == "file:":
            return href
        folder = canonical(base).rpartition("/")[0]
        return posixpath.normpath(f"{folder}/{href}") + ("/" if href.endswith("/") else "")
    if not is_local(href):
        return href
    if href[:5].lower() == "file:":
        raise DeniedError("a remote document refers to a local file", url=base)
    parts = urlsplit(base)
    path, mark, query = href.partition("?")
    folder = "" if path.startswith("/") else parts.path.rpartition("/")[0]
    # Normalising keeps `..` below the root, so no reference leaves its host or bucket.
    plain = posixpath.normpath("/" + f"{folder}/{path}".lstrip("/"))
    return f"{parts.scheme}://{parts.netloc}{plain}" + ("/" if path.endswith("/") else "") + mark + query


def is_glob(url: str) -> bool:
    """Whether the URL is a glob; the question mark of an HTTP URL begins a query."""
    if scheme_of(url) in WEB:
        return "*" in url.partition("?")[0]
    return _GLOB.search(url) is not None


def is_literal(url: str) -> bool:
    """Whether the URL is exactly one file."""
    return not is_glob(url) and not url.endswith("/") and _suffix(url) not in _LISTS


def _suffix(url: str) -> str:
    path = url if is_local(url) else url.partition("?")[0]
    return posixpath.splitext(path)[1].lower()
