"""Windows: the level and pixels for a bounding box and a resolution. Pure geometry, no I/O.

Transforms are (a, b, c, d, e, f) from pixel corners to the CRS, x before y; north-up, south-up
or rotated. Images without one may be located by ground control points or RPCs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError
from periplus.model import Array, BBox, Georeference, Transform
from periplus.model.affine import box, cropped, pixel_size, reach
from periplus.read.unrectified import pixel_range
from periplus.table.query.footprint import TURN, around, ground_crs, meets, spatial_axes, turns

Window = tuple[int, int, int, int]
"""(row_start, row_stop, column_start, column_stop) in pixels. Across the antimeridian, columns continue after the last,
with those that are a turn before."""
JOINED = 0.1
"""Fraction of a pixel by which the last column may miss the first, a turn further, and still join it: published pixel
sizes are rounded."""
EDGE = 1e-6
"""Fraction of a pixel by which an edge may differ from the grid and still count as on it: coordinates are rounded."""


def axes(array: Array) -> tuple[int, int]:
    """Positions of the row and the column dimension: those named y and x, else the last two."""
    found = spatial_axes(array)
    if found is None:
        raise FormatError(f"{array.name} has dimensions {array.dims} and is not an image")
    return found


def size(array: Array) -> tuple[int, int]:
    """(rows, columns)."""
    y, x = axes(array)
    return array.shape[y], array.shape[x]


def georeference_of(levels: Sequence[Array], array: Array) -> Georeference:
    """The georeference of the array, or that of the finest level scaled to the size of the array; with its CRS."""
    own, base = array.georeference or Georeference(), levels[0].georeference or Georeference()
    (rows, columns), (base_rows, base_columns) = size(array), size(levels[0])
    if own.transform is None and not own.gcps and own.rpc is None and rows and columns:
        own = replace(cropped(base, 0, 0, base_rows / rows, base_columns / columns), crs=own.crs)
    return replace(own, crs=ground_crs(own) or ground_crs(base))


def transform_of(levels: Sequence[Array], array: Array) -> Transform | None:
    """The transform of the array, or that of the finest level scaled to the size of the array."""
    return georeference_of(levels, array).transform


def crs_of(levels: Sequence[Array], array: Array) -> str | None:
    """The array's CRS, or that of the finest level."""
    return georeference_of(levels, array).crs


def window_of(bbox: BBox, transform: Transform, rows: int, columns: int) -> Window | None:
    """The pixels that intersect a bounding box, clipped to the image; None if there are none."""
    down, across = reach(transform, bbox)
    row, column = _snapped(*down, rows), _snapped(*across, columns)
    return None if row is None or column is None else (*row, *column)


def _snapped(low: float, high: float, count: int) -> tuple[int, int] | None:
    if low > count - EDGE or (low < -EDGE and high < EDGE):  # outside, or touching the edge from outside
        return None
    start = math.floor(max(low, 0.0) + EDGE)
    stop = math.ceil(min(high, float(count)) - EDGE)
    return start, min(max(stop, start + 1), count)


def columns_in(wanted: slice, transform: Transform, columns: int) -> NDArray[np.int64]:
    """Which columns of an image of so many those of a window across the antimeridian are."""
    found = np.arange(wanted.start, wanted.stop, wanted.step)
    return np.where(found < columns, found, found - (_turn_of(transform, columns) or 0))


def _turn_of(transform: Transform, columns: int) -> int | None:
    """How many columns are a turn of the globe, where an image has them all; None for other images."""
    a, b, _, d, _, _ = transform
    if not a or b or d:
        return None
    turn = TURN / abs(a)
    if abs(turn - columns) < JOINED:
        return columns
    return round(turn) if turn < columns and abs(turn - round(turn)) < JOINED else None


