"""WKT2 of CRSs that GeoKeys define: datum, units, projection method and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from periplus.scan.georeference.geodetic import Geodetic

Keys = Mapping[int, "int | float | str | tuple[float, ...]"]

STANDARD_1, STANDARD_2, NATURAL_LONG, NATURAL_LAT, FALSE_EASTING, FALSE_NORTHING = 3078, 3079, 3080, 3081, 3082, 3083
FALSE_LONG, FALSE_LAT, FALSE_ORIGIN_E, FALSE_ORIGIN_N, CENTER_LONG, CENTER_LAT = 3084, 3085, 3086, 3087, 3088, 3089
CENTER_E, CENTER_N, SCALE_NATURAL, SCALE_CENTER, AZIMUTH, POLE_LONG, SKEW = 3090, 3091, 3092, 3093, 3094, 3095, 3096

LATS, LONGS = (NATURAL_LAT, FALSE_LAT, CENTER_LAT), (NATURAL_LONG, FALSE_LONG, CENTER_LONG)
EASTS, NORTHS = (FALSE_EASTING, CENTER_E, FALSE_ORIGIN_E), (FALSE_NORTHING, CENTER_N, FALSE_ORIGIN_N)
SCALES = (SCALE_NATURAL, SCALE_CENTER)

ANGLE, LENGTH, SCALE = "ANGLEUNIT", "LENGTHUNIT", "SCALEUNIT"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its EPSG name and number, kind of unit, and the keys writers put it under, best first."""

    name: str
    number: int
    unit: str
    keys: tuple[int, ...]
    default: float | None = 0.0
    """None where no sensible value exists without the key."""


LAT = Parameter("Latitude of natural origin", 8801, ANGLE, LATS)
LONG = Parameter("Longitude of natural origin", 8802, ANGLE, LONGS)
K = Parameter("Scale factor at natural origin", 8805, SCALE, SCALES, 1.0)
EAST = Parameter("False easting", 8806, LENGTH, EASTS)
NORTH = Parameter("False northing", 8807, LENGTH, NORTHS)
PARALLEL_1 = Parameter("Latitude of 1st standard parallel", 8823, ANGLE, (STANDARD_1,), None)
PARALLEL_2 = Parameter("Latitude of 2nd standard parallel", 8824, ANGLE, (STANDARD_2,), None)
FALSE = (
    Parameter("Latitude of false origin", 8821, ANGLE, (FALSE_LAT, NATURAL_LAT, CENTER_LAT)),
    Parameter("Longitude of false origin", 8822, ANGLE, (FALSE_LONG, NATURAL_LONG, CENTER_LONG)),
    PARALLEL_1,
    PARALLEL_2,
    Parameter("Easting at false origin", 8826, LENGTH, (FALSE_ORIGIN_E, FALSE_EASTING, CENTER_E)),
    Parameter("Northing at false origin", 8827, LENGTH, (FALSE_ORIGIN_N, FALSE_NORTHING, CENTER_N)),
)
CENTER = (
    Parameter("Latitude of projection centre", 8811, ANGLE, (CENTER_LAT, NATURAL_LAT, FALSE_LAT)),
    Parameter("Longitude of projection centre", 8812, ANGLE, (CENTER_LONG, NATURAL_LONG, FALSE_LONG)),
    Parameter("Azimuth at projection centre", 8813, ANGLE, (AZIMUTH,), None),
    Parameter("Angle from Rectified to Skew Grid", 8814, ANGLE, (SKEW, AZIMUTH), 90.0),
    Parameter("Scale factor at projection centre", 8815, SCALE, (SCALE_CENTER, SCALE_NATURAL), 1.0),
)
AT_CENTER = (
    Parameter("Easting at projection centre", 8816, LENGTH, (CENTER_E, FALSE_EASTING, FALSE_ORIGIN_E)),
    Parameter("Northing at projection centre", 8817, LENGTH, (CENTER_N, FALSE_NORTHING, FALSE_ORIGIN_N)),
)
POLAR_LONG = (POLE_LONG, NATURAL_LONG, FALSE_LONG, CENTER_LONG)
ORIGIN, SCALED, MERIDIAN = (LAT, LONG, EAST, NORTH), (LAT, LONG, K, EAST, NORTH), (LONG, EAST, NORTH)
ON_CENTER = (
    Parameter(LAT.name, LAT.number, ANGLE, (CENTER_LAT, NATURAL_LAT, FALSE_LAT)),
    Parameter(LONG.name, LONG.number, ANGLE, (CENTER_LONG, NATURAL_LONG, FALSE_LONG)),
)
PARALLEL_0 = Parameter(PARALLEL_1.name, PARALLEL_1.number, ANGLE, (STANDARD_1,))

