"""Appending adds rows and loses none, whoever else writes at the same time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from periplus.errors import ConflictError, FormatError, MissingError, StaleError
from periplus.model import Encoding, Refs
from periplus.policy import Policy
from periplus.table import append_table, copy_table, memory_table, open_table, write_table
from periplus.table.document.document import KEY, VERSION
from periplus.testing.indexes import files_of, same_refs, stacked


def step(number: int, steps: int):
    """The catalog of `steps` steps, the rows of one of them counted from its own file, and that file."""
    catalog, refs, files = stacked(steps=steps)
    blocks = []
    for name, one in refs.items():
        rows = one.take(one.chunk[0] == number)
        blocks.append((name, Refs(chunk=rows.chunk, offset=rows.offset, length=rows.length, file=rows.file * 0)))
    return catalog, blocks, files_of([files.path[number]])


FORMS = ["i", "i.parquet", "i.duckdb"]


@pytest.mark.parametrize("form", FORMS)
def test_steps_appended_one_by_one_are_the_whole_stack(tmp_path, fetch, form):
    target = str(tmp_path / form)
    table = write_table(target, *step(0, 1), fetch=fetch)
    for number in range(1, 6):
        before = table if form == "i.duckdb" else None
        table = append_table(target, *step(number, number + 1), fetch=fetch, before=before)
        assert table.catalog.arrays["0/data"].shape[0] == number + 1
    catalog, refs, files = stacked(steps=6)
    want = memory_table(catalog, refs, files)
    table = open_table(target, fetch=fetch, allow=["s3://"], trust=True)
    assert list(table.files.path) == list(files.path)
    for name in refs:
        got = table.refs(name)
        np.testing.assert_array_equal(got.chunk, want.refs(name).chunk)
        np.testing.assert_array_equal(got.file, want.refs(name).file)
    if form == "i":
        assert len(list((tmp_path / "i" / "chunks").iterdir())) == 6
    np.testing.assert_array_equal(table.catalog.coordinates["time"].values, catalog.coordinates["time"].values)


def test_a_query_opens_only_the_parts_it_meets(tmp_path, fetch):
    target = str(tmp_path / "i")
    write_table(target, *step(0, 1), fetch=fetch)
    for number in range(1, 6):
        append_table(target, *step(number, number + 1), fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    table.refs("0/data", [(4, 5), (0, 1), (0, 4), (0, 6)])
    assert len(table._rows._parts) == 1


@pytest.mark.parametrize("form", FORMS[:2])
def test_new_arrays_and_dimensions_may_come(tmp_path, fetch, form):
    target = str(tmp_path / form)
    catalog, refs, files = stacked(steps=2)
    write_table(target, catalog, refs.items(), files, fetch=fetch)
    extra = catalog.arrays["0/data"].renamed("X/extra", dims=("Time", "z", "y", "x"))
    grown = type(catalog)(arrays={**catalog.arrays, "X/extra": extra}, coordinates=catalog.coordinates)
    rows = refs["0/data"]
    added = Refs(chunk=rows.chunk, offset=rows.offset, length=rows.length, file=rows.file)
    new = files_of(["s3://bucket/x.tif", "s3://bucket/y.tif"])
    append_table(target, grown, [("X/extra", added)], new, fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    same_refs(table.refs("0/data"), memory_table(catalog, refs, files).refs("0/data"))
    assert [table.files.path[f] for f in np.unique(table.refs("X/extra").file)] == list(new.path)
    assert len(table.refs("X/extra")) == len(rows)
    assert sum(len(found) for _, found in table.blocks()) == table.rows
    assert table.sql("select count(*) as n from chunks where z_chunk is null").to_pylist() == [{"n": 60}]


@pytest.mark.parametrize("form", FORMS[:2])
def test_what_does_not_fit_is_a_conflict_and_changes_nothing(tmp_path, fetch, form):
    target = str(tmp_path / form)
    catalog, refs, files = stacked(steps=3)
    write_table(target, catalog, refs.items(), files, fetch=fetch)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    array = catalog.arrays["0/data"]
    wrong = {
        "missing": {"1/data": catalog.arrays["1/data"]},
        "chunks": {**catalog.arrays, "0/data": array.renamed("0/data", chunks=(1, 3, 32, 32))},
        "dtype": {**catalog.arrays, "0/data": array.renamed("0/data", dtype=np.dtype("f4"))},
        "dims": {**catalog.arrays, "0/data": array.renamed("0/data", dims=("t", "bands", "y", "x"))},
        "encodings": {**catalog.arrays, "0/data": array.renamed("0/data", encodings=(Encoding(({"name": "bytes"},)),))},
        "shrink": {**catalog.arrays, "0/data": array.renamed("0/data", shape=(1, 3, 246, 364))},
    }
    for what, arrays in wrong.items():
        with pytest.raises(ConflictError, match=what):
            append_table(target, type(catalog)(arrays=arrays), [], files_of([]), fetch=fetch)
    others = files_of([f"s3://bucket/again/{number}.tif" for number in range(3)])
    with pytest.raises(ConflictError, match="in the index already"):
        append_table(target, catalog, [("0/data", refs["0/data"])], others, fetch=fetch)
    grown, blocks, new = step(3, 4)
    bad = Refs(chunk=blocks[0][1].chunk, offset=blocks[0][1].offset - 10_000_000, length=blocks[0][1].length)
    with pytest.raises(FormatError):
        append_table(target, grown, [blocks[1], ("0/data", bad)], new, fetch=fetch)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_chunk_missing_before_may_be_filled_in_later(tmp_path, fetch, form):
    target = str(tmp_path / form)
    catalog, refs, files = stacked(steps=3)
    rows = refs["0/data"]
    hole = (rows.chunk[0] == 1) & (rows.chunk[3] == 2)
    write_table(target, catalog, [("0/data", rows.take(~hole)), ("1/data", refs["1/data"])], files, fetch=fetch)
    missing = rows.take(hole)
    later = Refs(chunk=missing.chunk, offset=missing.offset, length=missing.length)
    append_table(target, catalog, [("0/data", later)], files_of(["s3://bucket/late.tif"]), fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    got = table.refs("0/data")
    np.testing.assert_array_equal(got.offset, rows.offset)
    assert (got.file == 3).sum() == 4


@pytest.mark.parametrize("form", FORMS[:2])
def test_the_slower_of_two_writers_is_told(tmp_path, fetch, form):
    target = str(tmp_path / form)
    write_table(target, *step(0, 1), fetch=fetch)
    catalog, blocks, files = step(1, 2)

    def slow():
        append_table(target, *step(1, 2), fetch=fetch)  # another writer, meanwhile
        yield from blocks

    with pytest.raises(ConflictError, match="another writer"):
        append_table(target, catalog, slow(), files, fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    assert len(table.refs("0/data")) == 48
    if form == "i":
        assert len(list((tmp_path / "i" / "chunks").iterdir())) == 2  # the loser's part is gone


APPENDERS = """
import os, sys
from periplus.errors import ConflictError
from periplus.fetch import Fetch
from periplus.model import Refs
from periplus.table import append_table, open_table
from periplus.testing.indexes import files_of, stacked
target, total = sys.argv[1], int(sys.argv[2])
catalog, refs, files = stacked(steps=total)
def append(me, fetch):
    for number in range(1 + me, total, 3):
        rows = refs["0/data"].take(refs["0/data"].chunk[0] == number)
        block = Refs(chunk=rows.chunk, offset=rows.offset, length=rows.length)
        for attempt in range(200):
            try:
                append_table(target, catalog, [("0/data", block)], files_of([files.path[number]]), fetch=fetch)
                break
            except ConflictError:
                pass
        else:
            sys.exit("never got through")
