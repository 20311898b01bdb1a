"""Every form of an index gives back what was written."""

from __future__ import annotations

import numpy as np
import pytest

from periplus.model import Array, Catalog, Files, Refs, chunk_positions
from periplus.table import memory_table, open_table, write_table


def small(paths: list[str]) -> tuple[Catalog, Refs, Files]:
    array = Array(
        name="0/data",
        dims=("time", "y", "x"),
        shape=(len(paths), 40, 50),
        chunks=(1, 10, 20),
        dtype=np.dtype(np.uint16),
    )
    chunk = chunk_positions(array.grid)
    count = chunk.shape[1]
    refs = Refs(
        chunk=chunk,
        offset=np.arange(count, dtype=np.int64) * 100,
        length=np.full(count, 90, np.int64),
        file=chunk[0].copy(),
    )
    n = len(paths)
    files = Files(
        path=paths,
        size=np.full(n, 10_000, np.int64),
        etag=['"e"'] * n,
        last_modified=np.full(n, "NaT", "datetime64[us]"),
        datetime=np.full(n, "NaT", "datetime64[us]"),
        format=["tiff"] * n,
        status=["ok"] * n,
        error=[None] * n,
    )
    return Catalog(arrays={array.name: array}), refs, files


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_a_written_index_gives_back_its_rows_in_c_order(tmp_path, fetch, name):
    catalog, refs, files = small([str(tmp_path / f"{i}.tif") for i in range(3)])
    shuffled = refs.take(np.random.default_rng(1).permutation(len(refs)))
    write_table(str(tmp_path / name), catalog, [("0/data", shuffled)], files, fetch=fetch)
    table = open_table(str(tmp_path / name), fetch=fetch)
    for window in (None, [(1, 2), (0, 3), (1, 3)]):
        want = memory_table(catalog, {"0/data": shuffled}, files).refs("0/data", window)
        have = table.refs("0/data", window)
        for column in ("chunk", "offset", "length", "file"):
            np.testing.assert_array_equal(getattr(have, column), getattr(want, column))
    assert list(table.files.path) == list(files.path)
    assert list(table.stored_files.path) == ["0.tif", "1.tif", "2.tif"]
