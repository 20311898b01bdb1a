"""A Dataset under construction: its variables so far, what each name refers to, and the size of each dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import xarray as xr

from periplus.conventions.meaning import Coord, External
from periplus.engine.assemble.coordinates import MadeCoordinate, renamed


class DatasetDraft:
    """Variables by name; every name refers to one thing, and every dimension has one size."""

    def __init__(self, arrays: Mapping[str, str]) -> None:
        self.arrays = dict(arrays)
        """Paths of the arrays of the group itself, by their names."""
        self.names = {path: name for name, path in self.arrays.items()}
        self.raw: dict[str, xr.Variable] = {}
        """Variables as stored, to be decoded."""
        self.ready: dict[str, MadeCoordinate] = {}
        """Coordinates that have an index already, and grid mappings; they are not decoded."""
        self.origins: dict[str, Any] = {}
        """What each name refers to, to recognise a coordinate that is already there."""
        self.sizes: dict[str, int] = {}
        """Of dimensions."""
        self.coords: set[str] = set()
        """Names that are coordinates."""
        self.before: dict[str, Mapping[Any, Any]] = {}
        """Attributes of arrays of the group before a convention added to them."""

    def holds(self, name: str) -> bool:
        return name in self.raw or name in self.ready

    def variable(self, name: str) -> xr.Variable:
        return self.ready[name].variable if name in self.ready else self.raw[name]

    def own(self, coord: Coord) -> str | None:
        """The name of the array of this group that a coordinate refers to."""
        values = coord.values
        if not isinstance(values, External) or values.reference.uri is not None:
            return None
        return self.names.get(values.reference.path)

    def stores_labels(self, name: str, dims: tuple[str, ...]) -> bool:
        """Whether the group itself stores labels of this dimension, which other readers use."""
        return name in self.arrays and name in self.raw and self.raw[name].dims == dims == (name,)

    def same(self, origin: Any, dims: tuple[str, ...]) -> str | None:
        """The name of the coordinate that is the same array along the same dimensions."""
        if not isinstance(origin, tuple):
            return None
        names = (name for name in self.raw if name in self.coords and self.origins.get(name) == origin)
        return next((name for name in names if self.raw[name].dims == dims and dims != (name,)), None)

    def put(self, name: str, made: MadeCoordinate, origin: Any) -> None:
        """Add a coordinate under a free name."""
        self.origins[name] = origin
        self.coords.add(name)
        if made.index is not None:
            self.ready[name] = made
        else:
            self.raw[name] = made.variable

    def describe(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes that a convention gives to an array of this group."""
        self.before.setdefault(name, self.raw[name].attrs)
        self.raw[name].attrs = {**self.raw[name].attrs, **attributes}

    def remove(self, name: str) -> str:
        """Leave out an array of the group; returns its path."""
        path = self.arrays.pop(name)
        self.names.pop(path)
        return path

    def fitted(self, name: str, made: MadeCoordinate) -> MadeCoordinate:
        """The coordinate with renamed dimensions where others of that name have another size."""
        variable = made.variable
        dims = tuple(
            str(dim) if self.sizes.setdefault(str(dim), size) == size else f"{name}_{dim}"
            for dim, size in variable.sizes.items()
        )
        if dims == variable.dims:
            return made
        self.sizes |= dict(zip(dims, variable.shape, strict=True))
        return MadeCoordinate(renamed(variable, dims))


def is_axis(coord: Coord) -> bool:
    """Whether it labels the dimension of its name."""
    return coord.role == "axis" and len(coord.dims) == 1 and coord.name == coord.dims[0]


def origin_of(coord: Coord) -> Any:
    """Equal for coordinates of the same values, as far as that is known without reading them."""
    values = coord.values
    if isinstance(values, External):
        return ("path", values.reference.uri, values.reference.path)
    return values


def in_store(coord: Coord, uri: str) -> Coord:
    """A coordinate of a node in another store, with its reference pointing into that store."""
    values = coord.values
    if not isinstance(values, External) or values.reference.uri is not None:
        return coord
    return replace(coord, values=replace(values, reference=replace(values.reference, uri=uri)))
