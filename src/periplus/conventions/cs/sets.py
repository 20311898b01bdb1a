"""cs: coordinate sets, from every encoding in the wild to coordinates of axes, scalars, boundaries and terms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from periplus.conventions.context import Reading, mapping
from periplus.conventions.coordinate_names import CoordinateNames
from periplus.conventions.cs.times import time_attributes
from periplus.conventions.cs.uom import unit_text
from periplus.conventions.cs.values import bounds_of, term_dims, values_of
from periplus.conventions.meaning import Coord, CrsText, Explicit, External, Regular, Role
from periplus.conventions.node import Node
from periplus.conventions.proj.attributes import read_crs
from periplus.conventions.ref import ReferenceTarget, follow, resolve
from periplus.conventions.spatial.geolocation import located

_AXES = ("X", "Y", "Z", "T")


@dataclass(slots=True, kw_only=True)
class CoordinateSet:
    """What the `cs` of an array gives."""

    coords: list[Coord] = field(default_factory=list)
    crs: CrsText | None = None
    located: CrsText | None = None
    """The CRS of geolocation arrays inside it."""
    axes: set[str] = field(default_factory=set)
    """Dimensions that it describes."""


@dataclass(slots=True, kw_only=True)
class _Scope:
    """What every part of one coordinate set needs."""

    reading: Reading
    names: CoordinateNames
    made: CoordinateSet
    defined: Node | None = None
    """The node a shared crs is defined in."""
    abbreviations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetAxis:
    name: str
    dim: str | None
    """None for an axis that is not a dimension: a scalar."""
    count: int
    direction: Any
    words: Mapping[str, Any]
    """Attributes of all its coordinates."""


def read_cs(reading: Reading, names: CoordinateNames) -> CoordinateSet | None:
    """The coordinate set of the array being read; None where it has none."""
    node = reading.node
    if "cs" not in node.attributes or not reading.declares(node, "cs"):
        return None
    made = CoordinateSet()
    value = mapping(node.attributes["cs"])
    if value is None or "crs" not in value:
        reading.note("cs.malformed", "error", "cs", "cs is an object with a list `crs`")
        return made
    listed = value["crs"]
    if not isinstance(listed, list | tuple):
        reading.note("cs.crs-bare", "warning", "cs.crs", "crs is one object and not a list", "write […]")
        listed = [listed]
    if not node.dims and node.shape:
        reading.note("cs.dimension-names", "error", "cs", "the array has no names of dimensions", "write them")
    scope = _Scope(reading=reading, names=names, made=made)
    for n, raw in enumerate(listed):
        _read_crs(scope, raw, f"cs.crs[{n}]")
    if (own := mapping(value.get("id"))) is not None and (crs := read_crs(reading, own, node.path, "cs.id")):
        made.crs = crs
    for dim in node.dims:
        if dim is not None and dim not in made.axes:
            reading.note("cs.axis-missing", "warning", "cs", f"the dimension {dim!r} has no axis")
    return made


def check_shared(reading: Reading) -> None:
    """Findings about the `crs` that a group shares with arrays; its axes are read with the arrays."""
    value = reading.node.attributes.get("crs")
    if value is None or "cs" not in reading.declared_by(reading.node):
        return
    found = mapping(value)
    if not found:
        reading.note("cs.malformed", "error", "crs", "crs of a group is an object, one entry for each crs")
        return
    for name, raw in found.items():
        inner = mapping(raw)
        if inner is None or not (inner.keys() & {"axes", "ref", "node"}):
            reading.note("cs.malformed", "error", f"crs.{name}", "a crs is an object with `axes`")


def _read_crs(scope: _Scope, raw: Any, where: str) -> None:
    reading, made = scope.reading, scope.made
    value, target = _followed(reading, raw, where)
    found = mapping(value)
    if found is None:
        if target is not None or mapping(raw) is None:
            reading.note("cs.malformed", "error", where, "a crs is an object with `axes`")
        return
    scope.defined = None if target is None else target.node
    for name, axis, at in _axes(reading, found.get("axes"), f"{where}.axes"):
        _read_axis(scope, name, axis, at, kind=found.get("type"))
        short = axis.get("abbreviation")
        if isinstance(short, str) and scope.abbreviations.setdefault(short, name) != name:
            message = f"{short!r} is the abbreviation of {scope.abbreviations[short]!r} too"
            reading.note("cs.abbreviation", "warning", f"{at}.abbreviation", message)
    if (identity := mapping(found.get("id"))) is not None:
        crs = read_crs(reading, identity, reading.node.path, f"{where}.id")
        # A vertical or temporal CRS is not the CRS of the grid.
        if made.crs is None and found.get("type") not in ("vertical", "temporal"):
            made.crs = crs
    if "geolocation" in found:
        at = f"{where}.geolocation"
        coords, crs = located(reading, found["geolocation"], at, scope.names, defined_in=scope.defined)
        made.coords += coords
        made.located = made.located or crs


def _followed(reading: Reading, raw: Any, where: str) -> tuple[Any, ReferenceTarget | None]:
    """A crs, or what its reference leads to: the object its pointer means, or the only crs the node has."""
    found = mapping(raw)
    if found is not None and found.keys() & {"node", "uri"}:
        reading.note("cs.ref-bare", "info", where, "the reference is not wrapped in `ref`", 'write {"ref": …}')
    value, target = follow(reading, raw, where)
    if target is not None and value is None and target.reference.attribute is None:
        shared = mapping(target.node.attributes.get("crs")) or {}
        if len(shared) == 1:
            message = f"the reference has no pointer; the only crs of {target.node.path} is taken"
            reading.note("cs.ref-pointer", "warning", where, message, "write `attribute`")
            return next(iter(shared.values())), target
        reading.note("ref.missing", "error", where, f"the reference to {target.node.path} does not select one crs")
    return value, target


def _axes(reading: Reading, value: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    if isinstance(value, list | tuple):
        reading.note("cs.axes-list", "info", where, "axes are a list, as in older drafts", "write an object by name")
        pairs = [((mapping(axis) or {}).get("name"), axis, f"{where}[{n}]") for n, axis in enumerate(value)]
    elif mapping(value):
        pairs = [(name, axis, f"{where}.{name}") for name, axis in value.items()]
    else:
        reading.note("cs.malformed", "error", where, "axes are an object, one entry for each axis")
        return
    for name, axis, at in pairs:
        found = mapping(axis)
        if found is None or not isinstance(name, str) or not name:
            reading.note("cs.malformed", "error", at, "an axis is an object, and has a name")
        else:
            yield name, found, at


def _read_axis(scope: _Scope, name: str, raw: Mapping[str, Any], where: str, *, kind: Any) -> None:
    reading, made, node = scope.reading, scope.made, scope.reading.node
    if name in made.axes:
        reading.note("cs.axis-repeated", "warning", where, f"the axis {name!r} is declared twice; the first is used")
        return
    made.axes.add(name)
    dim = name if name in node.dims else None
    count = node.shape[node.dims.index(name)] if dim is not None else 1
    words = {"crs_type": kind} if isinstance(kind, str) else {}
    words |= mapping(raw.get("attributes")) or {}
    abbreviation = raw.get("abbreviation")
    if isinstance(abbreviation, str) and abbreviation.upper() in _AXES:
        words["axis"] = abbreviation.upper()
    elif abbreviation is not None:
        reading.note("cs.abbreviation", "warning", f"{where}.abbreviation", "an abbreviation is X, Y, Z or T")
    listed = raw.get("coordinates")
    if listed is None or listed == []:
        if dim is None:
            reading.note("cs.axis-unknown", "error", where, f"{name!r} is not a dimension, and has no value")
            return
        ordinal = Regular(0, 1, count)
        made.coords.append(
            Coord(name=scope.names.axis(dim), dims=(dim,), values=ordinal, convention="cs", attributes=words)
        )
        return
    if not isinstance(listed, list | tuple):
        reading.note("cs.coordinates-bare", "info", f"{where}.coordinates", "coordinates are not a list", "write […]")
        listed = [listed]
    axis = _SetAxis(name=name, dim=dim, count=count, direction=raw.get("direction"), words=words)
    first = True
    for n, one in enumerate(listed):
        at = f"{where}.coordinates[{n}]"
        found = mapping(one)
        if found is None or "values" not in found:
            reading.note("cs.malformed", "error", at, "coordinates are an object with `values`")
        elif _read_coordinate(scope, axis, found, at, first=first):
            first = False


def _read_coordinate(scope: _Scope, axis: _SetAxis, found: Mapping[str, Any], where: str, *, first: bool) -> bool:
    """Adds a coordinate with its boundaries and terms; whether it could be understood."""
    reading, names, made, dim = scope.reading, scope.names, scope.made, axis.dim
    near: dict[str, Any] = {"count": axis.count, "defined_in": scope.defined}
    described = values_of(reading, found["values"], f"{where}.values", dim=dim, **near)
    if described is None:
        return False
    values, target = described
    attributes = {**axis.words, **_words(reading, found, axis, where), **(mapping(found.get("attributes")) or {})}
    _check_words(reading, found, axis, values, where)
    stated = found.get("name") if isinstance(found.get("name"), str) else None
    role: Role = "scalar" if dim is None else "axis" if first else "auxiliary"
    if role == "axis":
        name = names.axis(axis.name, target)
    elif role == "scalar":
        name = names.free(axis.name, target)
    else:
        attributes.pop("axis", None)
        name = names.free(stated or (target.node.name if target is not None else f"{axis.name}_values"), target)
    if stated and stated != name:
        attributes.setdefault("long_name", stated)
    if "boundaries" in found and dim is not None:
        bounds = bounds_of(reading, found["boundaries"], f"{where}.boundaries", base=values, dim=dim, **near)
        if bounds is not None:
            reference = bounds.reference if isinstance(bounds, External) else None
            named = f"{name}_bounds" if reference is None else reference.path.rpartition("/")[2]
            attributes["bounds"] = names.free(named, reference=reference)
            made.coords.append(
                Coord(name=attributes["bounds"], dims=(dim, "bnds"), values=bounds, role="bounds", convention="cs")
            )
    if "parametric" in found:
        attributes |= _terms(scope, axis, found["parametric"], f"{where}.parametric")
    dims = () if dim is None else (dim,)
    # The array of an axis may also be a term of a formula (`s: s_rho`); it is one coordinate, described by the axis.
    made.coords = [other for other in made.coords if (other.name, other.role) != (name, "term")]
    made.coords.append(Coord(name=name, dims=dims, values=values, role=role, convention="cs", attributes=attributes))
    return True


def _words(reading: Reading, found: Mapping[str, Any], axis: _SetAxis, where: str) -> dict[str, Any]:
    """Units, calendar and direction in CF's words."""
    words: dict[str, Any] = {}
    if "time" in found:
        words |= time_attributes(reading, found["time"], f"{where}.time")
        if "unit" in found:
            reading.note("cs.time-unit", "info", f"{where}.unit", "a temporal axis has `time` and no `unit`")
    elif "unit" in found:
        unit = unit_text(reading, found["unit"], f"{where}.unit")
        if unit is not None:
            words["units"] = unit
    direction = found.get("direction")
    if direction is None and axis.direction is not None:
        direction = axis.direction
        reading.note("cs.direction-axis", "info", where, "`direction` is on the axis", "write it on the coordinates")
    if isinstance(direction, str):
        words["direction"] = direction
        if direction.lower() in ("up", "down"):
            words["positive"] = direction.lower()
    elif direction is not None:
        reading.note("cs.direction", "warning", f"{where}.direction", "a direction is a text")
    return words


