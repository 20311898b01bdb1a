"""What the tests of tables share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from periplus.fetch import Fetch
from periplus.table import write_table
from periplus.testing.indexes import stacked


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one index in each form: `index.parquet`, `index` and `index.duckdb`, for tests that only read."""
    folder = tmp_path_factory.mktemp("stored")
    catalog, refs, files = stacked(steps=40)
    with Fetch() as fetch:
        for name in ("index.parquet", "index", "index.duckdb"):
            write_table(str(folder / name), catalog, refs.items(), files, fetch=fetch)
    return folder


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    with Fetch() as one:
        yield one
