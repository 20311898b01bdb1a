"""The origin of a file on the pixel grid of another, or the reason why it does not fit that grid."""

from __future__ import annotations

import math
from typing import Any

from periplus.arrange.compatibility import band_difference, equal_crs
from periplus.arrange.messages import parenthesised, short_crs
from periplus.arrange.packing import Packing, packing_of, physical_dtype
from periplus.model import Array, Georeference, Transform, affine

SIZE_TOLERANCE = 1e-6
"""Fraction of a pixel by which pixels of two files may differ in size or direction."""
GRID_TOLERANCE = 1e-3
"""Fraction of a pixel by which the corners of a file may be off the grid."""
FARTHEST = 1 << 31
"""Pixels between two files; chunk positions are 32-bit numbers."""
MEANING = ("colormap", "units")
"""Attributes that define the meaning of values and must be equal in all files of an array."""


def content_difference(array: Array, like: Array) -> str | None:
    """Why pixels of two arrays cannot be in one array, wherever they are; None if they can."""
    for noun, ours, theirs in (
        ("dimensions", parenthesised(array.dims), parenthesised(like.dims)),
        ("bands", array.shape[:-2], like.shape[:-2]),
        ("type", array.dtype, like.dtype),
    ):
        if ours != theirs:
            return f"it has {noun} {_shown(ours)}, not {_shown(theirs)}"
    if array.edges is not None and any(edges is not None for edges in array.edges[:-2]):
        return "its bands are in chunks of several sizes"
    packing, other = packing_of(array), packing_of(like)
    if packing.key != other.key and not array.is_mask:
        # Values of different packings are converted to physical values.
        if physical_dtype(array.dtype) is None:
            return f"it has {packing}, not {other}, and no float type holds every {array.dtype} exactly"
    elif Packing(array.fill).key != Packing(like.fill).key:
        return f"its missing chunks mean {array.fill!r}, not {like.fill!r}; use arrange='collect' for such files"
    bands = band_difference(array, like)
    if bands is not None:
        return f"it {bands}"
    for name in MEANING:
        if array.attributes.get(name) != like.attributes.get(name):
            return f"it has other {name}"
    return None


def grid_origin(array: Array, like: Array) -> tuple[int, int] | str:
    """(row, column) of the first pixel on the grid of `like`, or why the file is not on that grid."""
    ours, theirs = array.georeference or Georeference(), like.georeference or Georeference()
    a, b = ours.transform, theirs.transform
    if a is None or not all(map(math.isfinite, a)) or a[0] * a[4] == a[1] * a[3]:
        return "it has no usable transform"
    if b is None:
        return "it has a transform, and other files have none"
    if not equal_crs(ours.crs, theirs.crs):
        return f"it has the CRS {short_crs(ours.crs)}, not {short_crs(theirs.crs)}"
    if ours.registration != theirs.registration:
        return f"it has registration {ours.registration}, not {theirs.registration}"
    pixel = min(math.hypot(b[0], b[3]), math.hypot(b[1], b[4]))
    if any(abs(a[k] - b[k]) > SIZE_TOLERANCE * pixel for k in (0, 1, 3, 4)):
        return f"it has pixels of {_pixel(a)}, not of {_pixel(b)}"
    rows, columns = array.shape[-2:]
    origin = (0, 0)
    for row, column in ((0, 0), (rows, 0), (0, columns), (rows, columns)):
        y, x = affine.position(b, *affine.place(a, row, column))
        if (row, column) == (0, 0):
            if not max(abs(y), abs(x)) < FARTHEST:
                return "it is too far from the other files"
            origin = round(y), round(x)
        off = max(abs(y - origin[0] - row), abs(x - origin[1] - column))
        if not off <= GRID_TOLERANCE:
            return f"its pixels are {off:.3g} of a pixel off the grid of the other files"
    return origin


def transform_of(array: Array) -> Transform:
    """The transform of an array that is known to have one."""
    assert array.georeference is not None
    assert array.georeference.transform is not None
    return array.georeference.transform


def _pixel(t: Transform) -> str:
    if t[1] == t[3] == 0:
        return f"{t[0]:.12g} by {t[4]:.12g}"
    return f"({t[0]:.12g}, {t[1]:.12g}) by ({t[3]:.12g}, {t[4]:.12g})"


def _shown(value: Any) -> str:
    return str(value[0]) if isinstance(value, tuple) and len(value) == 1 else str(value)
