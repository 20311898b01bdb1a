"""The meaning of an array or a group by all conventions: principal ones first, then services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from periplus.conventions.cf.grid_mapping import BY_GRID_MAPPING, check_grid_mapping, grid_by_mapping
from periplus.conventions.cf.links import ATTRIBUTES, read_cf
from periplus.conventions.context import Reading, texts, whole
from periplus.conventions.coordinate_names import CoordinateNames
from periplus.conventions.cs.dimensions import read_dimensions
from periplus.conventions.cs.sets import check_shared, read_cs
from periplus.conventions.cs.uom import array_units
from periplus.conventions.embeddings import quantization_of, read_embedding
from periplus.conventions.identity import CONVENTIONS, KEY
from periplus.conventions.meaning import (
    Affine,
    Coord,
    CrsText,
    External,
    Grid,
    GroupMeaning,
    Meaning,
    Pyramid,
    Reference,
    Regular,
)
from periplus.conventions.multiscales.pyramid import level_of, pyramid_of
from periplus.conventions.node import DIMENSIONS, Node, NodeLookup, StoreLookup
from periplus.conventions.proj.attributes import GDAL, crs_of, gdal_crs
from periplus.conventions.ref import follow
from periplus.conventions.spatial.geolocation import read_geolocation
from periplus.conventions.spatial.grid import check_bbox, coords_of, properties, read_bbox, read_transform
from periplus.conventions.spatial.place import axis_words, place_of
from periplus.errors import FormatError

_MEANINGFUL = frozenset({KEY, *ATTRIBUTES, *(key for one in CONVENTIONS.values() for key in one.keys)})
_GRID_PREFIXES = ("spatial:", "proj:")
_IGNORED = frozenset({"units", "long_name", "standard_name", "_FillValue", DIMENSIONS})
"""Attributes that most arrays have, which no convention uses without others."""


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads many nodes of one store; looks up each once, and computes once what they share."""

    lookup: NodeLookup
    stores: StoreLookup | None = None
    strict: bool = True
    memo: dict[Any, Any] = field(default_factory=dict)

    def array(self, node: Node) -> Meaning:
        """The meaning of an array."""
        if node.kind != "array":
            raise FormatError(f"{node.path} is a group")
        reading = self._reading(_sane(node))
        if len(node.dims) != len(reading.node.dims):
            message = f"{len(node.dims)} names for {len(node.shape)} dimensions; they are ignored"
            reading.note("node.dimension-names", "error", "dimension_names", message)
            return _array(reading)
        if node.dims != reading.node.dims:
            message = f"the names {list(node.dims)} repeat; only the first of each is used"
            reading.note("node.dimension-names", "warning", "dimension_names", message)
            return _array(reading)
        key = _likeness(reading)
        if key is None:
            return _array(reading)
        if key in self.memo:
            return replace(self.memo[key], path=node.path)  # type: ignore[no-any-return]
        meaning = _array(reading)
        if _is_common(meaning):
            self.memo[key] = meaning
        return meaning

    def group(self, node: Node) -> GroupMeaning:
        """The meaning of a group."""
        if node.kind != "group":
            raise FormatError(f"{node.path} is an array")
        return _group(self._reading(node))

    def _reading(self, node: Node) -> Reading:
        return Reading(node=node, lookup=self._find, stores=self.stores, strict=self.strict, memo=self.memo)

    def _find(self, path: str, /) -> Node | None:
        key = ("node", path)
        if key not in self.memo:
            found = self.lookup(path)
            self.memo[key] = None if found is None else _sane(found)
        return self.memo[key]  # type: ignore[no-any-return]


def _sane(node: Node) -> Node:
    """The node without names of dimensions that cannot be used."""
    return node if node.dims == node.usable_dims else replace(node, dims=node.usable_dims)


def understand(node: Node, lookup: NodeLookup, *, stores: StoreLookup | None = None, strict: bool = True) -> Meaning:
    """The meaning of one array; for many arrays of a store use a Reader."""
    return Reader(lookup=lookup, stores=stores, strict=strict).array(node)


