"""Where an index is stored and in which form: by the ending of its name, or by the bytes at its location."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from periplus.errors import MissingError, PeriplusError, redact
from periplus.policy import canonical, is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch

FLAT = (".parquet", ".parq", ".pq", ".geoparquet")
DUCKDB = (".duckdb", ".ddb")
OTHERS = (
    *(".json", ".geojson", ".icechunk", ".zarr", ".csv", ".txt", ".npy", ".gpkg", ".fgb", ".shp", ".kml", ".vrt"),
    *(".tif", ".tiff", ".ntf", ".nitf", ".jp2", ".png", ".jpg", ".jpeg", ".nc", ".h5", ".db", ".sqlite", ".zip"),
)
"""Endings that are never meant as the name of a dataset folder."""
FILES_NAME = "files.parquet"
"""The files table of a dataset."""
KEY = b"array_references"
"""The key of a Parquet footer that holds the document of an index."""
PARQUET_MAGIC = b"PAR1"
LARGEST_FOOTER = 64 << 20
"""Bytes of a Parquet footer that are searched for the key."""
JSON_HEAD = 64 << 10
REFERENCES = (b'"refs"', b'.zgroup"', b'.zarray"', b'zarr.json"')
"""One of these is in the first bytes of kerchunk JSON; STAC items, which are JSON too, have none."""


def path_of(url: str) -> str:
    """A URL without its query, in lower case, to look at its ending; local names may have question marks."""
    return (url if is_local(url) else url.partition("?")[0]).lower()


def form_of(url: str) -> str:
    """`flat`, `duckdb` or `dataset`, by the ending of a URL."""
    path = path_of(url)
    return "flat" if path.endswith(FLAT) else "duckdb" if path.endswith(DUCKDB) else "dataset"


def target_form(url: str) -> str:
    """The form in which an index is written to a URL; ValueError for the name of something else."""
    if url.lower().endswith((*OTHERS, ".icechunk/")):
        raise ValueError(
            f"{redact(url)}: an index is written to a .parquet or .duckdb file or to a folder; end the name of the "
            "folder with a slash if it looks like the name of a file. index.write converts an index to .json or "
            ".icechunk"
        )
    return form_of(url)


def check_parent(url: str) -> None:
    """MissingError where a local target is in a folder that does not exist: it may be misspelled."""
    folder = there = os.path.dirname(canonical(url).rstrip("/")) if is_local(url) else ""
    while there and not os.path.exists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if there != folder and os.path.isdir(there):  # a file there is an error of the writer
        raise MissingError("the folder to write to does not exist; create it, or correct its name", url=url)


def dataset_folder(url: str) -> str:
    """The folder of a dataset, with a slash at its end, from its URL or that of its files table."""
    folder, slash, name = url.rpartition("/")
    return folder + slash if name in ("", FILES_NAME) else url + "/"


def home_of(url: str) -> str:
    """The URL of an index without a closing slash, also where its files.parquet is given."""
    return canonical(url).removesuffix("/").removesuffix("/" + FILES_NAME)


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


def is_index_file(read_end: Callable[[int], bytes]) -> bool:
    """Whether a Parquet file is an index, or the files table of one; `read_end(n)` returns its last `n` bytes."""
    end = read_end(8)
    if len(end) < 8 or end[4:] != PARQUET_MAGIC:
        return False
    length = int.from_bytes(end[:4], "little")
    return length <= LARGEST_FOOTER and KEY in read_end(length + 8)


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
