"""GeoZarr attributes of an index's arrays and groups: multiscales, spatial and proj, as deployed readers accept them.

Written for the v0.1 schemas: bare names, uuids first. `scale` has one entry for each dimension of the array (GDAL looks
for that), relative to the level before and equal to the ratio of sizes; `translation` is zero, as pixel corners agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from periplus.conventions.proj import describe_crs
from periplus.errors import FormatError
from periplus.model import Array, BBox, Transform
from periplus.table.footprint import affine, corners, spatial_axes

_RAW, _BLOB = "https://raw.githubusercontent.com/zarr-conventions", "https://github.com/zarr-conventions"


def _declared(name: str, uuid: str, description: str) -> dict[str, str]:
    return {
        "uuid": uuid,
        "name": name,
        "schema_url": f"{_RAW}/{name}/refs/tags/v0.1/schema.json",
        "spec_url": f"{_BLOB}/{name}/blob/v0.1/README.md",
        "description": description,
    }


MULTISCALES = _declared("multiscales", "d35379db-88df-4056-af3a-620245f8e347", "Multiscale layout of zarr datasets")
SPATIAL = _declared("spatial", "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information")
PROJ = _declared(
    "proj", "f17cb550-5864-4468-aeb7-f3180cfb622f", "Coordinate reference system information for geospatial data"
)
BY_PREFIX = {"multiscales": MULTISCALES, "spatial:": SPATIAL, "proj:": PROJ}


def declared(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with the declaration of every convention whose keys they have."""
    found = [
        convention
        for prefix, convention in BY_PREFIX.items()
        if any(key == prefix or (prefix.endswith(":") and key.startswith(prefix)) for key in attributes)
    ]
    return {"zarr_conventions": [dict(one) for one in found], **attributes} if found else dict(attributes)


def spatial(array: Array) -> dict[str, Any]:
    """The spatial keys of an array with a transform; empty for one without."""
    transform, axes = affine(array), spatial_axes(array)
    if transform is None or axes is None or array.georeference is None:
        return {}
    height, width = array.shape[axes[0]], array.shape[axes[1]]
    if not height or not width or not all(map(math.isfinite, transform)):
        return {}
    node = array.georeference.registration == "point"
    said = _centred(transform) if node else transform
    return {
        "spatial:dimensions": [array.dims[axes[0]], array.dims[axes[1]]],
        "spatial:transform_type": "affine",
        "spatial:transform": [float(v) for v in said],
        "spatial:shape": [height, width],
        "spatial:bbox": _box(said, height - node, width - node),
        "spatial:registration": "node" if node else "pixel",
    }


def _centred(transform: Transform) -> Transform:
    """The transform of samples: that of pixel corners moved by half a pixel."""
    a, b, c, d, e, f = transform
    return a, b, c + (a + b) / 2, d, e, f + (d + e) / 2


def _box(transform: Transform, rows: int, columns: int) -> list[float]:
    box: BBox = corners(transform, 0, 0, columns, rows)
    return [float(v) for v in box]


def proj(array: Array, *, full: bool = False) -> dict[str, Any]:
    """The CRS as WKT2 and, where it has one, its code; PROJJSON too where `full`. Empty where none is known."""
    text = None if array.georeference is None else array.georeference.crs
    if text is None:
        return {}
    try:
        crs = describe_crs(text)
    except FormatError:  # the grid mapping says what the file had
        return {}
    said: dict[str, Any] = {} if crs.code is None else {"proj:code": crs.code}
    said["proj:wkt2"] = crs.wkt2
    if full:
        said["proj:projjson"] = dict(crs.projjson)
    return said


def multiscales(levels: Sequence[Array], names: Sequence[str]) -> dict[str, Any]:
    """The layout of one image's levels, from full resolution down; `names` are their groups, relative to the pyramid's.

    Where the levels differ in rank there is no layout: such arrays are not one image.
    """
    if len({array.ndim for array in levels}) != 1:
        return {}
    layout: list[dict[str, Any]] = []
    for k, (array, name) in enumerate(zip(levels, names, strict=True)):
        item: dict[str, Any] = {"asset": name}
        if k:
            item["derived_from"] = names[k - 1]
        item["transform"] = {"scale": _ratio(levels[max(k - 1, 0)], array), "translation": [0.0] * array.ndim}
        where = spatial(array)
        layout.append(item | {key: where[key] for key in ("spatial:transform", "spatial:shape") if key in where})
    return {"multiscales": {"layout": layout}}


def _ratio(finer: Array, coarser: Array) -> list[float]:
    """How much larger a cell is along each dimension: one for those that are no part of the image plane."""
    axes = spatial_axes(coarser) or ()
    return [finer.shape[d] / coarser.shape[d] if d in axes and coarser.shape[d] else 1.0 for d in range(coarser.ndim)]


def pyramid(levels: Sequence[Array], names: Sequence[str]) -> dict[str, Any]:
    """Attributes of the group that holds an image's levels: their layout, and where the finest lies."""
    return declared({**multiscales(levels, names), **spatial(levels[0]), **proj(levels[0], full=True)})


def place(array: Array) -> dict[str, Any]:
    """Attributes of an array, or of the group of one level: where it lies."""
    return declared({**spatial(array), **proj(array)})
