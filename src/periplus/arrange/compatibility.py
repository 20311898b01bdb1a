"""Do two files fit into one array: the first thing in which they differ, in words, or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from periplus.arrange.messages import brief, listed
from periplus.conventions.proj.crs import same_crs
from periplus.errors import FormatError
from periplus.model import Array, Georeference, Shape, Transform

TOLERANCE = 1e-6
"""Pixels by which any corner of an image may lie elsewhere and still be the same place."""


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """What sets our arrays apart from theirs, for example `0/data has shape (1, 512, 512), not (1, 500, 512)`."""
    mine = {array.name: array for array in ours}
    other = {array.name: array for array in theirs}
    for name in other:
        if name not in mine:
            return f"it has no {name}"
    for name in mine:
        if name not in other:
            return f"it has {name} as well"
    for name, array in mine.items():
        found = _array_difference(array, other[name])
        if found is not None:
            return f"{name} {found}"
    return None


def likeness(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """A value that files of the same structure share, to find the structure most files have."""
    return tuple(
        (a.name, a.dims, a.shape, a.chunks, a.dtype.str, None if a.georeference is None else a.georeference.crs)
        for a in arrays
    )


def _array_difference(a: Array, b: Array) -> str | None:
    for noun, mine, other in (
        ("dimensions", listed(a.dims), listed(b.dims)),
        ("shape", a.shape, b.shape),
        ("chunks", a.chunks, b.chunks),
        ("type", a.dtype, b.dtype),
        ("level", a.level, b.level),
    ):
        if mine != other:
            return f"has {noun} {mine}, not {other}"
    if _regular(a) != _regular(b):
        return "has chunks at other places"
    ours, theirs = (list(array.attributes.get("band_names") or ()) for array in (a, b))
    if ours != theirs and sorted(ours) == sorted(theirs):
        # Other names may be other words for the same; the same names in another order are other bands.
        return f"has bands {listed(ours)}, not {listed(theirs)}"
    return _place_difference(a.georeference, b.georeference, a.shape[-2:])


def _regular(array: Array) -> tuple[tuple[int, ...] | None, ...] | None:
    edges = array.edges
    return None if edges is None or all(e is None for e in edges) else edges


def _place_difference(a: Georeference | None, b: Georeference | None, size: Shape) -> str | None:
    a, b = a or Georeference(), b or Georeference()
    if not one_crs(a.crs, b.crs):
        return f"has the CRS {brief(a.crs)}, not {brief(b.crs)}"
    if (a.transform is None) != (b.transform is None):
        return "has " + ("no transform" if a.transform is None else "a transform")
    if a.transform is not None and b.transform is not None and not same_place(a.transform, b.transform, size):
        return f"has the transform {a.transform}, not {b.transform}"
    if a.registration != b.registration:
        return f"has registration {a.registration}, not {b.registration}"
    if a.gcps != b.gcps:
        return "has other ground control points"
    if (dict(a.rpc) if a.rpc else None) != (dict(b.rpc) if b.rpc else None):
        return "has other rational polynomial coefficients"
    return None


def one_crs(one: str | None, other: str | None) -> bool:
    """Whether two texts are one CRS, in whatever words."""
    if one == other or one is None or other is None:
        return one == other
    try:
        return same_crs(one, other)
    except FormatError:
        return False  # nobody knows what it is


def same_place(a: Transform, b: Transform, size: Shape) -> bool:
    """Whether two transforms put every corner of an image of (rows, columns) at the same place."""
    if a == b:
        return True
    rows, columns = size if len(size) == 2 else (1, 1)
    pixel = min(abs(b[0]) + abs(b[3]), abs(b[1]) + abs(b[4]))
    for column, row in ((0, 0), (columns, 0), (0, rows), (columns, rows)):
        for k in (0, 3):
            gap = (a[k] - b[k]) * column + (a[k + 1] - b[k + 1]) * row + (a[k + 2] - b[k + 2])
            if not abs(gap) <= TOLERANCE * pixel:
                return False
    return True