def _check_words(
    reading: Reading, found: Mapping[str, Any], axis: _SetAxis, values: Regular | Explicit | External, where: str
) -> None:
    """Mild findings about words that numbers must have, and texts must not."""
    texts = isinstance(values, Explicit) and bool(values.items) and isinstance(values.items[0], str)
    if isinstance(values, External) or "time" in found:
        return
    if texts and "unit" in found:
        reading.note("cs.unit-text", "info", f"{where}.unit", "texts have no unit")
    if not texts and "unit" not in found:
        reading.note("cs.unit-missing", "info", where, "numbers have no unit", "write `unit`")
    if not texts and found.get("direction") is None and axis.direction is None:
        reading.note("cs.direction-missing", "info", where, "numbers have no direction", "write `direction`")


def _terms(scope: _Scope, axis: _SetAxis, value: Any, where: str) -> dict[str, Any]:
    """CF's attributes of a parametric coordinate; its terms are added as coordinates."""
    found = mapping(value) or {}
    formula, terms = found.get("formula"), mapping(found.get("terms"))
    if not isinstance(formula, str) or not terms:
        scope.reading.note("cs.parametric", "error", where, "parametric is an object with `formula` and `terms`")
        return {}
    words: dict[str, Any] = {"standard_name" if re.fullmatch(r"[a-z0-9_]+", formula) else "formula": formula}
    written = []
    for term, raw in terms.items():
        coord = _term(scope, axis, str(term), raw, f"{where}.terms.{term}")
        if coord is not None:
            if all(coord.name != other.name for other in scope.made.coords):
                scope.made.coords.append(coord)
            written.append(f"{term}: {coord.name}")
    return {**words, **({"formula_terms": " ".join(written)} if written else {})}


