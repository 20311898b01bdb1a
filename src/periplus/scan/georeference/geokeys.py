"""GeoKeys to the text of a CRS: an EPSG code where the keys name one, else WKT; None if they are incomplete."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from periplus.scan.georeference import wkt as geowkt
from periplus.scan.georeference.geodetic import GREENWICH, Datum, Ellipsoid, Geodetic, Meridian, register

Value: TypeAlias = int | float | str | tuple[float, ...]

MODEL, RASTER, CITATION = 1024, 1025, 1026
GEOGRAPHIC, GEOGRAPHIC_CITATION, DATUM, MERIDIAN, ANGULAR_UNIT, ANGULAR_SIZE = 2048, 2049, 2050, 2051, 2054, 2055
ELLIPSOID, SEMI_MAJOR, SEMI_MINOR, INVERSE_FLATTENING, MERIDIAN_LONGITUDE, TO_WGS84 = 2056, 2057, 2058, 2059, 2061, 2062
PROJECTED, PROJECTED_CITATION, PROJECTION, TRANSFORM, LINEAR_UNIT, LINEAR_SIZE = 3072, 3073, 3074, 3075, 3076, 3077
VERTICAL, VERTICAL_UNIT = 4096, 4099
USER_DEFINED = 32767
IN_PLANE, IN_DEGREES, GEOCENTRIC = 1, 2, 3
"""Values of the model key: coordinates are projected, longitudes and latitudes, or geocentric."""
ESRI_PROJECTED, ESRI_GEOGRAPHIC = range(53_000, 55_000), range(37_000, 38_000)
"""Numbers of ESRI's own systems, which are not EPSG's."""
PSEUDO_MERCATOR = 3856
"""The projection of Web maps, for which GeoTIFF has no method."""

LENGTHS = {
    1025: ("millimetre", 0.001), 1033: ("centimetre", 0.01), 9001: ("metre", 1.0), 9002: ("foot", 0.3048),
    9003: ("US survey foot", 0.30480060960121924), 9005: ("Clarke's foot", 0.3047972654), 9014: ("fathom", 1.8288),
    9030: ("nautical mile", 1852.0), 9031: ("German legal metre", 1.0000135965),
    9033: ("US survey chain", 20.1168402336805), 9034: ("US survey link", 0.201168402336805),
    9035: ("US survey mile", 1609.34721869444), 9036: ("kilometre", 1000.0), 9037: ("Clarke's yard", 0.9143917962),
    9038: ("Clarke's chain", 20.1166195164), 9039: ("Clarke's link", 0.201166195164),
    9040: ("British yard (Sears 1922)", 0.9143984146160287), 9041: ("British foot (Sears 1922)", 0.3047994715386762),
    9042: ("British chain (Sears 1922)", 20.1167651215526), 9043: ("British link (Sears 1922)", 0.201167651215526),
    9050: ("British yard (Benoit 1895 A)", 0.9143992), 9051: ("British foot (Benoit 1895 A)", 0.304799733333333),
    9052: ("British chain (Benoit 1895 A)", 20.1167824), 9053: ("British link (Benoit 1895 A)", 0.201167824),
    9060: ("British yard (Benoit 1895 B)", 0.914399204289812),
    9061: ("British foot (Benoit 1895 B)", 0.304799734763271),
    9062: ("British chain (Benoit 1895 B)", 20.1167824943759),
    9063: ("British link (Benoit 1895 B)", 0.201167824943759), 9070: ("British foot (1865)", 0.304800833333333),
    9080: ("Indian foot", 0.304799510248147), 9081: ("Indian foot (1937)", 0.30479841),
    9082: ("Indian foot (1962)", 0.3047996), 9083: ("Indian foot (1975)", 0.3047995),
    9084: ("Indian yard", 0.9143985307444408), 9085: ("Indian yard (1937)", 0.91439523),
    9086: ("Indian yard (1962)", 0.9143988), 9087: ("Indian yard (1975)", 0.9143985), 9093: ("Statute mile", 1609.344),
    9094: ("Gold Coast foot", 0.3047997101815088), 9095: ("British foot (1936)", 0.3048007491), 9096: ("yard", 0.9144),
    9097: ("chain", 20.1168), 9098: ("link", 0.201168), 9099: ("British yard (Sears 1922 truncated)", 0.914398),
    9300: ("British foot (Sears 1922 truncated)", 0.304799333333333),
    9301: ("British chain (Sears 1922 truncated)", 20.116756),
    9302: ("British link (Sears 1922 truncated)", 0.20116756),
}  # fmt: skip
ANGLES = {
    9101: ("radian", 1.0), 9102: ("degree", geowkt.DEGREE), 9103: ("arc-minute", geowkt.DEGREE / 60),
    9104: ("arc-second", geowkt.DEGREE / 3600), 9105: ("grad", geowkt.DEGREE * 0.9),
    9106: ("gon", geowkt.DEGREE * 0.9), 9109: ("microradian", 1e-6), 9112: ("centesimal minute", geowkt.DEGREE * 0.009),
    9113: ("centesimal second", geowkt.DEGREE * 0.00009), 9114: ("mil_6400", geowkt.DEGREE * 0.05625),
    9122: ("degree", geowkt.DEGREE),
}  # fmt: skip
FEET = re.compile(r"^Units\s*=\s*(\w*(?:feet|foot)\w*)", re.IGNORECASE | re.MULTILINE)
"""The unit as ERDAS IMAGINE writes it into its citation."""
WKT = re.compile(r'(?:PROJCS|GEOGCS|PROJCRS|GEOGCRS|GEOCCS|COMPD_CS|COMPOUNDCRS|BOUNDCRS|LOCAL_CS|ENGCRS)\s*\[\s*"')


def parse(directory: Sequence[int], doubles: Sequence[float], text: bytes) -> tuple[dict[int, Value], bool]:
    """The keys by number, and whether all of them could be read."""
    keys: dict[int, Value] = {}
    whole = len(directory) >= 4 and len(directory) >= 4 + 4 * directory[3]
    for start in range(4, min(len(directory), 4 + 4 * directory[3] if len(directory) > 3 else 0) - 3, 4):
        key, place, count, value = directory[start : start + 4]
        if place == 0:
            keys[key] = value
        elif place == 34737 and value + count <= len(text) + 1:
            keys[key] = text[value : value + count].partition(b"\0")[0].decode("utf-8", "replace").rstrip("|").strip()
        elif place == 34736 and count > 0 and value + count <= len(doubles):
            numbers = tuple(float(n) for n in doubles[value : value + count])
            whole = whole and all(map(math.isfinite, numbers))
            keys[key] = numbers[0] if count == 1 else numbers
        elif place == 34735 and count > 0 and value + count <= len(directory):
            numbers = tuple(directory[value : value + count])
            keys[key] = numbers[0] if count == 1 else numbers
        else:
            whole = False
    return keys, whole


def crs(keys: Mapping[int, Value]) -> str | None:
    """The CRS the keys describe."""
    horizontal = _horizontal(keys)
    vertical = _code(keys, VERTICAL)
    if vertical is not None and 5101 <= vertical <= 5106:
        vertical += 600  # GeoTIFF 1.0 numbered six vertical systems by their datum.
    # 5001 to 5033 are heights over an ellipsoid in GeoTIFF 1.0, not systems of the EPSG register.
    if vertical is None or 5001 <= vertical <= 5033 or horizontal is None or not horizontal.startswith("EPSG:"):
        return horizontal
    return f"{horizontal}+{vertical}"


def _horizontal(keys: Mapping[int, Value]) -> str | None:
    model = keys.get(MODEL)
    if model == IN_PLANE or (model not in (IN_DEGREES, GEOCENTRIC) and PROJECTED in keys):
        return _projected(keys, model)
    return _geographic(keys, model) if model in (IN_DEGREES, GEOCENTRIC) else _without_model(keys)


def _projected(keys: Mapping[int, Value], model: Value | None) -> str | None:
    if (number := _code(keys, PROJECTED)) is not None:
        return f"EPSG:{number}" if _same_unit(keys, number) else None
    if (number := _integer(keys, PROJECTED)) in ESRI_PROJECTED:
        return f"ESRI:{number}"
    if (text := _wkt_citation(keys, (PROJECTED_CITATION, CITATION))) is not None:
        return text
    if model == IN_PLANE and _integer(keys, PROJECTION) == PSEUDO_MERCATOR and _code(keys, GEOGRAPHIC) == 4326:
        return "EPSG:3857" if _metres(keys) == 1 else None
    return _built(keys, projected=True)


def _geographic(keys: Mapping[int, Value], model: Value | None) -> str | None:
    number = _code(keys, GEOGRAPHIC)
    if model == GEOCENTRIC and number in register().systems:
        return None  # Coordinates are geocentric, and their system has no number.
    if number is not None:
        return f"EPSG:{number}"
    if (number := _integer(keys, GEOGRAPHIC)) in ESRI_GEOGRAPHIC:
        return f"ESRI:{number}"
    if (text := _wkt_citation(keys, (GEOGRAPHIC_CITATION, CITATION))) is not None:
        return text
    return None if model == GEOCENTRIC else _built(keys, projected=False)


def _without_model(keys: Mapping[int, Value]) -> str | None:
    """The CRS of keys that declare no model and name no projected system."""
    number = _code(keys, GEOGRAPHIC)
    if number is None:
        return _wkt_citation(keys, (CITATION, PROJECTED_CITATION, GEOGRAPHIC_CITATION))
    if LINEAR_UNIT in keys or PROJECTED_CITATION in keys:
        return _wkt_citation(keys, (CITATION, PROJECTED_CITATION))  # What has a length is projected from that system.
    return f"EPSG:{number}" if _same_unit(keys, number) else None


def _same_unit(keys: Mapping[int, Value], number: int) -> bool:
    """Whether coordinates are in the unit of the numbered system; some writers keep its number but use feet."""
    citation = keys.get(CITATION)
    feet = FEET.search(citation) if isinstance(citation, str) else None
    code = _integer(keys, LINEAR_UNIT)
    factor: Value | None = LENGTHS[code][1] if code in LENGTHS else keys.get(LINEAR_SIZE)
    if feet is not None:
        factor = LENGTHS[9003 if "us" in feet[1].lower() else 9002][1]
    if not isinstance(factor, int | float):
        return True
    return abs(factor / register().lengths.get(number, 1.0) - 1) < 1e-7


def height_unit(keys: Mapping[int, Value]) -> str | None:
    """The unit of heights, where the keys give one."""
    code = _integer(keys, VERTICAL_UNIT)
    return LENGTHS[code][0] if code in LENGTHS else None


def _integer(keys: Mapping[int, Value], key: int) -> int:
    value = keys.get(key)
    return value if isinstance(value, int) else 0


def _code(keys: Mapping[int, Value], key: int) -> int | None:
    """An EPSG code, or None where the key is absent, undefined, user defined or private."""
    value = _integer(keys, key)
    return value if 1024 <= value < USER_DEFINED else None


def _wkt_citation(keys: Mapping[int, Value], citations: Sequence[int]) -> str | None:
    """WKT written into a citation, as ESRI's `ESRI PE String = ...` and others do."""
    for key in citations:
        text = keys.get(key)
        found = WKT.search(text) if isinstance(text, str) else None
        if found is not None and isinstance(text, str):
            wkt = text[found.start() :]
            if wkt.count("[") == wkt.count("]"):
                return wkt
    return None


