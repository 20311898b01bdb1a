"""A Dataset while it is put together: its variables so far, what each name stands for, how long each dimension is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from periplus.conventions.meaning import Coord, External
from periplus.engine.xgroup.coordinates import Made, renamed


class Draft:
    """Variables by name; every name means one thing, and every dimension has one size."""

    def __init__(self, arrays: Mapping[str, str]) -> None:
        self.arrays = dict(arrays)
        """Paths of the arrays of the group itself, by their names."""
        self.names = {path: name for name, path in self.arrays.items()}
        self.raw: dict[str, xr.Variable] = {}
        """Variables as they are stored, to be decoded."""
        self.ready: dict[str, Made] = {}
        """Coordinates that have an index already."""
        self.origins: dict[str, Any] = {}
        """What each name stands for, to tell whether another means the same."""
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
        """The name of the array of this group that a coordinate is."""
        values = coord.values
        if not isinstance(values, External) or values.reference.uri is not None:
            return None
        return self.names.get(values.reference.path)

    def stores_labels(self, name: str, dims: tuple[str, ...]) -> bool:
        """Whether the group itself stores labels of this dimension: they are what other readers see."""
        return name in self.arrays and name in self.raw and self.raw[name].dims == dims == (name,)

    def same(self, description: Any, dims: tuple[str, ...]) -> str | None:
        """The coordinate that is the same array along the same dimensions, by whatever name."""
        if not isinstance(description, tuple):
            return None
        names = (name for name in self.raw if name in self.coords and self.origins.get(name) == description)
        return next((name for name in names if self.raw[name].dims == dims and dims != (name,)), None)

    def put(self, name: str, made: Made, description: Any) -> None:
        """A coordinate by a name that is free."""
        self.origins[name] = description
        self.coords.add(name)
        if made.index is not None:
            self.ready[name] = made
        else:
            self.raw[name] = made.variable

    def describe(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes that a convention gives to an array of this group."""
        self.before.setdefault(name, self.raw[name].attrs)
        self.raw[name].attrs = {**self.raw[name].attrs, **attributes}

    def forget(self, name: str) -> str:
        """Leave out an array of the group; answers its path."""
        path = self.arrays.pop(name)
        self.names.pop(path)
        return path

    def fitted(self, name: str, made: Made) -> Made:
        """The coordinate with dimensions of its own where those it brings along are taken by others."""
        variable = made.variable
        dims = tuple(
            str(dim) if self.sizes.setdefault(str(dim), size) == size else f"{name}_{dim}"
            for dim, size in variable.sizes.items()
        )
        if dims == variable.dims:
            return made
        self.sizes |= dict(zip(dims, variable.shape, strict=True))
        return Made(renamed(variable, dims))
