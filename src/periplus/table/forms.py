"""Which form an index has, by the ending of its name: one file, a DuckDB database, or a dataset in a folder."""

from __future__ import annotations

from periplus.errors import FormatError
from periplus.policy import canonical

FLAT = (".parquet", ".parq", ".pq", ".geoparquet")
DUCKDB = (".duckdb", ".ddb")
OTHERS = (".json", ".geojson", ".icechunk", ".zarr", ".csv", ".txt", ".tif", ".tiff", ".npy", ".png", ".gpkg", ".vrt")
"""Endings of files, and of stores, that nobody means as the name of a folder."""
FILES_NAME = "files.parquet"
"""Of the files table of a dataset."""


def form_of(url: str) -> str:
    """`flat`, `duckdb` or `dataset`, by the ending of a URL."""
    path = url.partition("?")[0].lower()
    return "flat" if path.endswith(FLAT) else "duckdb" if path.endswith(DUCKDB) else "dataset"


def target_form(url: str) -> str:
    """The form in which an index is written to a URL; FormatError for the name of something else."""
    if url.lower().endswith((*OTHERS, ".icechunk/")):
        raise FormatError(
            "an index goes into a .parquet or .duckdb file, or a folder, whose name ends in a slash if it looks like a "
            "file; index.write makes .json and .icechunk of an index that is there",
            url=url,
        )
    return form_of(url)


def home_of(url: str) -> str:
    """The name an index goes by, whether its folder, its folder with a slash or its files.parquet is given."""
    return canonical(url).removesuffix("/").removesuffix("/" + FILES_NAME)
