"""Coordinates of an affine grid, lazily: one a dimension where it is upright, two over both where it is turned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.core.indexing import IndexSelResult
from xarray.indexes import CoordinateTransform, Index

from periplus.engine.axis import Axis
from periplus.engine.labels import LazyIndex, axis_index
from periplus.model import Transform
from periplus.model.affine import scaled, shifted


class GridTransform(CoordinateTransform):
    """Pixel centres of a turned or sheared grid: both coordinates depend on both positions.

    `offset` says where in a pixel its place lies: in the middle, or with 0 at the corner the transform gives.
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
        """The transform whose whole rows and columns are the pixel centres of the selected rows and columns."""
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
            # The base class lets a negative place wrap around to the other end of the image.
            if bool(((places < 0) | (places >= self.transform.dim_size[dim])).any()):
                raise KeyError(f"not all points lie on the grid of {', '.join(map(str, self.transform.coord_names))}")
        return result

    def __repr__(self) -> str:
        return f"GridIndex({', '.join(map(str, self.transform.coord_names))} over {self.transform.dim_size})"


def coordinates(
    transform: Transform, dims: tuple[str, str], shape: tuple[int, int], *, lazy: bool | None = None
) -> xr.Coordinates:
    """Coordinates of pixel centres for the dimensions (y, x): one each where the grid is upright, else `xc` and `yc`.

    Fewer, or none, where the transform does not give all pixels labels of their own.
    """
    a, b, c, d, e, f = transform
    (y, x), (height, width) = dims, shape
    if b == 0 and d == 0:
        made: dict[Hashable, Any] = {}
        for name, axis in ((y, Axis.of(f, e, height)), (x, Axis.of(c, a, width))):
            if axis is not None:
                made[name] = axis_index(axis, name, name, lazy=lazy)
        variables = {name: index.create_variables()[name] for name, index in made.items()}
        return xr.Coordinates(variables, made)
    if not np.isfinite(transform).all() or a * e == b * d:
        return xr.Coordinates()
    return xr.Coordinates.from_xindex(
        GridIndex(GridTransform(transform, ("xc", "yc"), dims, range(height), range(width)))
    )
