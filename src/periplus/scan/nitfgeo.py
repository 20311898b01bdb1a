"""Where a NITF image lies: the corners of IGEOLO as an affine where one fits them, else as control points, and RPCs."""

from __future__ import annotations

import re

import numpy as np

from periplus.model import Georeference, GroundControlPoint, Transform
from periplus.scan.nitffields import Subheader
from periplus.scan.tres import rpc

DEGREES = re.compile(r"(\d\d)(\d\d)(\d\d)([NS])(\d\d\d)(\d\d)(\d\d)([EW])")
DECIMAL = re.compile(r"([+-]\d\d\.\d{3})([+-]\d\d\d\.\d{3})")
UTM = re.compile(r"(\d\d)(\d{6})(\d{7})")
TOLERANCE = 0.25
"""Pixels by which an affine may miss a corner."""
Corner = tuple[float, float]


def georeference(head: Subheader) -> Georeference | None:
    """Georeferencing of an image; None where it has none we can read."""
    coefficients = rpc(head.tres)
    crs, corners = _corners(head)
    if corners is None:
        return None if coefficients is None else Georeference(rpc=coefficients)
    columns, rows = head.fields["NCOLS"], head.fields["NROWS"]
    places = ((0.5, 0.5), (columns - 0.5, 0.5), (columns - 0.5, rows - 0.5), (0.5, rows - 0.5))
    transform = _fit(places, corners)
    gcps = tuple(
        GroundControlPoint(column=column, row=row, x=x, y=y)
        for (column, row), (x, y) in zip(places, corners, strict=True)
    )
    return Georeference(crs=crs, transform=transform, gcps=() if transform else gcps, rpc=coefficients)


def _corners(head: Subheader) -> tuple[str | None, list[Corner] | None]:
    """The CRS, and x and y of the centres of the corner pixels, clockwise from the first."""
    if head.corners is None:
        return None, None
    texts = [head.corners[place : place + 15] for place in range(0, 60, 15)]
    system = head.fields["ICORDS"]
    if system in ("G", "C"):
        found = [_degrees(text) for text in texts]
        crs = "EPSG:4326"
    elif system == "D":
        found = [(float(m[2]), float(m[1])) if (m := DECIMAL.fullmatch(text)) else None for text in texts]
        crs = "EPSG:4326"
    elif system in ("N", "S"):
        matches = [UTM.fullmatch(text) for text in texts]
        found = [(float(m[2]), float(m[3])) if m else None for m in matches]
        zones = {int(m[1]) for m in matches if m}
        if len(zones) != 1 or not 1 <= (zone := zones.pop()) <= 60:
            return None, None
        crs = f"EPSG:{32600 + zone if system == 'N' else 32700 + zone}"
    else:
        return None, None
    corners = [corner for corner in found if corner is not None]
    return (crs, corners) if len(corners) == 4 else (None, None)


def _degrees(text: str) -> Corner | None:
    found = DEGREES.fullmatch(text)
    if found is None:
        return None
    values = [int(found[n]) + int(found[n + 1]) / 60 + int(found[n + 2]) / 3600 for n in (1, 5)]
    return (-values[1] if found[8] == "W" else values[1]), (-values[0] if found[4] == "S" else values[0])


def _fit(places: tuple[Corner, ...], corners: list[Corner]) -> Transform | None:
    """The affine through all four corners, to a quarter of a pixel; None where there is none."""
    columns, rows = places[2][0] - places[0][0], places[2][1] - places[0][1]
    (left, top), (right, level), opposite, (plumb, bottom) = corners
    if columns < 1 or rows < 1 or len(set(corners)) == 1:
        return None
    if left == plumb != right and top == level != bottom and opposite == (right, bottom):
        across, down = (right - left) / columns, (bottom - top) / rows
        return across, 0.0, left - 0.5 * across, 0.0, down, top - 0.5 * down
    spots = np.array(places)
    # Pixels and coordinates are scaled to near one, so that the fit is as good as the digits.
    origin, size = np.array(corners[0]), np.abs(np.ptp(np.array(corners), axis=0)).max()
    terms = np.column_stack([(spots - spots[0]) / [columns, rows], np.ones(4)])
    wanted = (np.array(corners) - origin) / size
    solution, *_ = np.linalg.lstsq(terms, wanted, rcond=None)
    (a, d), (b, e) = (solution[0] * size / columns), (solution[1] * size / rows)
    pixel = 0.5 * (abs(a) + abs(b) + abs(d) + abs(e))
    if np.abs(terms @ solution - wanted).max() * size > TOLERANCE * pixel or a * e == b * d:
        return None
    x, y = solution[2] * size + origin - 0.5 * np.array([a + b, d + e])
    return float(a), float(b), float(x), float(d), float(e), float(y)
