"""Every form of an index gives back what was written, whatever the order and size of the blocks it came in."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from periplus.errors import DeniedError, FormatError, MissingError
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Inline, Refs
from periplus.policy import Policy
from periplus.table import copy_table, memory_table, open_table, write_table
from periplus.testing.indexes import dense_refs, files_of, indexes, inline_list, same_refs, stacked

FORMS = {"flat": "index.parquet", "dataset": "index", "duckdb": "index.duckdb"}
# Hypothesis runs the body many times with one tmp_path; every example writes to a place of its own.
SHARED = settings(
    max_examples=settings.default.max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def reopen(target, fetch):
    return open_table(str(target), fetch=fetch, allow=["s3://"], trust=True)


@SHARED
@given(index=indexes(), seed=st.integers(0, 1000))
def test_any_index_comes_back(tmp_path_factory, fetch, index, seed):
    catalog, refs, files = index
    folder = tmp_path_factory.mktemp("any")
    random = np.random.default_rng(seed)
    blocks = [
        (name, one.take(rows))
        for name, one in refs.items()
        for rows in np.array_split(random.permutation(len(one)), random.integers(1, 4))
    ]
    random.shuffle(blocks)
    want = memory_table(catalog, refs, files)
    for form in FORMS.values():
        write_table(str(folder / form), catalog, blocks, files, fetch=fetch)
        table = reopen(folder / form, fetch)
        assert table.rows == want.rows == sum(len(one) for one in refs.values())
        for name, array in catalog.arrays.items():
            same_refs(table.refs(name), want.refs(name))
            window = [tuple(sorted(random.integers(0, count + 1, 2).tolist())) for count in array.grid]
            same_refs(table.refs(name, window), want.refs(name, window))
            have = table.catalog.arrays[name]
            for field in ("dims", "shape", "chunks", "dtype", "encodings", "level", "edges"):
                assert getattr(have, field) == getattr(array, field), field
            np.testing.assert_equal(have.fill, array.fill)
            np.testing.assert_equal(dict(have.attributes), dict(array.attributes))
        assert list(table.files.path) == list(files.path)


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", FORMS)
def test_copies_between_forms_keep_every_row(source, target, tmp_path, fetch):
    catalog, refs, files = stacked()
    first = write_table(str(tmp_path / "a" / FORMS[source]), catalog, refs.items(), files, fetch=fetch)
    copy = copy_table(first, str(tmp_path / "b" / FORMS[target]), fetch=fetch)
    for name in catalog.arrays:
        same_refs(copy.refs(name), memory_table(catalog, refs, files).refs(name))
    np.testing.assert_array_equal(copy.files.datetime, files.datetime)
    np.testing.assert_array_equal(copy.files.last_modified, files.last_modified)
    assert copy.files.etag == list(files.etag)
    assert copy.catalog.arrangement == catalog.arrangement
    np.testing.assert_array_equal(copy.catalog.coordinates["time"].values, catalog.coordinates["time"].values)


@pytest.mark.parametrize("form", FORMS)
def test_an_index_without_rows_opens(form, tmp_path, fetch):
    catalog, _, files = stacked()
    write_table(str(tmp_path / FORMS[form]), catalog, [], files, fetch=fetch)
    table = reopen(tmp_path / FORMS[form], fetch)
    assert table.rows == 0
    assert len(table.refs("0/data")) == 0
    assert table.select(array="0/data").num_rows == 0
    assert table.sql("select count(*) as n from chunks").to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("form", ["flat", "dataset"])
def test_a_later_block_may_need_columns_the_first_did_not(form, tmp_path, fetch, monkeypatch):
    monkeypatch.setattr("periplus.table.parquet.row_groups.FLUSH_ROWS", 64)
    catalog, refs, files = stacked(steps=20)
    plain = refs["0/data"]
    last = plain.take(plain.chunk[0] == 19)
    inline = Refs(
        chunk=last.chunk, offset=last.offset * 0, length=np.full(len(last), 3), file=np.full(len(last), -1, np.int32),
        part=np.ones(len(last), np.uint16), inline=Inline.of([b"abc"] * len(last)),
    )  # fmt: skip
    write_table(str(tmp_path / FORMS[form]), catalog, [("0/data", plain), ("0/data", inline)], files, fetch=fetch)
    got = reopen(tmp_path / FORMS[form], fetch).refs("0/data", [(19, 20), (0, 1), (0, 2), (0, 3)])
    assert got.part.tolist() == [0, 1] * 6
    assert [d for d in inline_list(got) if d] == [b"abc"] * 6
    assert len(got.take(got.file < 0)) == 6


def test_rows_are_written_while_blocks_still_come(tmp_path, fetch, monkeypatch):
    """Memory is bounded: no more than the flush size plus one block waits."""
    monkeypatch.setattr("periplus.table.parquet.row_groups.FLUSH_ROWS", 1000)
    from periplus.table.parquet import row_groups as groups

    catalog, refs, files = stacked(steps=400)
    refs, given_out, written, waiting = refs["0/data"], 0, 0, []

    def blocks():
        nonlocal given_out
        for start in range(0, len(refs), 100):
            waiting.append(given_out - written)
            block = refs.take(slice(start, start + 100))
            given_out += len(block)
            yield "0/data", block

    for group in groups.row_groups(blocks(), catalog, np.asarray(files.size)):
        written += len(group)
    assert written == len(refs)
    assert max(waiting) < 1100


def test_row_groups_are_space_time_blocks_with_the_promised_encodings(tmp_path, fetch):
    steps, rows, columns = 1100, 9, 20
    array = Array(
        name="a", dims=("time", "y", "x"), shape=(steps, rows, columns), chunks=(1, 1, 1), dtype=np.dtype("u1")
    )  # fmt: skip
    refs = dense_refs(array, files=steps)
    files = files_of([f"s3://bucket/{number}" for number in range(steps)])
    write_table(str(tmp_path / "i.parquet"), Catalog(arrays={"a": array}), [("a", refs)], files, fetch=fetch)
    parquet = pq.ParquetFile(tmp_path / "i.parquet")
    assert parquet.metadata.num_rows == steps * rows * columns
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        columns_of = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
        assert columns_of["time_chunk"].statistics.max - columns_of["time_chunk"].statistics.min < 512
        for name in ("time_chunk", "y_chunk", "x_chunk", "offset", "length"):
            assert "DELTA_BINARY_PACKED" in columns_of[name].encodings
            assert columns_of[name].compression == "ZSTD"
        assert columns_of["offset"].has_offset_index
        assert [c.column_index for c in group.sorting_columns] == [0, 2, 3, 1]
        table = parquet.read_row_group(number)
        keys = list(zip(*(table[name].to_pylist() for name in ("y_chunk", "x_chunk", "time_chunk")), strict=True))
        assert keys == sorted(keys)


def test_a_window_reads_only_the_row_groups_it_meets(tmp_path, fetch, monkeypatch):
    monkeypatch.setattr("periplus.table.parquet.order.GROUP_ROWS", 500)
    monkeypatch.setattr("periplus.table.parquet.row_groups.GROUP_ROWS", 500)
    catalog, refs, files = stacked(steps=600)
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    table = reopen(tmp_path / "i", fetch)
    (part,) = table._rows.parts()
    one_tile = [(0, 600), (0, 1), (2, 3), (3, 4)]
    assert len(part.candidates(table.array("0/data"), one_tile)) < part.source.groups / 4
    assert len(table.refs("0/data", one_tile)) == 600


def test_opening_reads_no_rows_and_no_files(tmp_path, fetch, monkeypatch):
    catalog, refs, files = stacked()
    for form in ("flat", "dataset"):
        write_table(str(tmp_path / FORMS[form]), catalog, refs.items(), files, fetch=fetch)
        monkeypatch.setattr("periplus.table.parquet.ranges.ParquetBytes.read", None)
        monkeypatch.setattr("periplus.table.parquet.part.files_from_arrow", None)
        assert reopen(tmp_path / FORMS[form], fetch).rows == sum(map(len, refs.values()))
        monkeypatch.undo()


def test_a_table_can_be_pickled_and_goes_on_elsewhere(tmp_path, fetch):
    catalog, refs, files = stacked()
    for form, name in FORMS.items():
        write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
        again = pickle.loads(pickle.dumps(reopen(tmp_path / name, Fetch())))
        same_refs(again.refs("1/data"), memory_table(catalog, refs, files).refs("1/data"))
        with pytest.raises(Exception, match="may not access"):
            pickle.loads(pickle.dumps(open_table(str(tmp_path / name), fetch=Fetch(), trust=True))).refs("1/data")
        assert form
    assert len(pickle.loads(pickle.dumps(memory_table(catalog, refs, files))).refs("0/data")) == len(refs["0/data"])


def test_pandas_is_not_imported_to_write_open_or_query(tmp_path):
    code = f"""
