"""geolocation: arrays of longitude and latitude, or of x and y, with the location of each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus.conventions.context import Reading, mapping
from periplus.conventions.coordinate_names import CoordinateNames
from periplus.conventions.meaning import Coord, CrsText, External
from periplus.conventions.node import Node
from periplus.conventions.proj.attributes import read_crs
from periplus.conventions.ref import ReferenceTarget, resolve

_ROLES = {
    ("geodetic", "x"): "geodetic_longitude",
    ("geodetic", "y"): "geodetic_latitude",
    ("planar", "x"): "planar_easting",
    ("planar", "y"): "planar_northing",
}
"""The attribute `geolocation_role`, by which the arrays of both kinds are distinguished."""
_WORDS = {
    ("geodetic", "x"): {"standard_name": "longitude", "units": "degrees_east"},
    ("geodetic", "y"): {"standard_name": "latitude", "units": "degrees_north"},
    ("planar", "x"): {"standard_name": "projection_x_coordinate"},
    ("planar", "y"): {"standard_name": "projection_y_coordinate"},
}


def read_geolocation(reading: Reading, names: CoordinateNames) -> tuple[list[Coord], CrsText | None]:
    """Geolocation arrays of the array being read, by its own attributes or, where they fit it, by its group's."""
    node = reading.node
    if "geolocation" in node.attributes and reading.declares(node, "geolocation"):
        return located(reading, node.attributes["geolocation"], "geolocation", names)
    group = reading.group
    if group is not None and "geolocation" in group.attributes and reading.declares(group, "geolocation"):
        return located(reading, group.attributes["geolocation"], "geolocation", names, defined_in=group, quiet=True)
    return [], None


def located(
    reading: Reading,
    value: Any,
    where: str,
    names: CoordinateNames,
    *,
    defined_in: Node | None = None,
    quiet: bool = False,
) -> tuple[list[Coord], CrsText | None]:
    """Coordinates and CRS of a geolocation object; `quiet`: arrays it does not fit are not its concern."""
    found = mapping(value)
    sets = {} if found is None else {kind: found[kind] for kind in ("geodetic", "planar") if kind in found}
    if not sets:
        reading.note("geolocation.malformed", "error", where, "geolocation is an object with `geodetic` or `planar`")
        return [], None
    coords: list[Coord] = []
    crs: CrsText | None = None
    for kind, raw in sets.items():
        at = f"{where}.{kind}"
        arrays = mapping(raw)
        if arrays is None or not {"x", "y"} <= arrays.keys():
            reading.note("geolocation.malformed", "error", at, "geolocation arrays are `x` and `y`")
            continue
        targets = {axis: _target(reading, arrays[axis], f"{at}.{axis}", defined_in) for axis in ("x", "y")}
        made = [
            coord
            for axis, target in targets.items()
            if target is not None and (coord := _coord(reading, target, kind, axis, f"{at}.{axis}", names, quiet))
        ]
        coords += made
        if made:
            stated = _crs(reading, arrays, at)
            # Geodetic coordinates come first, where there are both.
            crs = crs or stated
    return coords, crs


def _target(reading: Reading, value: Any, where: str, defined_in: Node | None) -> ReferenceTarget | None:
    if "ref" in (mapping(value) or {}):
        hint = "the schema has the bare reference"
        reading.note("geolocation.ref-wrapped", "info", where, "the reference is wrapped in `ref`", hint)
    return resolve(reading, value, where, defined_in=defined_in, array=True)


def _coord(
    reading: Reading, target: ReferenceTarget, kind: str, axis: str, where: str, names: CoordinateNames, quiet: bool
) -> Coord | None:
    node = target.node
    if node.kind != "array":
        reading.note("ref.kind", "error", where, f"{node.path} is a group and has no values")
        return None
    dims = _fitting(node, reading.node)
    if dims is None:
        if not quiet:
            shapes = f"{list(node.shape)} and {list(reading.node.shape)}"
            reading.note("geolocation.shape", "error", where, f"{node.path} does not fit the array: shapes {shapes}")
        return None
    words = {key: text for key, text in _WORDS[kind, axis].items() if key not in node.attributes}
    if kind == "planar":
        words.pop("units", None)
    words["geolocation_role"] = _ROLES[kind, axis]
    name = names.free(node.name, target, dims=dims)
    values = External(reference=target.reference, dims=dims, shape=node.shape)
    return Coord(name=name, dims=dims, values=values, role="geolocation", convention="geolocation", attributes=words)


def _fitting(node: Node, array: Node) -> tuple[str, ...] | None:
    """Dimensions of the array that a geolocation array covers: by name, else the last ones, else by size."""
    sizes = dict(zip(array.dims, array.shape, strict=False))
    if node.shape and len(node.dims) == len(node.shape):
        named = list(zip(node.dims, node.shape, strict=True))
        if all(name is not None and sizes.get(name) == size for name, size in named):
            return tuple(str(name) for name in node.dims)
    for start in range(len(array.shape) - len(node.shape), -1, -1):
        part = array.dims[start : start + len(node.shape)]
        if array.shape[start : start + len(node.shape)] == node.shape and None not in part and len(part) >= 1:
            return tuple(str(name) for name in part)
    return None


def _crs(reading: Reading, arrays: Mapping[str, Any], where: str) -> CrsText | None:
    for key in ("crs", "id"):
        if (found := mapping(arrays.get(key))) is not None:
            if key == "id":
                reading.note("geolocation.id", "info", f"{where}.id", "the CRS is under `id`", "write `crs`")
            return read_crs(reading, found, reading.node.path, f"{where}.{key}")
    return None
