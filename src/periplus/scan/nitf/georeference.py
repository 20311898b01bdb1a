"""The georeference of a NITF image: an affine fitted to the corners of IGEOLO, else control points, and RPCs."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.model import Georeference, GroundControlPoint, Transform
from periplus.scan.nitf.fields import ImageSubheader
from periplus.scan.nitf.grid import Corner, corners, from_decimal, from_seconds, grid, grid_unread, polar, predicted
from periplus.scan.nitf.tres import ORDERS, first, rpc

SECONDS = re.compile(r"(\d\d)(\d\d)(\d\d)([NS])(\d\d\d)(\d\d)(\d\d)([EW])", re.ASCII)
DECIMAL = re.compile(r"([+-]\d\d\.\d{3})([+-]\d\d\d\.\d{3})", re.ASCII)
UTM = re.compile(r"(\d\d)(\d{6})(\d{7})", re.ASCII)
MGRS = re.compile(r"(\d\d)([C-HJ-NP-X])([A-HJ-NP-Z])([A-HJ-NP-V])(\d{5})(\d{5})", re.ASCII)
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Of the military grid, which has no I and no O."""
BANDS = dict(
    zip(
        "CDEFGHJKLMNPQRSTUVWX",
        (11, 20, 28, 37, 46, 55, 64, 73, 82, 91, 0, 8, 17, 26, 35, 44, 53, 62, 70, 79),
        strict=True,
    )
)
"""Northing at which each band of latitude starts, in units of 100 km."""
WORLD = "EPSG:4326"
FLATTENING = 1 / 298.257223563
"""Of the World Geodetic System of 1984."""
POLAR_LATITUDE = 75.0
"""Degrees beyond which an image may be in the plane of a polar zone; the zones begin at 80."""
TOLERANCE = 0.25
"""Pixels by which an affine may miss a corner."""
STRAIGHT = 1e-6
"""Pixels by which an image without rotation may seem to be turned."""


def georeference(head: ImageSubheader) -> Georeference | None:
    """Georeferencing of an image, from its most exact source; None if it has none that is supported."""
    coefficients = chipped(rpc(head.tres), first(head.tres, "ICHIPB"))
    if (exact := grid(head.tres, head.file_tres)) is not None:
        return replace(exact, rpc=coefficients)
    columns, rows = head.fields["NCOLS"], head.fields["NROWS"]
    crs: str | None = WORLD
    found = corners(head.tres, rows)
    if found is None:
        crs, found = _corners(head)
    if found is None:
        crs, found = WORLD, predicted(head.tres)
    if found is None:
        return None if coefficients is None else Georeference(rpc=coefficients)
    if crs == WORLD:
        found = joined(found)
    places = ((0.5, 0.5), (columns - 0.5, 0.5), (columns - 0.5, rows - 0.5), (0.5, rows - 0.5))
    return fit_corners(crs, places, found, coefficients)


def unread(head: ImageSubheader) -> str:
    """Why declared georeferencing is not reported; empty if all of it is."""
    found = [grid_unread(head.tres, head.file_tres)]
    if head.corners is not None and head.corners.strip() and _corners(head)[1] is None:
        found.append("the corners of IGEOLO cannot be read, or are in two zones")
    if any(tre.tag in ORDERS and tre.data[:1] == b"1" for tre in head.tres) and rpc(head.tres) is None:
        found.append("the coefficients of RPC00A or RPC00B cannot be read")
    return "; ".join(why for why in found if why)


def joined(corners: list[Corner]) -> list[Corner]:
    """Corners in degrees, those beyond the 180th meridian counted on eastwards where an image crosses it.

    As written they are then more than half the world apart, and run counterclockwise.
    """
    onward = [(x + 360 if x < 0 else x, y) for x, y in corners]
    return onward if _wide(corners) and _turn(corners) > 0 > _turn(onward) else corners


def _wide(corners: list[Corner]) -> bool:
    """Whether corners in degrees are more than half the world apart, as they are written."""
    return max(x for x, _ in corners) - min(x for x, _ in corners) > 180


