"""What is read through an arrangement is what rasterio reads from each file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio

import periplus

PATTERN = r"(?P<time>\d{8})"


def physical(path: Path, level: int | None = None) -> np.ndarray[Any, Any]:
    """Values as rasterio gives them: nodata is NaN, scale and offset applied."""
    with rasterio.open(path, **({} if level is None else {"overview_level": level})) as file:
        data = file.read(masked=True).astype("float64")
        scale = np.array(file.scales)[:, None, None]
        offset = np.array(file.offsets)[:, None, None]
        return np.asarray((data * scale + offset).filled(np.nan))


def test_a_stack_of_equal_files(tmp_path: Path, tiff: SimpleNamespace) -> None:
    written = {day: tiff.write(tmp_path / f"x_202101{day:02d}.tif", day, nodata=9) for day in (3, 1, 2)}
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN) as index:
        got = index["0/data"][...]
    assert got.dtype == np.uint16
    for k, day in enumerate((1, 2, 3)):
        np.testing.assert_array_equal(got[k, 0], written[day])


def test_files_may_differ_in_codec_and_predictor(tmp_path: Path, tiff: SimpleNamespace) -> None:
    kinds: list[dict[str, Any]] = [
        {"compress": "deflate"},
        {"compress": "zstd", "predictor": 2},
        {"compress": "lzw"},
        {"compress": "none"},
        {"compress": "deflate", "ENDIANNESS": "BIG"},
    ]
    written = [tiff.write(tmp_path / f"x_2021010{k}.tif", k, **kind) for k, kind in enumerate(kinds, 1)]
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN, to=tmp_path / "out.parquet") as index:
        assert len(index.table.catalog.arrays["0/data"].encodings) == 5
        got = index["0/data"][...]
    np.testing.assert_array_equal(got[:, 0], np.stack(written))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_files_may_differ_in_nodata_scale_and_offset(tmp_path: Path, tiff: SimpleNamespace, dtype: str) -> None:
    low = int(tiff.values(1, dtype=dtype).min())
    for k, packing in enumerate(
        ({"nodata": low}, {"nodata": low + 1, "scale": 0.5}, {"scale": 0.25, "offset": -3.0}, {}), 1
    ):
        tiff.write(tmp_path / f"x_2021010{k}.tif", 1, dtype=dtype, **packing)
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN, to=tmp_path / "out") as index:
        array = index["0/data"]
        got = array[...]
    assert got.dtype == ("float64" if dtype in ("int32", "float64") else "float32")
    assert np.isnan(array.attributes["_FillValue"])
    assert not {"scale_factor", "add_offset"} & set(array.attributes)
    expected = np.stack([physical(tmp_path / f"x_2021010{k}.tif") for k in range(1, 5)])
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(got, expected.astype(got.dtype))


def test_a_stack_laid_again_reads_the_same(tmp_path: Path, tiff: SimpleNamespace) -> None:
    tiff.write(tmp_path / "x_20210103.tif", 1, nodata=1001, scale=0.5)
    tiff.write(tmp_path / "x_20210105.tif", 2, compress="lzw")
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN, to=tmp_path / "out.parquet") as index:
        assert index["0/data"].shape[0] == 2
    tiff.write(tmp_path / "x_20210104.tif", 7, nodata=3, offset=5.0)
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN, to=tmp_path / "out.parquet") as index:
        assert index.summary is not None
        assert index.summary.reused == 2
        got = index["0/data"][...]
    expected = np.stack([physical(tmp_path / f"x_2021010{k}.tif") for k in (3, 4, 5)])
    np.testing.assert_array_equal(got, expected.astype(got.dtype))


def test_missing_tiles_are_holes_where_the_file_has_nodata(tmp_path: Path, tiff: SimpleNamespace) -> None:
    for day in (1, 2):
        with rasterio.open(
            tmp_path / f"x_2021010{day}.tif", "w", height=64, width=64, count=1, dtype="int16", tiled=True,
            blockxsize=32, blockysize=32, nodata=-day, SPARSE_OK=True, transform=rasterio.Affine(2, 0, 0, 0, -2, 0),
        ) as file:  # fmt: skip
            file.write(np.full((1, 32, 32), day, np.int16), window=((0, 32), (0, 32)))
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN) as index:
        got = index["0/data"][...]
    np.testing.assert_array_equal(got, np.stack([physical(tmp_path / f"x_2021010{day}.tif") for day in (1, 2)]))
    assert np.isnan(got[:, 0, 32:]).all()


def test_overviews_and_bands_of_a_stack(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for day in (1, 2):
        with rasterio.open(
            tmp_path / f"x_2021010{day}.tif", "w", driver="COG", height=128, width=128, count=3, dtype="uint8",
            crs="EPSG:32633", transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6), blocksize=64, compress="deflate",
            nodata=day,
        ) as file:  # fmt: skip
            file.write(rng.integers(0, 255, (3, 128, 128), dtype=np.uint8))
    with periplus.index(tmp_path / "*.tif", pattern=PATTERN) as index:
        for level in range(len(index.arrays)):
            got = index[f"{level}/data"][...]
            expected = np.stack(
                [physical(tmp_path / f"x_2021010{d}.tif", level - 1 if level else None) for d in (1, 2)]
            )
            np.testing.assert_array_equal(got, expected)


def test_a_collection_reads_each_file(tmp_path: Path, tiff: SimpleNamespace) -> None:
    written = {name: tiff.write(tmp_path / f"{name}.tif", k, size=64 + 32 * k) for k, name in enumerate("ab")}
    with periplus.index(tmp_path / "*.tif", to=tmp_path / "out.parquet") as index:
        for name, data in written.items():
            np.testing.assert_array_equal(index[f"{name}/0/data"][0], data)
