"""Windows as DataArrays and pictures, and indexes as Datasets and descriptions for notebooks."""

import base64
import re

import matplotlib as mpl
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - registers .rio
import xarray as xr

import periplus
from periplus.testing.scenes import NODATA, tile


@pytest.fixture
def stack(tmp_path):
    for day in (1, 2, 3):
        values = np.random.default_rng(day).integers(0, 999, (3, 64, 96)).astype("i2")
        values[:, :8, :8] = NODATA
        tile(tmp_path / f"s_2021010{day}.tif", 0, 0, values=values, size=(64, 96), bands=3, levels=(2,))
    return periplus.index(tmp_path / "*.tif")


def test_an_index_as_a_dataset_is_that_of_the_engine(stack):
    xr.testing.assert_identical(stack.to_xarray(), xr.open_dataset(stack, engine="periplus"))
    assert stack.to_xarray(level=1).sizes["x"] == 48
    with pytest.raises(TypeError, match="levels"):
        stack.to_xarray(levels=1)


def test_a_window_as_a_data_array_is_the_window_of_the_dataset(stack):
    whole = stack.to_xarray()["data"]
    raster = stack.read(bbox=(500_100, 4_999_700, 500_500, 4_999_900), time=("2021-01-02", "2021-01-03"))
    found = raster.to_xarray()
    y, x = raster.coordinates["y"], raster.coordinates["x"]
    xr.testing.assert_equal(
        found.drop_vars("spatial_ref"), whole.sel(time=slice("2021-01-02", None), y=y, x=x).drop_vars("spatial_ref")
    )
    assert (found.dtype, found.rio.crs.to_epsg(), tuple(found.rio.transform())[:6]) == (
        np.float32,
        32633,
        raster.transform,
    )
    raw = raster.to_xarray(mask_and_scale=False)
    np.testing.assert_array_equal(raw, raster.values)
    assert raw.rio.nodata == NODATA
    assert np.isnan(stack.read(max_size=1000).to_xarray()[..., :8, :8]).all()


def test_bands_keep_their_labels_and_their_metadata(tmp_path):
    path = tmp_path / "a.tif"
    with rasterio.open(
        path, "w", driver="GTiff", width=8, height=8, count=3, dtype="uint8", crs="EPSG:32633",
        transform=rasterio.Affine(10, 0, 0, 0, -10, 0),
    ) as file:  # fmt: skip
        file.write(np.arange(3, dtype="u1")[:, None, None] * np.ones((3, 8, 8), "u1"))
        file.scales = (1, 2, 3)
    index = periplus.index(path)
    chosen = index.read(bands=[3, 1])
    assert chosen.attrs["scale_factor"] == [3, 1]
    found = chosen.to_xarray()
    assert found.bands.values.tolist() == [3, 1]
    assert found[:, 0, 0].values.tolist() == [6, 0]
    one = index.read(bands=3)
    assert one.attrs["scale_factor"] == 3
    assert one.to_xarray()[0, 0] == 6
    with rasterio.open(path, "r+") as file:
        file.descriptions = ("r", "g", "b")
    assert periplus.index(path).read(bands=["b", "r"]).to_xarray().bands.values.tolist() == ["b", "r"]


def test_pictures(stack):
    one = stack.read(time="2021-01-01")
    assert one.picture().shape == (64, 96, 4)
    assert not one.picture()[:8, :8, 3].any()
    assert stack.read(time="2021-01-01", bands=2).picture().shape == (64, 96, 2)
    with pytest.raises(ValueError, match="one image, not 3 along time"):
        stack.read().picture()


def test_a_picture_leaves_the_values_alone(tmp_path):
    values = np.arange(64, dtype="u1").reshape(1, 8, 8)
    for photometric in ("MINISWHITE", "MINISBLACK"):
        tile(tmp_path / "a.tif", 0, 0, values=values, size=(8, 8), bands=1, dtype="uint8", photometric=photometric,
             nodata=None, tiled=False)  # fmt: skip
        raster = periplus.index(tmp_path / "a.tif").read()
        first = raster.picture()
        first[...] = 7
        np.testing.assert_array_equal(raster.values, values)
        want = 255 - values[0] if photometric == "MINISWHITE" else values[0]
        np.testing.assert_array_equal(raster.picture()[..., 0], want)
        raster._repr_html_()
        np.testing.assert_array_equal(raster.values, values)


def test_plots_are_in_the_coordinates_of_the_image(stack):
    mpl.use("agg")
    axes = stack.read(time="2021-01-01", bands=1).plot()
    (image,) = axes.images
    assert tuple(image.get_extent()) == (500_000, 500_960, 4_999_360, 5_000_000)
    assert image.get_array().mask[:8, :8].all()
    assert len(axes.figure.axes) == 2  # with a colour bar
    assert stack.read(time="2021-01-01").plot(ax=axes, alpha=0.5) is axes
    assert axes.images[1].get_array().shape == (64, 96, 4)
    mpl.pyplot.close("all")


def test_notebooks_show_a_picture_where_it_is_cheap(stack, tmp_path, monkeypatch):
    for shown in (stack, stack.read(time="2021-01-01")):
        text = shown._repr_html_()
        assert "&lt;periplus" in text
        (data,) = re.findall('base64,([^"]+)', text)
        assert base64.b64decode(data).startswith(b"\x89PNG")
    assert "img" not in stack.read()._repr_html_()
    monkeypatch.setattr("periplus.facade.THUMBNAIL_BYTES", 10)
    assert "img" not in stack._repr_html_()
    monkeypatch.undo()
    for path in tmp_path.glob("*.tif"):
        path.unlink()
    assert "img" not in stack._repr_html_()


def test_files_as_a_data_frame(stack, tmp_path):
    frame = stack.files.to_pandas()
    assert frame.index.name == "file_id"
    assert frame["size"].tolist() == [path.stat().st_size for path in sorted(tmp_path.glob("*.tif"))]
    assert frame["datetime"].dt.day.tolist() == [1, 2, 3]
    assert (frame["status"] == "ok").all()