def _turn(corners: list[Corner]) -> float:
    """Twice the area within corners; negative where they run clockwise, as those of an image seen from above do."""
    pairs = zip(corners, [*corners[1:], corners[0]], strict=True)
    return sum(x * up - right * y for (x, y), (right, up) in pairs)


def chipped(coefficients: dict[str, Any] | None, chip: dict[str, str] | None) -> dict[str, Any] | None:
    """Coefficients of an image that was cut from another, if ICHIPB describes a plain crop and scale."""
    if coefficients is None or chip is None or chip["XFRM_FLAG"] != "00":
        return coefficients
    try:
        known = {name: float(chip[name]) for name in chip if name.startswith(("OP_", "FI_"))}
    except ValueError:
        return coefficients
    found = dict(coefficients)
    for axis, name, across, along in (("ROW", "line", "12", "21"), ("COL", "samp", "21", "12")):
        op, fi = ({n: known[f"{kind}_{axis}_{n}"] for n in ("11", "12", "21", "22")} for kind in ("OP", "FI"))
        straight = all(each["11"] == each[across] and each[along] == each["22"] for each in (op, fi))
        if not straight or not (op[along] > op["11"] and fi[along] > fi["11"]):
            return coefficients
        size = (fi[along] - fi["11"]) / (op[along] - op["11"])
        # Here the centre of the first pixel is at a half; for the coefficients it is at zero.
        found[f"{name}_off"] = (coefficients[f"{name}_off"] + 0.5 - fi["11"]) / size + op["11"] - 0.5
        found[f"{name}_scale"] = coefficients[f"{name}_scale"] / size
    return found


def fit_corners(
    crs: str | None,
    places: tuple[Corner, ...],
    corners: list[Corner],
    coefficients: dict[str, Any] | None,
    *,
    frame: bool = False,
) -> Georeference:
    """The georeference of four pixel positions and their coordinates: an affine if one fits, else control points.

    If none fits in degrees, one may fit in the plane of the polar zones: for any `frame` of a raster product, for other
    images only near a pole.
    """
    transform = _fit(places, corners)
    near = frame or (crs == WORLD and all(abs(y) >= POLAR_LATITUDE for _, y in corners))
    if transform is None and near and (plane := polar(corners)) is not None:
        flat = _fit(places, plane[1])
        if flat is not None:
            return Georeference(crs=plane[0], transform=flat, rpc=coefficients)
    gcps = tuple(
        GroundControlPoint(column=column, row=row, x=x, y=y)
        for (column, row), (x, y) in zip(places, corners, strict=True)
    )
    return Georeference(crs=crs, transform=transform, gcps=() if transform else gcps, rpc=coefficients)


def _corners(head: ImageSubheader) -> tuple[str | None, list[Corner] | None]:
    """The CRS, and x and y of the centres of the corner pixels, clockwise from the first."""
    if head.corners is None:
        return None, None
    crs: str | None
    texts = [head.corners[place : place + 15] for place in range(0, 60, 15)]
    system = head.fields["ICORDS"]
    if system in ("G", "C"):
        found = [from_seconds(SECONDS.fullmatch(text)) for text in texts]
        if system == "C":
            found = [corner and (corner[0], _geodetic(corner[1])) for corner in found]
        crs = WORLD
    elif system == "D":
        found = [from_decimal(DECIMAL.fullmatch(text)) for text in texts]
        crs = WORLD
    elif system in ("N", "S", "U"):
        places = [_grid(text) if system == "U" else _utm(text, system) for text in texts]
        # Corners in two zones have no coordinates in common.
        if len(zones := {place[0] if place else None for place in places}) != 1:
            return None, None
        crs, found = zones.pop(), [place[1] if place else None for place in places]
    else:
        return None, None
    corners = [corner for corner in found if corner is not None]
    if len(corners) < 4:
        return None, None
    # Longitudes as written do not show on which side of the image a corner beyond the 180th meridian is.
    return crs, corners if crs == WORLD and _wide(corners) else untied(corners)


