"""Footprints: chunk windows and boxes on the ground, each computed from the other by the affine. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, BBox, Georeference, GroundControlPoint, Transform
from periplus.model.affine import box, reach

WORLD = "EPSG:4326"
TURN = 360.0
TURNS = (0.0, TURN, -TURN, 2 * TURN, -2 * TURN)
NEARLY = 1e-6
"""Pixels: an edge this near to a pixel's edge counts as equal to it."""


def spatial_axes(array: Array) -> tuple[int, int] | None:
    """Positions of the row and column dimensions: those named y and x, else the last two; None where there are none."""
    if "y" in array.dims and "x" in array.dims:
        return array.dims.index("y"), array.dims.index("x")
    return None if array.ndim < 2 else (array.ndim - 2, array.ndim - 1)


def affine(array: Array) -> Transform | None:
    """The array's transform, where it has one and dimensions to use it on."""
    place = array.georeference
    return None if place is None or spatial_axes(array) is None else place.transform


def bounds(array: Array) -> BBox | None:
    """The box around the whole array."""
    transform, axes = affine(array), spatial_axes(array)
    if transform is None or axes is None:
        return None
    return box(transform, 0, 0, array.shape[axes[1]], array.shape[axes[0]])


def around(array: Array) -> tuple[BBox, str | None] | None:
    """A box around the array, and its CRS; None if the array is not georeferenced.

    The box is exact where there is a transform. Otherwise it is around the control points and where they show the
    corners to be, or the ground that the polynomials were made for.
    """
    place, axes = array.georeference, spatial_axes(array)
    if place is None or axes is None:
        return None
    if place.transform is not None:
        box = bounds(array)
    elif place.gcps:
        box = _among(place.gcps, array.shape[axes[1]], array.shape[axes[0]])
    else:
        box = _ground(place.rpc)
    return None if box is None or not all(map(math.isfinite, box)) else (box, ground_crs(place))


def ground_crs(place: Georeference) -> str | None:
    """The CRS in which pixels are located: degrees if only RPCs locate them, whatever else the file declares."""
    return WORLD if place.transform is None and not place.gcps and place.rpc is not None else place.crs


def _among(points: Sequence[GroundControlPoint], width: int, height: int) -> BBox | None:
    """The box around control points and the corners of the image, as the affine puts them that fits the points best."""
    spots = np.array([(point.column, point.row, 1.0) for point in points])
    ground = np.array([(point.x, point.y) for point in points])
    if not np.isfinite(spots).all() or not np.isfinite(ground).all():
        return None
    ends = np.array([(column, row, 1.0) for column in (0, width) for row in (0, height)])
    # Relative to the centre of the points, so that collinear points do not extrapolate across their line.
    origin = ground.mean(axis=0)
    seen = np.vstack([ground, ends @ np.linalg.lstsq(spots, ground - origin, rcond=None)[0] + origin])
    (xmin, ymin), (xmax, ymax) = seen.min(axis=0).tolist(), seen.max(axis=0).tolist()
    return xmin, ymin, xmax, ymax


def _ground(rpc: Mapping[str, Any] | None) -> BBox | None:
    """Longitudes and latitudes that rational polynomials are scaled to."""
    try:
        x, y, across, along = (float((rpc or {})[key]) for key in ("long_off", "lat_off", "long_scale", "lat_scale"))
    except (KeyError, TypeError, ValueError):
        return None
    return x - abs(across), y - abs(along), x + abs(across), y + abs(along)


def turns(bbox: BBox, whole: BBox) -> tuple[BBox, ...]:
    """A box in degrees, counted as an array's own box is: that may go on beyond 180 degrees, or begin at 0.

    There are two where the box meets both ends of the array, as one across the antimeridian does. A box around the
    whole globe takes in all of the array; one that does not meet it stays as it is.
    """
    xmin, ymin, xmax, ymax = bbox
    if xmax - xmin >= TURN:
        return ((min(xmin, whole[0]), ymin, max(xmax, whole[2]), ymax),)
    places = [(xmin + turn, xmax + turn) for turn in TURNS]
    met = [
        (left, ymin, right, ymax)
        for left, right in places
        if (left < whole[2] and right > whole[0]) or whole[0] <= left == right <= whole[2]
    ]
    return tuple(met) or (bbox,)


