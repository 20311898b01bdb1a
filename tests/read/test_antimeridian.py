"""Boxes across the antimeridian: both sides joined, or refused; never only one of them without a word."""

import warnings

import numpy as np
import pytest
import rasterio
import xarray as xr
from affine import Affine
from rasterio.enums import Resampling

import periplus
from periplus.testing.hierarchies import StoredArray, spatial, write_hierarchy

GLOBE = np.add.outer(1000 * np.arange(180), np.arange(360)).astype("int32")
"""1000 * row + column."""
STARTS = {"180": -180, "360": 0}


def written(path, west, values=GLOBE, *, crs="EPSG:4326", step=1.0, north=90.0, overviews=()):
    height, width = values.shape
    profile = {"height": height, "width": width, "count": 1, "dtype": values.dtype, "crs": crs, "driver": "GTiff"}
    profile |= {"tiled": True, "blockxsize": 16, "blockysize": 16}
    with rasterio.open(path, "w", transform=Affine(step, 0, west, 0, -step, north), **profile) as file:
        file.write(values, 1)
        if overviews:
            file.build_overviews(overviews, Resampling.nearest)
    return path


@pytest.fixture(scope="module", params=STARTS)
def globe(request, tmp_path_factory):
    """(west, index, Zarr store) of the whole globe in degrees, from -180 or from 0."""
    folder, west = tmp_path_factory.mktemp("globe"), STARTS[request.param]
    written(folder / "a.tif", west, overviews=(2,))
    place = spatial((1.0, 0.0, float(west), 0.0, -1.0, 90.0), ("y", "x"), "proj", **{"proj:code": "EPSG:4326"})
    array = StoredArray(dims=("y", "x"), values=GLOBE, chunks=(16, 16), attributes=place)
    store = write_hierarchy(folder / "a.zarr", {"v": array})
    return west, periplus.index(folder / "a.tif", to=folder / "a.parquet"), store


BOXES = [
    (170, 10, 190, 20),
    (-190, 10, -170, 20),
    (530, 10, 550, 20),
    (-10, 10, 10, 20),
    (175.5, 10, 184.5, 20),
    (185, 10, 190, 20),
    (10, 10, 365, 20),
]


def expected(box, west):
    """Values of the box, by longitudes alone."""
    columns = (np.arange(np.floor(box[0]), np.ceil(box[2])) - west) % 360
    rows = np.arange(90 - box[3], 90 - box[1])
    return GLOBE[np.ix_(rows.astype(int), columns.astype(int))]


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


@pytest.mark.parametrize("box", BOXES)
def test_both_sides_are_read(box, globe):
    west, index, store = globe
    for options in ({}, {"crs": "EPSG:4326"}):
        raster = index.read(bbox=box, **options)
        assert raster.values[0].tolist() == expected(box, west).tolist()
    part = opened(store, bbox=box)
    assert part.v.values.tolist() == expected(box, west).tolist()
    for x, left in ((raster.coordinates["x"], raster.bbox[0]), (part.x.values, part.v.attrs["spatial:transform"][2])):
        assert np.diff(x).tolist() == [1.0] * (len(x) - 1)
        assert (x[0] - 0.5, left) == (left, left)
        assert (left - np.floor(box[0])) % 360 == 0
        assert west <= left < west + 360
    labels = opened(store, bbox=box, coords="none")
    assert "x" not in labels.coords
    assert labels.v.values.tolist() == part.v.values.tolist()


