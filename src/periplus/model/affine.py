"""Arithmetic of transforms, (a, b, c, d, e, f) from columns and rows to x and y, and of what else locates pixels.

Pure numbers, no I/O.
"""

from __future__ import annotations

import math
from dataclasses import replace

from periplus.errors import FormatError
from periplus.model import BBox, Georeference, Transform


def place(transform: Transform, row: float, column: float) -> tuple[float, float]:
    """(x, y) of a position in pixels."""
    a, b, c, d, e, f = transform
    return a * column + b * row + c, d * column + e * row + f


def position(transform: Transform, x: float, y: float) -> tuple[float, float]:
    """(row, column) of a place; the transform must have an inverse."""
    a, b, c, d, e, f = transform
    area = a * e - b * d
    return (a * (y - f) - d * (x - c)) / area, (e * (x - c) - b * (y - f)) / area


def shifted(transform: Transform, row: float, column: float) -> Transform:
    """The transform of an image that begins at another pixel."""
    a, b, _, d, e, _ = transform
    x, y = place(transform, row, column)
    return a, b, x, d, e, y


def scaled(transform: Transform, down: float, across: float) -> Transform:
    """The transform of an image whose pixels are `down` rows by `across` columns of this one."""
    a, b, c, d, e, f = transform
    return a * across, b * down, c, d * across, e * down, f


def cropped(where: Georeference, row: float, column: float, down: float = 1, across: float = 1) -> Georeference:
    """The georeference of an image that begins at another pixel, whose pixels are `down` rows by `across` columns."""
    transform, rpc = where.transform, where.rpc
    if transform is not None:
        transform = scaled(shifted(transform, row, column), down, across)
    gcps = tuple(replace(p, column=(p.column - column) / across, row=(p.row - row) / down) for p in where.gcps)
    if rpc is not None:
        try:
            offsets, scales = ([float(rpc[f"{name}_{kind}"]) for name in ("line", "samp")] for kind in ("off", "scale"))
        except (KeyError, TypeError, ValueError):
            rpc = None  # of an index that someone else wrote
        else:
            # RPC lines and samples count from the centre of the first pixel.
            rpc = {
                **rpc,
                "line_off": (offsets[0] + 0.5 - row) / down - 0.5,
                "samp_off": (offsets[1] + 0.5 - column) / across - 0.5,
                "line_scale": scales[0] / down,
                "samp_scale": scales[1] / across,
            }
    return replace(where, transform=transform, gcps=gcps, rpc=rpc)


def pixel_size(transform: Transform) -> tuple[float, float]:
    """Width and height of a pixel in units of the CRS."""
    a, b, _, d, e, _ = transform
    return math.hypot(a, d), math.hypot(b, e)


def box(transform: Transform, left: float, top: float, right: float, bottom: float) -> BBox:
    """The box around a rectangle of pixels; exact where the grid is not rotated."""
    corners = [place(transform, row, column) for row in (top, bottom) for column in (left, right)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def reach(transform: Transform, bbox: BBox) -> tuple[tuple[float, float], tuple[float, float]]:
    """Lowest and highest row, and lowest and highest column, of a box; FormatError if they cannot be computed."""
    a, b, _, d, e, _ = transform
    area = a * e - b * d
    if area and math.isfinite(area):
        corners = [position(transform, x, y) for x in (bbox[0], bbox[2]) for y in (bbox[1], bbox[3])]
        rows, columns = [row for row, _ in corners], [column for _, column in corners]
        if all(map(math.isfinite, (*rows, *columns))):  # numbers may be finite and their products not
            return (min(rows), max(rows)), (min(columns), max(columns))
    raise FormatError(f"the transform {tuple(transform)} has no inverse")
