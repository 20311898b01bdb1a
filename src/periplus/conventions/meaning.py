"""The meaning of attributes as plain data: coordinates (described, not computed), grids, CRS and levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.diagnostic import Diagnostic
from periplus.model import BBox, Transform
from periplus.model.affine import box, shifted

# --- values ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Regular:
    """Value of item i is start + step * (i + offset): pixel centres have offset 0.5, which avoids rounding."""

    start: float
    step: float
    count: int
    offset: float = 0.0

    def values(self) -> NDArray[Any]:
        """All of them; integers where start, step and offset are."""
        whole = isinstance(self.start, int) and isinstance(self.step, int) and self.offset == 0
        places: NDArray[Any] = np.arange(self.count, dtype=np.int64 if whole else np.float64)
        return np.asarray(self.start + self.step * (places if whole else places + self.offset))


@dataclass(frozen=True, slots=True)
class Explicit:
    """A list of values, nested where there are several dimensions. Numbers or strings."""

    items: tuple[Any, ...]

    def values(self) -> NDArray[Any]:
        return np.asarray(self.items)


@dataclass(frozen=True, slots=True)
class Shifted:
    """Boundaries: (n, 2), each coordinate of `base` plus a lower and an upper offset."""

    base: Regular | Explicit | External
    lower: float
    upper: float

    def values(self, base: NDArray[Any] | None = None) -> NDArray[Any]:
        """All of them; `base` are the values of the coordinate where they are stored in another array."""
        if base is None:
            if isinstance(self.base, External):
                raise TypeError("pass the values of the other array")
            base = self.base.values()
        return np.asarray(base[:, None] + np.asarray([self.lower, self.upper]))


@dataclass(frozen=True, slots=True)
class Affine:
    """One coordinate of a rotated grid, over (rows, columns): x = a*column + b*row + c or y = d*column + e*row + f."""

    transform: Transform
    axis: Literal["x", "y"]
    shape: tuple[int, int]
    """(rows, columns)."""
    offset: float = 0.5
    """Added to rows and columns: 0.5 where the transform is that of pixel corners, 0 where it is of nodes."""

    def values(self) -> NDArray[np.float64]:
        a, b, c = self.transform[:3] if self.axis == "x" else self.transform[3:]
        rows, columns = (np.arange(n, dtype=np.float64) + self.offset for n in self.shape)
        return np.asarray(c + a * columns[None, :] + b * rows[:, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another node, perhaps of another store, perhaps something within its metadata document."""

    path: str
    """Absolute in its store."""
    uri: str | None = None
    """Of the other store; None for this one."""
    attribute: str | None = None
    """JSON pointer into the document of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """Values of another array."""

    reference: Reference
    dims: tuple[str, ...]
    """Dimensions the values have for the array that uses them, in the order they are stored in."""
    shape: tuple[int, ...] = ()
    transpose: bool = False
    """Whether the stored axes must be reversed to fit the dims of the coordinate: boundaries stored as (2, n)."""


Values: TypeAlias = Regular | Explicit | Shifted | Affine | External
Role: TypeAlias = Literal["axis", "auxiliary", "scalar", "bounds", "term", "geolocation", "ancillary", "grid_mapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coord:
    """A variable that belongs to an array as a coordinate (or as related data, if `ancillary`)."""

    name: str
    """Its name; unique among the coordinates of one array."""
    dims: tuple[str, ...]
    """Of the variable: () for a scalar; boundaries end with the dimension of their vertices, `bnds`."""
    values: Values
    role: Role = "axis"
    convention: str = ""
    """The convention that describes it."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """CF attributes: units, calendar, axis, standard_name, positive, bounds, formula_terms. They override the
    attributes of the node itself where the values are external."""


# --- place ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """An affine grid over two dimensions of an array, as the spatial convention declares it."""

    dims: tuple[str, str]
    """(y, x), whatever their order in the array."""
    shape: tuple[int, int]
    """(height, width)."""
    transform: Transform
    """Of pixel corners where registration is `pixel`, of the samples themselves where it is `node`."""
    registration: Literal["pixel", "node"] = "pixel"

    @property
    def corner(self) -> Transform:
        """The transform of pixel corners, as periplus.model.Georeference has it."""
        return self.transform if self.registration == "pixel" else shifted(self.transform, -0.5, -0.5)

    @property
    def centre(self) -> Transform:
        """The transform whose whole numbers are the places of samples."""
        return self.transform if self.registration == "node" else shifted(self.transform, 0.5, 0.5)

    @property
    def bbox(self) -> BBox:
        """Outer edges of all cells, also those around nodes; x before y."""
        return edges(self.corner, self.shape)

    @property
    def upright(self) -> bool:
        """Whether x depends on columns and y on rows alone."""
        return self.transform[1] == 0 and self.transform[3] == 0

    @property
    def transposed(self) -> Grid:
        """The same grid with its rows along the dimension of its columns, and its columns along that of its rows."""
        (y, x), (height, width), (a, b, c, d, e, f) = self.dims, self.shape, self.transform
        return replace(self, dims=(x, y), shape=(width, height), transform=(b, a, c, e, d, f))

    def over(self, dims: tuple[str, str]) -> Grid | None:
        """The same grid with rows and columns along these dimensions; None where it is over others."""
        return self if dims == self.dims else self.transposed if dims == self.dims[::-1] else None


def edges(transform: Transform, shape: tuple[int, int]) -> BBox:
    """(xmin, ymin, xmax, ymax) around rows and columns 0 to the end, by the transform of corners."""
    height, width = shape
    return box(transform, 0, 0, width, height)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrsText:
    """A coordinate reference system as a store declares it; conventions.proj parses the text."""

    text: str
    """Text for PROJ: the WKT2, else the code, else the PROJJSON."""
    form: Literal["wkt2", "code", "projjson", "cf"]
    code: str | None = None
    """The authority code, if one is declared and agrees."""
    origin: str = "/"
    """Path of the node that declares it."""


# --- levels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One resolution of a pyramid."""

    asset: str
    """As in the layout, relative to the pyramid's group: `0`, `1/data`, `.`."""
    path: str
    """Absolute."""
    kind: Literal["group", "array", "missing"]
    order: int
    """0 is the finest; by resolution, since layouts have no fixed order."""
    derived_from: str | None = None
    """Path of the level it was made from."""
    factors: tuple[float, float] | None = None
    """How much larger its pixels are than those of the finest level, (y, x); None where it is unknown."""
    grid: Grid | None = None
    absolute: bool = False
    """Whether the layout itself declares the transform, which overrides arrays and level groups."""
    shape: tuple[int, int] | None = None
    """(height, width) where known, from the arrays or from the layout."""
    arrays: Mapping[str, str] = field(default_factory=dict)
    """Variables to paths of their arrays at this level."""
    resampling: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pyramid:
    """The levels of a multiscales group, from fine to coarse."""

    path: str
    levels: tuple[Level, ...]
    crs: CrsText | None = None
    resampling: str | None = None

    def level_of(self, array: str) -> Level | None:
        """The level an array belongs to, by its path."""
        return next((level for level in self.levels if array in level.arrays.values()), None)


# --- the whole ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How stored embeddings are converted: stored * scale + offset. A scale that is not finite means nodata."""

    scale: float | External
    offset: float = 0.0
    dtype: str = "float32"
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of one array by all conventions."""

    path: str
    conventions: tuple[str, ...] = ()
    """Names of those declared for it, by itself or by a group it inherits from."""
    principal: tuple[str, ...] = ()
    """Those that gave coordinates of its axes: `cs`, `spatial`, `dimensions`; empty where none did."""
    coords: tuple[Coord, ...] = ()
    grid: Grid | None = None
    crs: CrsText | None = None
    pyramid: str | None = None
    """Path of the multiscales group it belongs to."""
    level: Level | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Override its own: `units` from uom, attributes in which names replace paths."""
    quantization: Quantization | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeaning:
    """The meaning of one group by all conventions."""

    path: str
    conventions: tuple[str, ...] = ()
    pyramid: Pyramid | None = None
    crs: CrsText | None = None
    bbox: BBox | None = None
    """The footprint that the group declares, as written."""
    embedding: Mapping[str, Any] | None = None
    """The properties of tessera or geoemb, without prefix, under `convention` which of them."""
    diagnostics: tuple[Diagnostic, ...] = ()
