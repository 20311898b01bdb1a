"""xarray indexes of affine axes and grids: `.sel`, slices and alignment as with stored labels, without the memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.core.indexing import CoordinateTransformIndexingAdapter, IndexSelResult
from xarray.indexes import CoordinateTransform, CoordinateTransformIndex, Index, PandasIndex

from periplus.engine.assemble.axis import AffineAxis
from periplus.model import Transform
from periplus.model.affine import scaled, shifted

ORDINARY = 1 << 16
"""Labels up to which an axis is an ordinary pandas index (half a mebibyte), with which all of xarray works."""


class LazyLabels(CoordinateTransformIndexingAdapter):
    """Labels that are computed when they are used."""

    @property
    def _in_memory(self) -> bool:
        # Nothing to load: otherwise `chunks=` would turn the labels into dask arrays.
        return True


class LazyIndex(CoordinateTransformIndex):
    """An index whose coordinate variables are computed when they are used."""

    def create_variables(self, variables: Mapping[Any, xr.Variable] | None = None) -> dict[Hashable, Any]:
        known = variables or {}
        made: dict[Hashable, Any] = {}
        for name in self.transform.coord_names:
            old = known.get(name)
            dims = self.transform.dims if old is None or set(old.dims) != set(self.transform.dims) else old.dims
            data = LazyLabels(self.transform, name, tuple(str(d) for d in dims))
            made[name] = xr.Variable(dims, data, *((old.attrs, old.encoding) if old is not None else ()))
        return made


class AxisTransform(CoordinateTransform):
    """An affine axis with the names of its coordinate and dimension."""

    def __init__(self, axis: AffineAxis, name: Hashable, dim: str) -> None:
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
    """Evenly spaced labels of one dimension; behaves as a pandas index of the same labels."""

    transform: AxisTransform

    @property
    def axis(self) -> AffineAxis:
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
        """Positions counted from the start; IndexError where one is out of bounds."""
        size = len(self.axis)
        if indexer.dtype.kind == "b":
            return np.flatnonzero(indexer)
        if indexer.size and (indexer.min() < -size or indexer.max() >= size):
            raise IndexError(f"a position is out of bounds for {size} labels of {self.name!r}")
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

    # Joined, concatenated or rolled labels are rarely evenly spaced: the result is an ordinary index.

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


def axis_index(axis: AffineAxis, name: Hashable, dim: str, *, lazy: bool | None = None) -> Index:
    """An index of lazy labels for a long axis, an ordinary one for a short axis; `lazy` decides where it is given."""
    if lazy if lazy is not None else len(axis) > ORDINARY:
        return AxisIndex(AxisTransform(axis, name, dim))
    return PandasIndex(pd.Index(axis.labels(), name=name), dim)


class GridTransform(CoordinateTransform):
    """Pixel centres of a rotated or sheared grid: both coordinates depend on row and column.

    `offset` is where in a pixel its coordinates are: 0.5 for the centre, 0 for the corner that the transform gives.
    """

    def __init__(
        self,
        transform: Transform,
        names: tuple[str, str],
        dims: tuple[str, str],
        rows: range,
        columns: range,
        offset: float = 0.5,
    ) -> None:
        super().__init__(names, {dims[0]: len(rows), dims[1]: len(columns)}, np.dtype(np.float64))
        self.affine, self.rows, self.columns, self.offset = transform, rows, columns, offset

    @property
    def samples(self) -> Transform:
        """The transform from numbers of the selected rows and columns to their pixel centres."""
        first = shifted(shifted(self.affine, self.offset, self.offset), self.rows.start, self.columns.start)
        return scaled(first, self.rows.step, self.columns.step)

    def forward(self, dim_positions: dict[str, Any]) -> dict[Hashable, Any]:
        a, b, c, d, e, f = self.affine
        row, column = (np.asarray(dim_positions[dim]) for dim in self.dims)
        row, column = self.rows.start + row * self.rows.step, self.columns.start + column * self.columns.step
        with np.errstate(all="ignore"):  # a transform of huge numbers gives infinite coordinates
            x = column * a + row * b + (a * self.offset + b * self.offset + c)
            y = column * d + row * e + (d * self.offset + e * self.offset + f)
        return dict(zip(self.coord_names, (x, y), strict=True))

    def reverse(self, coord_labels: dict[Hashable, Any]) -> dict[str, Any]:
        a, b, c, d, e, f = self.affine
        x, y = (np.asarray(coord_labels[name], np.float64) for name in self.coord_names)
        determinant = a * e - b * d
        column = (e * (x - c) - b * (y - f)) / determinant - self.offset
        row = (a * (y - f) - d * (x - c)) / determinant - self.offset
        places = (row - self.rows.start) / self.rows.step, (column - self.columns.start) / self.columns.step
        return dict(zip(self.dims, places, strict=True))

    def equals(self, other: CoordinateTransform, **_: Any) -> bool:
        return isinstance(other, GridTransform) and self._all() == other._all()

    def _all(self) -> tuple[Any, ...]:
        return (self.affine, self.rows, self.columns, self.dims, self.offset)


class GridIndex(LazyIndex):
    """Two coordinates over two dimensions; selects the pixels nearest to points."""

    transform: GridTransform

    def isel(self, indexers: Mapping[Any, Any]) -> Index | None:
        grid = self.transform
        parts = [indexers.get(dim, slice(None)) for dim in grid.dims]
        if not all(isinstance(part, slice) for part in parts):
            return None
        names, dims = (str(grid.coord_names[0]), str(grid.coord_names[1])), (grid.dims[0], grid.dims[1])
        rows, columns = grid.rows[parts[0]], grid.columns[parts[1]]
        return GridIndex(GridTransform(grid.affine, names, dims, rows, columns, grid.offset))

    def sel(self, labels: dict[Any, Any], method: Any = None, tolerance: Any = None) -> IndexSelResult:
        points = {name: xr.Variable((), label) if np.ndim(label) == 0 else label for name, label in labels.items()}
        result = super().sel(points, method, tolerance)
        for dim, places in result.dim_indexers.items():
            # In the base class a negative position would wrap around to the other end of the image.
            if bool(((places < 0) | (places >= self.transform.dim_size[dim])).any()):
                raise KeyError(f"not all points are on the grid of {', '.join(map(str, self.transform.coord_names))}")
        return result

    def __repr__(self) -> str:
        return f"GridIndex({', '.join(map(str, self.transform.coord_names))} over {self.transform.dim_size})"
