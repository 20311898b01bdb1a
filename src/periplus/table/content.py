"""What is at a location, by its bytes: which form of an index."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from periplus.errors import MissingError, PeriplusError
from periplus.policy import canonical, is_local
from periplus.table.location import FILES_NAME, is_index_file

if TYPE_CHECKING:
    from periplus.fetch import Fetch

JSON_HEAD = 64 << 10
REFERENCES = (b'"refs"', b'.zgroup"', b'.zarray"', b'zarr.json"')
"""One of these is in the first bytes of kerchunk JSON; STAC items, which are JSON too, have none."""


class Content:
    """The bytes at a location by which its form is recognised; empty where there are none.

    Nothing is read before it is asked for. Without `fetch`, remote locations are not accessed and have no bytes. Errors
    of a store count as no bytes, unless `strict`, where only a missing object does.
    """

    def __init__(self, url: str, fetch: Fetch | None = None, *, strict: bool = False) -> None:
        self._url = canonical(url).removesuffix("/")
        self._fetch = fetch
        self._accepted = MissingError if strict else PeriplusError

    def start(self, length: int, *, name: str = "") -> bytes:
        """The first bytes of the file, or of the file `name` in the folder."""
        url = self._location(name)
        if is_local(url):
            return _local_bytes(url, length, end=False)
        return self._fetched(lambda fetch: fetch.read(url, 0, length))

    def end(self, length: int, *, name: str = "") -> bytes:
        """The last bytes of the file, or of the file `name` in the folder."""
        url = self._location(name)
        if is_local(url):
            return _local_bytes(url, length, end=True)
        return self._fetched(lambda fetch: fetch.tail(url, length))

    def _location(self, name: str) -> str:
        return f"{self._url}/{name}" if name else self._url

    def _fetched(self, read: Callable[[Fetch], Any]) -> bytes:
        if self._fetch is None:
            return b""
        try:
            data: bytes = self._fetch.run(read(self._fetch))[0]
        except self._accepted:
            return b""
        return data


def _local_bytes(path: str, length: int, *, end: bool) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for who writes to it
            return b""
        with open(path, "rb") as file:
            if end:
                file.seek(max(0, file.seek(0, 2) - length))
            return file.read(length)
    except OSError:
        return b""


def is_flat(content: Content) -> bool:
    """Whether there is a Parquet file whose footer describes an index."""
    return is_index_file(content.end)


def is_dataset(content: Content) -> bool:
    """Whether there is a folder with the files table of an index."""
    return is_index_file(partial(content.end, name=FILES_NAME))


def is_duckdb(content: Content) -> bool:
    """Whether there is a DuckDB file."""
    return content.start(12)[8:] == b"DUCK"


def is_json_references(content: Content) -> bool:
    """Whether there is a JSON file with kerchunk references."""
    head = content.start(JSON_HEAD)
    return head.lstrip()[:1] == b"{" and any(mark in head for mark in REFERENCES)
