"""Tables of other tools are valid instances once their columns have roles."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from periplus.errors import FormatError
from periplus.model import Catalog
from periplus.table import copy_table, memory_table, open_table
from periplus.table.document.document import KEY, document_for, dump
from periplus.testing.indexes import dense_refs, same_refs, stacked

PATHS = [f"tiles/{number}.tif" for number in range(5)]


@pytest.fixture
def index():
    catalog, _, files = stacked()
    array = catalog.arrays["0/data"]
    array = array.renamed("sst", dims=("time", "y", "x"), shape=(5, 246, 364), chunks=(1, 64, 64), level=0)
    catalog = Catalog(arrays={"sst": array}, coordinates=catalog.coordinates)
    return catalog, dense_refs(array, files=5), files


def document_of(catalog, columns):
    document = json.loads(dump(document_for(catalog)))
    document["columns"] = columns
    return document


ARTICLE = {"chunk": {"time": "time_idx"}}
GDAL = {
    "chunk": {"time": "dim_0", "y": "dim_1", "x": "dim_2"},
    "length": "size",
    "present": "present",
}


def article(refs):
    return pa.table(
        {
            "time_idx": pa.array(refs.chunk[0], pa.uint16()),
            "y_chunk": pa.array(refs.chunk[1], pa.uint16()),
            "x_chunk": pa.array(refs.chunk[2], pa.uint16()),
            "path": pa.array([PATHS[f] for f in refs.file]),
            "offset": pa.array(refs.offset, pa.uint64()),
            "length": pa.array(refs.length, pa.uint32()),
        }
    )


def gdal(refs):
    absent = {"dim_0": [4], "dim_1": [3], "dim_2": [5], "present": [False], "path": [None], "offset": [0], "size": [0]}
    rows = {f"dim_{d}": pa.array(refs.chunk[d], pa.int64()) for d in range(3)}
    rows |= {"present": pa.array([True] * len(refs)), "path": pa.array([PATHS[f] for f in refs.file])}
    rows |= {"offset": pa.array(refs.offset), "size": pa.array(refs.length)}
    table = pa.table(rows).append_column("info", pa.array(["COMPRESSION=ZSTD"] * len(refs)))
    extra = pa.table({**absent, "info": [""]}, schema=table.schema.set(3, pa.field("present", pa.bool_())))
    return pa.concat_tables([table.slice(0, len(refs) - 1), extra])


@pytest.mark.parametrize("form", ["article", "gdal"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_foreign_table_is_read_by_its_roles(form, declared, tmp_path, fetch, index):
    catalog, refs, _ = index
    rows = article(refs) if form == "article" else gdal(refs)
    document = document_of(catalog, ARTICLE if form == "article" else GDAL)
    want = refs if form == "article" else refs.take(slice(0, len(refs) - 1))
    if declared:
        rows = rows.replace_schema_metadata({KEY: json.dumps(document)})
    pq.write_table(rows, tmp_path / "refs.parquet", row_group_size=20)
    url = str(tmp_path / "refs.parquet")
    if not declared:
        with pytest.raises(FormatError, match="footer has no"):
            open_table(url, fetch=fetch)
    table = open_table(url, fetch=fetch, document=None if declared else document)
    assert sorted(table.files.path) == sorted(str(tmp_path / path) for path in PATHS)
    got = table.refs("sst")
    np.testing.assert_array_equal(got.chunk, want.chunk)
    np.testing.assert_array_equal(got.offset, want.offset)
    np.testing.assert_array_equal(got.length, want.length)
    assert [table.files.path[f] for f in got.file] == [str(tmp_path / PATHS[f]) for f in want.file]
    window = [(1, 3), (0, 2), (3, 6)]
    assert len(table.refs("sst", window)) == 12
    assert table.sql("select count(*) as n from chunks where time_chunk = 1").to_pylist() == [{"n": 24}]
    first = table.sql(
        'select path, "offset", length, "array" from chunks order by time_chunk, y_chunk, x_chunk limit 1'
    )
    assert first.to_pylist() == [
        {"path": PATHS[0], "offset": int(want.offset[0]), "length": int(want.length[0]), "array": "sst"}
    ]
    copy = copy_table(table, str(tmp_path / "copy"), fetch=fetch)
    assert len(copy.refs("sst")) == len(want)


def test_levels_may_tell_arrays_apart(tmp_path, fetch):
    catalog, refs, files = stacked()
    tables = []
    for name, one in refs.items():
        columns = {f"{dim}_chunk": pa.array(one.chunk[d]) for d, dim in enumerate(catalog.arrays[name].dims)}
        columns |= {"level": pa.array([catalog.arrays[name].level] * len(one), pa.int32())}
        columns |= {"path": pa.array([PATHS[f] for f in one.file])}
        columns |= {"offset": pa.array(one.offset), "length": pa.array(one.length)}
        tables.append(pa.table(columns))
    keys = {KEY: dump(document_for(catalog))}
    pq.write_table(pa.concat_tables(tables).replace_schema_metadata(keys), tmp_path / "refs.parquet")
    table = open_table(str(tmp_path / "refs.parquet"), fetch=fetch)
    for name in refs:
        want = memory_table(catalog, refs, files).refs(name)
        got = table.refs(name)
        np.testing.assert_array_equal(got.chunk, want.chunk)
        np.testing.assert_array_equal(got.offset, want.offset)


def test_rows_of_several_arrays_must_say_which(tmp_path, fetch):
    catalog, refs, _ = stacked()
    one = refs["0/data"]
    columns = {f"{dim}_chunk": pa.array(one.chunk[d]) for d, dim in enumerate(("time", "bands", "y", "x"))}
    columns |= {"path": pa.array(["a"] * len(one)), "offset": pa.array(one.offset), "length": pa.array(one.length)}
    keys = {KEY: dump(document_for(catalog))}
    pq.write_table(pa.table(columns).replace_schema_metadata(keys), tmp_path / "refs.parquet")
    with pytest.raises(FormatError, match="names the array"):
        open_table(str(tmp_path / "refs.parquet"), fetch=fetch)


def test_a_file_written_by_duckdb_is_an_index_too(tmp_path, fetch, index):
    """Another writer, another encoding of strings and integers, other row groups."""
    import duckdb

    catalog, refs, files = index
    rows = article(refs)
    connection = duckdb.connect()
    connection.register("rows", rows)
    for version in ("v1", "v2"):
        path = tmp_path / f"{version}.parquet"
        connection.execute(
            f"copy (from rows) to '{path}' (format parquet, parquet_version {version}, row_group_size 40)"
        )
        table = open_table(str(path), fetch=fetch, document=document_of(catalog, ARTICLE))
        got = table.refs("sst")
        same_refs(got, memory_table(catalog, {"sst": refs}, files).refs("sst"))
