"""CRS texts, boxes between CRSs and grid mappings, against rasterio's GDAL and rioxarray."""

import json
from contextlib import suppress

import numpy as np
import pytest
import rasterio.crs
import rasterio.warp
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st

from periplus.conventions.proj.crs import axis_attributes, describe_crs, grid_mapping, reproject_bbox
from periplus.errors import FormatError

CODES = ["EPSG:4326", "EPSG:32633", "EPSG:3857", "EPSG:2056", "EPSG:3413", "EPSG:6933", "EPSG:2193", "ESRI:102001"]


@pytest.mark.parametrize("code", CODES)
def test_a_code_its_wkt_and_its_projjson_are_the_same_crs(code):
    crs = describe_crs(code)
    assert crs.code == code
    assert describe_crs(crs.wkt2).code == code
    assert describe_crs(json.dumps(crs.projjson)).code == code
    oracle = rasterio.crs.CRS.from_string(code)
    assert crs.is_geographic == oracle.is_geographic
    assert rasterio.crs.CRS.from_wkt(crs.wkt2) == oracle


def test_units_and_unknown_codes():
    assert describe_crs("EPSG:32633").units == "metre"
    assert describe_crs("EPSG:4326").units == "degree"
    assert describe_crs("EPSG:2229").units == "US survey foot"
    assert describe_crs("+proj=lcc +lat_1=30 +lat_2=40 +lon_0=10").code is None


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "EPSG:999999", "PROJCS[", "{", '{"type": 1}', "\x00", "+proj=lcc", "+init=/tmp/x:y", "W" * 2**21],
)
def test_text_that_names_no_crs_is_a_format_error(text):
    with pytest.raises(FormatError):
        describe_crs(text)
    with pytest.raises(FormatError):
        grid_mapping(text, None)


@given(st.text(max_size=60))
def test_any_text_is_a_crs_or_a_format_error(text):
    with suppress(FormatError):
        describe_crs(text)


@pytest.mark.parametrize(
    ("bbox", "source", "target"),
    [
        ((12.0, 48.0, 13.0, 49.0), "EPSG:4326", "EPSG:32633"),
        ((300000.0, 5200000.0, 409800.0, 5309800.0), "EPSG:32633", "EPSG:4326"),
        ((-10.0, 35.0, 40.0, 70.0), "EPSG:4326", "EPSG:3035"),
        ((-1e6, -1e6, 1e6, 1e6), "EPSG:3413", "EPSG:3857"),
    ],
)
def test_a_reprojected_box_holds_every_point_of_the_box(bbox, source, target):
    left, bottom, right, top = reproject_bbox(bbox, source, target)
    xs, ys = np.meshgrid(np.linspace(bbox[0], bbox[2], 15), np.linspace(bbox[1], bbox[3], 15))
    x, y = rasterio.warp.transform(source, target, xs.ravel(), ys.ravel())
    slack = 1e-3 * max(right - left, top - bottom)
    assert min(x) >= left - slack
    assert max(x) <= right + slack
    assert min(y) >= bottom - slack
    assert max(y) <= top + slack


def test_x_comes_before_y_whatever_the_crs_says():
    assert reproject_bbox((12.0, 48.0, 13.0, 49.0), "OGC:CRS84", "EPSG:4326") == pytest.approx((12, 48, 13, 49))
    assert reproject_bbox((12, 48, 13, 49), "EPSG:4326", "EPSG:4326") == (12.0, 48.0, 13.0, 49.0)


def test_a_polar_box_has_all_longitudes():
    left, bottom, right, top = reproject_bbox((-1e6, -1e6, 1e6, 1e6), "EPSG:3031", "EPSG:4326")
    assert (left, bottom, right) == (-180, -90, 180)
    assert -78 < top < -75


def test_boxes_across_the_antimeridian():
    left, _, right, _ = reproject_bbox((170.0, 0.0, -170.0, 10.0), "EPSG:4326", "EPSG:3832")
    assert right - left == pytest.approx(20 * 111319.49, rel=1e-3)
    with pytest.raises(FormatError, match="antimeridian"):
        reproject_bbox((700000.0, 0.0, 900000.0, 1e6), "EPSG:32660", "EPSG:4326")


@pytest.mark.parametrize(
    "bbox",
    [
        (-180.0, -90.0, 180.0, 90.0),
        (float("nan"), 0, 1, 1),
        (0, 0, float("inf"), 1),
        (0, 2, 1, 1),
        (0, 0, 1),
    ],
)
def test_boxes_without_a_place_are_refused(bbox):
    with pytest.raises(ValueError, match="box"):
        reproject_bbox(bbox, "EPSG:4326", "EPSG:32633")


def test_a_projected_box_turned_around_is_refused():
    with pytest.raises(ValueError, match="x before y"):
        reproject_bbox((2.0, 0.0, 1.0, 1.0), "EPSG:32633", "EPSG:4326")


@pytest.mark.parametrize("code", CODES)
def test_rioxarray_reads_crs_and_transform_from_a_grid_mapping(code):
    transform = (10.0, 0.5, 300000.1, -0.25, -10.0, 5200000.3)
    spatial_ref = xr.Variable((), 0, grid_mapping(code, transform))
    array = xr.DataArray(np.zeros((2, 2)), dims=("y", "x"), coords={"spatial_ref": spatial_ref})
    assert array.rio.crs == rasterio.crs.CRS.from_string(code)
    assert array.rio.transform() == Affine(*transform)


def test_a_grid_mapping_has_only_what_is_known():
    assert grid_mapping(None, None) == {}
    assert grid_mapping(None, (2, 0, 1, 0, -2, 4)) == {"GeoTransform": "1.0 2.0 0.0 4.0 0.0 -2.0"}
    assert grid_mapping("EPSG:4326", None)["grid_mapping_name"] == "latitude_longitude"
    grid_mapping("EPSG:4326", None)["grid_mapping_name"] = "changed by the caller"
    assert grid_mapping("EPSG:4326", None)["grid_mapping_name"] == "latitude_longitude"


def test_axis_attributes_are_cf():
    assert axis_attributes("EPSG:4326")["x"]["standard_name"] == "longitude"
    assert axis_attributes("EPSG:2193")["y"]["standard_name"] == "projection_y_coordinate"
    assert axis_attributes("EPSG:5714") == {"x": {}, "y": {}}