METHODS: dict[int, tuple[str, int | None, tuple[Parameter, ...]]] = {
    1: ("Transverse Mercator", 9807, SCALED),
    3: ("Hotine Oblique Mercator (variant A)", 9812, (*CENTER, EAST, NORTH)),
    8: ("Lambert Conic Conformal (2SP)", 9802, FALSE),
    9: ("Lambert Conic Conformal (1SP)", 9801, SCALED),
    10: ("Lambert Azimuthal Equal Area", 9820, ORIGIN),
    11: ("Albers Equal Area", 9822, FALSE),
    12: ("Azimuthal Equidistant", 1125, ORIGIN),
    13: ("Equidistant Conic", 1119, FALSE),
    14: ("Stereographic", None, SCALED),
    16: ("Oblique Stereographic", 9809, SCALED),
    17: ("Equidistant Cylindrical", 1028, (PARALLEL_0, *ON_CENTER, EAST, NORTH)),
    18: ("Cassini-Soldner", 9806, ORIGIN),
    19: ("Gnomonic", None, ORIGIN),
    20: ("Miller Cylindrical", None, MERIDIAN),
    21: ("Orthographic", 9840, ORIGIN),
    22: ("American Polyconic", 9818, ORIGIN),
    23: ("Robinson", None, MERIDIAN),
    24: ("Sinusoidal", None, MERIDIAN),
    25: ("Van Der Grinten", None, MERIDIAN),
    26: ("New Zealand Map Grid", 9811, ORIGIN),
    27: ("Transverse Mercator (South Orientated)", 9808, SCALED),
    28: ("Lambert Cylindrical Equal Area", 9835, (PARALLEL_0, *MERIDIAN)),
    9815: ("Hotine Oblique Mercator (variant B)", 9815, (*CENTER, *AT_CENTER)),
}
MERCATOR_A = ("Mercator (variant A)", 9804, SCALED)
MERCATOR_B = ("Mercator (variant B)", 9805, (PARALLEL_1, *MERIDIAN))
STEREOGRAPHIC_A = (
    "Polar Stereographic (variant A)",
    9810,
    (LAT, Parameter(LONG.name, LONG.number, ANGLE, POLAR_LONG), K, EAST, NORTH),
)
STEREOGRAPHIC_B = (
    "Polar Stereographic (variant B)",
    9829,
    (
        Parameter("Latitude of standard parallel", 8832, ANGLE, (STANDARD_1, *LATS), None),
        Parameter("Longitude of origin", 8833, ANGLE, POLAR_LONG),
        EAST,
        NORTH,
    ),
)


def method(transform: int, keys: Keys) -> tuple[str, int | None, tuple[Parameter, ...]] | None:
    """The projection method of a ProjCoordTrans code; a few codes cover two methods and the parameters decide."""
    if transform == 7:
        # Some writers add a default scale to the parallel; GDAL ignores it, too.
        return MERCATOR_B if STANDARD_1 in keys else MERCATOR_A
    if transform == 15:
        latitude = next((keys[k] for k in LATS if k in keys), 90.0)
        polar = isinstance(latitude, int | float) and abs(abs(latitude) - 90.0) < 1e-9
        return STEREOGRAPHIC_A if polar and STANDARD_1 not in keys else STEREOGRAPHIC_B
    return METHODS.get(transform)


