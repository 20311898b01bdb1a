"""Where an array read from Zarr metadata lies on Earth, and which of its attributes said so."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from typing import Any

from periplus.model import Array, Georeference, GroundControlPoint, Transform
from periplus.parse.json import parse_json

NOT_KEPT = ("zarr_conventions", "grid_mapping", "coordinates")
PACKING = {"band_nodata": "_FillValue", "band_scales": "scale_factor", "band_offsets": "add_offset"}
"""Names under which our Zarr exits keep what CF says of whole arrays only."""


def located(
    array: Array, group: Mapping[str, Any], mapping: tuple[str, Mapping[str, Any]] | None
) -> tuple[Georeference | None, dict[str, Any]]:
    """The place of an array, from its own attributes, its group's or its grid mapping's; and its other attributes."""
    own = dict(array.attributes)
    attributes = {**group, **own}
    crs = _crs(attributes)
    transform = _numbers(attributes.get("spatial:transform"))
    registration = "point" if attributes.get("spatial:registration") == "node" else "area"
    if transform is not None and registration == "point":
        a, b, c, d, e, f = transform  # said for samples, kept for pixel corners
        transform = (a, b, c - (a + b) / 2, d, e, f - (d + e) / 2)
    if not _lies_on(array, attributes):
        crs, transform = _crs(own), None  # what a group says is of its images
    points: tuple[GroundControlPoint, ...] = ()
    rpc: dict[str, Any] | None = None
    if mapping is not None:
        said = mapping[1]
        crs = crs or next((said[key] for key in ("crs_wkt", "spatial_ref") if isinstance(said.get(key), str)), None)
        transform = transform or _gdal(said.get("GeoTransform"))
        points, rpc = _control_points(said.get("gcps")), _rpc(said.get("rpc"))
    kept = _unpacked(own, array)
    if crs is None and transform is None and not points and rpc is None:
        return None, kept
    for name in list(kept):
        if name.startswith(("spatial:", "proj:")) or name in NOT_KEPT:
            del kept[name]
    return Georeference(crs=crs, transform=transform, registration=registration, gcps=points, rpc=rpc), kept


def _lies_on(array: Array, attributes: Mapping[str, Any]) -> bool:
    """Whether the array has the dimensions that the convention speaks of, and their sizes."""
    dims = attributes.get("spatial:dimensions")
    if not isinstance(dims, list) or len(dims) != 2 or not all(dim in array.dims for dim in dims):
        return False
    shape = attributes.get("spatial:shape")
    return shape is None or shape == [array.shape[array.dims.index(dim)] for dim in dims]


def _crs(attributes: Mapping[str, Any]) -> str | None:
    for key in ("proj:code", "proj:wkt2"):
        if isinstance(attributes.get(key), str):
            return str(attributes[key])
    return None


def _numbers(value: Any) -> Transform | None:
    if not isinstance(value, list) or len(value) != 6 or not all(type(v) in (int, float) for v in value):
        return None
    a, b, c, d, e, f = (float(v) for v in value)
    return (a, b, c, d, e, f) if all(map(math.isfinite, (a, b, c, d, e, f))) else None


def _gdal(value: Any) -> Transform | None:
    """GDAL's order of the six numbers, as text."""
    try:
        c, a, b, f, d, e = (float(word) for word in value.split())
    except (AttributeError, ValueError):
        return None
    return _numbers([a, b, c, d, e, f])


def _control_points(value: Any) -> tuple[GroundControlPoint, ...]:
    """Points as the GeoJSON text that rioxarray keeps in a grid mapping; none where it is something else."""
    try:
        features = parse_json(value, what="gcps")["features"]
        found = [(item["properties"], item["geometry"]["coordinates"]) for item in features]
        return tuple(
            GroundControlPoint(
                column=float(about["col"]),
                row=float(about["row"]),
                x=float(place[0]),
                y=float(place[1]),
                z=float(place[2]) if len(place) > 2 else 0.0,
            )
            for about, place in found
        )
    except (TypeError, ValueError, KeyError, IndexError):
        return ()


def _rpc(value: Any) -> dict[str, Any] | None:
    try:
        said = parse_json(value, what="rpc")
    except (TypeError, ValueError):
        return None
    return said if isinstance(said, dict) and said else None


def _unpacked(attributes: dict[str, Any], array: Array) -> dict[str, Any]:
    """Attributes with nodata as a number: xarray writes that of floats in base64 where the format is Zarr v3."""
    kept = {PACKING.get(name, name): value for name, value in attributes.items()}
    nodata = kept.get("_FillValue")
    if isinstance(nodata, str) and array.dtype.kind == "f":
        try:
            kept["_FillValue"] = struct.unpack("<d", base64.b64decode(nodata, validate=True))[0]
        except (ValueError, struct.error):
            kept["_FillValue"] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(nodata)
        if kept["_FillValue"] is None:
            del kept["_FillValue"]
    return kept
