"""Windows of images that are located by ground control points or RPCs: the pixels that may show a box. Pure geometry.

Pixels are not rectified, so that a window is a few pixels too large rather than too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.model import BBox, Georeference, GroundControlPoint

PixelRange = tuple[float, float, float, float]
"""First and last row, first and last column, at pixel corners."""
SAMPLES = 17
"""Points along each side of a box that are located; between them images are nearly straight."""
HEIGHTS = 5
MARGIN_PIXELS, MARGIN_SHARE = 2.0, 0.02
"""What is added to each side: some pixels, and a share of the window for what lies between the points."""
BEYOND = 1.25
"""Polynomials are used this far beyond the ground they were made for; farther away they may turn around."""
SQUARES = 6
"""Control points for which GDAL uses squares of coordinates."""


def pixel_range(place: Georeference, bbox: BBox) -> PixelRange | None:
    """The rows and columns that may show a box on the ground, which may lie outside the image; None if unknown.

    `bbox` is in the CRS of the control points, or in degrees where there are only RPCs.
    """
    found = [] if not place.gcps else [_by_points(place.gcps, bbox)]
    # Coordinates of control points in degrees are comparable to those of RPCs; others would have to be converted.
    if place.rpc is not None and (not place.gcps or place.crs == "EPSG:4326"):
        found.append(_by_rpc(place.rpc, bbox))
    if not found or any(each is None for each in found):
        return None
    top, bottom, left, right = zip(*(each for each in found if each is not None), strict=True)
    return min(top), max(bottom), min(left), max(right)


def _by_points(points: Sequence[GroundControlPoint], bbox: BBox) -> PixelRange | None:
    """By the polynomial that fits the points best, as in GDAL; where it misses points, that much is added."""
    ground = np.array([(point.x, point.y) for point in points])
    pixels = np.array([(point.row, point.column) for point in points])
    centre, scale = ground.mean(axis=0), np.ptp(ground, axis=0)
    if not np.isfinite(ground).all() or not np.isfinite(pixels).all() or not scale.all():
        return None
    for squares in (True, False) if len(points) >= SQUARES else (False,):
        terms = _terms((ground - centre) / scale, squares)
        fit, _, rank, _ = np.linalg.lstsq(terms, pixels, rcond=1e-9)
        if rank == terms.shape[1]:
            break
    else:
        return None
    missed = np.abs(terms @ fit - pixels).max(axis=0)
    xs, ys = np.linspace(bbox[0], bbox[2], SAMPLES), np.linspace(bbox[1], bbox[3], SAMPLES)
    seen = _terms((np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2) - centre) / scale, squares) @ fit
    return _around(seen[:, 0], seen[:, 1], 2 * missed)


def _terms(ground: NDArray[np.float64], squares: bool) -> NDArray[np.float64]:
    x, y = ground.T
    return np.stack([np.ones_like(x), x, y, *((x * x, x * y, y * y) if squares else ())], axis=-1)


def _by_rpc(rpc: Mapping[str, Any], bbox: BBox) -> PixelRange | None:
    """By the polynomials, for all heights that they were made for."""
    try:
        offsets, scales = (
            np.array([float(rpc[f"{name}_{kind}"]) for name in ("long", "lat", "height", "line", "samp")])
            for kind in ("off", "scale")
        )
        names = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
        coefficients = np.array([[float(number) for number in rpc[name]] for name in names])
    except (KeyError, TypeError, ValueError):
        return None
    if coefficients.shape != (4, 20) or not scales.all() or not np.isfinite([*offsets, *scales]).all():
        return None
    low, high = np.array(bbox[:2]), np.array(bbox[2:])
    ends = [np.clip((each - offsets[:2]) / scales[:2], -BEYOND, BEYOND) for each in (low, high)]
    x, y, z = np.meshgrid(
        np.linspace(ends[0][0], ends[1][0], SAMPLES),
        np.linspace(ends[0][1], ends[1][1], SAMPLES),
        np.linspace(-1, 1, HEIGHTS),
    )
    terms = np.stack([
        np.ones_like(x), x, y, z, x * y, x * z, y * z, x * x, y * y, z * z, x * y * z, x**3, x * y * y, x * z * z,
        x * x * y, y**3, y * z * z, x * x * z, y * y * z, z**3,
    ], axis=-1)  # fmt: skip
    line, line_divisor, sample, sample_divisor = np.moveaxis(terms @ coefficients.T, -1, 0)
    if not all((each > 0).all() or (each < 0).all() for each in (line_divisor, sample_divisor)):
        return None
    # Lines and samples count from the centre of the first pixel.
    rows = line / line_divisor * scales[3] + offsets[3] + 0.5
    columns = sample / sample_divisor * scales[4] + offsets[4] + 0.5
    return _around(rows, columns, np.zeros(2))


def _around(rows: NDArray[np.float64], columns: NDArray[np.float64], more: NDArray[np.float64]) -> PixelRange | None:
    ends: list[float] = []
    for values, extra in zip((rows, columns), more.tolist(), strict=True):
        low, high = float(values.min()), float(values.max())
        margin = MARGIN_PIXELS + MARGIN_SHARE * (high - low) + extra
        ends += [low - margin, high + margin]
    return None if not all(map(math.isfinite, ends)) else (ends[0], ends[1], ends[2], ends[3])
