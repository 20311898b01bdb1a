"""A small archive of tiled GeoTIFFs with overviews, made by GDAL."""

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.enums import Resampling

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5200000.0)
DEGREES = Affine(0.001, 0.0, 12.0, 0.0, -0.001, 48.0)


def write_tiff(
    path,
    values,
    *,
    crs="EPSG:32633",
    transform=UTM,
    overviews=(2,),
    scales=None,
    offsets=None,
    names=None,
    mask=None,
    **tags,
):
    """Values (bands, y, x) as a tiled, deflated GeoTIFF."""
    bands, height, width = values.shape
    profile = {
        "count": bands,
        "height": height,
        "width": width,
        "dtype": values.dtype,
        "crs": crs,
        "transform": transform,
    }
    profile |= {"driver": "GTiff", "tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate"}
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **profile, **tags) as file:
        file.write(values)
        file.scales = scales or (1.0,) * bands
        file.offsets = offsets or (0.0,) * bands
        for band, name in enumerate(names or (), 1):
            file.set_band_description(band, name)
        if mask is not None:
            file.write_mask(mask)
        if overviews:
            file.build_overviews(overviews, Resampling.average)
    return path


def ramp(dtype, shape, seed=0):
    return np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    """Paths by name: `reflectance` (int16, nodata, scale), `height` (float32, NaN), `photo` (uint8, mask), `steps`."""
    folder = tmp_path_factory.mktemp("archive")
    reflectance = ramp("int16", (2, 150, 210)) * 50
    reflectance[:, 20:90, 30:80] = -9999
    packed = {"nodata": -9999, "scales": (1e-4, 1e-4), "offsets": (-0.1, -0.1), "names": ("red", "nir")}
    height = ramp("float32", (1, 130, 100)) / 7
    height[0, :40, 50:] = np.nan
    photo = ramp("uint8", (3, 140, 90))
    outside = np.where(np.arange(90) < 60, 255, 0).astype("uint8") * np.ones((140, 1), "uint8")
    paths = {
        "reflectance": write_tiff(folder / "reflectance.tif", reflectance, overviews=(2, 4), **packed),
        "height": write_tiff(folder / "height.tif", height, crs="EPSG:4326", transform=DEGREES, nodata=np.nan),
        "photo": write_tiff(folder / "photo.tif", photo, mask=outside, photometric="rgb"),
    }
    (folder / "steps").mkdir()
    for n, day in enumerate(["20210105", "20210204", "20210306"]):
        values = ramp("int16", (2, 150, 210), n + 1)
        values[:, :10] = -1
        write_tiff(folder / "steps" / f"scene_{day}.tif", values, nodata=-1)
    paths["steps"] = folder / "steps"
    paths["folder"] = folder
    return paths
