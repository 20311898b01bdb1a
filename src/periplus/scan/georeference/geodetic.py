"""Geodetic reference systems by EPSG number: datum, ellipsoid and prime meridian, for CRSs a file defines itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Ellipsoid:
    """Axes in metres; inverse flattening 0 is a sphere."""

    name: str
    semi_major: float
    inverse_flattening: float


@dataclass(frozen=True, slots=True)
class Meridian:
    """A prime meridian, in degrees east of Greenwich."""

    name: str
    longitude: float


@dataclass(frozen=True, slots=True)
class Datum:
    """A geodetic datum."""

    name: str
    ellipsoid: Ellipsoid
    meridian: Meridian


@dataclass(frozen=True, slots=True)
class Geodetic:
    """A geographic system: a named datum."""

    name: str
    datum: Datum


GREENWICH = Meridian("Greenwich", 0.0)


@dataclass(frozen=True, slots=True)
class Register:
    """The parts of the EPSG register that GeoTIFF keys may name, by number."""

    ellipsoids: dict[int, Ellipsoid]
    meridians: dict[int, Meridian]
    datums: dict[int, Datum]
    systems: dict[int, Geodetic]
    lengths: dict[int, float]
    """Metres in the unit of a projected system, where that is not the metre."""


@lru_cache(maxsize=1)
def register() -> Register:
    """Read once, when a first file needs it: most files name their CRS by number."""
    found = Register({}, {}, {}, {}, {})
    for line in files("periplus.scan").joinpath("geodetic.psv").read_text("utf-8").splitlines():
        kind, code, name, *rest = line.split("|")
        number = int(code)
        if kind == "E":
            found.ellipsoids[number] = Ellipsoid(name, float(rest[0]), float(rest[1]))
        elif kind == "M":
            found.meridians[number] = Meridian(name, float(rest[0]))
        elif kind == "D":
            found.datums[number] = Datum(name, found.ellipsoids[int(rest[0])], found.meridians[int(rest[1])])
        elif kind == "L":
            found.lengths.update(dict.fromkeys(map(int, rest[1].split()), float(rest[0])))
        else:
            found.systems[number] = Geodetic(name, found.datums[int(rest[0])])
    return found