def untied(corners: list[Corner]) -> list[Corner]:
    """Corners in clockwise order: in some files they are in another order, so that the sides cross.

    They are reordered, as GDAL does it, if every quarter of the image has one of them.
    """
    first, second, third, fourth = corners

    def side(start: Corner, end: Corner, place: Corner) -> float:
        return (end[0] - start[0]) * (place[1] - start[1]) - (end[1] - start[1]) * (place[0] - start[0])

    opposite = side(first, fourth, second) * side(first, fourth, third) < 0
    if not opposite or side(second, third, first) * side(second, third, fourth) >= 0:
        return corners
    x, y = ((min(values) + max(values)) / 2 for values in zip(*corners, strict=True))
    quarters = {(place[0] > x, place[1] > y): place for place in corners}
    if len(quarters) < 4:
        return corners
    return [quarters[east, north] for east, north in ((False, True), (True, True), (True, False), (False, False))]


def _geodetic(latitude: float) -> float:
    """The latitude of a place that is so many degrees from the equator, seen from the centre of the Earth."""
    if abs(latitude) >= 90:
        return latitude
    return math.degrees(math.atan(math.tan(math.radians(latitude)) / (1 - FLATTENING) ** 2))


def _zone(number: str, north: bool) -> str | None:
    return f"EPSG:{(32600 if north else 32700) + int(number)}" if 1 <= int(number) <= 60 else None


def _utm(text: str, system: str) -> tuple[str, Corner] | None:
    """CRS, easting and northing."""
    found = UTM.fullmatch(text)
    zone = _zone(found[1], system == "N") if found else None
    return (zone, (float(found[2]), float(found[3]))) if found and zone else None


def _grid(text: str) -> tuple[str, Corner] | None:
    """CRS, easting and northing of a reference of the military grid, whose letters repeat every 2000 km northward."""
    found = MGRS.fullmatch(text)
    zone = _zone(found[1], found[2] >= "N") if found else None
    if found is None or zone is None:
        return None
    number = int(found[1])
    column = LETTERS.index(found[3]) - 8 * ((number - 1) % 3)
    row = (LETTERS.index(found[4]) - (0 if number % 2 else 5)) % 20
    if not 0 <= column < 8:
        return None
    northing = row * 100_000.0 + int(found[6])
    lowest = BANDS[found[2]] * 100_000
    return zone, ((column + 1) * 100_000.0 + int(found[5]), northing + -(-(lowest - northing) // 2e6) * 2e6)


def _fit(places: tuple[Corner, ...], corners: list[Corner]) -> Transform | None:
    """The affine through all four corners, to a quarter of a pixel; None if there is none."""
    columns, rows = places[2][0] - places[0][0], places[2][1] - places[0][1]
    (left, top), (right, level), opposite, (plumb, bottom) = corners
    if columns < 1 or rows < 1 or len(set(corners)) == 1:
        return None
    if left == plumb != right and top == level != bottom and opposite == (right, bottom):
        across, down = (right - left) / columns, (bottom - top) / rows
        first = places[0]
        return across, 0.0, left - first[0] * across, 0.0, down, top - first[1] * down
    pixels = np.array(places)
    # Pixels and coordinates are scaled to near one, so that the fit is as good as the digits.
    origin, size = np.array(corners[0]), np.abs(np.ptp(np.array(corners), axis=0)).max()
    terms = np.column_stack([(pixels - pixels[0]) / [columns, rows], np.ones(4)])
    wanted = (np.array(corners) - origin) / size
    solution, *_ = np.linalg.lstsq(terms, wanted, rcond=None)
    (a, d), (b, e) = (solution[0] * size / columns), (solution[1] * size / rows)
    pixel = 0.5 * (abs(a) + abs(b) + abs(d) + abs(e))
    if np.abs(terms @ solution - wanted).max() * size > TOLERANCE * pixel or a * e == b * d:
        return None
    # Rounding errors are not a rotation.
    b, d = (0.0 if abs(turn) * length < STRAIGHT * pixel else turn for turn, length in ((b, rows), (d, columns)))
    x, y = (
        solution[2] * size
        + origin
        - np.array([a * pixels[0, 0] + b * pixels[0, 1], d * pixels[0, 0] + e * pixels[0, 1]])
    )
    return float(a), float(b), float(x), float(d), float(e), float(y)
