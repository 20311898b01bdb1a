"""Everything the conventions say of an array or a group, composed: principal ones first, services over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from periplus.conventions.crs import crs_of
from periplus.conventions.cs import read_cs
from periplus.conventions.geolocation import read_geolocation
from periplus.conventions.meaning import Coord, GroupMeaning, Meaning
from periplus.conventions.multiscales import pyramid_of
from periplus.conventions.names import Names
from periplus.conventions.node import Lookup, Node, Stores
from periplus.conventions.place import axis_words, place_of
from periplus.conventions.reading import Reading, numbers
from periplus.conventions.spatial import coords_of, properties
from periplus.conventions.uom import array_units
from periplus.errors import FormatError


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads many nodes of one store, and works out once what they share."""

    lookup: Lookup
    stores: Stores | None = None
    strict: bool = True
    memo: dict[Any, Any] = field(default_factory=dict)

    def array(self, node: Node) -> Meaning:
        """What the conventions say of an array."""
        if node.kind != "array":
            raise FormatError(f"{node.path} is a group")
        return _array(self._reading(node))

    def group(self, node: Node) -> GroupMeaning:
        """What the conventions say of a group itself."""
        if node.kind != "group":
            raise FormatError(f"{node.path} is an array")
        return _group(self._reading(node))

    def _reading(self, node: Node) -> Reading:
        return Reading(node=node, lookup=self.lookup, stores=self.stores, strict=self.strict, memo=self.memo)


def understand(node: Node, lookup: Lookup, *, stores: Stores | None = None, strict: bool = True) -> Meaning:
    """What the conventions say of one array; for many of one store use a Reader."""
    return Reader(lookup=lookup, stores=stores, strict=strict).array(node)


def understand_group(node: Node, lookup: Lookup, *, stores: Stores | None = None, strict: bool = True) -> GroupMeaning:
    """What the conventions say of one group itself: its pyramid, CRS and footprint."""
    return Reader(lookup=lookup, stores=stores, strict=strict).group(node)


def _array(reading: Reading) -> Meaning:
    node = reading.node
    names = Names.of(reading)
    declared = set(reading.declared_by(node))
    principal: list[str] = []
    coords: list[Coord] = []
    place = place_of(reading)
    crs, located = place.crs, None
    coordinate_set = read_cs(reading, names)
    if coordinate_set is not None and coordinate_set.coords:
        principal.append("cs")
        coords += coordinate_set.coords
        crs, located = coordinate_set.crs or crs, coordinate_set.located
    if place.grid is not None:
        covered = frozenset(dim for coord in coords if coord.role == "axis" for dim in coord.dims)
        both = covered & set(place.grid.dims)
        if both:
            message = f"cs gives the axes {sorted(both)} too; its coordinates are taken, the grid of spatial stays"
            reading.note("principal.both", "info", "spatial:transform", message)
        if not (both and not place.grid.upright):
            coords += coords_of(place.grid, axis_words(crs), covered)
        principal.append("spatial")
    found, said = read_geolocation(reading, names)
    coords += [coord for coord in found if all(coord.name != other.name for other in coords)]
    crs = crs or located or said
    if not principal and not _needs_none(reading) and not place.concerned and coordinate_set is None:
        message = "no principal convention is declared; there are no coordinates of its axes"
        reading.note("principal.none", "warning", "zarr_conventions", message, "declare cs or spatial")
    return Meaning(
        path=node.path,
        conventions=tuple(sorted(declared)),
        principal=tuple(principal),
        coords=tuple(coords),
        grid=place.grid,
        crs=crs,
        pyramid=None if place.pyramid is None else place.pyramid.path,
        level=place.level,
        attributes=array_units(reading),
        diagnostics=tuple(reading.notes),
    )


def _needs_none(reading: Reading) -> bool:
    """Whether an array is itself a coordinate, or a mere scalar: nobody expects axes of it."""
    node = reading.node
    return not node.shape or (len(node.shape) == 1 and node.dims == (node.name,))


def _group(reading: Reading) -> GroupMeaning:
    node = reading.node
    declared = reading.declared_by(node)
    given = properties(reading, node)
    box = numbers(given["spatial:bbox"], 4) if "spatial:bbox" in given else None
    if "spatial:bbox" in given and box is None:
        reading.note("spatial.bbox", "error", "spatial:bbox", "spatial:bbox is four finite numbers")
    pyramid = pyramid_of(reading, node)
    crs = crs_of(reading, node)
    return GroupMeaning(
        path=node.path,
        conventions=tuple(sorted(declared)),
        pyramid=pyramid,
        crs=crs or (None if pyramid is None else pyramid.crs),
        bbox=None if box is None else (box[0], box[1], box[2], box[3]),
        diagnostics=tuple(reading.notes),
    )
