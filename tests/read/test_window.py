"""Windows by bounding box, and the choice of a level, against rasterio's own arithmetic."""

import math

import numpy as np
import pytest
import rasterio.transform
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.errors import FormatError, MissingError
from periplus.model import Array, Georeference
from periplus.model.affine import box
from periplus.read.window import level_for, transform_of, window_in, window_of
from periplus.table.query.footprint import upright

NORTH_UP = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0)
SOUTH_UP = (10.0, 0.0, 500_000.0, 0.0, 10.0, 3_990_000.0)
COS, SIN = math.cos(math.radians(30)), math.sin(math.radians(30))
ROTATED = (10 * COS, 10 * SIN, 500_000.0, 10 * SIN, -10 * COS, 4_000_000.0)


def level(k, rows, columns, transform=None, name="data"):
    return Array(
        name=f"{k}/{name}", dims=("bands", "y", "x"), shape=(1, rows, columns), chunks=(1, 64, 64),
        dtype=np.dtype("u1"), level=k,
        georeference=None if transform is None else Georeference(crs="EPSG:32633", transform=transform),
    )  # fmt: skip


@pytest.mark.parametrize("transform", [NORTH_UP, SOUTH_UP, ROTATED])
def test_bounds_are_those_of_rasterio(transform):
    expected = rasterio.transform.array_bounds(700, 900, Affine(*transform))
    if transform is not SOUTH_UP:  # there rasterio's bottom is above its top
        np.testing.assert_allclose(box(transform, 0, 0, 900, 700), expected)
    west, south, east, north = box(transform, 0, 0, 900, 700)
    assert west < east
    assert south < north


@pytest.mark.parametrize(
    ("bbox", "window"),
    [
        ((500_000, 3_999_000, 501_000, 4_000_000), (0, 100, 0, 100)),
        ((500_000.0000001, 3_999_000.0000001, 500_999.9999999, 3_999_999.9999999), (0, 100, 0, 100)),
        ((500_001, 3_998_999, 501_001, 3_999_999), (0, 101, 0, 101)),
        ((0, 0, 1e7, 1e7), (0, 500, 0, 600)),
        ((500_015, 3_999_955, 500_015, 3_999_955), (4, 5, 1, 2)),
        ((500_010, 3_999_950, 500_010, 3_999_950), (5, 6, 1, 2)),
        ((505_999, 3_995_000, 506_500, 3_995_001), (499, 500, 599, 600)),
        ((400_000, 3_999_000, 500_000, 4_000_000), None),
        ((506_000, 3_999_000, 507_000, 4_000_000), None),
        ((500_000, 4_000_000, 501_000, 4_001_000), None),
        ((500_000, 3_000_000, 501_000, 3_995_000), None),
    ],
)
def test_a_bbox_is_snapped_outward_and_clipped(bbox, window):
    assert window_of(bbox, NORTH_UP, 500, 600) == window


def test_a_south_up_image_counts_rows_upward():
    assert window_of((500_000, 3_990_000, 500_050, 3_990_100), SOUTH_UP, 500, 600) == (0, 10, 0, 5)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([NORTH_UP, SOUTH_UP, ROTATED]),
    st.floats(0, 590), st.floats(0, 490), st.floats(0.01, 300), st.floats(0.01, 300),
)  # fmt: skip
def test_every_pixel_a_bbox_touches_is_in_its_window(transform, column, row, width, height):
    corners = [(column + dx, row + dy) for dx in (0, width) for dy in (0, height)]
    xs, ys = rasterio.transform.xy(Affine(*transform), [r for _, r in corners], [c for c, _ in corners], offset="ul")
    bbox = (min(xs), min(ys), max(xs), max(ys))
    top, bottom, left, right = window_of(bbox, transform, 500, 600)
    assert top <= row + 1e-5
    assert left <= column + 1e-5
    assert bottom >= min(row + height, 500) - 1e-5
    assert right >= min(column + width, 600) - 1e-5
    if transform is not ROTATED:  # and none besides
        assert top > row - 1 - 1e-5
        assert bottom < row + height + 1 + 1e-5


def test_a_transform_without_inverse_is_refused():
    with pytest.raises(FormatError):
        window_of((0, 0, 1, 1), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 10, 10)
    for huge in ((1e-300, 1e300, 0.0, 0.0, 1e308, 0.0), (1e-310, 0.0, 0.0, 0.0, 1.0, 0.0)):
        with pytest.raises(FormatError):
            window_of((0, 0, 1e9, 1e9), huge, 10, 10)


@pytest.mark.parametrize("bbox", [(2, 0, 1, 1), (0, 0, float("nan"), 1), (0, 0, float("inf"), 1), (0, 1, 2)])
def test_a_bbox_that_is_none_is_the_callers_mistake(bbox):
    with pytest.raises(ValueError):
        upright(bbox)


PYRAMID = [
    level(0, 1000, 800, NORTH_UP),
    level(1, 500, 400, (20.0, 0.0, 500_000.0, 0.0, -20.0, 4_000_000.0)),
    level(2, 250, 200, (40.0, 0.0, 500_000.0, 0.0, -40.0, 4_000_000.0)),
]


@pytest.mark.parametrize(
    ("resolution", "chosen"),
    [(1, 0), (10, 0), (19.9, 0), (20, 1), (20 - 1e-6, 1), (39, 1), (40, 2), (1e9, 2), ((40, 20), 1), ((5, 1e9), 0)],
)
def test_the_level_is_the_coarsest_that_is_fine_enough(resolution, chosen):
    pair = resolution if isinstance(resolution, tuple) else (resolution, resolution)
    assert level_for(PYRAMID, bbox=None, resolution=pair, max_size=None).level == chosen


@pytest.mark.parametrize(("max_size", "chosen"), [(1000, 0), (999, 1), (500, 1), (499, 2), (1, 2)])
def test_max_size_picks_the_finest_level_that_fits(max_size, chosen):
    assert level_for(PYRAMID, bbox=None, resolution=None, max_size=max_size).level == chosen


def test_max_size_counts_the_window_and_not_the_image():
    bbox = (500_000, 3_999_000, 501_000, 4_000_000)
    assert level_for(PYRAMID, bbox=bbox, resolution=None, max_size=100).level == 0
    assert level_for(PYRAMID, bbox=bbox, resolution=None, max_size=99).level == 1


def test_a_level_without_a_transform_takes_it_from_the_finest():
    bare = [PYRAMID[0], level(1, 500, 400)]
    assert transform_of(bare, bare[1]) == PYRAMID[1].georeference.transform


def test_an_image_without_a_transform_refuses_bbox_and_resolution_but_not_size():
    bare = [level(0, 100, 100), level(1, 50, 50)]
    with pytest.raises(FormatError, match="no transform"):
        window_in(bare, bare[0], (0, 0, 1, 1))
    with pytest.raises(FormatError, match="no transform"):
        level_for(bare, bbox=None, resolution=(1, 1), max_size=None)
    assert level_for(bare, bbox=None, resolution=None, max_size=60).level == 1


def test_a_bbox_beside_the_image_says_where_the_image_is():
    with pytest.raises(MissingError, match=r"500000\.0, 3990000\.0, 508000\.0, 4000000\.0"):
        window_in(PYRAMID, PYRAMID[0], (0, 0, 1, 1))