def quoted(text: str) -> str:
    """Text between WKT quotes."""
    return '"' + text.replace('"', '""') + '"'


def unit(kind: str, name: str, factor: float) -> str:
    """A unit; the factor is to metres or radians."""
    return f"{kind}[{quoted(name)},{factor!r}]"


def geodetic_parts(system: Geodetic) -> str:
    """DATUM and PRIMEM, for a geographic system and for the base of a projected one."""
    datum = system.datum
    ellipsoid, meridian = datum.ellipsoid, datum.meridian
    metre = unit(LENGTH, "metre", 1)
    return (
        f"DATUM[{quoted(datum.name)},ELLIPSOID[{quoted(ellipsoid.name)},"
        f"{ellipsoid.semi_major!r},{ellipsoid.inverse_flattening!r},{metre}]],"
        f"PRIMEM[{quoted(meridian.name)},{meridian.longitude!r},{unit(ANGLE, 'degree', DEGREE)}]"
    )


DEGREE = 0.017453292519943295


def geographic(system: Geodetic, angle: str) -> str:
    """A geographic CRS, latitude first, as EPSG has it."""
    return (
        f"GEOGCRS[{quoted(system.name)},{geodetic_parts(system)},CS[ellipsoidal,2],"
        f'AXIS["latitude",north,ORDER[1],{angle}],AXIS["longitude",east,ORDER[2],{angle}]]'
    )


def projected(
    name: str, base: Geodetic, angle: str, length: str, way: tuple[str, int | None, tuple[Parameter, ...]], keys: Keys
) -> str | None:
    """A projected CRS, or None where a parameter that has no default is missing."""
    title, number, parameters = way
    written = []
    for parameter in parameters:
        value = next((keys[k] for k in parameter.keys if k in keys), parameter.default)
        if not isinstance(value, int | float):
            return None
        measure = {ANGLE: angle, LENGTH: length, SCALE: unit(SCALE, "unity", 1)}[parameter.unit]
        written.append(f'PARAMETER[{quoted(parameter.name)},{value!r},{measure},ID["EPSG",{parameter.number}]]')
    mark = f',ID["EPSG",{number}]' if number else ""
    east, north = ("west", "south") if number == 9808 else ("east", "north")
    return (
        f"PROJCRS[{quoted(name)},BASEGEOGCRS[{quoted(base.name)},{geodetic_parts(base)}],"
        f'CONVERSION["unnamed",METHOD[{quoted(title)}{mark}],{",".join(written)}],CS[Cartesian,2],'
        f'AXIS["easting",{east},ORDER[1],{length}],AXIS["northing",{north},ORDER[2],{length}]]'
    )


SHIFT = (
    ("X-axis translation", 8605), ("Y-axis translation", 8606), ("Z-axis translation", 8607),
    ("X-axis rotation", 8608), ("Y-axis rotation", 8609), ("Z-axis rotation", 8610), ("Scale difference", 8611),
)  # fmt: skip


def bound(source: str, shift: Sequence[float], wgs84: Geodetic) -> str:
    """A CRS with the three or seven parameters that shift its datum to WGS 84."""
    values = [*shift, *[0.0] * (7 - len(shift))]
    values[6] = 1 + values[6] * 1e-6
    written = ",".join(
        f'PARAMETER[{quoted(name)},{value!r},ID["EPSG",{number}]]'
        for (name, number), value in zip(SHIFT, values, strict=True)
    )
    target = geographic(wgs84, unit(ANGLE, "degree", DEGREE))
    way = 'METHOD["Position Vector transformation (geog2D domain)",ID["EPSG",9606]]'
    return (
        f"BOUNDCRS[SOURCECRS[{source}],TARGETCRS[{target}],"
        f'ABRIDGEDTRANSFORMATION["Transformation to WGS 84",{way},{written}]]'
    )