def _built(keys: Mapping[int, Value], *, projected: bool) -> str | None:
    angle = _unit(keys, ANGULAR_UNIT, ANGULAR_SIZE, ANGLES, 9102, geowkt.ANGLE)
    base = _base(keys)
    if base is None or angle is None:
        return None
    text: str | None
    if projected:
        length = _unit(keys, LINEAR_UNIT, LINEAR_SIZE, LENGTHS, 9001, geowkt.LENGTH)
        keys = {**keys, **_zone(_integer(keys, PROJECTION), _metres(keys))}
        way = geowkt.method(_integer(keys, TRANSFORM), keys)
        if way is None or length is None:
            return None
        name = _name(keys, (PROJECTED_CITATION, CITATION))
        text = geowkt.projected(name, base, angle, length, way, keys)
    else:
        text = geowkt.geographic(base, angle)
    shift = keys.get(TO_WGS84)
    if text is not None and isinstance(shift, tuple) and len(shift) in (3, 7):
        return geowkt.bound(text, shift, register().systems[4326])
    return text


def _zone(code: int, metres: float) -> dict[int, Value]:
    """Parameters of a UTM zone named by a projection code: 160zz in the north, 161zz in the south.

    The zone has them in metres; here they are in the units of the system, each of which is so many `metres`.
    """
    zone, south = code % 100, 16100 < code <= 16160
    if not (south or 16000 < code <= 16060):
        return {}
    return {
        TRANSFORM: 1,
        geowkt.NATURAL_LAT: 0.0,
        geowkt.NATURAL_LONG: zone * 6.0 - 183.0,
        geowkt.SCALE_NATURAL: 0.9996,
        geowkt.FALSE_EASTING: 500_000.0 / metres,
        geowkt.FALSE_NORTHING: 10_000_000.0 / metres if south else 0.0,
    }


