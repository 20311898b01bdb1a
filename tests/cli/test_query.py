"""periplus query: rows by SQL, place, time and level, in four formats."""

import csv
import io
import json

import pyarrow.parquet
import pytest

CORNER = "500000,4199400,500600,4200000"


def test_sql_answers(index, periplus):
    done = periplus("query", index, "--sql", "select count(*) as n, count(distinct path) as files from chunks")
    assert done.code == 0
    assert done.out.split() == ["n", "files", "104", "4"]


def test_a_box_and_a_time_choose_chunks(index, periplus):
    done = periplus(
        "query", index, "--level", 0, "--bbox", CORNER, "--time", "2023-01-01/2023-02-28", "--format", "json"
    )
    rows = json.loads(done.out)
    assert {(row["time_chunk"], row["y_chunk"], row["x_chunk"]) for row in rows} == {(0, 0, 0), (1, 0, 0)}
    assert all(row["length"] > 0 for row in rows)


def test_a_window_counts_chunks_of_the_last_dimensions(index, periplus):
    done = periplus("query", index, "--array", "0/data", "--window", "1:3,4:5", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 4 * 2
    assert {(row["y_chunk"], row["x_chunk"]) for row in rows} == {("1", "4"), ("2", "4")}


def test_the_name_of_the_file_decides_the_format(index, periplus, tmp_path):
    for suffix in ("json", "csv", "parquet"):
        target = tmp_path / f"rows.{suffix}"
        done = periplus("query", index, "--array", "1/data", "-o", target)
        assert (done.code, done.out) == (0, "")
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 24
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 25
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").num_rows == 24


def test_a_table_is_cut_and_says_so(index, periplus):
    done = periplus("query", index, "--limit", 5)
    assert len(done.out.splitlines()) == 6
    assert "99 more rows of 104" in done.err


def test_no_rows_are_no_error(index, periplus):
    done = periplus("query", index, "--sql", "select * from chunks where length < 0", "--format", "json")
    assert (done.code, json.loads(done.out)) == (0, [])


def test_footprints_are_boxes(index, periplus):
    done = periplus(
        "query", index, "--array", "0/data", "--window", "0:1,0:1,0:1,0:1", "--footprints", "--format", "json"
    )
    assert "500000" in done.out


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["--sql", "select * from nowhere"], "usage|format|missing"),
        (["--sql", "select 1", "--level", "0"], "usage"),
        (["--window", "0:1"], "usage"),
        (["--array", "0/data", "--window", "0:1,0:1,0:1,0:1,0:1"], "usage"),
        (["--bbox", "1,2,3"], "usage"),
        (["--bbox", "3,2,1,4"], "usage"),
        (["--time", "yesterday"], "usage"),
        (["--level", "9"], "usage"),
        (["--crs", "EPSG:4326"], "usage"),
        (["--array", "9/data"], "missing"),
    ],
)
def test_mistakes_are_one_line(index, periplus, arguments, kind):
    done = periplus("query", index, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.split(": ")[1] in kind.split("|")
    assert len(done.err.splitlines()) == 1


def test_a_point_chooses_the_chunk_that_contains_it(index, periplus):
    done = periplus(
        "query", index, "--level", 0, "--point", "500700,4199900", "--time", "2023-01-01", "--format", "json"
    )
    assert [(row["y_chunk"], row["x_chunk"]) for row in json.loads(done.out)] == [(0, 1)]


def test_footprints_of_files_are_refused(index, periplus):
    done = periplus("query", index, "--files", "--footprints")
    assert done.code == 2
    assert "--footprints adds the boxes of chunks, so it has no effect with --files" in done.err
