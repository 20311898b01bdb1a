"""SQL over every form gives the same answers, and reaches nothing but the index."""

from __future__ import annotations

import json
import os
import signal
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from periplus.errors import PeriplusError, StaleError
from periplus.model import Array, Catalog
from periplus.table import append_table, memory_table, open_table, write_table
from periplus.table.duckdb.sql import sql_errors
from periplus.table.query.footprint import chunk_boxes
from periplus.testing.indexes import dense_refs, files_of, stacked
from periplus.testing.servers.http import RangeServer


@pytest.fixture(params=["memory", "index.parquet", "index", "index.duckdb", "http flat", "http dataset"])
def table(request, stored, fetch):
    if request.param == "memory":
        yield memory_table(*stacked(steps=40))
        return
    name = {"http flat": "index.parquet", "http dataset": "index"}.get(request.param, request.param)
    if not request.param.startswith("http"):
        yield open_table(str(stored / name), fetch=fetch, allow=["s3://bucket/"], trust=True)
        return
    with RangeServer(stored) as server:
        yield open_table(f"{server.url}/{name}", fetch=fetch, allow=["s3://bucket/"])


def answer(table, query, *parameters):
    return table.sql(query, parameters).to_pylist()


def test_chunks_are_the_rows_that_refs_gives(table):
    rows = table.sql(
        'select time_chunk, y_chunk, x_chunk, "offset", length, path from chunks '
        'where "array" = ? and time_chunk between ? and ? order by all',
        ["0/data", 3, 4],
    )
    refs = table.refs("0/data", [(3, 5), (0, 1), (0, 4), (0, 6)])
    assert rows["offset"].to_pylist() == refs.offset.tolist()
    assert rows["length"].to_pylist() == refs.length.tolist()
    assert [rows[f"{d}_chunk"].to_pylist() for d in ("time", "y", "x")] == refs.chunk[[0, 2, 3]].tolist()
    assert rows["path"].to_pylist() == [table.stored_files.path[f] for f in refs.file]


def test_every_form_has_the_same_columns(table):
    shown = {row["column_name"]: row["column_type"] for row in answer(table, "describe chunks")}
    shown.pop("file_id", None)
    integers = dict.fromkeys(["time_chunk", "bands_chunk", "y_chunk", "x_chunk"], "INTEGER")
    small, text, large = "USMALLINT", "VARCHAR", "BIGINT"
    want = {
        "array": text,
        "level": "UTINYINT",
        **integers,
        "part": small,
        "path": text,
        "offset": large,
        "length": large,
    }
    assert shown == {**want, "encoding": small, "crc32c": "UINTEGER"}


def test_files_join_by_path_and_time(table):
    query = """
        select f.url, sum(c.length) as bytes from chunks c join files f using (path)
        where f.datetime between '2021-01-03' and '2021-01-04' and c.y_chunk = 1 group by all order by 1"""
    got = answer(table, query)
    assert [row["url"] for row in got] == ["s3://bucket/scenes/0002.tif", "s3://bucket/scenes/0003.tif"]
    want = sum(int(table.refs(n, [(2, 3), (0, 1), (1, 2), (0, 6)]).length.sum()) for n in ("0/data", "1/data"))
    assert got[0]["bytes"] == want


def test_arrays_tell_what_the_catalog_tells(table):
    got = answer(table, "select * from arrays order by level")
    array = table.catalog.arrays["0/data"]
    assert [row["name"] for row in got] == ["0/data", "1/data"]
    assert tuple(got[0]["dims"]) == array.dims
    assert tuple(got[0]["shape"]) == array.shape
    assert tuple(got[0]["chunks"]) == array.chunks
    assert got[0]["dtype"] == "uint16"
    assert got[0]["crs"] == "EPSG:32633"
    assert json.loads(got[0]["attributes"])["band_names"] == ["green", "red", "nir"]
    assert json.loads(got[0]["encodings"])[0][0]["name"] == "bytes"


def test_footprints_in_sql_are_those_of_the_library(table):
    query = """
        select c.y_chunk as y, c.x_chunk as x, footprint(g, c.y_chunk, c.x_chunk) as box
        from chunks c join grid g on c.array = g.array where g.level = 1 and c.time_chunk = 0 order by all"""
    got = answer(table, query)
    assert len(got) == 6
    boxes = chunk_boxes(
        table.catalog.arrays["1/data"], np.array([r["y"] for r in got]), np.array([r["x"] for r in got])
    )
    np.testing.assert_allclose([list(r["box"].values()) for r in got], boxes.T)


def test_rotated_footprints_in_sql_are_those_of_the_library():
    place = stacked()[0].arrays["0/data"].georeference
    place = type(place)(crs="EPSG:32633", transform=(7.0, 5.0, 11.0, 6.0, -8.0, 13.0))
    array = Array(
        name="a", dims=("y", "x"), shape=(75, 81), chunks=(10, 20), dtype=np.dtype("u1"), georeference=place
    )  # fmt: skip
    table = memory_table(Catalog(arrays={"a": array}), {"a": dense_refs(array)}, files_of(["s3://b/x"]))
    got = answer(
        table, "select y_chunk, x_chunk, footprint(g, y_chunk, x_chunk) as box from chunks, grid g order by 1, 2"
    )
    refs = table.refs("a")
    np.testing.assert_allclose([list(r["box"].values()) for r in got], chunk_boxes(array, *refs.chunk).T)


