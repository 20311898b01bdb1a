"""Map grids of NITF images: those that support extensions define exactly, and the polar zones of raster products."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from periplus.errors import FormatError
from periplus.model import Georeference
from periplus.scan.cursor import Cursor
from periplus.scan.tres import Tre, first

Corner = tuple[float, float]
DEGREES = re.compile(r"(\d\d)(\d\d)(\d\d\.\d\d)([NS])(\d\d\d)(\d\d)(\d\d\.\d\d)([EW])", re.ASCII)
DECIMAL = re.compile(r"([+-]\d\d\.\d{6})([+-]\d\d\d\.\d{6})", re.ASCII)
RADIUS = 6_378_137.0
WORLD = "WGE"
"""The code of the World Geodetic System of 1984."""
GEODETIC = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)
SPHERE = (
    'GEOGCS["ARC sphere",DATUM["unknown",SPHEROID["ARC sphere",6378137,0]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]]'
)
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "TC": ("Transverse_Mercator", ("central_meridian", "scale_factor", "latitude_of_origin")),
    "LE": (
        "Lambert_Conformal_Conic_2SP",
        ("central_meridian", "standard_parallel_1", "standard_parallel_2", "latitude_of_origin"),
    ),
    "AC": (
        "Albers_Conic_Equal_Area",
        ("longitude_of_center", "standard_parallel_1", "standard_parallel_2", "latitude_of_center"),
    ),
    "PG": ("Polar_Stereographic", ("central_meridian", "latitude_of_origin")),
}
"""Projections by their code, and what their parameters mean in turn; others are not believed."""


def grid(image: Sequence[Tre], file: Sequence[Tre]) -> Georeference | None:
    """The grid that GEOLOB, or MAPLOB with a projection, gives an image; None where they do not, or not plainly."""
    datum = first(file, "GEOPSB") or first(image, "GEOPSB")
    if datum is not None and datum["DCD"] != WORLD:
        return None
    try:
        if (found := first(image, "GEOLOB")) is not None:
            across, down = 360 / _positive(found["ARV"]), 360 / _positive(found["BRV"])
            place = (across, 0.0, _number(found["LSO"]), 0.0, -down, _number(found["PSO"]))
            return Georeference(crs="EPSG:4326", transform=place)
        found = first(image, "MAPLOB")
        crs = _projection([*file, *image])
        if found is None or crs is None or found["UNILOA"] != "M":
            return None
        across, down = _positive(found["LOD"]), _positive(found["LAD"])
        return Georeference(crs=crs, transform=(across, 0.0, _number(found["LSO"]), 0.0, -down, _number(found["PSO"])))
    except (FormatError, ValueError):
        # A record that is not what its tag says is listed all the same, but tells nothing.
        return None


def corners(tres: Iterable[Tre], rows: int) -> list[Corner] | None:
    """Longitude and latitude of the centres of the corner pixels, clockwise from the first, as BLOCKA has them."""
    found = first(tres, "BLOCKA")
    if found is None or found["BLOCK_INSTANCE"] not in ("01", "1") or found["L_LINES"].lstrip("0") != str(rows):
        return None
    places = [_location(found[name]) for name in ("FRFC_LOC", "FRLC_LOC", "LRLC_LOC", "LRFC_LOC")]
    known = [place for place in places if place is not None]
    return known if len(known) == 4 else None


def predicted(tres: Iterable[Tre]) -> list[Corner] | None:
    """Longitude and latitude of the corners that CSCRNA has."""
    found = first(tres, "CSCRNA")
    if found is None:
        return None
    try:
        return [
            (_number(found[f"{corner}CNR_LONG"]), _number(found[f"{corner}CNR_LAT"]))
            for corner in ("UL", "UR", "LR", "LL")
        ]
    except ValueError:
        return None


def polar(places: Sequence[Corner]) -> tuple[str, list[Corner]] | None:
    """The CRS of the polar zone that places in degrees lie in, and where in it they do; None across the equator."""
    south = places[0][1] < 0
    if any((y < 0) != south for _, y in places):
        return None
    crs = _wkt(
        SPHERE,
        "Azimuthal_Equidistant",
        {"latitude_of_center": -90.0 if south else 90.0, "longitude_of_center": 0.0},
        (0.0, 0.0),
    )
    found = []
    for x, y in places:
        away, angle = RADIUS * math.radians(90 - abs(y)), math.radians(x)
        found.append((away * math.sin(angle), away * math.cos(angle) * (1 if south else -1)))
    return crs, found


def _projection(tres: Iterable[Tre]) -> str | None:
    """The projected CRS of PRJPSB."""
    tre = next((tre for tre in tres if tre.tag == "PRJPSB"), None)
    if tre is None:
        return None
    cursor = Cursor(tre.data)
    cursor.take(80)
    method, names = METHODS.get(cursor.text(2), ("", ()))
    values = [_number(cursor.text(15)) for _ in range(cursor.digits(1))]
    origin = _number(cursor.text(15)), _number(cursor.text(15))
    return _wkt(GEODETIC, method, dict(zip(names, values, strict=True)), origin) if method else None


def _wkt(base: str, method: str, parameters: dict[str, float], origin: Corner) -> str:
    told = {**parameters, "false_easting": origin[0], "false_northing": origin[1]}
    terms = ",".join(f'PARAMETER["{name}",{value!r}]' for name, value in told.items())
    return f'PROJCS["unnamed",{base},PROJECTION["{method}"],{terms},UNIT["metre",1]]'


def _location(text: str) -> Corner | None:
    if found := DECIMAL.fullmatch(text):
        return float(found[2]), float(found[1])
    if found := DEGREES.fullmatch(text):
        y, x = (int(found[n]) + int(found[n + 1]) / 60 + float(found[n + 2]) / 3600 for n in (1, 5))
        return (-x if found[8] == "W" else x), (-y if found[4] == "S" else y)
    return None


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ValueError(text)
    return value
