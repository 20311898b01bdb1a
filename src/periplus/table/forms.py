"""Which form an index has, by the ending of its name: one file, a DuckDB database, or a dataset in a folder."""

from __future__ import annotations

from periplus.policy import canonical

FLAT = (".parquet", ".parq", ".pq", ".geoparquet")
DUCKDB = (".duckdb", ".ddb")
FILES_NAME = "files.parquet"
"""Of the files table of a dataset."""


def form_of(url: str) -> str:
    """`flat`, `duckdb` or `dataset`, by the ending of a URL."""
    path = url.partition("?")[0].lower()
    return "flat" if path.endswith(FLAT) else "duckdb" if path.endswith(DUCKDB) else "dataset"


def home_of(url: str) -> str:
    """The name an index goes by, whether its folder, its folder with a slash or its files.parquet is given."""
    return canonical(url).removesuffix("/").removesuffix("/" + FILES_NAME)
