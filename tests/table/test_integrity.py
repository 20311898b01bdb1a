"""An index whose rows contradict it is named as such, whatever form it has; a right one has no problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import periplus
from periplus.errors import FormatError
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Files, Inline, Refs
from periplus.table import append_table, memory_table, open_table, write_table
from periplus.table.query.integrity import check_table
from periplus.testing.formats import tiff as tiffs
from periplus.testing.indexes import files_of, stacked
from periplus.testing.tamper import change_column, tamper

FORMS = ("index.parquet", "index")


def parted() -> tuple[Catalog, dict[str, Refs], Files]:
    """Two arrays in two files; chunks of one have two parts, and there are two encodings and inline bytes."""
    encodings = (Encoding(({"name": "bytes"},)), Encoding(({"name": "bytes"}, {"name": "zstd"})))
    arrays = {
        name: Array(
            name=name,
            dims=("y", "x"),
            shape=(4, 5),
            chunks=(1, 1),
            dtype=np.dtype("u1"),
            encodings=encodings,
            level=level,
        )
        for level, name in enumerate(("0/data", "1/data"))
    }
    chunk = np.array(np.unravel_index(np.arange(20), (4, 5)), np.int32)
    one = Refs(
        chunk=np.repeat(chunk, 2, axis=1),
        offset=np.arange(40) * 10,
        length=np.full(40, 10),
        file=np.repeat(np.int32([0, 1]), 20),
        part=np.tile(np.uint16([0, 1]), 20),
        encoding=np.tile(np.uint16([0, 1]), 20),
    )
    two = Refs(
        chunk=chunk,
        offset=np.where(np.arange(20) == 3, 0, np.arange(20) * 10),
        length=np.full(20, 10),
        file=np.where(np.arange(20) == 3, -1, 0).astype(np.int32),
        inline=Inline.of([b"0123456789" if n == 3 else None for n in range(20)]),
    )
    return Catalog(arrays=arrays), {"0/data": one, "1/data": two}, files_of(["a.tif", "b.tif"], size=400)


@pytest.fixture(params=FORMS)
def index(request, tmp_path, fetch):
    catalog, refs, files = parted()
    files = replace(files, path=[str(tmp_path / path) for path in files.path])
    write_table(str(tmp_path / request.param), catalog, refs.items(), files, fetch=fetch)
    return tmp_path / request.param


def problems(path, fetch, **options) -> list[tuple[str, str]]:
    report = check_table(open_table(str(path), fetch=fetch, trust=True, **options))
    assert report.ok == (not report.problems)
    return [(problem.kind, problem.message) for problem in report.problems]


def kinds(path, fetch, **options) -> set[str]:
    return {kind for kind, _ in problems(path, fetch, **options)}


def test_a_right_index_has_no_problem_and_all_rows_are_read(index, fetch):
    report = check_table(open_table(str(index), fetch=fetch))
    assert (report.ok, report.rows, report.problems, report.more) == (True, 60, (), 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_position_along_a_dimension_that_an_array_lacks_is_refused(form, tmp_path, fetch):
    line = Array(name="a", dims=("y",), shape=(3,), chunks=(1,), dtype=np.dtype("i4"), encodings=(Encoding(()),))
    point = replace(line, name="z", dims=(), shape=(), chunks=())
    blocks = [
        ("a", Refs(chunk=np.arange(3, dtype=np.int32)[None], offset=np.arange(3), length=np.full(3, 4))),
        ("z", Refs(chunk=np.empty((0, 1), np.int32), offset=np.array([0]), length=np.array([4]))),
    ]
    catalog = Catalog(arrays={"a": line, "z": point})
    files = files_of([str(tmp_path / "a.tif")], size=400)
    write_table(str(tmp_path / form), catalog, blocks, files, fetch=fetch).close()
    assert problems(tmp_path / form, fetch) == []
    index = tamper(tmp_path / form, rows=change_column("y_chunk", lambda old: [5 if y is None else y for y in old]))
    message = "array 'z': a chunk position along 'y' is not null, and it lacks that dimension"
    if index.is_dir():
        part = next((index / "chunks").iterdir())
        tamper(index, document=lambda document: document["chunks"][0].update(bytes=part.stat().st_size))
    table = open_table(str(index), fetch=fetch)
    assert problems(index, fetch) == [("position", message)]
    for read in (lambda: table.select(array="z"), lambda: list(table.unverified.blocks())):
        with pytest.raises(FormatError, match=message):
            read()
    assert table.select(array="a").num_rows == 3


def test_a_row_group_without_rows_is_no_problem(tmp_path, fetch):
    catalog, refs, files = parted()
    write_table(str(tmp_path / "i.parquet"), catalog, refs.items(), files, fetch=fetch).close()
    index = tamper(tmp_path / "i.parquet", rows=lambda rows: rows.slice(0, 0))
    assert pq.read_metadata(index).num_row_groups == 1
    report = check_table(open_table(str(index), fetch=fetch, trust=True))
    assert (report.ok, report.rows) == (True, 0)


def changed(index, name: str, row: int, value):
    """The index with another value in a row: 0 to 39 are of 0/data, then those of 1/data."""
    return with_rows(
        index, change_column(name, lambda values: [value if n == row else old for n, old in enumerate(values)])
    )


def with_rows(index, change):
    """The index with other rows, whose parts have the sizes that are listed."""

    def resized(document):
        for piece in document["chunks"]:
            piece["bytes"] = (index / piece["path"]).stat().st_size

    tamper(index, rows=change)
    return index if index.is_file() else tamper(index, document=resized)


@pytest.mark.parametrize(
    ("name", "row", "value", "kind"),
    [
        ("array", 3, "2/data", "array"),
        ("level", 3, 1, "level"),
        ("y_chunk", 39, 4, "position"),
        ("y_chunk", 39, -1, "position"),
        ("y_chunk", 39, None, "position"),
        ("x_chunk", 2, 0, "duplicate"),
        ("part", 1, 0, "duplicate"),
        ("part", 1, 2, "sequence"),
        ("part", 1, 2, "count"),
        ("offset", 5, 391, "range"),
        ("offset", 5, -1, "range"),
        ("length", 5, -1, "range"),
        ("length", 5, 2**62, "range"),
        ("encoding", 5, 2, "encoding"),
        ("length", 43, 9, "inline"),
        ("data", 43, None, "inline"),
    ],
)
def test_a_wrong_value_in_a_row_is_named(name, row, value, kind, index, fetch):
    assert kind in kinds(changed(index, name, row, value), fetch)


def test_a_file_that_is_not_listed_is_named(index, fetch):
    name, value = ("path", "c.tif") if index.is_file() else ("file_id", 7)
    assert kinds(changed(index, name, 5, value), fetch) == {"file"}


def test_rows_that_are_missing_or_too_many_are_named(index, fetch):
    with_rows(index, lambda table: table.slice(1))
    assert ("sequence" if index.is_file() else "part") in kinds(index, fetch)


def test_all_kinds_of_problems_of_a_row_group_are_named(index, fetch):
    for name, row, value in (("x_chunk", 2, 0), ("offset", 5, 391), ("encoding", 7, 2)):
        changed(index, name, row, value)
    assert {"duplicate", "range", "encoding"} <= kinds(index, fetch)


def test_statistics_that_hide_rows_are_named(index, fetch, monkeypatch):
    from periplus.table.parquet.ranges import ParquetBytes

    real = ParquetBytes.bounds

    def wrong(self, number, name):
        return (0, 2, True) if name == "y_chunk" else real(self, number, name)

    monkeypatch.setattr(ParquetBytes, "bounds", wrong)
    assert kinds(index, fetch) == {"statistics"}


def test_a_damaged_page_is_named(index, fetch):
    part = index if index.is_file() else next((index / "chunks").iterdir())
    data, about = bytearray(part.read_bytes()), pq.read_metadata(part)
    chunk = about.row_group(0).column(about.schema.names.index("offset"))
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    part.write_bytes(data)
    assert kinds(index, fetch) == {"unreadable"}


def test_a_files_table_that_cannot_be_read_is_named(index, fetch):
    tamper(index, files=change_column("size", lambda sizes: [-7, *sizes[1:]]))
    assert kinds(index, fetch) == {"files"}


@pytest.fixture
def grown(tmp_path, fetch):
    """A dataset of two parts."""
    catalog, refs, files = stacked(steps=2)
    write_table(str(tmp_path / "index"), catalog, refs.items(), files, fetch=fetch)
    more, new, _ = stacked(steps=3)
    blocks = [(name, one.take(one.chunk[0] == 2)) for name, one in new.items()]
    blocks = [(name, replace(one, file=np.zeros(len(one), np.int32))) for name, one in blocks]
    append_table(str(tmp_path / "index"), more, blocks, files_of(["s3://bucket/new.tif"]), fetch=fetch)
    return tmp_path / "index"


def test_parts_that_are_missing_or_not_listed_are_named(grown, fetch):
    assert problems(grown, fetch) == []
    first, second = sorted((grown / "chunks").iterdir())
    (grown / "chunks" / "part-0123456789abcdef.parquet").write_bytes(first.read_bytes())
    report = check_table(open_table(str(grown), fetch=fetch))
    assert [(p.kind, p.url) for p in report.problems] == [
        ("orphan", str(grown / "chunks" / "part-0123456789abcdef.parquet"))
    ]
    second.unlink()
    report = check_table(open_table(str(grown), fetch=fetch))
    assert {p.kind for p in report.problems} == {"orphan", "part"}
    assert 0 < report.rows < open_table(str(grown), fetch=fetch).rows


@pytest.mark.parametrize(
    ("field", "value", "kind"), [("rows", 999, "part"), ("bytes", 999, "part"), ("path", None, "part")]
)
def test_parts_that_are_not_as_listed_are_named(field, value, kind, grown, fetch):
    def change(document):
        first, second = document["chunks"]
        first[field] = second["path"] if value is None else min(value, first["rows"] - 1) if field == "rows" else value

    tamper(grown, document=change)
    assert kind in kinds(grown, fetch)


def test_bounds_that_hide_rows_are_named(grown, fetch):
    def change(document):
        document["chunks"][0]["bounds"]["0/data"][0] = [0, 1]

    assert kinds(tamper(grown, document=change), fetch) == {"bounds"}


def test_rows_of_duckdb_are_checked(tmp_path, fetch):
    import duckdb

    target = str(tmp_path / "index.duckdb")
    catalog, refs, files = parted()
    write_table(target, catalog, refs.items(), files, fetch=fetch)
    assert problems(target, fetch) == []
    for change, kind in (
        ("update chunks set x_chunk = 1 where rowid = 4", "duplicate"),
        ('update chunks set "offset" = 395 where rowid = 9', "range"),
        ("update chunks set \"array\" = 'gone' where rowid = 9", "unreadable"),
    ):
        write_table(target, catalog, refs.items(), files, fetch=fetch)
        with duckdb.connect(target) as connection:
            connection.execute(change)
        assert kind in kinds(target, fetch), change


def test_a_giant_grid_is_checked_without_giant_memory(fetch):
    array = Array(name="a", dims=("y", "x"), shape=(1 << 31, 1 << 31), chunks=(1, 1), dtype=np.dtype("u1"))
    far = np.int32([[5, 2**31 - 2, 5], [7, 2**31 - 2, 7]])
    for count, found in ((2, []), (3, ["duplicate"])):
        refs = Refs(
            chunk=far[:, :count],
            offset=np.zeros(count, np.int64),
            length=np.ones(count, np.int64),
            file=np.zeros(count, np.int32),
        )
        table = memory_table(Catalog(arrays={"a": array}), {"a": refs}, files_of(["a"]))
        report = check_table(table)
        assert [problem.kind for problem in report.problems] == found
    assert "(5, 7)" in report.problems[0].message


def test_twins_are_found_in_several_passes_too(index, fetch):
    changed(index, "x_chunk", 2, 0)
    table = open_table(str(index), fetch=fetch)
    table.limits = replace(Limits(), memory_bytes=400)
    assert {problem.kind for problem in check_table(table).problems} >= {"duplicate"}
    table = open_table(str(changed(index, "x_chunk", 2, 1)), fetch=fetch)
    table.limits = replace(Limits(), memory_bytes=400)
    assert check_table(table).ok


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "scenes"
    folder.mkdir()
    for day in (1, 2, 3):
        (folder / f"2021{day:03}.tif").write_bytes(tiffs.written(np.full((1, 40, 50), day, "u2"), compression="zstd"))
    return folder


@pytest.mark.parametrize("name", ["index.parquet", "index", "index.duckdb", "refs.json", "refs", "repo.icechunk"])
def test_right_indexes_of_all_forms_have_no_problem(name, archive, tmp_path):
    with periplus.index(f"{archive}/*.tif", arrange="stack", pattern="{time:%Y%j}") as made:
        made.write(tmp_path / name, **({"form": "kerchunk"} if name == "refs" else {}))
        assert made.check_index().ok
    for path in archive.iterdir() if name != "repo.icechunk" else ():  # opening that one asks for the files' sizes
        path.unlink()  # no source is accessed
    with periplus.open(tmp_path / name, trust=True) as index:
        report = index.check_index()
        assert report.ok, report.problems
        assert report.rows == index.table.rows == 12


@pytest.mark.parametrize("name", ["refs.json", "refs", "repo.icechunk"])
def test_what_cannot_be_read_of_another_form_is_named(name, archive, tmp_path, monkeypatch):
    with periplus.index(f"{archive}/*.tif", arrange="stack", pattern="{time:%Y%j}") as made:
        made.write(tmp_path / name, **({"form": "kerchunk"} if name == "refs" else {}))
    with periplus.open(tmp_path / name) as index:
        rows = index.table.unverified
        (array, refs), *_ = rows.blocks()
        twice = Refs.joined([refs, refs.take(slice(0, 1))], refs.chunk.shape[0])
        monkeypatch.setattr(type(rows), "blocks", lambda _: iter([(array, twice), ("gone", refs)]))
        assert {problem.kind for problem in index.check_index().problems} == {"duplicate", "array"}

        def broken(_):
            yield array, refs
            raise periplus.FormatError("a record is damaged")

        monkeypatch.setattr(type(rows), "blocks", broken)
        assert [problem.kind for problem in index.check_index().problems] == ["unreadable"]


def test_progress_counts_rows(index, fetch):
    told = []
    check_table(open_table(str(index), fetch=fetch), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (60, 60)
    with Fetch() as other:
        assert check_table(open_table(str(index), fetch=other)).rows == 60


def test_many_sorted_rows_are_looked_at_in_steps(index, fetch, monkeypatch):
    from periplus.table.query import integrity

    monkeypatch.setattr(integrity, "STEP", 3)  # which is between two parts of a chunk
    assert problems(index, fetch) == []
    assert "duplicate" in kinds(changed(index, "x_chunk", 2, 0), fetch)
