"""Where an index of ours is stored: the endings of its name, its folder, and whether a Parquet file is one."""

from __future__ import annotations

from collections.abc import Callable

from periplus.errors import redact
from periplus.policy import canonical, is_local

FLAT = (".parquet", ".parq", ".pq", ".geoparquet")
DUCKDB = (".duckdb", ".ddb")
OTHERS = (".json", ".geojson", ".icechunk", ".zarr", ".csv", ".txt", ".tif", ".tiff", ".npy", ".png", ".gpkg", ".vrt")
"""Endings that are never meant as the name of a dataset folder."""
FILES_NAME = "files.parquet"
"""The files table of a dataset."""
KEY = b"array_references"
"""The key of a Parquet footer that holds the document of an index."""
PARQUET_MAGIC = b"PAR1"
LARGEST_FOOTER = 64 << 20
"""Bytes of a Parquet footer that are searched for the key."""


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


def dataset_folder(url: str) -> str:
    """The folder of a dataset, with a slash at its end, from its URL or that of its files table."""
    folder, slash, name = url.rpartition("/")
    return folder + slash if name in ("", FILES_NAME) else url + "/"


def home_of(url: str) -> str:
    """The URL of an index without a closing slash, also where its files.parquet is given."""
    return canonical(url).removesuffix("/").removesuffix("/" + FILES_NAME)


def is_index_file(read_end: Callable[[int], bytes]) -> bool:
    """Whether a Parquet file is an index, or the files table of one; `read_end(n)` returns its last `n` bytes."""
    end = read_end(8)
    if len(end) < 8 or end[4:] != PARQUET_MAGIC:
        return False
    length = int.from_bytes(end[:4], "little")
    return length <= LARGEST_FOOTER and KEY in read_end(length + 8)
