"""Files that overlap or lie across each other's chunks read as rasterio merges them, whatever rule is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from numpy.typing import NDArray

import periplus
from periplus.errors import ConflictError
from periplus.testing.formats.tiff import picture
from periplus.testing.scenes import NODATA, NORTH, PIXEL, WEST, merged, tile

RULES = ("first", "last", "first-valid", "last-valid")


def windows(index: Any, expected: NDArray[Any], name: str = "0/data", count: int = 25) -> None:
    """The whole and windows of it."""
    array = index[name]
    np.testing.assert_array_equal(array[...], expected)
    rng = np.random.default_rng(11)
    for _ in range(count):
        (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in expected.shape[1:])
        np.testing.assert_array_equal(array[:, top:bottom, left:right], expected[:, top:bottom, left:right])


def painted(paths: Sequence[Path], rule: str, *, level: int | None = None, nodata: Any = NODATA) -> NDArray[Any]:
    """The files laid one over the other by hand, nodata or not."""
    options = {} if level is None else {"overview_level": level}
    images = []
    for path in paths:
        with rasterio.open(path, **options) as image:
            row, column = (NORTH - image.transform.f) / PIXEL, (image.transform.c - WEST) / PIXEL
            factor = round(image.transform.a / PIXEL)
            images.append((round(row / factor), round(column / factor), image.read()))
    top, left = min(i[0] for i in images), min(i[1] for i in images)
    bottom, right = (max(i[k] + i[2].shape[k + 1] for i in images) for k in (0, 1))
    whole = np.full((images[0][2].shape[0], bottom - top, right - left), nodata, images[0][2].dtype)
    for row, column, values in reversed(images) if rule.startswith("first") else images:
        place = whole[:, row - top :, column - left :][:, : values.shape[1], : values.shape[2]]
        place[...] = np.where(values == nodata, place, values) if rule.endswith("valid") else values
    return whole


def holed(name: str, size: tuple[int, int], bands: int = 2) -> NDArray[Any]:
    """A picture with nodata in it, as at the edge of a swath."""
    values = picture(name, np.int16, (bands, *size))
    y, x = np.indices(size)
    values[:, (x + 2 * y) % 97 < 40] = NODATA
    return values


LAYOUTS: dict[str, list[tuple[int, int, tuple[int, int]]]] = {
    # row, column, size; chunks are 32 x 32
    "side by side, out of phase": [(0, 0, (64, 64)), (10, 64, (64, 64)), (64, 5, (64, 59))],
    "collars": [(r * 50, c * 50, (60, 60)) for r in range(3) for c in range(3)],
    "sentinel-like": [(r * 100, c * 100, (110, 110)) for r in range(2) for c in range(3)],
    "random": [(7, 13, (70, 41)), (0, 0, (33, 90)), (50, 31, (64, 64)), (45, 100, (20, 80)), (90, 3, (31, 90))],
    "aligned overlaps": [(0, 0, (96, 96)), (32, 64, (64, 64)), (64, 0, (32, 96))],
    "one inside": [(0, 0, (96, 96)), (40, 40, (17, 17)), (0, 200, (16, 16))],
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_reads_as_rasterio_merges_it(tmp_path: Path, layout: str, rule: str) -> None:
    paths = [
        tile(tmp_path / f"{n}.tif", row, column, size, values=holed(f"{layout}{n}", size))
        for n, (row, column, size) in enumerate(LAYOUTS[layout])
    ]
    expected = painted(paths, rule)
    if rule.endswith("valid"):
        np.testing.assert_array_equal(expected, merged(paths, rule.removesuffix("-valid"))[0])
    periplus.index(paths, to=tmp_path / "m.parquet", arrange="mosaic", duplicates=rule).close()
    with periplus.open(tmp_path / "m.parquet") as index:
        windows(index, expected)


def test_files_across_each_others_chunks_need_no_rule(tmp_path: Path) -> None:
    spots = LAYOUTS["side by side, out of phase"]
    paths = [tile(tmp_path / f"{n}.tif", row, column, size) for n, (row, column, size) in enumerate(spots)]
    with periplus.index(paths, arrange="mosaic") as index:
        windows(index, merged(paths)[0])
    paths.append(tile(tmp_path / "odd.tif", 73, 127, (40, 40)))
    with pytest.raises(ConflictError, match=r"odd\.tif and 1\.tif overlap in 1 rows and 1 columns from row 73"):
        periplus.index(paths, arrange="mosaic")


@pytest.mark.parametrize(
    "profile",
    [
        {"interleave": "band"},
        {"interleave": "pixel", "compress": "none"},
        {"compress": "lzw", "predictor": 2},
        {"tiled": False, "blockysize": 16},
        {"tiled": False, "blockysize": 16, "compress": "none"},
        {"tiled": False, "blockysize": 200},
        {"compress": "zstd", "blockxsize": 16},
        {"dtype": np.float32, "nodata": np.nan},
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", ["first", "last-valid"])
def test_every_way_of_storing_is_cut_alike(tmp_path: Path, profile: dict[str, Any], rule: str) -> None:
    spots = [(0, 0, (70, 90)), (13, 60, (64, 77)), (50, 21, (45, 41)), (60, 100, (50, 33))]
    paths = [tile(tmp_path / f"{n}.tif", r, c, size, **profile) for n, (r, c, size) in enumerate(spots)]
    with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
        windows(index, merged(paths, rule.removesuffix("-valid"))[0], count=12)


def test_files_stored_in_different_ways_stand_together(tmp_path: Path) -> None:
    profiles: list[dict[str, Any]] = [
        {},
        {"compress": "none", "tiled": False, "blockysize": 7},
        {"compress": "lzw", "predictor": 2, "blockxsize": 64, "blockysize": 16, "interleave": "band"},
        {"compress": "zstd", "interleave": "pixel", "blockxsize": 128, "blockysize": 128},
    ]
    paths = [tile(tmp_path / f"{n}.tif", 20 * n, 31 * n, (80, 81), **p) for n, p in enumerate(profiles)]
    with periplus.index(paths, arrange="mosaic", duplicates="last") as index:
        windows(index, merged(paths, "last")[0])


@pytest.mark.parametrize("usual", ["band", "pixel"])
def test_bands_together_and_apart_stand_side_by_side(tmp_path: Path, usual: str) -> None:
    ways = [usual, "band", "pixel", usual]
    paths = [
        tile(tmp_path / f"{n}.tif", 64 * (n // 2), 64 * (n % 2), bands=3, interleave=way) for n, way in enumerate(ways)
    ]
    periplus.index(paths[:3], to=tmp_path / "m.parquet", arrange="mosaic").close()
    with periplus.index(paths, to=tmp_path / "m.parquet", arrange="mosaic") as index:
        assert index.summary is not None
        assert index.summary.reused == 3
        assert index["0/data"].chunks == (3 if usual == "pixel" else 1, 32, 32)
        windows(index, merged(paths)[0])
        np.testing.assert_array_equal(index["0/data"][1, 20:100, 20:100], merged(paths)[0][1, 20:100, 20:100])


def test_chunks_of_files_on_one_lattice_are_followed(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{r}_{c}.tif", r * 100, c * 100, (110, 110)) for r in range(3) for c in range(3)]
    with periplus.index(paths, arrange="mosaic", duplicates="first") as index:
        array = index.table.catalog.arrays["0/data"]
        assert array.edges is not None
        stored = len(paths) * (-(-110 // 32)) ** 2
        assert index.table.rows < 2 * stored


def test_files_of_many_phases_get_regular_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    paths = [
        tile(tmp_path / f"{n}.tif", int(rng.integers(0, 150)), int(rng.integers(0, 150)), (64, 64)) for n in range(14)
    ]
    with periplus.index(paths, arrange="mosaic", duplicates="first") as index:
        array = index.table.catalog.arrays["0/data"]
        assert array.edges is None
        assert array.chunks == (2, 32, 32)
        windows(index, merged(paths, "first")[0])


def test_a_chunk_that_a_file_does_not_store_covers_nothing(tmp_path: Path) -> None:
    values = picture("sparse", np.int16, (2, 64, 64))
    values[:, :32] = NODATA
    paths = [tile(tmp_path / "a.tif", 0, 0, values=values, SPARSE_OK=True), tile(tmp_path / "b.tif", 5, 5)]
    for rule in ("first", "first-valid"):
        with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
            windows(index, merged(paths, "first")[0], count=5)


def test_the_order_of_files_is_given_by_name_or_by_time(tmp_path: Path) -> None:
    names = ["b", "c", "a"]
    paths = [tile(tmp_path / f"{name}.tif", 0, 40 * n, (64, 64)) for n, name in enumerate(names)]
    for n, path in enumerate(paths):
        day = datetime(2021, 1, 3, tzinfo=UTC) - timedelta(days=n)
        with rasterio.open(path, "r+") as image:
            image.update_tags(TIFFTAG_DATETIME=day.strftime("%Y:%m:%d %H:%M:%S"))
    orders = {"given": paths, "name": sorted(paths), "time": paths[::-1]}
    for order, ordered in orders.items():
        for rule in ("first", "last"):
            with periplus.index(paths, arrange="mosaic", duplicates=rule, order=order) as index:
                np.testing.assert_array_equal(index["0/data"][...], merged(ordered, rule)[0])
    with pytest.raises(ValueError, match="order is one of given, name, time, not 'size'"):
        periplus.index(paths, arrange="mosaic", order="size")
    with pytest.raises(ValueError, match="order"):
        periplus.index(paths, arrange="stack", order="name")
    timeless = tile(tmp_path / "timeless.tif", 0, 200)
    with pytest.raises(ConflictError, match="order='time', and this file has no datetime") as caught:
        periplus.index([*paths, timeless], arrange="mosaic", order="time")
    assert caught.value.url == str(timeless)


def test_levels_and_masks_are_laid_by_the_same_rule(tmp_path: Path) -> None:
    # Pixels of an overview lie on one grid where files are whole pixels of it apart, and have whole numbers of them.
    paths = [
        tile(tmp_path / f"{n}.tif", r, c, (128, 128), levels=(2, 4))
        for n, (r, c) in enumerate([(0, 0), (40, 84), (100, 8)])
    ]
    for rule in ("first", "last-valid"):
        with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
            assert list(index.arrays) == ["0/data", "1/data", "2/data"]
            windows(index, merged(paths, rule.removesuffix("-valid"))[0])
            for level in (1, 2):
                windows(index, painted(paths, rule, level=level - 1), f"{level}/data")


def test_masks_are_laid_by_the_same_rule(tmp_path: Path) -> None:
    spots = [(0, 0), (20, 30)]
    paths = [tile(tmp_path / f"{n}.tif", r, c, nodata=None) for n, (r, c) in enumerate(spots)]
    expected = np.zeros((1, 84, 94), bool)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        for n, (path, (r, c)) in enumerate(zip(paths, spots, strict=True)):
            mask = picture(f"mask{n}", np.bool_, (1, 64, 64))
            with rasterio.open(path, "r+") as image:
                image.write_mask(mask[0])
            expected[:, r : r + 64, c : c + 64] = mask
    with periplus.index(paths, arrange="mosaic", duplicates="last") as index:
        np.testing.assert_array_equal(index["0/mask"][...] != 0, expected)
        windows(index, painted(paths, "last", nodata=0))
        assert index.summary is not None
        assert "some pixels of 0/data have no file" in index.summary.warnings[0]
    with pytest.raises(ConflictError, match="'first-valid' needs a nodata value"):
        periplus.index(paths, arrange="mosaic", duplicates="first-valid")


@pytest.mark.parametrize("rule", RULES)
def test_files_of_different_nodata_become_physical_values(tmp_path: Path, rule: str) -> None:
    nodata = [0, -1, None]
    paths = []
    for n, value in enumerate(nodata):
        values = picture(f"nodata{n}", np.int16, (2, 64, 64))
        if value is not None:
            values[:, 10:40, 5:50] = value
        paths.append(tile(tmp_path / f"{n}.tif", 11 * n, 30 * n, values=values, nodata=value))
    expected = np.full((2, 86, 124), np.nan, np.float32)
    for n in reversed(range(3)) if rule.startswith("first") else range(3):
        with rasterio.open(paths[n]) as image:
            values = image.read(masked=True).astype(np.float32).filled(np.nan)
        place = expected[:, 11 * n : 11 * n + 64, 30 * n : 30 * n + 64]
        place[...] = np.where(np.isnan(values), place, values) if rule.endswith("valid") else values
    with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
        windows(index, expected)
        assert index.summary is not None
        assert "as float32 with NaN for nodata" in index.summary.warnings[0]
    side = [shutil.copy(paths[0], tmp_path / "left.tif"), tile(tmp_path / "right.tif", 0, 64, nodata=None)]
    with periplus.index(side, arrange="mosaic") as index:
        assert index["0/data"].dtype == np.float32
        assert index["0/data"].chunks == (2, 32, 32)


def test_64_bit_integers_of_different_nodata_are_refused(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{n}.tif", 0, 64 * n, dtype=np.int64, nodata=n) for n in range(2)]
    with pytest.raises(ConflictError, match="no float type holds every int64 exactly"):
        periplus.index(paths, arrange="mosaic")


def test_tiles_of_jpeg_2000_overlap_too(tmp_path: Path) -> None:
    spots = [(0, 0), (41, 100), (90, 7)]
    paths = []
    for n, (row, column) in enumerate(spots):
        path = tmp_path / f"{n}.jp2"
        where = Affine(PIXEL, 0, WEST + column * PIXEL, 0, -PIXEL, NORTH - row * PIXEL)
        with rasterio.open(
            path, "w", driver="JP2OpenJPEG", width=130, height=150, count=2, dtype="uint16", crs="EPSG:32633",
            transform=where, QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, RESOLUTIONS=1,
        ) as image:  # fmt: skip
            image.write(picture(path.stem, np.uint16, (2, 150, 130)))
        paths.append(path)
    with periplus.index(paths, arrange="mosaic", duplicates="first") as index:
        windows(index, painted(paths, "first", nodata=0))


def test_a_file_under_several_others_is_left_out(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{n}.tif", 0, c, (64, w)) for n, (c, w) in enumerate([(10, 100), (0, 64), (64, 64)])]
    with periplus.index(paths, arrange="mosaic", duplicates="last") as index:
        windows(index, merged(paths, "last")[0])
        assert list(index.files.status) == ["error", "ok", "ok"]
        assert index.table.catalog.arrays["0/data"].edges is None
    with periplus.index(paths, arrange="mosaic", duplicates="last-valid") as index:
        assert list(index.files.status) == ["ok"] * 3


def test_xarray_reads_an_overlay(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    paths = [tile(tmp_path / f"{n}.tif", 11 * n, 50 * n, nodata=None) for n in range(3)]
    periplus.index(paths, to=tmp_path / "m.parquet", arrange="mosaic", duplicates="first").close()
    with xarray.open_dataset(tmp_path / "m.parquet", engine="periplus") as found:
        np.testing.assert_array_equal(found.data.values, painted(paths, "first", nodata=0))