@pytest.mark.parametrize("box", BOXES)
def test_chunks_of_both_sides_are_found_once(box, globe):
    west, index, _ = globe
    rows = index.select(level=0, bbox=box).to_pydict()
    columns = sorted({column // 16 for column in (expected(box, west)[0] % 1000).tolist()})
    found = sorted(zip(rows["y_chunk"], rows["x_chunk"], strict=True))
    lines = range((90 - box[3]) // 16, -(-(90 - box[1]) // 16))
    assert found == [(line, column) for line in lines for column in columns]


def test_levels_and_sizes_are_chosen_by_the_joined_window(globe):
    west, index, store = globe
    coarse = index.read(bbox=(170, 10, 190, 20), resolution=2)
    assert coarse.level == 1
    assert coarse.values.shape == (1, 5, 10)
    small = index.read(bbox=(170, 10, 190, 20), max_size=5)
    assert small.values.shape[-1] == 5
    assert np.diff(small.coordinates["x"]).tolist() == [4.0] * 4
    assert opened(store, bbox=(-190, 10, -170, 20), max_pixels=200).v.shape == (10, 20)
    assert index.read(bbox=(0, 10, 720, 20)).values[0].tolist() == GLOBE[70:80].tolist()
    assert index.read(bbox=(180, 15, 180, 15)).values.item() == expected((180, 14, 181, 15), west).item()


def test_joined_values_stay_lazy_and_keep_their_chunks(globe):
    _, _, store = globe
    part = opened(store, bbox=(170, 10, 190, 20), chunks={})
    assert part.v.chunks is not None
    assert part.v.encoding["preferred_chunks"] == {"y": 16, "x": 16}
    assert part.sel(x=part.x[-1], y=15.5).v.compute().item() == part.v.values[4, -1]


def test_other_crs_of_longitudes_are_joined_too(tmp_path):
    written(tmp_path / "nad.tif", -180, crs="EPSG:4269")
    index = periplus.index(tmp_path / "nad.tif")
    assert index.read(bbox=(170, 10, 190, 20)).values[0].tolist() == expected((170, 10, 190, 20), -180).tolist()
    assert len(index.select(bbox=(170, 10, 190, 20))) == len(index.select(bbox=(-190, 10, -170, 20))) > 0


@pytest.mark.parametrize("box", [(100, -5, 260, 5), (-260, -5, -100, 5), (175, -5, 190, 5), (-185, -5, -170, 5)])
def test_images_in_metres_on_both_sides_are_found(box, tmp_path):
    for zone, x in ((60, 600_000), (1, 300_000)):
        written(tmp_path / f"{zone}.tif", x, crs=f"EPSG:{32600 + zone}", step=100.0, north=20_000.0)
    index = periplus.index(tmp_path, to=tmp_path / "all.parquet")
    found = index.select(level=0, bbox=box, crs="EPSG:4326")
    assert len(set(found.column("path").to_pylist())) == 2
    assert len(index.select(level=0, bbox=(-170, -5, 170, 5), crs="EPSG:4326")) == 0


def test_metres_do_not_repeat(tmp_path):
    written(tmp_path / "utm.tif", 0, crs="EPSG:32633")
    index = periplus.index(tmp_path / "utm.tif")
    assert index.read(bbox=(350, 10, 370, 20)).values.shape == (1, 10, 10)
    place = spatial((1.0, 0.0, 0.0, 0.0, -1.0, 90.0), ("y", "x"), "proj", **{"proj:code": "EPSG:32633"})
    store = write_hierarchy(tmp_path / "s.zarr", {"v": StoredArray(dims=("y", "x"), values=GLOBE, attributes=place)})
    assert opened(store, bbox=(350, 10, 370, 20)).v.shape == (10, 10)


@pytest.mark.parametrize(("columns", "step"), [(350, 1.0), (359, 1.0), (360, 0.99)])
def test_ends_that_do_not_join_are_refused(columns, step, tmp_path):
    values = np.ascontiguousarray(GLOBE[:, :columns])
    written(tmp_path / "a.tif", -180, values, step=step)
    index = periplus.index(tmp_path / "a.tif")
    place = spatial((step, 0.0, -180.0, 0.0, -step, 90.0), ("y", "x"), "proj", **{"proj:code": "EPSG:4326"})
    store = write_hierarchy(tmp_path / "s.zarr", {"v": StoredArray(dims=("y", "x"), values=values, attributes=place)})
    for read in (index.read, lambda bbox: opened(store, bbox=bbox)):
        with pytest.raises(ValueError, match=r"both ends .* read each side on its own, \(165.0, .* and \(-180.0, "):
            read(bbox=(165, 10, 190, 20))
    assert len(index.select(bbox=(165, 10, 190, 20))) > len(index.select(bbox=(165, 10, 169, 20)))


def test_nodes_that_repeat_the_first_column_are_read_once(tmp_path):
    values = np.concatenate([GLOBE, GLOBE[:, :1]], axis=1)
    written(tmp_path / "a.tif", -180.5, values)
    index = periplus.index(tmp_path / "a.tif")
    assert (index.read(bbox=(170.5, 10, 190.5, 20)).values[0] % 1000)[0].tolist() == [*range(351, 360), *range(11)]
    assert (index.read(bbox=(175.5, 10, 180.5, 20)).values[0] % 1000)[0].tolist() == [356, 357, 358, 359, 0]


def test_an_image_on_one_side_gives_what_it_has(tmp_path):
    written(tmp_path / "a.tif", 100, np.ascontiguousarray(GLOBE[:, :80]))
    index = periplus.index(tmp_path / "a.tif")
    for box in ((170, 10, 190, 20), (-190, 10, -170, 20)):
        assert index.read(bbox=box).bbox == (170, 10, 180, 20)
    with pytest.raises(periplus.MissingError):
        index.read(bbox=(-170, 10, -160, 20))
