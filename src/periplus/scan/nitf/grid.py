"""Map grids of NITF images: those that extensions define exactly, and the polar zones of raster products."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from periplus.errors import FormatError
from periplus.model import Georeference
from periplus.scan.nitf.tres import Tre, finite, first

Corner = tuple[float, float]
SECONDS = re.compile(r"(\d\d)(\d\d)(\d\d\.\d\d)([NS])(\d\d\d)(\d\d)(\d\d\.\d\d)([EW])", re.ASCII)
DECIMAL = re.compile(r"([+-]\d\d\.\d{6})([+-]\d\d\d\.\d{6})", re.ASCII)
RADIUS = 6_378_137
"""Metres, of the sphere of raster products."""
WORLD = "WGE"
"""The code of the World Geodetic System of 1984."""
GEODETIC = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)
_CONIC = ("standard_parallel_1", "standard_parallel_2")
_SPHERE = "radius"
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "AC": ("Albers_Conic_Equal_Area", ("longitude_of_center", *_CONIC, "latitude_of_center")),
    "AK": ("Lambert_Azimuthal_Equal_Area", ("longitude_of_center", "latitude_of_center")),
    "AL": ("Azimuthal_Equidistant", ("longitude_of_center", "latitude_of_center")),
    "BF": ("Bonne", ("central_meridian", "standard_parallel_1")),
    "CP": ("Equirectangular", ("central_meridian", "standard_parallel_1", _SPHERE)),
    "CS": ("Cassini_Soldner", ("central_meridian", "latitude_of_origin")),
    "ED": ("Eckert_VI", ("central_meridian", _SPHERE)),
    "EF": ("Eckert_IV", ("central_meridian", _SPHERE)),
    "GN": ("Gnomonic", ("central_meridian", "latitude_of_origin")),
    "LE": ("Lambert_Conformal_Conic_2SP", ("central_meridian", *_CONIC, "latitude_of_origin")),
    "LI": ("Cylindrical_Equal_Area", ("central_meridian", "standard_parallel_1")),
    "MC": ("Mercator_2SP", ("central_meridian", "standard_parallel_1", "latitude_of_origin")),
    "MH": ("Miller_Cylindrical", ("longitude_of_center", _SPHERE)),
    "MP": ("Mollweide", ("central_meridian", _SPHERE)),
    "OD": ("Orthographic", ("central_meridian", "latitude_of_origin", _SPHERE)),
    "PC": ("Polyconic", ("central_meridian", "latitude_of_origin")),
    "PG": ("Polar_Stereographic", ("central_meridian", "latitude_of_origin")),
    "PH": ("Polyconic", ("central_meridian", "latitude_of_origin")),
    "RX": ("Robinson", ("longitude_of_center", _SPHERE)),
    "SA": ("Sinusoidal", ("longitude_of_center", _SPHERE)),
    "TC": ("Transverse_Mercator", ("central_meridian", "scale_factor", "latitude_of_origin")),
    "VA": ("VanDerGrinten", ("central_meridian", _SPHERE)),
}
"""Projections by their code, and the meaning of their parameters in order; others are ignored.

