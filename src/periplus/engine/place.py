"""Where a Dataset lies on Earth: labels of x and y, and the CRS as the grid mapping that `.rio` reads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Container, Hashable
from typing import Any

import xarray as xr

from periplus.conventions.cf.encode import control_points
from periplus.conventions.proj.crs import axis_attributes, grid_mapping
from periplus.engine.grid import coordinates
from periplus.errors import FormatError
from periplus.model import Array, Georeference

GRID_MAPPING = "spatial_ref"
COORDS = ("auto", "lazy", "memory", "none")
_LAZY = {"auto": None, "lazy": True, "memory": False}


def locate(
    dataset: xr.Dataset, array: Array, dims: tuple[str, ...], *, coords: str = "auto", drop: Container[str] = ()
) -> xr.Dataset:
    """The Dataset with the coordinates that the array's georeference gives; `dims` are its dimensions there."""
    place = array.georeference
    if place is None:
        return dataset
    attributes, axes = _mapping(place)
    variables: dict[Hashable, Any] = {GRID_MAPPING: xr.Variable((), 0, attributes)}
    indexes: dict[Hashable, Any] = {}
    if place.transform is not None and coords != "none" and array.ndim >= 2:
        y, x = dims[-2:]
        made = coordinates(place.transform, (y, x), (array.shape[-2], array.shape[-1]), lazy=_LAZY[coords])
        variables |= made.variables
        indexes = dict(made.xindexes)
        for name, axis in ((x, "x"), (y, "y"), ("xc", "x"), ("yc", "y")):
            if name in made:
                variables[name].attrs.update(axes.get(axis, {}))
    wanted = [name for name in variables if name not in drop and name not in dataset.variables]
    return dataset.assign_coords(
        xr.Coordinates(
            {name: variables[name] for name in wanted}, {name: indexes[name] for name in wanted if name in indexes}
        )
    )


def _mapping(place: Georeference) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Attributes of the grid mapping, and of the axes."""
    axes: dict[str, dict[str, str]] = {}
    try:
        attributes = grid_mapping(place.crs, place.transform)
        if place.crs is not None:
            axes = axis_attributes(place.crs)
    except FormatError as error:
        # Pixels can be read without a CRS; the user must hear of it, and still find what the file said.
        warnings.warn(f"the CRS is left out: {error.message}", UserWarning, stacklevel=2)
        attributes = {**grid_mapping(None, place.transform), "unknown_crs": place.crs}
    if place.gcps:
        attributes["gcps"] = control_points(place.gcps)
    if place.rpc is not None:
        attributes["rpc"] = json.dumps(dict(place.rpc), default=str)
    return attributes, axes
