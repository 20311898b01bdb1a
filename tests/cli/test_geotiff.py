"""GeoTIFFs written by `periplus read` are what rasterio and tifffile read back."""

import io
from contextlib import contextmanager

import numpy as np
import pyproj
import pytest
import tifffile
from rasterio.io import MemoryFile

from periplus.cli.output import geotiff

UTM = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0)
LAEA = pyproj.CRS.from_proj4("+proj=laea +lat_0=52 +lon_0=11 +x_0=4321000 +y_0=3210000 +ellps=GRS80 +units=m")
MARS = pyproj.CRS.from_proj4("+proj=longlat +a=3396190 +b=3376200 +no_defs")


def written(bands, **facts):
    file = io.BytesIO()
    geotiff.write(file, bands, **facts)
    return file.getvalue()


@contextmanager
def opened(bands, **facts):
    with MemoryFile(written(bands, **facts)) as memory, memory.open() as image:
        yield image


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 300, 513), (5, 256, 256)])
def test_every_type_reads_back(dtype, shape):
    bands = (np.random.default_rng(3).standard_normal(shape) * 1000).astype(dtype)
    with opened(bands, transform=UTM, crs="EPSG:32633") as image:
        np.testing.assert_array_equal(image.read(), bands)
        assert image.crs.to_epsg() == 32633
        assert tuple(image.transform)[:6] == UTM
        assert image.block_shapes == [(256, 256)] * len(bands)


def test_half_floats_and_booleans_read_back():
    halves = np.arange(6, dtype=np.float16).reshape(1, 2, 3)
    assert tifffile.imread(io.BytesIO(written(halves))).tolist() == halves[0].tolist()
    flags = np.array([[[True, False]]])
    with opened(flags, transform=UTM) as image:
        np.testing.assert_array_equal(image.read(), flags)


def test_bigtiff_where_offsets_need_it(monkeypatch):
    monkeypatch.setattr(geotiff, "BIG", 0)
    bands = np.random.default_rng(5).integers(0, 65535, (3, 700, 300), np.uint16)
    data = written(bands, transform=UTM, crs="EPSG:32633", nodata=7)
    assert data[:4] == b"II\x2b\0"
    with MemoryFile(data) as memory, memory.open() as image:
        np.testing.assert_array_equal(image.read(), bands)
        assert (image.crs.to_epsg(), image.nodata) == (32633, 7)


def test_geographic_codes_are_not_taken_for_projected():
    with opened(
        np.zeros((1, 2, 2), "u1"), transform=(0.1, 0, 10, 0, -0.1, 50), crs="EPSG:4326", geographic=True
    ) as image:
        assert image.crs.to_epsg() == 4326


@pytest.mark.parametrize("system", [LAEA, MARS], ids=["projected", "geographic"])
@pytest.mark.parametrize("version", ["WKT2_2019", "WKT1_GDAL", "WKT1_ESRI"])
def test_systems_without_a_code_travel_as_text(system, version):
    text = system.to_wkt(version)
    with opened(np.zeros((1, 2, 2), "u1"), transform=UTM, crs=text) as image:
        read = pyproj.CRS.from_wkt(image.crs.to_wkt())
    there = pyproj.Transformer.from_crs(system.geodetic_crs, system, always_xy=True).transform(13.0, 47.0)
    again = pyproj.Transformer.from_crs(read.geodetic_crs, read, always_xy=True).transform(13.0, 47.0)
    assert again == pytest.approx(there, abs=1e-6)


@pytest.mark.parametrize("transform", [(10.0, 2.0, 5.0, 1.0, -10.0, 7.0), (10.0, 0.0, 5.0, 0.0, 10.0, 7.0)])
def test_turned_and_south_up_images_keep_their_transform(transform):
    with opened(np.zeros((1, 4, 4), "u1"), transform=transform, crs="EPSG:32633") as image:
        assert tuple(image.transform)[:6] == pytest.approx(transform)


@pytest.mark.parametrize(("dtype", "nodata"), [("u2", 0), ("i2", -9999), ("f4", float("nan")), ("f8", -3.4e38)])
def test_nodata_reads_back(dtype, nodata):
    with opened(np.zeros((1, 2, 2), dtype), transform=UTM, nodata=nodata) as image:
        assert image.nodata == pytest.approx(nodata, nan_ok=True)


def test_band_names_scales_and_units_read_back():
    items = [(0, "description", 'a <b> & "c"'), (1, "scale", "0.0001"), (1, "offset", "-0.5"), (0, "unittype", "m")]
    with opened(np.zeros((2, 2, 2), "i2"), transform=UTM, items=items) as image:
        assert image.descriptions == ('a <b> & "c"', None)
        assert (image.scales, image.offsets) == ((1.0, 0.0001), (0.0, -0.5))
        assert image.units == ("m", None)


def test_three_bytes_are_colours():
    with opened(np.zeros((3, 2, 2), "u1"), transform=UTM) as image:
        assert [c.name for c in image.colorinterp] == ["red", "green", "blue"]


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_a_palette_reads_back(dtype):
    colours = [[n, 255 - n, n // 2] for n in range(200)]
    with opened(np.arange(6, dtype=dtype).reshape(1, 2, 3), transform=UTM, colormap=colours) as image:
        assert [c.name for c in image.colorinterp] == ["palette"]
        read = image.colormap(1)
        assert [list(read[n][:3]) for n in range(200)] == colours
        assert image.read().tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_a_transform_without_a_crs_stays_without_one():
    with opened(np.zeros((1, 2, 2), "u1"), transform=UTM) as image:
        assert image.crs is None
        assert tuple(image.transform)[:6] == UTM


@pytest.mark.parametrize(("code", "geographic"), [("EPSG:32633+5773", False), ("EPSG:4326+5773", True)])
def test_heights_travel_with_their_code(code, geographic):
    with opened(np.zeros((1, 2, 2), "u1"), transform=UTM, crs=code, geographic=geographic) as image:
        assert pyproj.CRS.from_user_input(code).equals(pyproj.CRS.from_wkt(image.crs.to_wkt()), ignore_axis_order=True)


def test_an_image_without_a_place_is_just_an_image():
    with opened(np.arange(6, dtype="u1").reshape(1, 2, 3)) as image:
        assert image.crs is None
        assert image.read().tolist() == [[[0, 1, 2], [3, 4, 5]]]
