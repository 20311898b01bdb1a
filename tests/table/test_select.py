"""Selecting by array, level, window, box and time gives the rows a person would count by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

from periplus.errors import FormatError, MissingError
from periplus.model import Array, Catalog, Coordinate, Georeference
from periplus.table import memory_table, open_table, write_table
from periplus.table.query.times import span
from periplus.testing.indexes import dense_refs, files_of, stacked


@pytest.fixture(params=["memory", "index.parquet", "index", "index.duckdb"])
def table(request, stored, fetch):
    if request.param == "memory":
        return memory_table(*stacked(steps=40))
    return open_table(str(stored / request.param), fetch=fetch, allow=["s3://bucket/"], trust=True)


def places(rows, *names):
    return sorted(set(zip(*(rows[f"{name}_chunk"].to_pylist() for name in names), strict=True)))


def test_all_rows_of_all_arrays(table):
    rows = table.select()
    assert rows.num_rows == 40 * (4 * 6 + 2 * 3) == table.rows
    assert rows.column_names == [
        "array", "level", "time_chunk", "bands_chunk", "y_chunk", "x_chunk", "time", "path", "offset", "length",
    ]  # fmt: skip
    assert set(rows["array"].to_pylist()) == {"0/data", "1/data"}
    assert rows.schema.field("time").type == pa.timestamp("us")


def test_by_array_and_level(table):
    assert table.select(array="1/data").num_rows == 240
    assert table.select(level=1)["array"].unique().to_pylist() == ["1/data"]
    assert table.select(array=["0/data", "1/data"], level=0).num_rows == 960
    with pytest.raises(ValueError, match="the levels are 0"):
        table.select(array="0/data", level=1)
    with pytest.raises(MissingError):
        table.select(array="9/data")


def test_by_window(table):
    rows = table.select(array="0/data", window=[(3, 5), (0, 1), (1, 3), (2, 4)])
    assert places(rows, "time", "y", "x") == [(t, y, x) for t in (3, 4) for y in (1, 2) for x in (2, 3)]
    assert places(table.select(level=0, window={"y": (3, 99)}), "y") == [(3,)]
    with pytest.raises(ValueError, match="no dimension 'z'"):
        table.select(window={"z": (0, 1)})
    with pytest.raises(ValueError, match="4 dimensions, the window 2"):
        table.select(array="0/data", window=[(0, 1), (0, 1)])


def test_by_box(table):
    """Tiles are 640 m wide at level 0, 1280 m at level 1, from (300000, 5200000) down."""
    box = (300_000 + 650, 5_200_000 - 1900, 300_000 + 1270, 5_200_000 - 10)
    assert places(table.select(array="0/data", bbox=box), "y", "x") == [(0, 1), (1, 1), (2, 1)]
    assert places(table.select(array="1/data", bbox=box), "y", "x") == [(0, 0), (1, 0)]
    assert table.select(bbox=(0, 0, 1, 1)).num_rows == 0
    assert table.select(bbox=box, crs="EPSG:32633").num_rows == 40 * 5
    with pytest.raises(TypeError, match="reproject"):
        table.select(bbox=box, crs="EPSG:4326")


@pytest.mark.parametrize(
    ("time", "days"),
    [
        ("2021-01-03", [2]),
        ("2021-01-03T00:00", [2]),
        ("2021-01-03T12", []),
        ("2021-02", list(range(31, 40))),
        ("2021", list(range(40))),
        ("2021-01-03T00:00:00Z", [2]),
        ("2021-01-03T02:00:00+02:00", [2]),
        (date(2021, 1, 3), [2]),
        (datetime(2021, 1, 3), [2]),
        (datetime(2021, 1, 3, tzinfo=UTC), [2]),
        (datetime(2021, 1, 3, 5, tzinfo=timezone(timedelta(hours=5))), [2]),
        (datetime(2021, 1, 3, 5), []),
        (np.datetime64("2021-01-03"), [2]),
        (("2021-01-03", "2021-01-05"), [2, 3, 4]),
        (slice("2021-01-03", datetime(2021, 1, 4)), [2, 3]),
        (slice(None, "2021-01-02"), [0, 1]),
        (("2021-02-08", None), [38, 39]),
        (slice(None), list(range(40))),
        ("1999", []),
    ],
)
def test_by_time(table, time, days):
    rows = table.select(array="1/data", time=time)
    assert places(rows, "time") == [(day,) for day in days]
    if days:
        assert min(rows["time"].to_pylist()) == datetime(2021, 1, 1) + timedelta(days=days[0])


@pytest.mark.parametrize(
    "time", ["soon", 3, ("2021",), ("2021-02", "2021-01"), slice("2021", "2022", 2), None, (1, 2), ""]
)
def test_times_that_are_none_are_refused(time):
    with pytest.raises((TypeError, ValueError)):
        span(time)


def test_answers_name_their_sources_and_boxes(table):
    rows = table.select(array="0/data", window=[(7, 8), (0, 1), (0, 4), (0, 6)], footprints=True)
    assert set(rows["path"].to_pylist()) == {"s3://bucket/scenes/0007.tif"}
    last = rows.slice(23).to_pylist()[0]
    assert (last["y_chunk"], last["x_chunk"]) == (3, 5)
    assert [last[k] for k in ("xmin", "ymin", "xmax", "ymax")] == [303_200, 5_197_540, 303_640, 5_198_080]
    refs = table.refs("0/data", [(7, 8), (0, 1), (0, 4), (0, 6)])
    assert rows["offset"].to_pylist() == refs.offset.tolist()
    assert rows["length"].to_pylist() == refs.length.tolist()


def test_everything_at_once(table):
    box = (300_000 + 650, 5_200_000 - 1900, 300_000 + 1270, 5_200_000 - 10)
    rows = table.select(level=0, bbox=box, time=("2021-01-10", "2021-01-11"), window={"y": (1, 9)})
    assert places(rows, "time", "y", "x") == [(9, 1, 1), (9, 2, 1), (10, 1, 1), (10, 2, 1)]


def test_times_that_are_not_in_order_and_chunks_of_several_times():
    values = np.array(["2021-01-05", "NaT", "2021-01-01", "2021-01-09", "2021-01-01"], "M8[us]")
    for chunk, want in ((1, [2, 4]), (2, [1, 2])):
        array = Array(name="a", dims=("time",), shape=(5,), chunks=(chunk,), dtype=np.dtype("u1"))
        catalog = Catalog(
            arrays={"a": array}, coordinates={"time": Coordinate(name="time", dims=("time",), values=values)}
        )
        table = memory_table(catalog, {"a": dense_refs(array)}, files_of(["s3://b/x"]))
        assert table.select(time="2021-01-01")["time_chunk"].to_pylist() == want


def test_without_a_time_dimension_the_times_of_the_files_count():
    arrays = {n: Array(name=n, dims=("y", "x"), shape=(4, 4), chunks=(2, 2), dtype=np.dtype("u1")) for n in ("a", "b")}
    refs = {"a": dense_refs(arrays["a"], files=2), "b": dense_refs(arrays["b"])}
    table = memory_table(Catalog(arrays=arrays), refs, files_of(["s3://b/x", "s3://b/y"]))
    rows = table.select(time="2021-01-02")
    assert rows["path"].unique().to_pylist() == ["s3://b/y"]
    assert rows.num_rows == 2


def test_rotated_grids_give_the_chunks_that_meet_the_box():
    place = Georeference(crs="EPSG:32633", transform=(7.0, 7.0, 0.0, 7.0, -7.0, 0.0))
    array = Array(
        name="a", dims=("y", "x"), shape=(80, 80), chunks=(10, 10), dtype=np.dtype("u1"), georeference=place
    )  # fmt: skip
    table = memory_table(Catalog(arrays={"a": array}), {"a": dense_refs(array)}, files_of(["s3://b/x"]))
    rows = table.select(bbox=(500, -20, 600, 20), footprints=True)
    assert 0 < rows.num_rows < 20
    assert max(rows["xmin"].to_pylist()) < 600
    assert min(rows["xmax"].to_pylist()) > 500


def test_a_box_on_an_array_without_a_transform_is_refused_when_it_is_named():
    arrays = {
        "a": Array(name="a", dims=("y", "x"), shape=(4, 4), chunks=(2, 2), dtype=np.dtype("u1")),
        "b": stacked()[0].arrays["0/data"].renamed("b"),
    }
    refs = {name: dense_refs(array) for name, array in arrays.items()}
    table = memory_table(Catalog(arrays=arrays), refs, files_of(["s3://b/x"]))
    assert set(table.select(bbox=(300_000, 5_199_000, 301_000, 5_200_000))["array"].to_pylist()) == {"b"}
    with pytest.raises(FormatError, match="no transform"):
        table.select(array="a", bbox=(0, 0, 1, 1))


def test_arrays_of_different_rank_share_a_table():
    arrays = {
        "a": Array(name="a", dims=("y", "x"), shape=(4, 4), chunks=(2, 2), dtype=np.dtype("u1")),
        "scalar": Array(name="scalar", dims=(), shape=(), chunks=(), dtype=np.dtype("f8")),
    }
    refs = {name: dense_refs(array) for name, array in arrays.items()}
    rows = memory_table(Catalog(arrays=arrays), refs, files_of(["s3://b/x"])).select()
    assert rows["y_chunk"].to_pylist() == [0, 0, 1, 1, None]


@pytest.mark.parametrize("interleaved", [False, True])
def test_of_many_images_only_those_of_the_place_and_time_are_looked_at(tmp_path, fetch, monkeypatch, interleaved):
    arrays = {
        f"{n:02}/0/data": Array(
            name=f"{n:02}/0/data", dims=("y", "x"), shape=(20, 20), chunks=(10, 10), dtype=np.dtype("u1"),
            georeference=Georeference(crs="EPSG:32633", transform=(1.0, 0.0, 100.0 * n, 0.0, -1.0, 20.0)),
        )
        for n in range(30)
    }  # fmt: skip
    files = replace(
        files_of([f"s3://bucket/{n}.tif" for n in range(30)]),
        datetime=np.datetime64("2021-01-01", "us") + np.arange(30).astype("m8[D]"),
    )
    refs = {
        name: replace(dense_refs(one), file=np.full(4, n, np.int32)) for n, (name, one) in enumerate(arrays.items())
    }
    parts = [(name, one.take(half)) for half in ([0, 1], [2, 3]) for name, one in refs.items()]
    path = str(tmp_path / "index.parquet")
    write_table(path, Catalog(arrays=arrays), parts if interleaved else refs.items(), files, fetch=fetch)
    table = open_table(path, fetch=fetch, allow=["s3://bucket/"])
    asked: list[str] = []
    listed = table.listed_all
    monkeypatch.setattr(
        table,
        "listed_all",
        lambda wanted, **more: (asked.extend(array.name for array, _ in wanted), listed(wanted, **more))[1],
    )
    rows = table.select(bbox=(705, 0, 795, 5), footprints=True)
    assert asked == ["07/0/data"]
    assert places(rows, "y", "x") == [(1, 0), (1, 1)]
    assert rows["xmin"].to_pylist() == [700.0, 710.0]
    assert table.select(time="1999").num_rows == 0
    assert asked == ["07/0/data"]
    rows = table.select(time=("2021-01-05", "2021-01-06"))
    assert rows["array"].to_pylist() == ["04/0/data"] * 4 + ["05/0/data"] * 4
    assert rows["path"].to_pylist() == ["s3://bucket/4.tif"] * 4 + ["s3://bucket/5.tif"] * 4
    assert rows["path"].num_chunks == 1  # one dictionary of paths for all images
