"""Coordinates that conventions describe, as xarray variables: computed when they are used, or read from an array."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter
from xarray.indexes import Index, PandasIndex

from periplus.conventions.meaning import Affine, Coord, External, Regular, Shifted, Values
from periplus.engine.assemble.axis import AffineAxis
from periplus.engine.assemble.chunks import PreferredChunks
from periplus.engine.assemble.indexes import ORDINARY, GridIndex, GridTransform, axis_index
from periplus.engine.assemble.source import MOST_LABELS
from periplus.errors import FormatError

MOST_DECODED = 1 << 22
"""Labels that are computed into memory because xarray must decode them, such as times."""
Fetcher: TypeAlias = Callable[[External], xr.Variable]
"""Returns the variable of another array, not decoded."""


@dataclass(frozen=True, slots=True)
class MadeCoordinate:
    """A coordinate as a variable."""

    variable: xr.Variable
    index: Index | None = None
    """Its index, if it has one; the variable is not decoded then."""


class ComputedArray(BackendArray):
    """Values that `_at` computes for a key of integers, slices and lists, when they are used."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._at)

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        return await asyncio.to_thread(self.__getitem__, key)

    def _at(self, key: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class Bounds(ComputedArray):
    """Boundaries (n, 2) of coordinates, each plus a lower and an upper offset, computed when they are used."""

    def __init__(self, base: AffineAxis | xr.Variable, lower: float, upper: float) -> None:
        self.base, self.offsets = base, np.asarray([lower, upper], np.float64)
        self.shape, self.dtype = (len(base), 2), np.dtype(np.float64)

    def _at(self, key: tuple[Any, ...]) -> Any:
        rows, side = key
        if isinstance(self.base, AffineAxis):
            places = np.arange(*rows.indices(len(self.base))) if isinstance(rows, slice) else np.asarray(rows)
            labels: Any = self.base.labels(places)
        else:
            labels = np.asarray(self.base[rows].values, np.float64)
        return np.add.outer(labels, self.offsets[side])


def make(coord: Coord, dims: tuple[str, ...], fetch: Fetcher, *, lazy: bool | None = None) -> MadeCoordinate:
    """The variable of a coordinate over dimensions of these names; FormatError where it cannot be made."""
    values, attributes = coord.values, dict(coord.attributes)
    if isinstance(values, External):
        return MadeCoordinate(_external(coord, values, dims, fetch))
    if isinstance(values, Regular) and len(dims) == 1:
        return _regular(coord.name, values, dims[0], attributes, lazy)
    if isinstance(values, Shifted) and (base := _shifted_base(values, fetch)) is not None:
        return MadeCoordinate(
            xr.Variable(dims, LazilyIndexedArray(Bounds(base, values.lower, values.upper)), attributes)
        )
    count = _count(values)
    if count > MOST_DECODED:
        raise FormatError(f"{count} values would have to be computed into memory")
    found: Any = values.values()
    if not dims and found.ndim:
        if found.size != 1:
            raise FormatError(f"a scalar coordinate has {found.size} values")
        found = found.reshape(())
    if found.ndim != len(dims):
        raise FormatError(f"values of {found.ndim} dimensions do not fit the dimensions {dims}")
    if found.dtype.kind == "O":
        raise FormatError("values are neither all numbers nor all strings")
    return MadeCoordinate(xr.Variable(dims, found, attributes))


def grid_pair(x: Coord, y: Coord, dims: tuple[str, str], names: tuple[str, str]) -> dict[Hashable, MadeCoordinate]:
    """Both coordinates of a rotated grid, lazy and with one index; `names` are those of x and y."""
    values = x.values
    if not isinstance(values, Affine):
        raise TypeError("the coordinates of a rotated grid must be affine")
    rows, columns = (range(n) for n in values.shape)
    index = GridIndex(GridTransform(values.transform, names, dims, rows, columns, values.offset))
    variables = index.create_variables()
    for name, coord in zip(names, (x, y), strict=True):
        variables[name].attrs.update(coord.attributes)
    return {name: MadeCoordinate(variables[name], index) for name in names}


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Whether numbers are times, which xarray decodes."""
    units = attributes.get("units")
    return isinstance(units, str) and " since " in units


def _axis(values: Regular) -> AffineAxis | None:
    try:
        return AffineAxis.of(float(values.start), float(values.step), values.count, values.offset)
    except OverflowError:
        return None


def _shifted_base(values: Shifted, fetch: Fetcher) -> AffineAxis | xr.Variable | None:
    """What boundaries are computed from when they are used; None where they are computed at once."""
    if isinstance(values.base, Regular):
        return _axis(values.base) if values.base.count > ORDINARY else None
    if isinstance(values.base, External):
        # Offsets have the units of the labels, so packed labels are unpacked first; times stay numbers.
        return xr.conventions.decode_cf_variable("labels", fetch(values.base), decode_times=False)
    return None


def _regular(name: str, values: Regular, dim: str, attributes: dict[str, Any], lazy: bool | None) -> MadeCoordinate:
    """An affine axis for many floats, a range for integers."""
    if is_time(attributes) and values.count <= MOST_DECODED:
        return MadeCoordinate(xr.Variable((dim,), values.values(), attributes))
    whole = all(isinstance(v, int) for v in (values.start, values.step)) and values.offset == 0
    index: Index | None = None
    if whole and _fits(values):
        start, step = int(values.start), int(values.step)
        index = PandasIndex(pd.RangeIndex(start, start + step * values.count, step, name=name), dim)
    elif (axis := _axis(values)) is not None:
        index = axis_index(axis, name, dim, lazy=lazy)
    if index is None:
        raise FormatError(f"{values.count} labels from {values.start} by {values.step} are not all different")
    variable = index.create_variables()[name]
    variable.attrs.update(attributes)
    if name != dim:
        # Only a coordinate with the name of its dimension has an index; keep the labels alone.
        return MadeCoordinate(variable.to_base_variable())
    return MadeCoordinate(variable, index)


def _fits(values: Regular) -> bool:
    last = int(values.start) + int(values.step) * values.count
    return values.step != 0 and max(abs(int(values.start)), abs(last)) < 1 << 62


def _count(values: Values) -> int:
    if isinstance(values, Shifted):
        return 2 * _count(values.base)
    if isinstance(values, Regular):
        return values.count
    return values.shape[0] * values.shape[1] if isinstance(values, Affine) else 0


def _external(coord: Coord, values: External, dims: tuple[str, ...], fetch: Fetcher) -> xr.Variable:
    variable = fetch(values)
    if values.transpose:
        variable = variable.transpose()
    while variable.ndim > len(dims):
        # A scalar coordinate may be stored as an array of one.
        single = next((dim for dim, size in variable.sizes.items() if size == 1), None)
        if single is None:
            raise FormatError(f"it has the dimensions {variable.dims}, not {dims}")
        variable = variable.isel({single: 0})
    if variable.ndim != len(dims):
        raise FormatError(f"it has {variable.ndim} dimensions, not {len(dims)}")
    if dims == (coord.name,) and variable.nbytes > MOST_LABELS:
        raise FormatError(f"{variable.size} labels are too many for an index")
    return renamed(variable, dims, {**variable.attrs, **coord.attributes})


def renamed(variable: xr.Variable, dims: tuple[str, ...], attributes: Mapping[str, Any] | None = None) -> xr.Variable:
    """The variable with renamed dimensions; its data stay lazy, and its encoding is kept."""
    names = dict(zip(variable.dims, dims, strict=True))
    encoding = dict(variable.encoding)
    chunks = encoding.get("preferred_chunks")
    if isinstance(chunks, PreferredChunks):
        encoding["preferred_chunks"] = chunks.renamed(names)
    elif chunks is not None:
        encoding["preferred_chunks"] = {names.get(dim, dim): size for dim, size in chunks.items()}
    made = variable.copy(deep=False)
    made.dims, made.encoding = dims, encoding
    if attributes is not None:
        made.attrs = dict(attributes)
    return made