def upright(bbox: Sequence[float]) -> BBox:
    """The box as numbers, with xmin <= xmax and ymin <= ymax; ValueError where it is none."""
    xmin, ymin, xmax, ymax = box = corners(bbox)
    if xmin > xmax or ymin > ymax:
        raise ValueError(f"a bbox is (xmin, ymin, xmax, ymax) with xmin <= xmax and ymin <= ymax, not {bbox!r}")
    return box


def corners(bbox: Sequence[float]) -> BBox:
    """The box as four finite numbers; ValueError for anything else."""
    try:
        xmin, ymin, xmax, ymax = (float(v) for v in bbox)
    except (TypeError, ValueError):
        xmin = ymin = xmax = ymax = math.nan
    if not all(map(math.isfinite, (xmin, ymin, xmax, ymax))):
        raise ValueError(f"a bbox is four finite numbers (xmin, ymin, xmax, ymax), not {bbox!r}")
    return xmin, ymin, xmax, ymax


def pixel_window(transform: Transform, bbox: BBox) -> tuple[tuple[int, int], tuple[int, int]]:
    """Half-open ranges of rows and columns that meet a box, not cut to any image; a point meets one pixel."""
    rows, columns = reach(transform, upright(bbox))
    return _cells(*rows), _cells(*columns)


def _cells(low: float, high: float) -> tuple[int, int]:
    start = math.floor(low + NEARLY)
    return start, max(start + 1, math.ceil(high - NEARLY))


def chunk_range(array: Array, axis: int, low: int, high: int) -> tuple[int, int]:
    """Half-open range of chunks that hold elements [low, high) along a dimension."""
    low, high = max(low, 0), min(high, array.shape[axis])
    if low >= high:
        return 0, 0
    if array.edges is not None and array.edges[axis] is not None:
        starts = array.starts(axis)
        return int(np.searchsorted(starts, low, side="right")) - 1, int(np.searchsorted(starts, high, side="left"))
    return low // array.chunks[axis], -(-high // array.chunks[axis])


def chunk_window(array: Array, bbox: BBox) -> list[tuple[int, int]]:
    """The chunks along each dimension that a box meets; whole dimensions if they are not spatial.

    In a rotated grid these are a few more than meet it; `chunk_boxes` finds which.
    """
    transform, axes = affine(array), spatial_axes(array)
    if transform is None or axes is None:
        raise FormatError(f"array {array.name!r} has no transform, so it cannot be selected by a bbox")
    window = [(0, count) for count in array.grid]
    for axis, (low, high) in zip(axes, pixel_window(transform, bbox), strict=True):
        window[axis] = chunk_range(array, axis, low, high)
    return window


def chunk_boxes(array: Array, row: NDArray[np.int32], column: NDArray[np.int32]) -> NDArray[np.float64]:
    """(4, n): xmin, ymin, xmax, ymax of chunks at these positions along y and x, cut to the array."""
    transform, axes = affine(array), spatial_axes(array)
    if transform is None or axes is None:
        raise FormatError(f"array {array.name!r} has no transform, so its chunks have no footprint")
    a, b, c, d, e, f = transform
    top, bottom = _extent(array, axes[0], row)
    left, right = _extent(array, axes[1], column)
    with np.errstate(all="ignore"):  # a transform of huge numbers gives infinite boxes
        xs = np.stack([a * i + b * j + c for i in (left, right) for j in (top, bottom)])
        ys = np.stack([d * i + e * j + f for i in (left, right) for j in (top, bottom)])
    return np.stack([xs.min(axis=0), ys.min(axis=0), xs.max(axis=0), ys.max(axis=0)])


def _extent(array: Array, axis: int, chunk: NDArray[np.int32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if array.edges is not None and array.edges[axis] is not None:
        starts = array.starts(axis).astype(np.float64)
        return starts[chunk], starts[chunk + 1]
    low = chunk.astype(np.float64) * array.chunks[axis]
    return low, np.minimum(low + array.chunks[axis], array.shape[axis])


def meets(boxes: NDArray[np.float64], bbox: BBox) -> NDArray[np.bool_]:
    """Which of the boxes (4, n) meet a box; touching along an edge of a box that has an area is not meeting."""
    xmin, ymin, xmax, ymax = bbox
    x = (boxes[0] < xmax) & (boxes[2] > xmin) | ((xmin == xmax) & (boxes[0] <= xmin) & (boxes[2] >= xmin))
    y = (boxes[1] < ymax) & (boxes[3] > ymin) | ((ymin == ymax) & (boxes[1] <= ymin) & (boxes[3] >= ymin))
    answer: NDArray[np.bool_] = x & y
    return answer
