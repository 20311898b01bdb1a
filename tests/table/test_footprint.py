"""Footprints agree with an independent affine, in plain, flipped and rotated grids, regular chunks or not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from affine import Affine
from hypothesis import assume, given
from hypothesis import strategies as st

from periplus.errors import FormatError
from periplus.model import Array, Georeference, chunk_positions
from periplus.table.query.footprint import (
    around,
    bounds,
    chunk_boxes,
    chunk_range,
    chunk_window,
    meets,
    pixel_window,
    spatial_axes,
)

number = st.floats(-1e6, 1e6, allow_nan=False)


def grid(transform, shape=(100, 150), chunks=(30, 40), edges=None, dims=("y", "x")):
    place = Georeference(crs="EPSG:32633", transform=transform)
    return Array(name="a", dims=dims, shape=shape, chunks=chunks, dtype=np.dtype("u1"), georeference=place, edges=edges)


@st.composite
def transforms(draw):
    angle = draw(st.sampled_from([0.0, 0.0, 30.0, -135.0, 90.0]))
    scale = draw(st.sampled_from([1.0, 0.01, 30.0]))
    flip = draw(st.sampled_from([-1.0, 1.0]))
    x, y = draw(st.integers(-1000, 1000)), draw(st.integers(-1000, 1000))
    return tuple(Affine.translation(x, y) @ Affine.rotation(angle) @ Affine.scale(scale, scale * flip))[:6]


@given(transforms(), st.booleans())
def test_boxes_are_those_of_the_corners(transform, varied):
    edges = ((30, 20, 50), None) if varied else None
    array = grid(transform, chunks=(50, 40) if varied else (30, 40), edges=edges)
    rows, columns = chunk_positions(array.grid)
    boxes = chunk_boxes(array, rows, columns)
    ys, xs = array.starts(0), array.starts(1)
    for row, column, box in zip(rows, columns, boxes.T, strict=True):
        points = [Affine(*transform) @ (i, j) for i in xs[column : column + 2] for j in ys[row : row + 2]]
        want = [
            min(p[0] for p in points),
            min(p[1] for p in points),
            max(p[0] for p in points),
            max(p[1] for p in points),
        ]
        np.testing.assert_allclose(box, want, rtol=1e-12, atol=1e-9)
    whole = bounds(array)
    np.testing.assert_allclose(whole, [boxes[0].min(), boxes[1].min(), boxes[2].max(), boxes[3].max()], atol=1e-9)


@given(transforms(), st.floats(-0.2, 1.2), st.floats(-0.2, 1.2), st.floats(0, 0.6), st.floats(0, 0.6))
def test_a_window_holds_every_chunk_that_meets_the_box(transform, left, top, width, height):
    array = grid(transform)
    xmin, ymin, xmax, ymax = bounds(array)
    box = (
        xmin + left * (xmax - xmin), ymin + top * (ymax - ymin),
        xmin + (left + width) * (xmax - xmin), ymin + (top + height) * (ymax - ymin),
    )  # fmt: skip
    (r0, r1), (c0, c1) = chunk_window(array, box)
    rows, columns = chunk_positions(array.grid)
    boxes = chunk_boxes(array, rows, columns)
    # Shrunk a little, so that an edge within a millionth of a pixel does not count either way.
    slack = 2e-6 * max(abs(v) for v in transform[:5])
    inner = (
        (boxes[0] < box[2] - slack)
        & (boxes[2] > box[0] + slack)
        & (boxes[1] < box[3] - slack)
        & (boxes[3] > box[1] + slack)
    )
    found = (rows >= r0) & (rows < r1) & (columns >= c0) & (columns < c1)
    if transform[1] == 0:
        assert not (inner & ~found).any()
        outer = (
            (boxes[0] > box[2] + slack)
            | (boxes[2] < box[0] - slack)
            | (boxes[1] > box[3] + slack)
            | (boxes[3] < box[1] - slack)
        )
        assert not (found & outer).any()
    else:  # the chunk itself, not the box around it, must meet the box
        centre = [Affine(*transform) @ ((c + 0.5) * 40, (r + 0.5) * 30) for r, c in zip(rows, columns, strict=True)]
        within = [box[0] < x < box[2] and box[1] < y < box[3] for x, y in centre]
        inside = [(r + 0.5) * 30 < 100 and (c + 0.5) * 40 < 150 for r, c in zip(rows, columns, strict=True)]
        assert not (np.array(within) & np.array(inside) & ~found).any()


def test_edges_of_a_box_on_edges_of_pixels_take_no_neighbour():
    transform = (0.01, 0.0, -179.995, 0.0, -0.01, 89.995)
    array = grid(transform, shape=(17_999, 36_000), chunks=(512, 512))
    for row, column in ((0, 0), (10, 30), (34, 69), (17, 41)):
        box = chunk_boxes(array, np.array([row]), np.array([column]))[:, 0]
        assert chunk_window(array, tuple(box)) == [(row, row + 1), (column, column + 1)]


def test_a_point_meets_one_pixel():
    array = grid((10.0, 0.0, 0.0, 0.0, -10.0, 1000.0))
    assert pixel_window(array.georeference.transform, (25, 975, 25, 975)) == ((2, 3), (2, 3))
    assert chunk_window(array, (405, 405, 405, 405)) == [(1, 2), (1, 2)]
    assert chunk_window(array, (400, 700, 400, 700)) == [(1, 2), (1, 2)]


def test_a_box_elsewhere_meets_nothing():
    array = grid((10.0, 0.0, 0.0, 0.0, -10.0, 1000.0))
    for box in ((-500, 0, -1, 1000), (1501, 0, 1600, 1000), (0, 1001, 10, 1010), (0, -10, 10, -1)):
        window = chunk_window(array, box)
        assert math.prod(high - low for low, high in window) == 0


@pytest.mark.parametrize("box", [(1, 0, 0, 1), (0, 1, 1, 0), (math.nan, 0, 1, 1), (0, 0, math.inf, 1)])
def test_boxes_that_are_none_are_refused(box):
    with pytest.raises(ValueError, match="bbox"):
        chunk_window(grid((10.0, 0.0, 0.0, 0.0, -10.0, 1000.0)), box)


def test_a_transform_without_inverse_is_refused():
    with pytest.raises(FormatError, match="no inverse"):
        chunk_window(grid((10.0, 0.0, 0.0, 0.0, 0.0, 1000.0)), (0, 0, 1, 1))
    for huge in ((1e-300, 1e300, 0.0, 0.0, 1e308, 0.0), (1e-310, 0.0, 0.0, 0.0, 1.0, 0.0)):
        with pytest.raises(FormatError, match="no inverse"):
            chunk_window(grid(huge), (0, 0, 1e9, 1e9))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(-5, 60), st.integers(-5, 60))
def test_chunk_ranges_of_varying_chunks_cover_exactly(edges, low, high):
    assume(low < high)
    array = grid(None, shape=(sum(edges), 1), chunks=(max(edges), 1), edges=(tuple(edges), None))
    first, last = chunk_range(array, 0, low, high)
    starts = array.starts(0)
    want = [i for i in range(len(edges)) if starts[i] < high and starts[i + 1] > low]
    assert list(range(first, last)) == want


def test_the_axes_are_y_and_x_or_the_last_two():
    assert spatial_axes(grid(None, shape=(1, 2, 3), chunks=(1, 1, 1), dims=("x", "y", "t"))) == (1, 0)
    assert spatial_axes(grid(None, shape=(1, 2, 3), chunks=(1, 1, 1), dims=("t", "lat", "lon"))) == (1, 2)
    assert spatial_axes(grid(None, shape=(1,), chunks=(1,), dims=("t",))) is None


def test_touching_is_not_meeting_unless_the_box_is_a_line():
    boxes = np.array([[0.0, 0.0, 10.0, 10.0], [10.0, 0.0, 20.0, 10.0]]).T
    assert meets(boxes, (5, 5, 10, 8)).tolist() == [True, False]
    assert meets(boxes, (10, 5, 10, 8)).tolist() == [True, True]


def test_what_does_not_say_where_it_lies_has_no_box():
    nowhere = replace(grid(None), georeference=Georeference(crs="EPSG:32633"))
    far = grid((10.0, 0.0, math.inf, 0.0, -10.0, 0.0))
    line = replace(grid(None), dims=("x",), shape=(9,), chunks=(9,))
    assert (around(nowhere), around(far), around(line)) == (None, None, None)
    assert around(grid((10.0, 0.0, 0.0, 0.0, -10.0, 0.0))) == ((0.0, -1000.0, 1500.0, 0.0), "EPSG:32633")
