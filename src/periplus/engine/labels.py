"""The xarray index of an upright affine axis: `.sel`, slices and alignment as with stored labels, at no memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.core.indexing import CoordinateTransformIndexingAdapter, IndexSelResult
from xarray.indexes import CoordinateTransform, CoordinateTransformIndex, Index, PandasIndex

from periplus.engine.axis import Axis

ORDINARY = 1 << 16
"""Labels up to which an axis is an ordinary pandas index (half a mebibyte): everything xarray does works with those."""


class Labels(CoordinateTransformIndexingAdapter):
    """Labels computed when asked for."""

    @property
    def _in_memory(self) -> bool:
        # Nothing to load: otherwise `chunks=` would wrap the labels of an index in dask.
        return True


class LazyIndex(CoordinateTransformIndex):
    """An index whose coordinate variables are computed when asked for."""

    def create_variables(self, variables: Mapping[Any, xr.Variable] | None = None) -> dict[Hashable, Any]:
        known = variables or {}
        made: dict[Hashable, Any] = {}
        for name in self.transform.coord_names:
            old = known.get(name)
            dims = self.transform.dims if old is None or set(old.dims) != set(self.transform.dims) else old.dims
            data = Labels(self.transform, name, tuple(str(d) for d in dims))
            made[name] = xr.Variable(dims, data, *((old.attrs, old.encoding) if old is not None else ()))
        return made


class AxisTransform(CoordinateTransform):
    """An Axis with the names of its coordinate and dimension."""

    def __init__(self, axis: Axis, name: Hashable, dim: str) -> None:
        super().__init__([name], {dim: len(axis)}, np.dtype(np.float64))
        self.axis = axis

    def forward(self, dim_positions: dict[str, Any]) -> dict[Hashable, Any]:
        return {self.coord_names[0]: self.axis.labels(dim_positions[self.dims[0]])}

    def reverse(self, coord_labels: dict[Hashable, Any]) -> dict[str, Any]:
        return {self.dims[0]: self.axis.place(coord_labels[self.coord_names[0]])}

    def equals(self, other: CoordinateTransform, **_: Any) -> bool:
        if not isinstance(other, AxisTransform) or self.dim_size != other.dim_size:
            return False
        mine, theirs, ends = self.axis, other.axis, [0, -1]
        if mine == theirs:
            return True
        return np.array_equal(mine.labels(ends), theirs.labels(ends)) and np.array_equal(mine.labels(), theirs.labels())


class AxisIndex(LazyIndex):
    """Evenly spaced labels of one dimension; answers as a pandas index of the same labels would."""

    transform: AxisTransform

    @property
    def axis(self) -> Axis:
        return self.transform.axis

    @property
    def name(self) -> Hashable:
        return self.transform.coord_names[0]

    @property
    def dim(self) -> str:
        return self.transform.dims[0]

    def to_pandas_index(self) -> pd.Index:
        return pd.Index(self.axis.labels(), name=self.name)

    def isel(self, indexers: Mapping[Any, Any]) -> Index | None:
        indexer = indexers[self.dim]
        if isinstance(indexer, xr.Variable):
            if indexer.dims != (self.dim,):
                return None
            indexer = indexer.data
        if isinstance(indexer, slice):
            return axis_index(self.axis[indexer], self.name, self.dim)
        if np.ndim(indexer) == 0:
            return None
        places = self._places(np.asarray(indexer))
        return PandasIndex(pd.Index(self.axis.labels(places), name=self.name), self.dim)

    def _places(self, indexer: NDArray[Any]) -> NDArray[Any]:
        """Places counted from the front; IndexError where there is none. Not by a list of all: axes may be long."""
        size = len(self.axis)
        if indexer.dtype.kind == "b":
            return np.flatnonzero(indexer)
        if indexer.size and (indexer.min() < -size or indexer.max() >= size):
            raise IndexError(f"a place is out of bounds for {size} labels of {self.name!r}")
        return np.where(indexer < 0, indexer + size, indexer).astype(np.int64)

    def sel(self, labels: dict[Any, Any], method: str | None = None, tolerance: Any = None) -> IndexSelResult:
        label = labels[self.name]
        if isinstance(label, slice):
            if method is not None or tolerance is not None:
                raise NotImplementedError("cannot use ``method`` argument if any indexers are slice objects")
            start, stop = (end if end is None else float(np.asarray(end)) for end in (label.start, label.stop))
            return IndexSelResult({self.dim: self.axis.window(slice(start, stop, label.step))})
        values = np.asarray(label)
        found: Any = values
        if values.dtype.kind != "b":
            found = self.axis.locate(values, method, tolerance)
            if (found < 0).any():
                hint = "" if method else ". Try setting the `method` keyword argument (example: method='nearest')."
                raise KeyError(f"not all values found in index {self.name!r}{hint}")
        if isinstance(label, xr.Variable):
            found = xr.Variable(label.dims, found)
        elif isinstance(label, xr.DataArray):
            found = xr.DataArray(found, coords=label.coords, dims=label.dims)
        elif np.ndim(found) == 0:
            found = int(found)
        return IndexSelResult({self.dim: found})

    def reindex_like(self, other: Index, method: Any = None, tolerance: Any = None) -> dict[Hashable, Any]:
        return {self.dim: self.axis.locate(other.to_pandas_index().to_numpy(), method, tolerance)}

    # Joined, concatenated or rolled labels are evenly spaced only by luck: from here on they are an ordinary index.

    def _ordinary(self) -> PandasIndex:
        return PandasIndex(self.to_pandas_index(), self.dim)

    def join(self, other: Any, how: Any = "inner") -> Any:
        return self._ordinary().join(PandasIndex(other.to_pandas_index(), self.dim), how)

    @classmethod
    def concat(cls, indexes: Sequence[Any], dim: Hashable, positions: Iterable[Iterable[int]] | None = None) -> Any:
        return PandasIndex.concat([index._ordinary() for index in indexes], dim, positions)

    def roll(self, shifts: Mapping[Any, int]) -> Any:
        return self._ordinary().roll(shifts)

    def __repr__(self) -> str:
        first, stride = self.axis.labels([0])[0], self.axis.step * self.axis.positions.step
        return f"AxisIndex({self.name}: {len(self.axis)} labels from {first!r} by {stride!r})"


def axis_index(axis: Axis, name: Hashable, dim: str, *, lazy: bool | None = None) -> Index:
    """Lazy labels for a long axis, ordinary ones for a short axis; `lazy` says which regardless of length."""
    if lazy if lazy is not None else len(axis) > ORDINARY:
        return AxisIndex(AxisTransform(axis, name, dim))
    return PandasIndex(pd.Index(axis.labels(), name=name), dim)