def understand_group(
    node: Node, lookup: NodeLookup, *, stores: StoreLookup | None = None, strict: bool = True
) -> GroupMeaning:
    """The meaning of one group: its pyramid, CRS and footprint."""
    return Reader(lookup=lookup, stores=stores, strict=strict).group(node)


def _array(reading: Reading) -> Meaning:
    node = reading.node
    names = CoordinateNames.of(reading)
    declared = set(reading.declared_by(node))
    place = place_of(reading)
    coordinate_set = read_cs(reading, names)
    coords: list[Coord] = [] if coordinate_set is None else list(coordinate_set.coords)
    principal = ["cs"] if coords else []
    crs = place.crs if coordinate_set is None else coordinate_set.crs or place.crs
    described = read_dimensions(reading, names, _axes(coords))
    coords += described
    if described:
        principal.append("dimensions")
    if place.grid is not None:
        coords += _by_grid(reading, place.grid, crs, _axes(coords), names)
        principal.append("spatial")
    found, stated = read_geolocation(reading, names)
    coords += [coord for coord in found if all(coord.name != other.name for other in coords)]
    cf = read_cf(reading, names, coords)
    coords += cf.coords
    _check_own_reference(reading)
    mapped = grid_by_mapping(reading, cf.mapping)
    check_grid_mapping(reading, cf.mapping, crs, place.grid, mapped)
    grid = place.grid or mapped
    if grid is not None and grid is mapped:
        coords += _by_grid(
            reading, grid, crs or cf.crs, frozenset(coord.name for coord in coords), names, BY_GRID_MAPPING
        )
    located = stated if coordinate_set is None else coordinate_set.located or stated
    crs = crs or cf.crs
    if GDAL in node.attributes:
        crs = gdal_crs(reading, crs) or crs
    if located is not None and _are_labelled(reading, coords):
        located = None  # it is the CRS of the geolocation arrays, not that of the grid
    if not (principal or place.concerned or coordinate_set is not None or grid or _needs_none(reading)):
        message = "no principal convention is declared; its axes have no coordinates"
        reading.note("principal.none", "warning", "zarr_conventions", message, "declare cs or spatial")
    return Meaning(
        path=node.path,
        conventions=tuple(sorted(declared)),
        principal=tuple(principal),
        coords=tuple(coords),
        grid=grid,
        crs=crs or located,
        pyramid=None if place.pyramid is None else place.pyramid.path,
        level=place.level,
        attributes={**array_units(reading), **cf.attributes},
        quantization=quantization_of(reading),
        diagnostics=tuple(reading.notes),
    )


def _axes(coords: list[Coord]) -> frozenset[str]:
    return frozenset(dim for coord in coords if coord.role == "axis" for dim in coord.dims)


def _are_labelled(reading: Reading, coords: list[Coord]) -> bool:
    """Whether the dimensions that geolocation arrays span have coordinates of their own: a grid, and not a swath."""
    over = {dim for coord in coords if coord.role == "geolocation" for dim in coord.dims}
    labels = [coord for coord in coords if coord.role == "axis" or isinstance(coord.values, Affine)]
    if any(over & set(coord.dims) and not _counts(coord) for coord in labels):
        return True
    around = "" if reading.group is None else reading.group.path.rstrip("/")
    stored = (reading.lookup(f"{around}/{dim}") for dim in over)
    return any(node is not None and node.dims == (node.name,) for node in stored)


def _counts(coord: Coord) -> bool:
    """Whether a coordinate only counts the items along its dimension."""
    values = coord.values
    plain = isinstance(values, Regular) and (values.start, values.step, values.offset) == (0, 1, 0)
    return plain and "units" not in coord.attributes


def _by_grid(
    reading: Reading,
    grid: Grid,
    crs: CrsText | None,
    covered: frozenset[str],
    names: CoordinateNames,
    convention: str = "spatial",
) -> list[Coord]:
    """Coordinates of the grid for the axes that no other convention describes."""
    both = covered & set(grid.dims)
    if both and convention == "spatial":
        message = f"the axes {sorted(both)} have coordinates by another convention too; those are taken"
        reading.note("principal.both", "info", "spatial:transform", message)
    if both and not grid.upright:
        return []
    made = coords_of(grid, axis_words(crs), covered)
    for coord in made:
        names.axis(coord.name)
    return [replace(coord, convention=convention) for coord in made]


