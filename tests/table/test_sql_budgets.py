"""A query is stopped where it takes too much memory, time or room for its answer; it never spills to disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

from periplus.errors import LimitError
from periplus.limits import Limits
from periplus.table import open_table, write_table
from periplus.testing.formats import tiff as tiffs
from periplus.testing.indexes import stacked
from periplus.testing.memory_use import measure_memory

OPEN = """
import periplus
limits = periplus.Limits(sql_memory_bytes=128 << 20, sql_result_bytes=16 << 20, sql_seconds=20)
with periplus.open(given[0], limits=limits, allow=["s3://"]) as index:
    index.sql(given[1])
"""
QUERIES = {
    "a long string": "select repeat('x', 2000000000)",
    "the length of a long string": "select length(repeat('x', 2000000000))",
    "long strings of rows": "select max(length(repeat('x', i::int))) from range(1000000000, 1000000003) t(i)",
    "padding": "select lpad('x', 1500000000, 'y')",
    "a long list": "select range(100000000)",
    "a large state": "select list(i) from range(200000000) t(i)",
    "a large sort": "select i from range(100000000) t(i) order by hash(i) offset 5",
    "a large join": "select count(*) from range(10000000000) a, range(1000000000) b",
    "a large answer": "select i, 'xxxxxxxxxxxxxxxx' || i from range(100000000) t(i)",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    from periplus.fetch import Fetch

    catalog, refs, files = stacked()
    url = str(tmp_path_factory.mktemp("sql") / "i.parquet")
    with Fetch() as fetch:
        write_table(url, catalog, refs.items(), files, fetch=fetch)
    return url


@pytest.fixture(scope="module")
def measured(index):
    return measure_memory({name: (OPEN, [index, query]) for name, query in QUERIES.items()})


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_does_not_fill_the_memory(name, measured):
    cost = measured[name]
    assert cost.outcome == "limit", cost
    assert cost.mebibytes < 300
    assert "\n" not in cost.message.strip()


def test_a_query_that_never_ends_is_stopped(index, fetch):
    table = open_table(index, fetch=fetch, allow=["s3://"], limits=Limits(sql_seconds=0.2))
    with pytest.raises(LimitError, match="sql_seconds"):
        table.sql("with recursive r(i) as (select 1 union all select i + 1 from r) select count(*) from r")
    assert table.sql("select count(*) as n from chunks").to_pylist() == [{"n": 150}]  # it answers the next one


@pytest.mark.parametrize("query", ["select system.main.repeat('x', 9)", "select \"system\".main.repeat('x', 9)"])
def test_guarded_functions_are_not_called_by_another_name(query, index, fetch):
    with pytest.raises(ValueError, match="plain names"):
        open_table(index, fetch=fetch, allow=["s3://"]).sql(query)


def test_guarded_functions_still_do_their_work(index, fetch):
    table = open_table(index, fetch=fetch, allow=["s3://"])
    query = "select repeat('ab', 2) a, lpad('7', 3, '0') b, rpad('7', 3, '0') c, range(2) d, generate_series(1, 5, 2) e"
    assert table.sql(query).to_pylist() == [{"a": "abab", "b": "007", "c": "700", "d": [0, 1], "e": [1, 3, 5]}]


@pytest.mark.parametrize("setting", ["temp_directory", "memory_limit"])
def test_limits_cannot_be_lifted_by_a_query(setting, index, fetch):
    table = open_table(index, fetch=fetch, allow=["s3://"])
    with pytest.raises(ValueError, match="one SELECT at a time"):
        table.sql(f"set {setting} = '9GB'")
    assert table.sql(f"select current_setting('{setting}') as v").to_pylist()[0]["v"] in ("", "1.0 GiB")


def test_a_process_that_queried_and_closed_an_index_ends_well(tmp_path):
    """The thread that watches the time must not be the last to hold the connection."""
    (tmp_path / "a.tif").write_bytes(tiffs.written(tiffs.picture("sql", "u1")))
    code = """
import os, sys, periplus.facade, periplus.harvest, periplus.table.duckdb.sql
for _ in range(2):
    child = os.fork()
    if child == 0:
        index = periplus.index(sys.argv[1])
        index.sql("select count(*) from chunks")
        index.close()
        sys.exit()
    print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.tif")], capture_output=True, timeout=100)
    assert (done.stdout, done.stderr) == (b"0\n0\n", b"")
