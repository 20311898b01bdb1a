"""Sidecars: files that hold arrays of another file, or metadata of them; they have rows in the files table too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from periplus.arrange import Arrangement, FileEntry
from periplus.arrange.arrangement import instant
from periplus.model import Files, Source

KEY = "beside"
"""In the arrangement of an index: pairs of a sidecar's row in the files table and the row of the file it is of."""
SIDECAR = "sidecar"
"""The format of a sidecar that holds no pixels."""


def ids_of(entries: Sequence[FileEntry]) -> dict[str, int]:
    """The file id of every sidecar by URL; they come after the entries, and each once, however many share it."""
    urls = dict.fromkeys(source.url for entry in entries for source in entry.sidecars)
    return {url: len(entries) + n for n, url in enumerate(urls)}


def with_sidecars(laid: Arrangement, entries: Sequence[FileEntry]) -> Arrangement:
    """The arrangement with the sidecars of its entries, as rows that follow theirs."""
    ids = ids_of(entries)
    if not ids:
        return laid
    files = laid.files
    rows = {url: number for number, url in enumerate(files.path)}
    sources: dict[str, Source] = {}
    formats: dict[str, str] = {}
    taken: dict[str, datetime | None] = {}
    pairs = []
    for entry in entries:
        for number, source in enumerate(entry.sidecars, 1):
            sources[source.url] = source
            if number in entry.stored_in:
                formats[source.url], taken[source.url] = entry.format, entry.datetime
            pairs.append([ids[source.url], rows[entry.source.url]])
    added = [sources[url] for url in ids]
    arrangement = {**laid.catalog.arrangement, KEY: pairs}
    return replace(
        laid,
        catalog=replace(laid.catalog, arrangement=arrangement),
        files=Files.joined(
            files,
            Files(
                path=list(ids),
                size=np.array([-1 if s.size is None else s.size for s in added], np.int64),
                etag=[source.etag for source in added],
                last_modified=np.array([instant(source.last_modified) for source in added], "datetime64[us]"),
                datetime=np.array([instant(taken.get(url)) for url in ids], "datetime64[us]"),
                format=[formats.get(url, SIDECAR) for url in ids],
                status=["ok"] * len(added),
                error=[None] * len(added),
            ),
        ),
    )


def listed(arrangement: Mapping[str, Any], count: int) -> dict[int, list[int]]:
    """Rows of the sidecars of every row, as an index of `count` files tells; what is no such pair is passed over."""
    found: dict[int, list[int]] = {}
    pairs = arrangement.get(KEY)
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        sound = isinstance(pair, list | tuple) and len(pair) == 2 and all(type(n) is int for n in pair)
        if sound and all(0 <= n < count for n in pair):
            found.setdefault(pair[1], []).append(pair[0])
    return found


KnownSidecars = Callable[[str], Sequence[Source]]
"""The sidecars that a file of that URL had in an earlier run."""