def _check_own_reference(reading: Reading) -> None:
    """Findings about the reference that a node has at the root of its attributes."""
    node = reading.node
    if "ref" not in node.attributes or not reading.declares(node, "ref"):
        return
    _, target = follow(reading, {"ref": node.attributes["ref"]}, "ref")
    if target is not None and target.reference == Reference(path=node.path):
        reading.note("ref.cycle", "error", "ref", "the node refers to itself")


def _needs_none(reading: Reading) -> bool:
    """Whether an array is itself a coordinate, or a scalar, which needs no coordinates of axes."""
    node = reading.node
    return not node.shape or node.name in node.dims


def _group(reading: Reading) -> GroupMeaning:
    node = reading.node
    declared = reading.declared_by(node)
    given = properties(reading, node)
    box = read_bbox(reading, given)
    pyramid = pyramid_of(reading, node)
    crs = crs_of(reading, node)
    grid = _group_grid(reading, given, pyramid)
    if grid is not None and box is not None:
        check_bbox(reading, grid, box, node.path)
    check_shared(reading)
    _check_own_reference(reading)
    return GroupMeaning(
        path=node.path,
        conventions=tuple(sorted(declared)),
        pyramid=pyramid,
        crs=crs or (None if pyramid is None else pyramid.crs),
        bbox=None if box is None else (box[0], box[1], box[2], box[3]),
        embedding=read_embedding(reading, node),
        diagnostics=tuple(reading.notes),
    )


def _group_grid(reading: Reading, given: Mapping[str, Any], pyramid: Pyramid | None) -> Grid | None:
    """The grid that the box of a group should be around: its own, or that of the base of its pyramid."""
    if pyramid is not None:
        bases = [level.grid for level in pyramid.levels if level.derived_from is None and level.grid is not None]
        return bases[0] if len(bases) == 1 else None
    shape = whole(given.get("spatial:shape"))
    if "spatial:transform" not in given or shape is None or len(shape) < 2:
        return None
    transform = read_transform(reading, given["spatial:transform"])
    dims = texts(given.get("spatial:dimensions")) or ("y", "x")
    if transform is None or len(dims) < 2 or given.get("spatial:transform_type", "affine") != "affine":
        return None
    registration: Literal["pixel", "node"] = "node" if given.get("spatial:registration") == "node" else "pixel"
    return Grid(dims=(dims[-2], dims[-1]), shape=(shape[-2], shape[-1]), transform=transform, registration=registration)


# --- arrays with the same meaning -----------------------------------------------------------------------------------


def _likeness(reading: Reading) -> Any:
    """Equal for arrays of one group with the same meaning except for their paths; None where that is not known.

    Names matter to whatever refers to arrays, so neither the array nor its group may hold any reference.
    """
    node, group = reading.node, reading.group
    if group is None or node.name in node.dims or not _without_references(reading, group):
        return None
    own = []
    for key, value in node.attributes.items():
        if key in _IGNORED:
            continue
        if key in _MEANINGFUL or ":" in key or not isinstance(value, str | int | float):
            return None
        own.append((key, value))
    found = level_of(reading)
    level = None if found is None else (found[0].path, found[1].path)
    return ("alike", group.path, node.dims, node.shape, node.dtype, level, tuple(own))


def _is_common(meaning: Meaning) -> bool:
    """Whether the meaning of an array also applies to arrays of the same likeness."""
    return not (
        meaning.quantization is not None
        or any(isinstance(coord.values, External) and coord.role != "axis" for coord in meaning.coords)
        or any(one.path == meaning.path for one in meaning.diagnostics)
    )


def _without_references(reading: Reading, group: Node) -> bool:
    """Whether attributes of a group describe at most the grid and CRS of its arrays."""
    key = ("without references", group.path)
    if key not in reading.memo:
        reading.memo[key] = all(
            one in (KEY, "multiscales") or one.startswith(_GRID_PREFIXES) or not (one in _MEANINGFUL or ":" in one)
            for one in group.attributes
        )
    return bool(reading.memo[key])