children = []
for me in range(3):
    children.append(os.fork())
    if not children[-1]:
        with Fetch() as fetch:
            append(me, fetch)
        sys.exit()
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_three_processes_appending_at_once_lose_no_row(tmp_path, fetch):
    target, total = str(tmp_path / "i"), 10
    catalog, refs, files = stacked(steps=total)
    first = refs["0/data"].take(refs["0/data"].chunk[0] == 0)
    write_table(target, catalog, [("0/data", first)], files_of([files.path[0]]), fetch=fetch)
    command = [sys.executable, "-c", APPENDERS, target, str(total)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[0, 0, 0]\n", done.stderr
    table = open_table(target, fetch=fetch, allow=["s3://"])
    got = table.refs("0/data")
    np.testing.assert_array_equal(got.chunk, memory_table(catalog, refs, files).refs("0/data").chunk)
    assert [table.files.path[f] for f in got.file] == [files.path[t] for t in got.chunk[0]]
    assert len(list((tmp_path / "i" / "chunks").iterdir())) == total


def test_replacing_a_dataset_leaves_no_old_parts(tmp_path, fetch):
    target = str(tmp_path / "i")
    write_table(target, *step(0, 1), fetch=fetch)
    append_table(target, *step(1, 2), fetch=fetch)
    (tmp_path / "i" / "chunks" / "part-of-a-writer-that-died.parquet").write_bytes(b"x")
    write_table(target, *step(0, 1), fetch=fetch)
    assert len(list((tmp_path / "i" / "chunks").iterdir())) == 1
    assert open_table(target, fetch=fetch).rows == 30


def test_a_folder_that_is_no_dataset_is_not_appended_to(tmp_path, fetch):
    with pytest.raises(MissingError):
        append_table(str(tmp_path / "nothing"), *step(0, 1), fetch=fetch)


def test_parts_become_one_where_a_dataset_is_copied_onto_itself(tmp_path, fetch):
    target = str(tmp_path / "i")
    write_table(target, *step(0, 1), fetch=fetch)
    for number in range(1, 4):
        append_table(target, *step(number, number + 1), fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    want = {name: table.refs(name) for name in table.catalog.arrays}
    copy_table(table, target, fetch=fetch)
    assert len(list((tmp_path / "i" / "chunks").iterdir())) == 1
    again = open_table(target, fetch=fetch, allow=["s3://"])
    for name, refs in want.items():
        same_refs(again.refs(name), refs)
    append_table(target, *step(4, 5), fetch=fetch)


@pytest.mark.parametrize("name", ["i", "i.parquet", "i.duckdb"])
def test_an_index_copied_onto_itself_does_not_undo_what_came_meanwhile(name, tmp_path, fetch):
    target = str(tmp_path / name)
    write_table(target, *step(0, 1), fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"], trust=True)
    assert len(table.refs("0/data")) == 24
    if name == "i":
        append_table(target, *step(1, 2), fetch=fetch)
    else:
        catalog, refs, files = stacked(steps=2)
        write_table(target, catalog, refs.items(), files, fetch=fetch)
    with pytest.raises((ConflictError, StaleError)):
        copy_table(table, target, fetch=fetch)
    now = open_table(target, fetch=fetch, allow=["s3://"], trust=True)
    assert len(now.refs("0/data")) == 48
    copy_table(now, target, fetch=fetch)  # what is there may be
    elsewhere = copy_table(now, str(tmp_path / f"other-{name}"), fetch=fetch)
    assert len(elsewhere.refs("0/data")) == 48


def test_what_was_laid_for_an_older_index_is_not_added_to_a_newer_one(tmp_path, fetch):
    target = str(tmp_path / "i")
    old = write_table(target, *step(0, 1), fetch=fetch)
    append_table(target, *step(1, 2), fetch=fetch)
    catalog, _, files = step(1, 2)
    with pytest.raises(ConflictError, match="another writer"):  # its chunks are missing, so none would clash
        append_table(target, catalog, [], files, fetch=fetch, before=old)
    assert len(open_table(target, fetch=fetch, allow=["s3://"]).files) == 2


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_users_stay_when_an_index_grows_or_changes_form(tmp_path, fetch, form):
    catalog, blocks, files = step(0, 1)
    mine = {"cloud": np.array([12.5]), "tile": np.array(["33UVP"], object), "orbit": np.array([7])}
    target = str(tmp_path / form)
    table = write_table(target, catalog, blocks, replace(files, columns=mine), fetch=fetch)
    table = append_table(target, *step(1, 2), fetch=fetch, before=table)
    for other in FORMS:
        table = copy_table(table, str(tmp_path / f"copy-{other}"), fetch=fetch)
        found = table.files.columns
        assert found["cloud"][0] == 12.5
        assert np.isnan(found["cloud"][1])
        assert found["tile"].tolist() == ["33UVP", None]
        assert found["orbit"].tolist() == [7, None]
        assert table.sql("select tile from files order by file_id").to_pylist() == [{"tile": "33UVP"}, {"tile": None}]


@pytest.mark.parametrize("name", ["v1", "v1.parquet", "v2", "v2.parquet"])
def test_indexes_of_earlier_versions_grow_and_become_of_this_one(tmp_path, fetch, name):
    stored = Path(__file__).parent / "golden" / name
    target = tmp_path / name
    (shutil.copytree if stored.is_dir() else shutil.copy)(stored, target)
    before = open_table(str(target), fetch=fetch, policy=Policy.everything())
    want = {name: before.refs(name) for name in before.catalog.arrays}
    more = files_of(["s3://bucket/late.tif"])
    after = append_table(str(target), before.catalog, [], more, fetch=fetch)
    assert list(after.files.path) == [*before.files.path, *more.path]
    assert list(after.catalog.arrays) == list(want)
    for array, refs in want.items():
        same_refs(after.refs(array), refs)
    base = target if target.is_file() else target / "files.parquet"
    assert json.loads(pq.read_metadata(base).metadata[KEY])["version"] == VERSION
