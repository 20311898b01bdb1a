"""GeoZarr attributes of an index's arrays and groups: multiscales, spatial and proj, as deployed readers accept them.

Arrays and the groups of levels have their grid, and the CRS as WKT2 and code; the group of a pyramid has the layout of
its levels, the footprint, and the CRS as PROJJSON too. A CRS unknown to PROJ is only in the grid mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from periplus.conventions.proj.crs import describe_crs
from periplus.conventions.write.attributes import (
    Layer,
    declare,
    multiscales_attributes,
    proj_attributes,
    pyramid_footprint,
    spatial_attributes,
    written_bbox,
)
from periplus.conventions.write.attributes import as_grid as grid_of
from periplus.errors import FormatError
from periplus.model import Array, Georeference
from periplus.table.query.footprint import affine, bounds, spatial_axes

KEYS = {"multiscales": "multiscales", "spatial": "spatial:", "proj": "proj:"}


def place(array: Array) -> dict[str, Any]:
    """The georeference as attributes of an array, or of the group of one level."""
    return _declared({**_spatial(array), **_proj(array)})


def pyramid(levels: Sequence[Array], names: Sequence[str]) -> dict[str, Any]:
    """Attributes of the group that holds an image's levels; `names` are their groups in it, the finest first."""
    around = pyramid_footprint(_spatial(levels[0]))
    return _declared({**_multiscales(levels, names), **around, **_proj(levels[0], full=True)})


def footprint(arrays: Iterable[Array]) -> dict[str, Any]:
    """Attributes of the root of many images: the box around them and their CRS, where they are all of one."""
    placed = [array for array in arrays if _spatial(array)]
    texts = {array.georeference.crs for array in placed if array.georeference is not None}
    boxes = [box for array in placed if (box := bounds(array)) is not None]
    if len(texts) != 1 or not boxes:
        return {}
    columns = list(zip(*boxes, strict=True))
    around = [*map(min, columns[:2]), *map(max, columns[2:])]
    return _declared({"spatial:bbox": [float(v) for v in around], **_proj(placed[0], full=True)})


def _declared(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with the declaration of every convention whose keys they have."""
    names = [name for name, start in KEYS.items() if any(key.startswith(start) for key in attributes)]
    return {**declare(*names), **attributes} if names else {}


def _spatial(array: Array) -> dict[str, Any]:
    """The spatial keys of an array with a transform; empty for one without."""
    transform, axes = affine(array), spatial_axes(array)
    if transform is None or axes is None or array.georeference is None or not all(map(math.isfinite, transform)):
        return {}
    size, dims = (array.shape[axes[0]], array.shape[axes[1]]), (array.dims[axes[0]], array.dims[axes[1]])
    grid = grid_of(array.georeference, size, dims)
    if grid is None or 0 in size or not all(map(math.isfinite, written_bbox(grid))):
        return {}
    return spatial_attributes(grid, array.shape, array.dims, spatial_dims=dims)


def _proj(array: Array, *, full: bool = False) -> dict[str, Any]:
    text = None if array.georeference is None else array.georeference.crs
    if text is None:
        return {}
    try:
        describe_crs(text)
    except FormatError:
        return {}
    attributes = proj_attributes(text)
    return attributes if full else {key: value for key, value in attributes.items() if key != "proj:projjson"}


def _multiscales(levels: Sequence[Array], names: Sequence[str]) -> dict[str, Any]:
    """The layout of levels; empty where they differ in rank, since such arrays are not one image."""
    if len({array.ndim for array in levels}) != 1:
        return {}
    places = [_spatial(array) for array in levels]
    bare = [_layer(array, where) for array, where in zip(levels, places, strict=True)]
    attributes = multiscales_attributes(list(zip(names, bare, strict=True)))
    for item, where in zip(attributes["multiscales"]["layout"], places, strict=True):
        if not where:
            item.pop("spatial:shape", None)
    return attributes


def _layer(array: Array, where: Mapping[str, Any]) -> Layer:
    """An array for the layout, with the georeference of its attributes."""
    return Layer(
        name=array.name,
        dims=array.dims,
        shape=array.shape,
        level=array.level,
        georeference=Georeference(transform=tuple(where["spatial:transform"])) if where else None,
        spatial_dims=tuple(where["spatial:dimensions"]) if where else None,
    )
