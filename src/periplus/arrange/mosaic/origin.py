"""Where a file lies on the pixel grid of another one, or in words why it does not lie on it."""

from __future__ import annotations

import math
from typing import Any

from periplus.arrange.compatibility import one_crs
from periplus.arrange.messages import brief, listed
from periplus.arrange.packing import Packing, packing_of, physical_dtype
from periplus.model import Array, Georeference, Transform, affine

SIZE = 1e-6
"""Part of a pixel by which the pixels of two files may differ in size or direction."""
PHASE = 1e-3
"""Part of a pixel by which any corner of a file may lie off the grid."""
FARTHEST = 1 << 31
"""Pixels from one file to another; chunk positions are 32-bit numbers."""
MEANING = ("colormap", "units")
"""Attributes that say what values mean, so that all files of one array must have the same."""


def unlike(array: Array, like: Array) -> str | None:
    """Why pixels of one array cannot stand beside those of the other, wherever they lie; None where they can."""
    for noun, ours, theirs in (
        ("dimensions", listed(array.dims), listed(like.dims)),
        ("bands", array.shape[:-2], like.shape[:-2]),
        ("type", array.dtype, like.dtype),
    ):
        if ours != theirs:
            return f"it has {noun} {_shown(ours)}, not {_shown(theirs)}"
    if array.edges is not None and any(edges is not None for edges in array.edges[:-2]):
        return "its bands lie in chunks of several sizes"
    packing, other = packing_of(array), packing_of(like)
    if packing.key != other.key and not array.is_mask:
        # Values of several meanings stand side by side as the physical values they mean.
        if physical_dtype(array.dtype) is None:
            return f"it has {packing}, not {other}, and no float holds every {array.dtype} exactly"
    elif Packing(array.fill).key != Packing(like.fill).key:
        return f"its missing chunks mean {array.fill!r}, not {like.fill!r}; arrange='collect' keeps each file by itself"
    names, others = (list(a.attributes.get("band_names") or ()) for a in (array, like))
    if names != others and sorted(names) == sorted(others):
        return f"it has bands {listed(names)}, not {listed(others)}"
    for name in MEANING:
        if array.attributes.get(name) != like.attributes.get(name):
            return f"it has other {name}"
    return None


def spot(array: Array, like: Array) -> tuple[int, int] | str:
    """(row, column) of the file's first pixel, counted from the first pixel of the other; else what is wrong."""
    ours, theirs = array.georeference or Georeference(), like.georeference or Georeference()
    a, b = ours.transform, theirs.transform
    if a is None or not all(map(math.isfinite, a)) or a[0] * a[4] == a[1] * a[3]:
        return "it does not say where it lies"
    if b is None:
        return "it says where it lies, and others do not"
    if not one_crs(ours.crs, theirs.crs):
        return f"it has the CRS {brief(ours.crs)}, not {brief(theirs.crs)}"
    if ours.registration != theirs.registration:
        return f"it has registration {ours.registration}, not {theirs.registration}"
    pixel = min(math.hypot(b[0], b[3]), math.hypot(b[1], b[4]))
    if any(abs(a[k] - b[k]) > SIZE * pixel for k in (0, 1, 3, 4)):
        return f"it has pixels of {_pixel(a)}, not of {_pixel(b)}"
    rows, columns = array.shape[-2:]
    place = (0, 0)
    for row, column in ((0, 0), (rows, 0), (0, columns), (rows, columns)):
        y, x = affine.position(b, *affine.place(a, row, column))
        if (row, column) == (0, 0):
            if not max(abs(y), abs(x)) < FARTHEST:
                return "it lies too far from the others"
            place = round(y), round(x)
        off = max(abs(y - place[0] - row), abs(x - place[1] - column))
        if not off <= PHASE:
            return f"its pixels lie {off:.3g} of a pixel off the grid of the others"
    return place


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