def test_an_index_answers_questions_and_nothing_else(table, tmp_path):
    canary = tmp_path / "canary.csv"
    canary.write_text("secret\n1\n")
    for query in (
        "select * from read_csv('/etc/passwd')",
        f"select * from read_csv('{canary}')",
        f"select * from '{canary}'",
        f"select * from read_text('{canary}')",
        f"select * from glob('{tmp_path}/*')",
        f"attach '{tmp_path}/x.duckdb'",
        f"copy (select 1) to '{tmp_path}/out.csv'",
        f"copy (select 1) to '{tmp_path}/index.parquet' (format parquet)",
        f"export database '{tmp_path}/out'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset allowed_paths",
        "select * from read_parquet('http://127.0.0.1:1/x.parquet')",
        "drop view chunks",
        "create table t as select 1",
        "insert into files select * from files",
        "select 1; drop view chunks",
        "call pragma_version()",
        "pragma database_list",
        "select",
        "",
        "not sql at all",
        "select * from tmp_path",
        "select no_such_column from chunks",
    ):
        with pytest.raises(ValueError) as caught:
            table.sql(query)
        assert not isinstance(caught.value, PeriplusError), query
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "x.duckdb").exists()
    assert answer(table, "select count(*) as n from chunks") == [{"n": table.rows}]


def test_errors_carry_what_duckdb_says(table):
    with pytest.raises(ValueError, match="no_such_table"):
        table.sql("select * from no_such_table")
    with pytest.raises(ValueError, match="has 1 parameters, and 0 values"):
        table.sql("select ?")


def test_parameters_are_values(table):
    assert answer(table, 'select count(*) as n from chunks where "array" = ?', "' or 1=1 --") == [{"n": 0}]
    assert answer(table, "select ? as a, ? as b", 3, "x") == [{"a": 3, "b": "x"}]


def test_parts_of_different_columns_are_one_view(tmp_path, fetch):
    catalog, refs, files = stacked(steps=2)
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    more, added, new = stacked(steps=3)
    last = added["0/data"].take(added["0/data"].chunk[0] == 2)
    parts = type(last)(
        chunk=np.repeat(last.chunk, 2, axis=1), offset=np.repeat(last.offset, 2), length=np.repeat(last.length, 2),
        file=np.zeros(len(last) * 2, np.int32), part=np.tile(np.arange(2, dtype=np.uint16), len(last)),
    )  # fmt: skip
    append_table(str(tmp_path / "i"), more, [("0/data", parts)], files_of(["s3://bucket/new.tif"]), fetch=fetch)
    table = open_table(str(tmp_path / "i"), fetch=fetch, allow=["s3://"])
    got = answer(table, "select part, count(*) as n from chunks group by part order by part")
    assert got == [{"part": 0, "n": 60 + 24}, {"part": 1, "n": 24}]
    with RangeServer(tmp_path) as server:
        remote = open_table(f"{server.url}/i", fetch=fetch, allow=["s3://"])
        assert answer(remote, "select part, count(*) as n from chunks group by part order by part") == got
    assert len(new) == 3


def test_an_answer_is_arrow(table):
    assert isinstance(table.sql("select 1 as a"), pa.Table)


@pytest.mark.parametrize("query", ["select array from chunks", "select length, offset from chunks limit 1"])
def test_a_column_that_is_a_word_of_sql_is_hinted_at(table, query):
    with pytest.raises(ValueError, match="need their quotes"):
        table.sql(query)
    with pytest.raises(ValueError, match="the query failed") as caught:
        table.sql("selec 1")
    assert "quotes" not in str(caught.value)


def test_an_interrupt_waits_until_duckdb_is_loaded(monkeypatch):
    from periplus.table.duckdb import connection as duck

    def slow(name):
        os.kill(os.getpid(), signal.SIGINT)
        done.append(name)
        return sys

    done: list[str] = []
    monkeypatch.setattr(duck, "import_module", slow)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        duck._loaded("duckdb")
    assert done == ["duckdb"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("error", [duckdb.InterruptException("stop"), RuntimeError("Query interrupted")])
def test_an_interrupted_query_is_an_interrupt(error):
    with pytest.raises(KeyboardInterrupt), sql_errors(None):
        raise error


@pytest.mark.parametrize("name", ["index.parquet", "index"])
@pytest.mark.parametrize("place", ["local", "http"])
@pytest.mark.parametrize("asked", [False, True])
def test_an_index_written_anew_is_stale(name, place, asked, tmp_path, fetch):
    catalog, refs, files = stacked(steps=3000)
    write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
    with RangeServer(tmp_path) as server:
        table = open_table(f"{tmp_path if place == 'local' else server.url}/{name}", fetch=fetch, allow=["s3://"])
        if asked:
            assert answer(table, "select count(*) as n from chunks") == [{"n": 3000 * 30}]
        catalog, refs, files = stacked(steps=3, seed=5)
        write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
        with pytest.raises(StaleError, match="was rewritten"):
            table.sql("select count(*) as n, sum(length) as bytes from chunks")


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_a_name_that_looks_like_a_pattern_is_a_name(name, tmp_path, fetch):
    for folder, steps in (("a[1]", 2), ("a1", 3), ("b*", 2), ("bb", 3)):
        catalog, refs, files = stacked(steps=steps)
        write_table(str(tmp_path / folder / name), catalog, refs.items(), files, fetch=fetch)
    for folder in ("a[1]", "b*"):
        table = open_table(str(tmp_path / folder / name), fetch=fetch, allow=["s3://"])
        assert answer(table, "select count(*) as n from chunks") == [{"n": 2 * 30}]
