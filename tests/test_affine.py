"""Transforms agree with matrices, upright, upside down and turned."""

import math

import numpy as np
import pytest

from periplus.errors import FormatError
from periplus.model.affine import box, pixel_size, place, position, reach, scaled, shifted

TURN = math.radians(30)
TRANSFORMS = {
    "north up": (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0),
    "south up": (10.0, 0.0, 500_000.0, 0.0, 10.0, 3_990_000.0),
    "turned": (10 * math.cos(TURN), 20 * math.sin(TURN), 5e5, 10 * math.sin(TURN), -20 * math.cos(TURN), 4e6),
}


def matrix(transform):
    return np.array([*transform, 0, 0, 1]).reshape(3, 3)


every = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


@every
def test_places_and_positions_are_those_of_a_matrix(transform):
    x, y = place(transform, 5, 7)
    np.testing.assert_allclose((x, y, 1), matrix(transform) @ (7, 5, 1))
    np.testing.assert_allclose(position(transform, x, y), (5, 7), atol=1e-6)


@every
def test_a_window_begins_at_its_own_corner(transform):
    moved = np.array([(1, 0, 7), (0, 1, 5), (0, 0, 1)])
    np.testing.assert_allclose(matrix(shifted(transform, 5, 7)), matrix(transform) @ moved)


@every
def test_larger_pixels_begin_at_the_same_corner(transform):
    np.testing.assert_allclose(matrix(scaled(transform, 2, 3)), matrix(transform) @ np.diag([3, 2, 1]))
    sides = (10, 20) if transform[1] else (10, 10)
    np.testing.assert_allclose(pixel_size(transform), sides)
    np.testing.assert_allclose(pixel_size(scaled(transform, 2, 3)), (3 * sides[0], 2 * sides[1]))


@every
def test_a_box_reaches_over_the_pixels_it_is_around(transform):
    around = box(transform, 7, 5, 27, 35)
    xs, ys, _ = matrix(transform) @ [(7, 7, 27, 27), (5, 35, 5, 35), (1, 1, 1, 1)]
    np.testing.assert_allclose(around, (min(xs), min(ys), max(xs), max(ys)))
    (top, bottom), (left, right) = reach(transform, around)
    if transform[1] == 0:
        np.testing.assert_allclose((left, top, right, bottom), (7, 5, 27, 35), atol=1e-6)
    else:
        assert left < 7 < 27 < right
        assert top < 5 < 35 < bottom


@pytest.mark.parametrize(
    "transform", [(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (1e-300, 1e300, 0.0, 0.0, 1e308, 0.0), (1e-310, 0, 0, 0, 1, 0)]
)
def test_what_has_no_inverse_is_refused(transform):
    with pytest.raises(FormatError, match="no inverse"):
        reach(transform, (0, 0, 1e9, 1e9))
