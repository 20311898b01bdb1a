"""The façade: what users hold, on real files."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine

import periplus
from periplus.testing.scenes import tile


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of one grid, with an overview."""
    folder = tmp_path_factory.mktemp("archive")
    rng = np.random.default_rng(7)
    for day in (1, 2, 3):
        profile = {
            "driver": "COG", "width": 300, "height": 200, "count": 2, "dtype": "int16", "blocksize": 128,
            "compress": "deflate", "nodata": -1, "crs": "EPSG:32633",
            "transform": Affine(10, 0, 500_000, 0, -10, 5_200_000),
        }  # fmt: skip
        with rasterio.open(folder / f"scene_202103{day:02d}.tif", "w", **profile) as target:
            target.write(rng.integers(0, 3000, (2, 200, 300), dtype=np.int16))
    return folder


@pytest.fixture(scope="module")
def stack(archive: Path) -> periplus.Index:
    return periplus.index(f"{archive}/*.tif", to=archive / "days.parquet", pattern="scene_{time:%Y%m%d}")


LEAN = """
import sys, periplus
print(periplus.index(sys.argv[1])["0/data"][:, 100:180, 100:200].sum())
print({"aiohttp", "obstore", "pyarrow", "duckdb", "numpy.ma"} & set(sys.modules))
"""


