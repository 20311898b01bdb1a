"""Values at points, compared with rasterio's."""

import geopandas
import numpy as np
import pytest
import rasterio
from pyproj import Transformer

import periplus
from periplus.testing.scenes import NODATA, tile
from periplus.testing.servers.http import RangeServer


@pytest.fixture
def folder(tmp_path):
    for number, (row, column) in enumerate(((0, 0), (0, 0), (20, 30)), 1):
        values = np.random.default_rng(number).integers(0, 999, (2, 64, 64)).astype("i2")
        values[0, 5] = NODATA
        tile(tmp_path / f"s_2021010{number}.tif", row, column, values=values)
    return tmp_path


@pytest.fixture
def points():
    rng = np.random.default_rng(5)
    return np.stack([500_000 + rng.uniform(-200, 1200, 80), 5_000_000 - rng.uniform(-200, 1000, 80)], axis=1)


def by_rasterio(path, points):
    """(n, bands) values, None outside and for nodata."""
    with rasterio.open(path) as file:
        found = []
        for (x, y), values in zip(points, file.sample(points, masked=True), strict=True):
            row, column = file.index(x, y)
            inside = 0 <= row < file.height and 0 <= column < file.width
            found.append([None if not inside or v is np.ma.masked else int(v) for v in values])
    return found


def rows(table, *names):
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_a_stack_through_time(folder, points):
    index = periplus.index([folder / "s_20210101.tif", folder / "s_20210102.tif"])
    table = index.sample(points)
    assert table.column_names == ["point", "x", "y", "time", "band_1", "band_2"]
    want = [by_rasterio(folder / f"s_2021010{day}.tif", points) for day in (1, 2)]
    assert [list(row) for row in rows(table, "band_1", "band_2")] == [want[t][n] for n in range(80) for t in (0, 1)]
    assert [row[0].day for row in rows(table, "time")] == [1, 2] * 80
    assert [row[:2] for row in rows(table, "x", "y")][::2] == list(map(tuple, points.tolist()))
    some = index.sample(points, bands=2, time="2021-01-02")
    assert [row[0] for row in rows(some, "band_2")] == [values[1] for values in want[1]]


def test_a_collection_gives_every_image_at_a_point(folder, points):
    index = periplus.index(folder, arrange="collect")
    table = index.sample(points)
    assert table.column_names == ["point", "x", "y", "array", "time", "band_1", "band_2"]
    want = []
    for n, values in enumerate(
        zip(*(by_rasterio(folder / f"s_2021010{k}.tif", points) for k in (1, 2, 3)), strict=True)
    ):
        inside = (_inside(points[n], 0, 0), _inside(points[n], 0, 0), _inside(points[n], 20, 30))
        want += [(n, f"s_2021010{k + 1}/0/data", *values[k]) for k in range(3) if inside[k]]
    assert rows(table, "point", "array", "band_1", "band_2") == want
    one = index.sample(points, array="s_20210103")
    assert [list(row) for row in rows(one, "band_1", "band_2")] == by_rasterio(folder / "s_20210103.tif", points)


def _inside(point, row, column):
    y, x = (5_000_000 - point[1]) / 10 - row, (point[0] - 500_000) / 10 - column
    return 0 <= y < 64 and 0 <= x < 64


def test_points_in_another_crs(folder, points):
    index = periplus.index(folder / "s_20210101.tif")
    lon, lat = Transformer.from_crs(32633, 4326, always_xy=True).transform(*points.T)
    there = np.stack([lon, lat], axis=1)
    assert rows(index.sample(there, crs=4326), "band_1") == rows(index.sample(points), "band_1")
    frame = geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(lon, lat), crs=4326)
    for given in (frame, frame.geometry):
        assert rows(index.sample(given), "band_1") == rows(index.sample(points), "band_1")
    assert rows(index.sample([(1e30, 1e30)], crs=4326), "band_1") == [(None,)]


def test_a_grid_of_the_world_takes_longitudes_of_both_ranges(tmp_path):
    path = tmp_path / "world.tif"
    values = np.arange(36 * 18, dtype="i4").reshape(18, 36)
    with rasterio.open(
        path, "w", driver="GTiff", width=36, height=18, count=1, dtype="int32", crs="EPSG:4326",
        transform=rasterio.Affine(10, 0, -180, 0, -10, 90),
    ) as file:  # fmt: skip
        file.write(values[None])
    index = periplus.index(path)
    assert rows(index.sample([(190, 0), (-170, 0), (0, 0)]), "band_1") == [
        (values[9, 1],),
        (values[9, 1],),
        (values[9, 18],),
    ]