def _term_dims(axis: _SetAxis, node: Node, array: Node) -> tuple[str, ...] | None:
    """Dimensions of a term: those of the axis it belongs to, if it is as long and names no dimension of the array."""
    if node.kind != "array":
        return None
    if axis.dim is not None and node.shape == (axis.count,) and not set(node.dims) & set(array.dims):
        return (axis.dim,)
    return term_dims(node, array)


def _term(scope: _Scope, axis: _SetAxis, term: str, raw: Any, where: str) -> Coord | None:
    reading, found = scope.reading, mapping(raw)
    if found is not None and not found.keys() & {"regular", "explicit"}:
        target = resolve(reading, raw, where, defined_in=scope.defined, array=True)
        if target is None:
            return None
        dims = _term_dims(axis, target.node, reading.node)
        if dims is None:
            message = f"{target.node.path} of shape {list(target.node.shape)} does not fit the array"
            reading.note("cs.term", "error", where, message)
            return None
        outside = External(reference=target.reference, dims=dims, shape=target.node.shape)
        name = scope.names.free(target.node.name or term, target, dims=dims)
        return Coord(name=name, dims=dims, values=outside, role="term", convention="cs")
    listed = found.get("explicit") if found is not None else raw
    many = (found is not None and "regular" in found) or (isinstance(listed, list | tuple) and len(listed) != 1)
    dim = axis.dim if many else None
    described = values_of(reading, raw, where, dim=dim, count=axis.count if dim is not None else 1)
    if described is None:
        return None
    along = () if dim is None else (dim,)
    return Coord(name=scope.names.free(term), dims=along, values=described[0], role="term", convention="cs")
