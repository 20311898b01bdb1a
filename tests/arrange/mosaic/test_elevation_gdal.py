"""Mosaics of cells that GDAL wrote, against the same cells stitched from what GDAL reads."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

import periplus
from periplus.testing.formats import dted as dteds
from periplus.testing.scenes import merged

STEP = 120
"""Posts from one cell to the next at level 0, the first of which they share."""


def written(
    folder: Path, rows: int, columns: int, without: Sequence[tuple[int, int]] = ()
) -> dict[Path, tuple[int, int]]:
    """Cells by (row from the north, column), cut out of one surface and written by GDAL."""
    whole = dteds.heights("surface", rows * STEP + 1, columns * STEP + 1)
    folder.mkdir()
    paths = {}
    for row, column in np.ndindex(rows, columns):
        if (row, column) not in without:
            part = whole[:, row * STEP : row * STEP + STEP + 1, column * STEP : column * STEP + STEP + 1]
            path = folder / f"{row}_{column}.dt0"
            path.write_bytes(dteds.gdal_cell(part, west=-2 + column, south=41 - row))
            paths[path] = row, column
    return paths


def stitched(paths: dict[Path, tuple[int, int]], rows: int, columns: int) -> NDArray[np.int16]:
    """What GDAL reads of each cell, the edges of all of them, null where no cell has a post."""
    whole = np.full((1, rows * STEP + 1, columns * STEP + 1), dteds.NULL, np.int16)
    for path, (row, column) in paths.items():
        with rasterio.open(path) as cell:
            whole[:, row * STEP : row * STEP + STEP + 1, column * STEP : column * STEP + STEP + 1] = cell.read()
    return whole


@pytest.mark.parametrize(
    ("rows", "columns", "without"),
    [(2, 2, ()), (3, 3, [(1, 1)]), (2, 3, [(0, 0), (1, 2)]), (1, 2, ())],
    ids=["2x2", "3x3 without its middle", "2x3 without two corners", "1x2"],
)
def test_cells_read_as_gdal_reads_them(tmp_path: Path, rows: int, columns: int, without: list[tuple[int, int]]) -> None:
    paths = written(tmp_path / "cells", rows, columns, without)
    expected = stitched(paths, rows, columns)
    periplus.index(list(paths), to=tmp_path / "m.parquet", arrange="mosaic").close()
    with periplus.open(tmp_path / "m.parquet") as index:
        array = index["0/data"]
        np.testing.assert_array_equal(array[...], expected)
        rng = np.random.default_rng(3)
        for _ in range(20):
            (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in expected.shape[1:])
            np.testing.assert_array_equal(array[:, top:bottom, left:right], expected[:, top:bottom, left:right])
        half = 0.5 / STEP
        assert array.georeference is not None
        np.testing.assert_allclose(
            array.georeference.transform, (1 / STEP, 0, -2 - half, 0, -1 / STEP, 42 + half), rtol=0, atol=1e-9
        )


@pytest.mark.parametrize(("posts", "lines"), [(121, 121), (1201, 1201), (1201, 401), (3601, 121)])
def test_cells_of_every_level_read_as_gdal_reads_them(tmp_path: Path, posts: int, lines: int) -> None:
    whole = dteds.heights("level", posts, 2 * lines - 1)
    spacing = 36_000 // (lines - 1), 36_000 // (posts - 1)
    paths = [tmp_path / f"e{column}.{extension}" for column, extension in enumerate(("min", "dt2"))]
    for column, path in enumerate(paths):
        part = whole[:, :, column * (lines - 1) : (column + 1) * (lines - 1) + 1]
        path.write_bytes(dteds.cell(part, west=column, south=61, interval=spacing))
        with rasterio.open(path) as cell:
            np.testing.assert_array_equal(cell.read(), part)
    with periplus.index(paths, arrange="mosaic") as index:
        np.testing.assert_array_equal(index["0/data"][...], whole)


def test_posts_that_one_cell_lacks_are_those_rasterio_merges(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    paths: dict[Path, tuple[int, int]] = {}
    for row, column in [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]:
        values = dteds.heights(f"{row}{column}", STEP + 1, STEP + 1)
        values[rng.random(values.shape) < 0.4] = dteds.NULL
        path = tmp_path / f"{row}_{column}.dt0"
        path.write_bytes(dteds.gdal_cell(values, west=-2 + column, south=41 - row))
        paths[path] = row, column
    # Northern cells hold the posts they share with southern ones, eastern those they share with western ones.
    first = sorted(paths, key=lambda path: (paths[path][0], -paths[path][1]))
    expected, _ = merged(first, "first")
    with periplus.index(first, arrange="mosaic", duplicates="first-valid") as index:
        np.testing.assert_array_equal(index["0/data"][...], expected)


@pytest.mark.parametrize("rule", ["first-valid", "last-valid"])
def test_files_of_one_cell_fill_each_others_nulls(tmp_path: Path, rule: str) -> None:
    paths = []
    for n in range(3):
        values = dteds.heights(f"same{n}")
        values[:, n * 30 : n * 30 + 60] = dteds.NULL
        paths.append(tmp_path / f"{n}.dt0")
        paths[-1].write_bytes(dteds.cell(values))
    with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
        np.testing.assert_array_equal(index["0/data"][...], merged(paths, rule.removesuffix("-valid"))[0])
        assert list(index.files.status) == ["ok"] * 3


def test_a_box_is_read_across_cells(tmp_path: Path) -> None:
    paths = written(tmp_path / "cells", 2, 2)
    expected = stitched(paths, 2, 2)
    with periplus.index(list(paths), arrange="mosaic") as index:
        raster = index.read(bbox=(-1.25, 40.75, -0.75, 41.25))
        left, top = round((raster.transform[2] + 2) * STEP + 0.5), round((42 - raster.transform[5]) * STEP + 0.5)
        high, wide = raster.values.shape[-2:]
        np.testing.assert_array_equal(raster.values, expected[:, top : top + high, left : left + wide])
        assert high >= STEP // 2
        assert wide >= STEP // 2


def test_the_first_of_two_equal_cells_is_taken_on_request(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.dt0" for n in range(2)]
    for n, path in enumerate(paths):
        path.write_bytes(dteds.cell(dteds.heights(f"cell{n}")))
    for rule, taken in (("first", 0), ("last", 1)):
        with periplus.index(paths, arrange="mosaic", duplicates=rule) as index, rasterio.open(paths[taken]) as cell:
            np.testing.assert_array_equal(index["0/data"][...], cell.read())
            assert index.files.status[1 - taken] == "error"
        options = {"duplicates": rule, "order": "name"}
        with periplus.index(paths[::-1], arrange="mosaic", **options) as index, rasterio.open(paths[taken]) as cell:
            np.testing.assert_array_equal(index["0/data"][...], cell.read())