def test_a_local_file_is_read_without_loading_what_it_does_not_need(archive: Path) -> None:
    command = [sys.executable, "-c", LEAN, str(archive / "scene_20210301.tif")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.split("\n")
    assert told == [str(truth(archive, 1)[:, 100:180, 100:200].sum()), "set()", ""]


def truth(archive: Path, day: int) -> np.ndarray:
    with rasterio.open(archive / f"scene_202103{day:02d}.tif") as dataset:
        return dataset.read()


def test_an_array_is_known_by_its_metadata_and_read_like_numpy(archive: Path, stack: periplus.Index) -> None:
    array = stack["0/data"]
    assert (array.shape, array.dims, array.dtype) == ((3, 2, 200, 300), ("time", "bands", "y", "x"), np.int16)
    assert array.attrs["_FillValue"] == -1
    assert array.fill_value == array.array.fill
    assert array.bbox == stack["1/data"].bbox == (500_000, 5_198_000, 503_000, 5_200_000)
    assert np.array_equal(array[1], truth(archive, 2))
    assert np.array_equal(np.asarray(array)[2], truth(archive, 3))
    assert np.array_equal(array[0, :, ::-3, 5], truth(archive, 1)[:, ::-3, 5])


def test_a_missing_array_is_named_with_those_there_are(stack: periplus.Index) -> None:
    with pytest.raises(periplus.MissingError, match=r"no array 'sst'; this index has 0/data"):
        stack["sst"]
    with pytest.raises(KeyError):
        stack["sst"]


def test_of_many_arrays_the_ones_like_the_name_asked_for_are_named_first(tmp_path: Path) -> None:
    for number in range(30):
        tile(tmp_path / f"scene_{number:02}.tif", number, 0, (16, 16))
    index = periplus.index(f"{tmp_path}/*.tif", arrange="collect")
    assert index.attrs == {}
    with pytest.raises(periplus.MissingError, match=r"this index has scene_27/0/data, scene_00/0/data, .* and 22 more"):
        index["scene_27"]
    with pytest.raises(periplus.MissingError, match="this index has scene_28/data, "):
        index.read(array="Scene_28")
    with pytest.raises(periplus.MissingError, match=r"this index has scene_2./data, "):
        index.read(array="scena_2")
    assert repr(index).endswith("\n  … 18 more")
    assert repr(index).count("\n") == repr(index.arrays).count("\n") + 1 == 13
    assert repr(index.files) == "<periplus files: 30>"


def test_read_takes_a_box_in_another_crs(archive: Path, stack: periplus.Index) -> None:
    from pyproj import CRS, Transformer

    x, y = Transformer.from_crs(32633, 4326, always_xy=True).transform(501_005, 5_198_995)
    raster = stack.read(bbox=(x - 1e-6, y - 1e-6, x + 1e-6, y + 1e-6), crs="EPSG:4326", time="2021-03-02")
    assert raster.values.shape == (1, 2, 1, 1)
    for crs in (4326, np.int64(4326), CRS(4326), rasterio.crs.CRS.from_epsg(4326)):
        same = stack.read(bbox=(x - 1e-6, y - 1e-6, x + 1e-6, y + 1e-6), crs=crs, time="2021-03-02")
        assert np.array_equal(same.values, raster.values)
        assert stack.select(bbox=(x, y, x + 1e-6, y + 1e-6), crs=crs, level=0).num_rows == 3
    assert np.array_equal(raster.values[0, :, 0, 0], truth(archive, 2)[:, 100, 100])


@pytest.mark.parametrize("form", ["again.parquet", "folder", "folder/", "base.duckdb"])
def test_every_form_is_written_and_opened_with_the_same_pixels(
    archive: Path, stack: periplus.Index, tmp_path: Path, form: str
) -> None:
    stack.write(f"{tmp_path}/{form}")
    opened = periplus.open(f"{tmp_path}/{form}", allow=str(archive), trust=True)
    assert np.array_equal(opened["0/data"][...], stack["0/data"][...])


@pytest.mark.parametrize("name", ["days", "days/", "days/files.parquet"])
def test_a_dataset_reaches_what_lies_beside_it_however_it_is_named(
    archive: Path, stack: periplus.Index, name: str
) -> None:
    if not (archive / "days").exists():
        stack.write(archive / "days")
    assert np.array_equal(periplus.open(f"{archive}/{name}")["0/data"][0], truth(archive, 1))


def test_an_index_elsewhere_reaches_nothing_unless_allowed(
    archive: Path, stack: periplus.Index, tmp_path: Path
) -> None:
    stack.write(tmp_path / "elsewhere.parquet")
    with pytest.raises(periplus.DeniedError, match="allow"):
        periplus.open(tmp_path / "elsewhere.parquet")["0/data"][0]


def test_an_opened_index_is_written_anywhere_and_reaches_no_more_than_before(
    archive: Path, stack: periplus.Index, tmp_path: Path
) -> None:
    stack.write(archive / "opened.parquet")
    copy = periplus.open(archive / "opened.parquet").write(tmp_path / "copy.parquet")
    assert copy.table.url == str(tmp_path / "copy.parquet")
    assert np.array_equal(copy["0/data"][0], truth(archive, 1))
    stack.write(tmp_path / "away.parquet")
    moved = periplus.open(tmp_path / "away.parquet", allow=str(archive)).write(archive.parent / "moved.parquet")
    assert np.array_equal(moved["0/data"][0], truth(archive, 1))
    with pytest.raises(periplus.DeniedError):
        periplus.open(tmp_path / "away.parquet").write(tmp_path / "b.parquet")["0/data"][0]


def test_an_index_travels_to_other_processes(archive: Path, stack: periplus.Index) -> None:
    for index in (stack, periplus.index(archive / "scene_20210301.tif")):
        copy = pickle.loads(pickle.dumps(index))
        assert np.array_equal(copy["0/data"][...], index["0/data"][...])


def test_a_box_of_three_numbers_is_none(stack: periplus.Index) -> None:
    for ask in (stack.read, stack.select):
        with pytest.raises(ValueError, match=r"a bbox is four finite numbers .* not \(1\S*, 2\S*, 3\S*\)"):
            ask(bbox=(1, 2, 3))


def test_sql_and_select_agree(stack: periplus.Index) -> None:
    rows = stack.sql("select count(*) as n from chunks where level = 0").to_pylist()
    assert rows == [{"n": stack.select(level=0).num_rows}]
    assert rows[0]["n"] == 3 * 2 * 3


def test_only_the_few_public_names_are_there() -> None:
    assert {"index", "open", "Index", "PeriplusError"} <= set(dir(periplus))
    assert not {name for name in dir(periplus) if name.startswith("_")}