def test_each_chunk_of_a_remote_file_is_read_once(folder, points):
    with RangeServer(folder) as server:
        index = periplus.index([f"{server.url}/s_2021010{n}.tif" for n in (1, 2)])
        index.sample(points[:1])
        before = len(server.log)
        seen = []
        table = index.sample(points, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1][0] == seen[-1][1]
        assert len(server.log) - before <= 2 * 4  # two files of four chunks
    assert rows(table, "band_1") == rows(
        periplus.index([folder / f"s_2021010{n}.tif" for n in (1, 2)]).sample(points), "band_1"
    )


def test_bands_named_like_a_column_are_numbered(tmp_path):
    tile(tmp_path / "a.tif", 0, 0, values=np.arange(2 * 64 * 64, dtype="i2").reshape(2, 64, 64))
    for names in (("x", "y"), ("point", "b"), ("time", "array")):
        with rasterio.open(tmp_path / "a.tif", "r+") as file:
            file.descriptions = names
        table = periplus.index(tmp_path / "a.tif").sample([(500_005, 4_999_995)])
        assert table.column_names == ["point", "x", "y", "band_1", "band_2"]
        assert table["x"].to_pylist() == [500_005]


def test_images_without_a_transform_have_no_pixel_at_a_point(tmp_path):
    tile(tmp_path / "a.tif", 0, 0)
    corners = ((0, 0, 500_000, 5_000_000), (0, 64, 500_640, 5_000_000), (64, 0, 500_000, 4_999_360))
    points = [rasterio.control.GroundControlPoint(*one) for one in (*corners, (64, 64, 500_640, 4_999_360))]
    size = {"width": 64, "height": 64, "count": 1, "dtype": "uint8"}
    with rasterio.open(tmp_path / "b.tif", "w", driver="GTiff", gcps=points, crs="EPSG:32633", **size) as file:
        file.write(np.ones((1, 64, 64), "u1"))
    table = periplus.index(tmp_path, arrange="collect").sample([(500_005, 4_999_995)])
    assert table["array"].to_pylist() == ["a/0/data"]
    with pytest.raises(periplus.FormatError, match="no transform"):
        periplus.index(tmp_path / "b.tif").sample([(500_005, 4_999_995)])


def test_no_image_at_any_point_is_a_table_without_rows(folder):
    table = periplus.index(folder, arrange="collect").sample([(0, 0)])
    assert (table.num_rows, table.column_names) == (0, ["point", "x", "y"])


def test_values_are_never_rounded(tmp_path):
    for k, dtype in enumerate(("uint64", "int64", "uint8")):
        values = np.full((1, 64, 64), np.iinfo(dtype).max, dtype)
        tile(tmp_path / f"{k}.tif", 0, 0, values=values, bands=1, dtype=dtype, nodata=None)
    point = [(500_005, 4_999_995)]
    with pytest.raises(ValueError, match="exactly"):
        periplus.index(tmp_path, arrange="collect").sample(point)
    small = periplus.index([tmp_path / "0.tif", tmp_path / "2.tif"], arrange="collect").sample(point)
    assert small["band_1"].to_pylist() == [2**64 - 1, 255]


def test_complex_values_are_refused(tmp_path):
    tile(tmp_path / "a.tif", 0, 0, values=np.ones((1, 64, 64), "c8"), bands=1, dtype="complex64", nodata=None)
    with pytest.raises(ValueError, match="complex"):
        periplus.index(tmp_path / "a.tif").sample([(500_005, 4_999_995)])


def test_wrong_points(folder):
    index = periplus.index(folder / "s_20210101.tif")
    for wrong in ([], "x", [(1, 2, 3)], [(np.nan, 1)], 3, [("a", "b")]):
        with pytest.raises(ValueError, match="points are pairs"):
            index.sample(wrong)
    limited = periplus.index(folder / "s_20210101.tif", limits=periplus.Limits(read_bytes=100))
    with pytest.raises(periplus.LimitError):
        limited.sample(np.full((1000, 2), 500_005.0))