import sys
from periplus.fetch import Fetch
from periplus.table import open_table, write_table
from periplus.testing.indexes import stacked
catalog, refs, files = stacked()
with Fetch() as fetch:
    for name in ("i.parquet", "i"):
        write_table({str(tmp_path)!r} + "/" + name, catalog, refs.items(), files, fetch=fetch)
        table = open_table({str(tmp_path)!r} + "/" + name, fetch=fetch, allow=["s3://"])
        table.refs("0/data"), table.select(bbox=(300000, 5199000, 301000, 5200000), time="2021-01-02")
assert not {{"pandas", "pyarrow.compute"}} & set(sys.modules), "heavy modules were imported"
"""
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_package_is_cheap_to_import():
    code = "import sys, periplus.table; assert not {'pyarrow', 'duckdb'} & set(sys.modules)"
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)


def test_paths_under_the_index_are_stored_relative_and_follow_it(tmp_path, fetch):
    paths = [str(tmp_path / "a" / "tiles" / "0.tif"), str(tmp_path / "elsewhere.tif"), "s3://bucket/2.tif"]
    catalog, refs, files = stacked(steps=3, paths=paths)
    for name in ("index.parquet", "index"):
        write_table(str(tmp_path / "a" / name), catalog, refs.items(), files, fetch=fetch)
        stored = open_table(str(tmp_path / "a" / name), fetch=fetch).stored_files.path
        assert stored == ["tiles/0.tif", str(tmp_path / "elsewhere.tif"), "s3://bucket/2.tif"]
    (tmp_path / "a").rename(tmp_path / "b")
    moved = open_table(str(tmp_path / "b" / "index"), fetch=fetch)
    assert moved.files.path[0] == str(tmp_path / "b" / "tiles" / "0.tif")


def test_credentials_are_never_stored(tmp_path, fetch):
    catalog, refs, files = stacked(steps=1, paths=["https://me:secret@host/a.tif"])
    write_table(str(tmp_path / "i.parquet"), catalog, refs.items(), files, fetch=fetch)
    assert b"secret" not in (tmp_path / "i.parquet").read_bytes()
    assert open_table(str(tmp_path / "i.parquet"), fetch=fetch).files.path == ["https://host/a.tif"]
    catalog, refs, files = stacked(steps=1, paths=["https://host/a.tif?X-Amz-Signature=secret&X-Amz-Date=1"])
    with pytest.raises(DeniedError) as failure:
        write_table(str(tmp_path / "j.parquet"), catalog, refs.items(), files, fetch=fetch)
    assert "secret" not in str(failure.value)
    assert not (tmp_path / "j.parquet").exists()


def test_rows_that_do_not_fit_their_array_are_not_written(tmp_path, fetch):
    catalog, refs, files = stacked()
    good = refs["0/data"]
    bad = {
        "twice": [("0/data", good), ("0/data", good)],
        "unknown array": [("9/data", good)],
        "outside the grid": [("1/data", good)],
        "no such file": [
            ("0/data", Refs(chunk=good.chunk, offset=good.offset, length=good.length, file=good.file + 1))
        ],
    }
    for what, blocks in bad.items():
        for name in FORMS.values():
            with pytest.raises(FormatError):
                write_table(str(tmp_path / name), catalog, blocks, files, fetch=fetch)
            assert not (tmp_path / name).exists() or not list((tmp_path / name).rglob("*.parquet")), what
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"] == []


def test_an_array_that_is_not_there_is_missing(tmp_path, fetch):
    catalog, refs, files = stacked()
    table = memory_table(catalog, refs, files)
    with pytest.raises(MissingError, match="no array 'z'"):
        table.refs("z")
    with pytest.raises(MissingError):
        open_table(str(tmp_path / "none.parquet"), fetch=fetch)
    with pytest.raises(MissingError):
        open_table(str(tmp_path / "none"), fetch=fetch)
    with pytest.raises(MissingError):
        open_table(str(tmp_path / "none.duckdb"), fetch=fetch, trust=True)


def test_a_duckdb_file_is_opened_only_when_trusted(tmp_path, fetch):
    catalog, refs, files = stacked()
    write_table(str(tmp_path / "i.duckdb"), catalog, refs.items(), files, fetch=fetch)
    with pytest.raises(PermissionError, match="trust=True"):
        open_table(str(tmp_path / "i.duckdb"), fetch=fetch)
    with pytest.raises(FormatError, match="local disk"):
        open_table("https://example.com/i.duckdb", fetch=fetch, trust=True)
    one, two = (open_table(str(tmp_path / "i.duckdb"), fetch=fetch, trust=True, allow=["s3://"]) for _ in range(2))
    same_refs(one.refs("0/data"), two.refs("0/data"))


def test_a_table_written_by_hand_may_reach_what_it_was_given(tmp_path, fetch):
    catalog, refs, files = stacked()
    assert write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch).policy == Policy.everything()


@pytest.mark.parametrize(("name", "form"), [("plain", "flat"), ("folder.parquet", "dataset")])
def test_what_is_there_decides_the_form_not_its_name(tmp_path, fetch, name, form):
    catalog, refs, files = stacked(2)
    written = write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch, form=form)
    assert (tmp_path / name).is_dir() == (form == "dataset")
    again = reopen(tmp_path / name, fetch)
    for array in catalog.arrays:
        same_refs(again.refs(array), written.refs(array))


@pytest.mark.parametrize(("name", "form"), [("index.ddb", "dataset"), ("index.duckdb", "flat")])
def test_a_name_that_would_not_open_is_refused_before_writing(tmp_path, fetch, name, form):
    catalog, refs, files = stacked(2)
    with pytest.raises(FormatError, match="ends in"):
        write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch, form=form)
    assert not list(tmp_path.iterdir())


def test_imagery_is_no_index_and_the_error_says_what_to_do(tmp_path, fetch):
    (tmp_path / "scene.tif").write_bytes(b"II*\0" + bytes(100))
    with pytest.raises(FormatError, match=r"(is no|not an) index.*periplus\.index"):
        reopen(tmp_path / "scene.tif", fetch)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "plain.parquet")
    with pytest.raises(FormatError, match=r"(is no|not an) index.*periplus\.index"):
        reopen(tmp_path / "plain.parquet", fetch)
    for name in ("", "scene", "scene.parquet"):
        with pytest.raises(MissingError, match="no index"):
            reopen(tmp_path / name, fetch)
