"""The content of an index apart from rows and files: arrays, coordinates, attributes, placements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.model.arrays import MOST_LEVELS, Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinate:
    """Values along a dimension that no affine gives, such as time."""

    name: str
    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """Where the arrays of files went, as columns: one row for each file and array of it."""

    file: NDArray[np.int32]
    """Row of the files table that holds the bytes."""
    description: NDArray[np.int32]
    """Number of the array, as it is in the file, in `descriptions`."""
    array: NDArray[np.int32]
    """Number of the target array in `arrays`; -1 for an array of the file that is in none."""
    origin: NDArray[np.int64]
    """(n, most dimensions): first element in the target along each of its dimensions; 0 beyond them."""
    extent: NDArray[np.int64]
    """(n, most dimensions): elements of the target that it covers, likewise."""
    order: NDArray[np.int64]
    """Where placements of one array overlap, higher numbers cover lower ones."""
    corner: NDArray[np.float64]
    """(n, 2): x and y of the file's transform; NaN where it has none."""
    descriptions: Sequence[Array]
    """Arrays as they are in files, their transforms beginning at (0, 0)."""
    arrays: Sequence[str]

    def __len__(self) -> int:
        return len(self.file)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """The content of an index apart from its rows and files."""

    arrays: Mapping[str, Array]
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    """By path: `time` is for all arrays, `utm33/time` for those in that group; see `coordinates_of`."""
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of groups, by path; the root is the empty string."""
    arrangement: Mapping[str, Any] = field(default_factory=dict)
    """How files were arranged, for example {"kind": "stack", "dim": "time"}."""
    _scopes: dict[str, dict[str, Coordinate]] = field(init=False, repr=False)
    """Coordinates by group and name."""

    def __post_init__(self) -> None:
        scopes: dict[str, dict[str, Coordinate]] = {}
        for path, coordinate in self.coordinates.items():
            group, _, name = path.rpartition("/")
            scopes.setdefault(group, {})[name] = coordinate
        object.__setattr__(self, "_scopes", scopes)

    @property
    def scopes(self) -> Collection[str]:
        """The groups that have coordinates of their own; the root is the empty string."""
        return self._scopes.keys()

    def coordinates_of(self, array: Array) -> dict[str, Coordinate]:
        """The coordinates of an array by name: those in its group or the nearest above, whose dimensions it all has."""
        found: dict[str, Coordinate] = {}
        group = array.name if self._scopes else ""
        while group:
            group = group.rpartition("/")[0]
            for name, coordinate in self._scopes.get(group, {}).items():
                if name not in found and set(coordinate.dims) <= set(array.dims):
                    found[name] = coordinate
        return found

    def levels(self, pyramid: str) -> list[Array]:
        """The levels of the image that is named so, from full resolution down; none where there is no such image."""
        above, _, leaf = pyramid.rpartition("/")
        folder = above + "/" if above else ""
        names = [pyramid, *(f"{folder}{number}/{leaf}" for number in range(MOST_LEVELS))]
        found = [array for name in names if (array := self.arrays.get(name)) is not None and array.pyramid == pyramid]
        return sorted(found, key=lambda array: array.level)

    def pyramids(self) -> dict[str, list[Array]]:
        """Arrays grouped by image, each list ordered from full resolution down."""
        groups: dict[str, list[Array]] = {}
        for array in self.arrays.values():
            groups.setdefault(array.pyramid, []).append(array)
        return {name: sorted(levels, key=lambda a: a.level) for name, levels in groups.items()}
