"""Images laid side by side read as rasterio merges them; what does not fit one grid is named, never resampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from pyproj import CRS

import periplus
from periplus.arrange import arrange
from periplus.errors import ConflictError
from periplus.model import Georeference
from periplus.testing.formats.tiff import picture
from periplus.testing.scenes import NODATA, NORTH, PIXEL, WEST, merged, tile


def agree(index: Any, paths: Sequence[Path]) -> None:
    """The whole, its place, and windows across files, as rasterio has them."""
    expected, transform = merged(paths)
    array = index["0/data"]
    np.testing.assert_array_equal(array[...], expected)
    assert array.georeference is not None
    np.testing.assert_allclose(array.georeference.transform, transform[:6], rtol=0, atol=1e-6)
    rng = np.random.default_rng(7)
    for _ in range(12):
        (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in expected.shape[1:])
        np.testing.assert_array_equal(array[:, top:bottom, left:right], expected[:, top:bottom, left:right])


@pytest.mark.parametrize(
    "profile",
    [
        {},
        {"interleave": "band"},
        {"interleave": "pixel"},
        {"compress": "lzw", "predictor": 2},
        {"compress": "none"},
        {"tiled": False, "blockysize": 16},
        {"dtype": np.float32, "nodata": np.nan},
    ],
    ids=str,
)
def test_aligned_tiles_are_one_regular_array(tmp_path: Path, profile: dict[str, Any]) -> None:
    spots = [(0, 0), (0, 64), (0, 128), (64, 0), (64, 128), (128, 64)]
    paths = [tile(tmp_path / f"{r}_{c}.tif", r, c, **profile) for r, c in reversed(spots)]
    with periplus.index(paths, arrange="mosaic") as index:
        assert index.table.catalog.arrays["0/data"].edges is None
        agree(index, paths)
        assert index.table.catalog.arrangement["kind"] == "mosaic"
        assert list(index.arrays) == ["0/data"]


@pytest.mark.parametrize(
    "profile",
    [
        {},
        {"interleave": "band"},
        {"compress": "none", "interleave": "pixel"},
        {"compress": "none"},
        {"compress": "lzw", "predictor": 2},
        {"compress": "zstd"},
        {"tiled": False, "blockysize": 16},
        {"tiled": False, "blockysize": 16, "compress": "none"},
        {"tiled": False, "blockysize": 16, "compress": "packbits"},
    ],
    ids=str,
)
def test_tiles_that_end_within_a_chunk_show_no_padding(tmp_path: Path, profile: dict[str, Any]) -> None:
    heights, widths = (70, 41, 32), (90, 33, 64)
    tops, lefts = np.cumsum([0, *heights[:-1]]), np.cumsum([0, *widths[:-1]])
    paths = [
        tile(tmp_path / f"{r}_{c}.tif", tops[r], lefts[c], (heights[r], widths[c]), **profile)
        for r in range(3)
        for c in range(3)
        if (r, c) != (1, 1) and (profile.get("tiled", True) or c == 0)
    ]
    with periplus.index(paths, arrange="mosaic") as index:
        agree(index, paths)


def test_images_of_one_chunk_each(tmp_path: Path) -> None:
    paths = [
        tile(tmp_path / f"{r}_{c}.tif", r * 50, c * 40, (50, 40), tiled=False, blockysize=50)
        for r in range(2)
        for c in range(3)
    ]
    with periplus.index(paths, arrange="mosaic") as index:
        assert index["0/data"].chunks == (2, 50, 40)
        agree(index, paths)


def test_files_far_apart_leave_chunks_missing(tmp_path: Path) -> None:
    paths = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 1000, 777, (40, 50))]
    with periplus.index(paths, arrange="mosaic") as index:
        agree(index, paths)
        assert index.summary is not None
        assert index.summary.warnings == ()


@pytest.mark.parametrize("target", ["m.parquet", "m", "m.duckdb"])
def test_a_mosaic_is_written_and_read(tmp_path: Path, target: str) -> None:
    paths = [tile(tmp_path / "in" / f"{c}.tif", 0, c * 70, (70, 70)) for c in range(3)]
    for _ in range(2):
        with periplus.index(paths, to=tmp_path / target, arrange="mosaic"):
            pass
        with periplus.open(tmp_path / target, allow=[str(tmp_path)], trust=True) as index:
            agree(index, paths)


def test_levels_come_along_where_they_line_up(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{c}.tif", 0, c * 128, (128, 128), levels=(2, 4)) for c in range(2)]
    with periplus.index(paths, arrange="mosaic") as index:
        assert list(index.arrays) == ["0/data", "1/data", "2/data"]
        for level, factor in ((1, 2), (2, 4)):
            parts = []
            for path in paths:
                with rasterio.open(path, overview_level=level - 1) as image:
                    parts.append(image.read())
            array = index[f"{level}/data"]
            np.testing.assert_array_equal(array[...], np.concatenate(parts, axis=2))
            assert array.georeference is not None
            assert array.georeference.transform == (PIXEL * factor, 0, WEST, 0, -PIXEL * factor, NORTH)


def test_levels_that_do_not_line_up_are_left_out_and_said(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{c}.tif", 0, c * 101, (96, 101 - c), levels=(2,)) for c in range(2)]
    with periplus.index(paths, arrange="mosaic") as index:
        assert list(index.arrays) == ["0/data"]
        assert index.summary is not None
        (warning,) = index.summary.warnings
        assert warning.startswith("1/data is omitted: 1.tif does not fit 0.tif: it has pixels of 20 by -20, not")
        agree(index, paths)
    paths.append(tile(tmp_path / "2.tif", 0, 201, (96, 101)))
    with periplus.index(paths, arrange="mosaic") as index:
        assert index.summary is not None
        assert index.summary.warnings == ("1/data is omitted: 2.tif has none",)


def test_places_without_a_file_or_nodata_are_said(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{n}.tif", n * 64, n * 64, nodata=None) for n in range(2)]
    with periplus.index(paths, arrange="mosaic") as index:
        assert index.summary is not None
        (warning,) = index.summary.warnings
        assert warning == "8 of 16 chunks of 0/data have no file; without a nodata value they read as 0"
        agree(index, paths)


@pytest.mark.parametrize("turn", [0.0, 30.0])
def test_overlaps_are_refused_or_decided_by_the_order_given(tmp_path: Path, turn: float) -> None:
    paths = [tile(tmp_path / f"{n}.tif", 0, n * 32, turn=turn) for n in range(3)]
    with pytest.raises(ConflictError, match=r"1\.tif and 0\.tif overlap in 64 rows and 32 columns from row 0"):
        periplus.index(paths, arrange="mosaic")
    values = []
    for path in paths:
        with rasterio.open(path) as image:
            values.append(image.read())
    first = np.concatenate([values[0], values[1][..., 32:], values[2][..., 32:]], axis=2)
    last = np.concatenate([values[0][..., :32], values[1][..., :32], values[2]], axis=2)
    for rule, expected in (("first", first), ("last", last)):
        with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
            np.testing.assert_array_equal(index["0/data"][...], expected)
    if not turn:
        np.testing.assert_array_equal(first, merged(paths, "first")[0])
        np.testing.assert_array_equal(last, merged(paths, "last")[0])
    with pytest.raises(ValueError, match="duplicates= of a mosaic is one of error, first, last"):
        periplus.index(paths, arrange="mosaic", duplicates="keep")


def test_a_file_that_others_cover_is_a_row_that_says_so(tmp_path: Path) -> None:
    paths = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 0, 0), tile(tmp_path / "c.tif", 0, 64)]
    with periplus.index(paths, arrange="mosaic", duplicates="last") as index:
        agree(index, paths[1:])
        assert list(index.files.status) == ["error", "ok", "ok"]
        assert "hold the same pixels" in index.files.error[0]
        assert index.summary is not None
        assert (index.summary.ok, index.summary.failed) == (2, 0)


MISFITS = [
    ({"crs": "EPSG:32634"}, "it has the CRS EPSG:32634, not EPSG:32633"),
    ({"pixel": 20.0}, "it has pixels of 20 by -20, not of 10 by -10"),
    ({"pixel": 10.001}, "it has pixels of 10.001 by -10.001"),
    ({"column": 64.25}, "its pixels are 0.25 of a pixel off the grid"),
    ({"turn": 5.0}, "it has pixels of"),
    ({"dtype": np.uint16, "nodata": 0}, "it has type uint16, not int16"),
    ({"bands": 3}, "it has bands 3, not 2"),
    ({"row": 0.5}, "its pixels are 0.5 of a pixel off the grid"),
]


@pytest.mark.parametrize(("change", "why"), MISFITS, ids=[str(change) for change, _ in MISFITS])
def test_the_first_file_that_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    good = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 64, 0)]
    odd = tile(tmp_path / "odd.tif", **{"row": 0, "column": 64, **change})
    with pytest.raises(ConflictError, match=r"odd\.tif does not fit a\.tif") as caught:
        periplus.index([good[0], odd, good[1]], arrange="mosaic")
    assert why in caught.value.message
    assert caught.value.url == str(odd)
    with periplus.index([good[0], odd, good[1]], arrange="mosaic", skip_misfits=True) as index:
        assert list(index.files.status) == ["ok", "error", "ok"]
        assert why in index.files.error[1]
        agree(index, good)


def test_one_crs_may_have_other_words(make: SimpleNamespace) -> None:
    words = [
        "EPSG:32633",
        CRS("EPSG:32633").to_wkt(),
        CRS("EPSG:32633").to_wkt("WKT1_GDAL").replace(',AUTHORITY["EPSG","32633"]', ""),
    ]
    places = [Georeference(crs=crs, transform=(10.0, 0.0, 640.0 * n, 0.0, -10.0, 0.0)) for n, crs in enumerate(words)]
    entries = [make.entry(f"/d/{n}.tif", make.image(georeference=place)) for n, place in enumerate(places)]
    laid = arrange(entries, make.lookup(entries), kind="mosaic")
    assert laid.catalog.arrays["0/data"].shape == (1, 64, 192)
    assert laid.catalog.arrays["0/data"].georeference.crs == "EPSG:32633"
    odd = make.image(georeference=Georeference(crs="nonsense", transform=(10.0, 0.0, 1920.0, 0.0, -10.0, 0.0)))
    with pytest.raises(ConflictError, match="it has the CRS nonsense, not EPSG:32633"):
        arrange([*entries, make.entry("/d/3.tif", odd)], make.lookup(entries), kind="mosaic")


def test_most_files_decide_the_grid_where_misfits_are_skipped(tmp_path: Path) -> None:
    odd = tile(tmp_path / "odd.tif", 0, 64, crs="EPSG:32634")
    good = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 64, 0)]
    with periplus.index([odd, *good], arrange="mosaic", skip_misfits=True) as index:
        assert list(index.files.status) == ["error", "ok", "ok"]
        agree(index, good)


def test_values_that_mean_other_things_do_not_stand_together(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{n}.tif", 0, n * 64, bands=1, dtype=np.uint8, nodata=None) for n in range(2)]
    for n, path in enumerate(paths):
        with rasterio.open(path, "r+") as image:
            image.write_colormap(1, {0: (n, 0, 0, 255), 1: (0, 9, 0, 255)})
    with pytest.raises(ConflictError, match="it has other colormap"):
        periplus.index(paths, arrange="mosaic")


def test_a_file_that_does_not_say_where_it_lies_is_named(tmp_path: Path) -> None:
    good = tile(tmp_path / "a.tif", 0, 0)
    nowhere = tmp_path / "nowhere.tif"
    with (
        pytest.warns(rasterio.errors.NotGeoreferencedWarning),
        rasterio.open(nowhere, "w", driver="GTiff", width=8, height=8, count=2, dtype="int16", nodata=NODATA) as image,
    ):
        image.write(np.zeros((2, 8, 8), np.int16))
    for paths in ([good, nowhere], [nowhere, good]):
        with pytest.raises(ConflictError, match="has no usable transform"):
            periplus.index(paths, arrange="mosaic")


def test_masks_come_along(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{c}.tif", 0, c * 64, nodata=None) for c in range(2)]
    masks = []
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        for n, path in enumerate(paths):
            with rasterio.open(path, "r+") as image:
                mask = picture(f"mask{n}", np.bool_, (1, 64, 64))
                image.write_mask(mask[0])
                masks.append(mask)
    with periplus.index(paths, arrange="mosaic") as index:
        assert list(index.arrays) == ["0/data", "0/mask"]
        np.testing.assert_array_equal(index["0/mask"][...] != 0, np.concatenate(masks, axis=2))


def test_pixels_a_little_off_the_grid_count_as_on_it(tmp_path: Path) -> None:
    paths = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 0.0004, 63.9996)]
    with periplus.index(paths, arrange="mosaic") as index:
        parts = []
        for path in paths:
            with rasterio.open(path) as image:
                parts.append(image.read())
        np.testing.assert_array_equal(index["0/data"][...], np.concatenate(parts, axis=2))


def test_files_too_far_apart_are_refused_soon(tmp_path: Path) -> None:
    paths = [tile(tmp_path / "a.tif", 0, 0), tile(tmp_path / "b.tif", 0, 2_000_000_000)]
    with pytest.raises(ConflictError, match="are so far apart"):
        periplus.index(paths, arrange="mosaic")
    paths[1] = tile(tmp_path / "b.tif", 0, 5_000_000_000)
    with pytest.raises(ConflictError, match="is too far from the other files"):
        periplus.index(paths, arrange="mosaic")


def test_a_box_selects_the_rows_of_the_file_it_touches(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{c}.tif", 0, c * 70, (70, 70)) for c in range(3)]
    with periplus.index(paths, arrange="mosaic") as index:
        box = (WEST + 75 * PIXEL, NORTH - 60 * PIXEL, WEST + 135 * PIXEL, NORTH - 10 * PIXEL)
        rows = index.select(bbox=box)
        assert {Path(path).name for path in rows.column("path").to_pylist()} == {"1.tif"}
        raster = index.read(bbox=box)
        np.testing.assert_array_equal(raster.values, merged(paths)[0][:, 10:60, 75:135])


def test_tiles_of_jpeg_2000_keep_the_levels_that_line_up(tmp_path: Path) -> None:
    size = 150, 130
    paths = []
    for row, column in np.ndindex(2, 2):
        path = tmp_path / f"{row}_{column}.jp2"
        where = Affine(PIXEL, 0, WEST + column * size[1] * PIXEL, 0, -PIXEL, NORTH - row * size[0] * PIXEL)
        with rasterio.open(
            path, "w", driver="JP2OpenJPEG", width=size[1], height=size[0], count=2, dtype="uint16", crs="EPSG:32633",
            transform=where, QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, RESOLUTIONS=3,
        ) as image:  # fmt: skip
            image.write(picture(path.stem, np.uint16, (2, *size)))
        paths.append(path)
    with periplus.index(paths, arrange="mosaic") as index:
        agree(index, paths)
        assert list(index.arrays) == ["0/data", "1/data"]
        assert index.summary is not None
        assert index.summary.warnings[0].startswith("2/data is omitted: 0_1.jp2 does not fit 0_0.jp2")
        halves = []
        for path in paths:
            with periplus.index(path) as one:
                halves.append(one["1/data"][...])
        expected = np.concatenate([np.concatenate(halves[:2], axis=2), np.concatenate(halves[2:], axis=2)], axis=1)
        np.testing.assert_array_equal(index["1/data"][...], expected)


def test_xarray_opens_a_mosaic_with_uneven_chunks(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    paths = [tile(tmp_path / f"{c}.tif", 0, c * 70, (70, 70), nodata=None) for c in range(3)]
    periplus.index(paths, to=tmp_path / "m.parquet", arrange="mosaic").close()
    sizes = (32, 32, 6) * 3
    with xarray.open_dataset(tmp_path / "m.parquet", engine="periplus", chunks={"x": sizes}) as found:
        assert found.data.encoding["preferred_chunks"]["x"] == found.data.chunksizes["x"] == sizes
        np.testing.assert_array_equal(found.data.values, merged(paths)[0])


def test_the_command_lays_a_mosaic(tmp_path: Path) -> None:
    from periplus.cli.app import run

    paths = [str(tile(tmp_path / f"{c}.tif", 0, c * 32)) for c in range(2)]
    target = str(tmp_path / "m.parquet")
    given = ["index", *paths, "-o", target, "--arrange", "mosaic", "-q"]
    assert run(given) == 2
    assert run([*given, "--duplicates", "first"]) == 0
    with periplus.open(target) as index:
        agree(index, [Path(path) for path in paths])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with rasterio.Env(GDAL_PAM_ENABLED=False):
        yield