def window_across(
    bbox: BBox, transform: Transform, rows: int, columns: int, *, cut: Callable[..., Window | None] = window_of
) -> Window | None:
    """The pixels that intersect a box in degrees, also across the antimeridian; None if there are none.

    ValueError where the box meets both ends of an image that does not go all around, so that they cannot be joined.
    """
    boxes = turns(bbox, box(transform, 0, 0, columns, rows))
    windows = [cut(one, transform, rows, columns) for one in boxes]
    found = [(one, window) for one, window in zip(boxes, windows, strict=True) if window is not None]
    if len(found) < 2:
        return found[0][1] if found else None
    reached = [(window, *reach(transform, one)[1]) for one, window in found]
    for window, low, high in reached:
        if low > -JOINED and high < columns + JOINED:
            return window  # the image has more than a turn
    turn = _turn_of(transform, columns)
    if turn is None:
        ends = transform[2], transform[2] + transform[0] * columns
        clipped = [(max(one[0], min(ends)), one[1], min(one[2], max(ends)), one[3]) for one, _ in found]
        sides = " and ".join(map(str, clipped))
        raise ValueError(
            f"the bbox {bbox} meets both ends of an image whose columns do not join at the antimeridian: "
            f"read each side on its own, {sides}"
        )
    (top, bottom, left, _), _, high = max(reached, key=lambda one: one[0][2])
    return top, bottom, left, min(math.ceil(high - EDGE), left + turn)


def window_in(levels: Sequence[Array], array: Array, bbox: BBox | None, *, degrees: bool = False) -> Window:
    """The pixels of one level that intersect a bounding box in its CRS; all pixels without one.

    In `degrees` the box may cross the antimeridian.
    """
    rows, columns = size(array)
    if bbox is None:
        return 0, rows, 0, columns
    place = georeference_of(levels, array)
    covered = around(replace(array, georeference=place))
    if covered is None:
        raise FormatError(f"{array.name} has no transform, so a bbox cannot be used; select pixels by index")
    if place.transform is not None:
        window = (window_across if degrees else window_of)(bbox, place.transform, rows, columns)
    else:
        window = _unrectified(place, turns(bbox, covered[0]) if degrees else (bbox,), covered[0], rows, columns)
    if window is None:
        shown = tuple(round(v, 6) for v in covered[0])
        raise MissingError(f"the bbox {bbox} does not intersect {array.name}, which covers {shown}")
    return window


def _unrectified(place: Georeference, boxes: Sequence[BBox], covered: BBox, rows: int, columns: int) -> Window | None:
    """The pixels that may show one of the boxes, clipped to the image; None if there are none."""
    found = []
    for one in boxes:
        if meets(np.array([covered]).T, one)[0]:
            # Where the place of the box is not known, it may be anywhere in the image.
            span = pixel_range(place, one) or (0.0, float(rows), 0.0, float(columns))
            row, column = _snapped(*span[:2], rows), _snapped(*span[2:], columns)
            found += [(*row, *column)] if row is not None and column is not None else []
    if not found:
        return None
    tops, bottoms, lefts, rights = zip(*found, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def level_for(
    levels: Sequence[Array],
    *,
    bbox: BBox | None,
    resolution: tuple[float, float] | None,
    max_size: int | None,
    degrees: bool = False,
) -> Array:
    """The coarsest level fine enough for the resolution, or the finest that fits `max_size` where that is coarser."""
    chosen = 0
    if resolution is not None:
        for k, array in enumerate(levels):
            transform = transform_of(levels, array)
            if transform is None:
                raise FormatError(f"{array.name} has no transform, so a resolution cannot be used; use max_size")
            width, height = pixel_size(transform)
            if width <= resolution[0] * (1 + 1e-6) and height <= resolution[1] * (1 + 1e-6):
                chosen = k
    if max_size is not None:
        while chosen + 1 < len(levels):
            top, bottom, left, right = window_in(levels, levels[chosen], bbox, degrees=degrees)
            if max(bottom - top, right - left) <= max_size:
                break
            chosen += 1
    return levels[chosen]
