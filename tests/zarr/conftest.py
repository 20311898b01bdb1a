"""Fixtures of the Zarr face."""

from contextlib import suppress
from importlib import import_module

import pytest
import rasterio

from periplus.testing.zarr_arrays import registered


@pytest.fixture
def our_codecs():
    """Our codecs for all names we know, also where osml-imagery-io, which registers the same URIs, is imported."""
    with suppress(ImportError):
        import_module("aws.osml.io.zarr_codecs")
    with registered():
        yield


@pytest.fixture(scope="session")
def seen_by_gdal():
    """Levels of a file as rasterio reads them, by array name."""

    def seen(path):
        with rasterio.open(path) as raster:
            levels = {"0/data": raster.read()}
            count = len(raster.overviews(1)) if path.suffix == ".tif" else 0
        for level in range(count):
            with rasterio.open(path, OVERVIEW_LEVEL=level) as raster:
                levels[f"{level + 1}/data"] = raster.read()
        return levels

    return seen
