"""Variables that are known to fit together as one Dataset, without the alignment that xarray would try first."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import xarray as xr
from xarray.indexes import Index


def joined(
    data: Mapping[Hashable, xr.Variable],
    coords: Mapping[Hashable, xr.Variable],
    indexes: Mapping[Hashable, Index],
    attributes: Mapping[Any, Any],
) -> xr.Dataset:
    """What `xr.Dataset(data, xr.Coordinates(coords, indexes), attributes)` is; that raises where they do not fit."""
    sizes: dict[Hashable, int] = {}
    fit = data.keys().isdisjoint(coords)
    for variable in (*data.values(), *coords.values()):
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            fit = fit and sizes.setdefault(dim, size) == size
    # A name of a dimension is for its labels only.
    fit = fit and all(name not in sizes for name in data)
    fit = fit and all(name not in sizes or variable.dims == (name,) for name, variable in coords.items())
    # Not a public name of xarray: where it is gone, the ordinary way takes a little longer.
    construct = getattr(xr.Dataset, "_construct_direct", None)
    if not fit or construct is None:
        return xr.Dataset(data, xr.Coordinates(coords, indexes), attributes)
    variables = dict(data)
    for name, variable in coords.items():
        variables[name] = variable if name in indexes else variable.to_base_variable()
    made: xr.Dataset = construct(
        variables, set(coords), dims=sizes, attrs=dict(attributes) or None, indexes=dict(indexes)
    )
    return made
