"""Sidecars: files that hold arrays of another file, or metadata of them; they have rows in the files table too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from periplus.arrange import Arrangement, FileEntry
from periplus.model import Files, Source
from periplus.model.files import instants

KEY = "beside"
"""In the arrangement of an index: pairs of rows of the files table, a sidecar and the file it belongs to."""
SIDECAR = "sidecar"
"""The format of a sidecar that holds no pixels."""


def sidecar_ids(entries: Sequence[FileEntry]) -> dict[str, int]:
    """The file id of each sidecar by URL; they follow the entries, and a shared sidecar has one id."""
    urls = dict.fromkeys(source.url for entry in entries for source in entry.sidecars)
    return {url: len(entries) + n for n, url in enumerate(urls)}


def with_sidecars(arrangement: Arrangement, entries: Sequence[FileEntry]) -> Arrangement:
    """The arrangement with rows for the sidecars of its entries, after those of the entries."""
    ids = sidecar_ids(entries)
    if not ids:
        return arrangement
    files = arrangement.files
    rows = {url: number for number, url in enumerate(files.path)}
    sources: dict[str, Source] = {}
    formats: dict[str, str] = {}
    times: dict[str, datetime | None] = {}
    pairs = []
    for entry in entries:
        for number, source in enumerate(entry.sidecars, 1):
            sources[source.url] = source
            if number in entry.stored_in:
                formats[source.url], times[source.url] = entry.format, entry.datetime
            pairs.append([ids[source.url], rows[entry.source.url]])
    catalog = arrangement.catalog
    return replace(
        arrangement,
        catalog=replace(catalog, arrangement={**catalog.arrangement, KEY: pairs}),
        files=Files.joined(
            files,
            Files.of(
                (sources[url] for url in ids),
                format=[formats.get(url, SIDECAR) for url in ids],
                datetime=instants(times.get(url) for url in ids),
            ),
        ),
    )


def stored_sidecars(arrangement: Mapping[str, Any], count: int) -> dict[int, list[int]]:
    """Rows of the sidecars of each row, as recorded in an index of `count` files; invalid pairs are ignored."""
    found: dict[int, list[int]] = {}
    pairs = arrangement.get(KEY)
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        valid = isinstance(pair, list | tuple) and len(pair) == 2 and all(type(n) is int for n in pair)
        if valid and all(0 <= n < count for n in pair):
            found.setdefault(pair[1], []).append(pair[0])
    return found


KnownSidecars = Callable[[str], Sequence[Source]]
"""The sidecars that a file had in an earlier run, by its URL."""