def _metres(keys: Mapping[int, Value]) -> float:
    """One linear unit of the system in metres."""
    known = LENGTHS.get(_integer(keys, LINEAR_UNIT) or 9001)
    size = keys.get(LINEAR_SIZE)
    return known[1] if known else float(size) if isinstance(size, int | float) and size > 0 else 1.0


def _unit(
    keys: Mapping[int, Value], code: int, size: int, known: Mapping[int, tuple[str, float]], default: int, kind: str
) -> str | None:
    number = _integer(keys, code) or default
    if number in known:
        return geowkt.unit(kind, *known[number])
    factor = keys.get(size)
    return geowkt.unit(kind, "unnamed", float(factor)) if isinstance(factor, int | float) and factor > 0 else None


def _name(keys: Mapping[int, Value], citations: Sequence[int]) -> str:
    return next((t.partition("|")[0] for k in citations if isinstance(t := keys.get(k), str) and t), "unnamed")


def _base(keys: Mapping[int, Value]) -> Geodetic | None:
    """The geographic system: by number, or from the datum, ellipsoid and prime meridian the keys give."""
    known = register()
    number = _code(keys, GEOGRAPHIC)
    if number is not None:
        return known.systems.get(number)
    citation = keys.get(GEOGRAPHIC_CITATION)
    names = dict(
        part.split(" = ", 1) for part in (citation.split("|") if isinstance(citation, str) else ()) if " = " in part
    )
    datum = known.datums.get(_integer(keys, DATUM))
    if datum is None:
        ellipsoid = _ellipsoid(keys, names.get("Ellipsoid"))
        if ellipsoid is None:
            return None
        datum = Datum(names.get("Datum", "unnamed"), ellipsoid, GREENWICH)
    longitude = keys.get(MERIDIAN_LONGITUDE)
    meridian = known.meridians.get(_integer(keys, MERIDIAN))
    if meridian is None and isinstance(longitude, int | float):
        meridian = Meridian(names.get("Primem", "unnamed"), float(longitude))
    if meridian is not None:
        datum = Datum(datum.name, datum.ellipsoid, meridian)
    name = names.get("GCS Name") or (citation if isinstance(citation, str) and citation and not names else "unnamed")
    return Geodetic(name, datum)


def _ellipsoid(keys: Mapping[int, Value], name: str | None) -> Ellipsoid | None:
    if (known := register().ellipsoids.get(_integer(keys, ELLIPSOID))) is not None:
        return known
    major, minor, inverse = keys.get(SEMI_MAJOR), keys.get(SEMI_MINOR), keys.get(INVERSE_FLATTENING)
    if not isinstance(major, int | float) or major <= 0:
        return None
    if not isinstance(inverse, int | float):
        if not isinstance(minor, int | float) or not 0 < minor <= major:
            return None
        inverse = major / (major - minor) if minor < major else 0.0
    return Ellipsoid(name or "unnamed", float(major), float(inverse))