The meanings are those of the list in part 3 of DIGEST, which the extension refers to. GDAL (3.10) confuses parameters
of Mercator (MC) and Miller (MH), and has those of an equidistant conic (KA) in another order; no third source decides
that, nor the order for the oblique Mercator (HX) and New Zealand's grid (NT).
"""
OPTIONAL = (_SPHERE, "latitude_of_origin", "latitude_of_center")
"""Last parameters that may be missing, which means 0; except the latitude of true scale of a polar projection."""
NEED_RADIUS = frozenset({"CP", "MH"})
"""Projections of a sphere that need a radius; without one, others use the ellipsoid, as in GDAL."""


def grid(image: Sequence[Tre], file: Sequence[Tre]) -> Georeference | None:
    """The grid that GEOLOB, or MAPLOB with a projection, gives an image; None if they do not, or are invalid."""
    datum = first(file, "GEOPSB") or first(image, "GEOPSB")
    if datum is not None and datum["DCD"] != WORLD:
        return None
    try:
        if (found := first(image, "GEOLOB")) is not None:
            across, down = 360 / _positive(found["ARV"]), 360 / _positive(found["BRV"])
            place = (across, 0.0, finite(found["LSO"]), 0.0, -down, finite(found["PSO"]))
            return Georeference(crs="EPSG:4326", transform=place)
        found = first(image, "MAPLOB")
        crs = _projection([*file, *image])
        if found is None or crs is None or found["UNILOA"] != "M":
            return None
        across, down = _positive(found["LOD"]), _positive(found["LAD"])
        return Georeference(crs=crs, transform=(across, 0.0, finite(found["LSO"]), 0.0, -down, finite(found["PSO"])))
    except (FormatError, ValueError):
        # A damaged record is still listed, but ignored.
        return None


def corners(tres: Iterable[Tre], rows: int) -> list[Corner] | None:
    """Longitude and latitude of the centres of the corner pixels, clockwise from the first, as BLOCKA has them."""
    found = first(tres, "BLOCKA")
    if found is None or found["BLOCK_INSTANCE"] not in ("01", "1") or found["L_LINES"].lstrip("0") != str(rows):
        return None
    texts = [found[name] for name in ("FRFC_LOC", "FRLC_LOC", "LRLC_LOC", "LRFC_LOC")]
    places = [from_decimal(DECIMAL.fullmatch(text)) or from_seconds(SECONDS.fullmatch(text)) for text in texts]
    known = [place for place in places if place is not None]
    return known if len(known) == 4 else None


def predicted(tres: Iterable[Tre]) -> list[Corner] | None:
    """Longitude and latitude of the corners that CSCRNA has."""
    found = first(tres, "CSCRNA")
    if found is None:
        return None
    try:
        return [
            (finite(found[f"{corner}CNR_LONG"]), finite(found[f"{corner}CNR_LAT"]))
            for corner in ("UL", "UR", "LR", "LL")
        ]
    except ValueError:
        return None


def polar(places: Sequence[Corner]) -> tuple[str, list[Corner]] | None:
    """The CRS of the polar zone of points in degrees, and their coordinates in it; None across the equator."""
    south = places[0][1] < 0
    if any((y < 0) != south for _, y in places):
        return None
    crs = _wkt(
        _sphere("ARC sphere", RADIUS),
        "Azimuthal_Equidistant",
        {"latitude_of_center": -90.0 if south else 90.0, "longitude_of_center": 0.0},
        (0.0, 0.0),
    )
    found = []
    for x, y in places:
        away, angle = RADIUS * math.radians(90 - abs(y)), math.radians(x)
        found.append((away * math.sin(angle), away * math.cos(angle) * (1 if south else -1)))
    return crs, found


def grid_unread(image: Sequence[Tre], file: Sequence[Tre]) -> str | None:
    """Why a declared grid is not reported; None if there is none, or it is reported."""
    if not any(tre.tag in ("GEOLOB", "MAPLOB") for tre in image) or grid(image, file) is not None:
        return None
    datum = first(file, "GEOPSB") or first(image, "GEOPSB")
    if datum is not None and datum["DCD"] != WORLD:
        return f"the grid is of datum {datum['DCD']!r}"
    projection = first([*file, *image], "PRJPSB")
    if projection is not None and projection["PCO"] not in METHODS:
        return f"the grid is in projection {projection['PCO']!r}, whose parameters are not certain"
    return "the grid is incomplete"


def _projection(tres: Iterable[Tre]) -> str | None:
    """The projected CRS of PRJPSB."""
    fields = first(tres, "PRJPSB")
    if fields is None or fields["PCO"] not in METHODS:
        return None
    code = fields["PCO"]
    method, names = METHODS[code]
    values = [finite(fields[name]) for name in fields if name.startswith("PRJ")]
    origin = finite(fields["XOR"]), finite(fields["YOR"])
    if len(values) + 1 == len(names) and names[-1] in OPTIONAL and code != "PG":
        values.append(0.0)
    parameters = dict(zip(names, values, strict=True))
    radius = parameters.pop(_SPHERE, 0.0)
    if radius < 0 or (not radius and code in NEED_RADIUS) or (code == "MC" and parameters.pop("latitude_of_origin")):
        # A Mercator with northings counted from another parallel cannot be expressed in WKT.
        return None
    return _wkt(_sphere("sphere", radius) if radius else GEODETIC, method, parameters, origin)


def _sphere(name: str, radius: float) -> str:
    return (
        f'GEOGCS["{name}",DATUM["unknown",SPHEROID["{name}",{radius!r},0]],PRIMEM["Greenwich",0],'
        'UNIT["degree",0.0174532925199433]]'
    )


def _wkt(base: str, method: str, parameters: dict[str, float], origin: Corner) -> str:
    terms = {**parameters, "false_easting": origin[0], "false_northing": origin[1]}
    text = ",".join(f'PARAMETER["{name}",{value!r}]' for name, value in terms.items())
    return f'PROJCS["unnamed",{base},PROJECTION["{method}"],{text},UNIT["metre",1]]'


def from_decimal(found: re.Match[str] | None) -> Corner | None:
    """Longitude and latitude of a match of latitude and longitude in decimal degrees."""
    return found and (float(found[2]), float(found[1]))


def from_seconds(found: re.Match[str] | None) -> Corner | None:
    """Longitude and latitude of a match of latitude and longitude in degrees, minutes, seconds and a hemisphere."""
    if found is None:
        return None
    y, x = (int(found[n]) + int(found[n + 1]) / 60 + float(found[n + 2]) / 3600 for n in (1, 5))
    return (-x if found[8] == "W" else x), (-y if found[4] == "S" else y)


def _positive(text: str) -> float:
    value = finite(text)
    if value <= 0:
        raise ValueError(text)
    return value
