"""Parsed Zarr metadata to arrays of a catalog: encoding, nodata, and the georeference that the conventions find."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from periplus.conventions.meaning import Grid, Meaning
from periplus.conventions.node import DIMENSIONS
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Georeference, GroundControlPoint
from periplus.parse.json import parse_json
from periplus.parse.zarr import ArrayMetadata, ChunkKeys
from periplus.table.document.encodings import encoding_of, frame_of
from periplus.table.query.footprint import spatial_axes
from periplus.zarr.codecs.translate import decodable

INT32 = (1 << 31) - 1
CONSUMED = ("zarr_conventions", "grid_mapping", "coordinates")
"""Attributes that an index writes again by itself."""
PACKING = {"band_nodata": "_FillValue", "band_scales": "scale_factor", "band_offsets": "add_offset"}
"""Names of CF's attributes in our Zarr exits where they differ between bands."""


@dataclass(frozen=True, slots=True)
class ReferencedArray:
    """An array of the catalog, and how the keys of its chunks are spelled."""

    array: Array
    keys: ChunkKeys


def referenced_array(name: str, metadata: ArrayMetadata, limits: Limits) -> ReferencedArray:
    """The array of parsed metadata; FormatError for what our reader does not support."""
    dtype, shape, chunks = metadata.dtype, metadata.shape, metadata.chunks
    if metadata.storage_transformers:
        raise FormatError("storage transformers are unsupported")
    if isinstance(metadata.data_type, list):
        raise FormatError("values are records of several fields, which are unsupported")
    if dtype is None:
        raise FormatError(f"values of type {str(metadata.data_type)[:60]} are unsupported")
    codecs = decodable(metadata.codecs, dtype)
    edges = metadata.edges
    if edges is not None and any(sum(one) != n for one, n in zip(edges, shape, strict=True) if one is not None):
        raise FormatError("a rectilinear grid whose last chunks extend past the array is unsupported")
    dims = _dims(metadata.dims)
    attributes = {key: value for key, value in metadata.attributes.items() if key != DIMENSIONS}
    if metadata.zarr_format == 2 and metadata.fill_value and "_FillValue" not in attributes:
        # Zarr v2 has one place for nodata and for the value of missing chunks; its default, zero, means neither.
        attributes["_FillValue"] = metadata.fill_value
    array = Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=metadata.fill_value,
        encodings=(encoding_of(codecs, frame_of(dims, chunks, dtype, edges), name),),
        attributes=attributes,
        edges=edges,
    )
    if any(count > INT32 for count in array.grid):
        raise FormatError(f"the shape {list(shape)} in chunks of {list(chunks)} has more chunks than can be counted")
    limits.check("the bytes of one chunk", math.prod(chunks) * dtype.itemsize, limits.chunk_bytes)
    return ReferencedArray(array, metadata.chunk_keys)


def _dims(names: tuple[str | None, ...]) -> tuple[str, ...]:
    """Names of dimensions; those without one are numbered, and one that occurs twice gets a number."""
    dims: list[str] = []
    for axis, name in enumerate(names):
        dim = name or f"dim_{axis}"
        dims.append(f"{dim}_{axis}" if dim in dims else dim)
    return tuple(dims)


# --- georeference ---------------------------------------------------------------------------------------------------


def indexed_grid(array: Array, meaning: Meaning) -> Grid | None:
    """The grid along the dimensions that an index uses as rows and columns; None where it is along others."""
    axes = spatial_axes(array)
    if meaning.grid is None or axes is None:
        return None
    return meaning.grid.over((array.dims[axes[0]], array.dims[axes[1]]))


def georeference(array: Array, meaning: Meaning, grid_mapping: Mapping[str, Any]) -> Georeference | None:
    """The georeference of an array: CRS and grid by the conventions, the rest by its grid mapping.

    The grid mapping has what no convention covers: control points and RPCs, and the text of a CRS that PROJ does not
    know.
    """
    crs = None if meaning.crs is None else meaning.crs.code or meaning.crs.text
    if crs is None:
        crs = next((text for key in ("crs_wkt", "spatial_ref") if isinstance(text := grid_mapping.get(key), str)), None)
    grid = indexed_grid(array, meaning)
    transform = None if grid is None else grid.corner
    points, rpc = _control_points(grid_mapping.get("gcps")), _rpc(grid_mapping.get("rpc"))
    if crs is None and transform is None and not points and rpc is None:
        return None
    registration = "point" if grid is not None and grid.registration == "node" else "area"
    return Georeference(crs=crs, transform=transform, registration=registration, gcps=points, rpc=rpc)


def _control_points(value: Any) -> tuple[GroundControlPoint, ...]:
    """Points as the GeoJSON text that rioxarray writes into a grid mapping; none where it is something else."""
    try:
        features = parse_json(value, what="gcps")["features"]
        found = [(item["properties"], item["geometry"]["coordinates"]) for item in features]
        return tuple(
            GroundControlPoint(
                column=float(about["col"]),
                row=float(about["row"]),
                x=float(position[0]),
                y=float(position[1]),
                z=float(position[2]) if len(position) > 2 else 0.0,
            )
            for about, position in found
        )
    except (TypeError, ValueError, KeyError, IndexError):
        return ()


def _rpc(value: Any) -> dict[str, Any] | None:
    try:
        found = parse_json(value, what="rpc")
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) and found else None


# --- attributes -----------------------------------------------------------------------------------------------------


def kept_attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any], *, located: bool) -> dict[str, Any]:
    """Attributes as an index stores them: nodata as a number, without those of the georeference of a located array."""
    kept = {PACKING.get(name, name): value for name, value in attributes.items()}
    nodata = kept.get("_FillValue")
    if isinstance(nodata, str) and dtype.kind == "f":
        number = _float_of(nodata)
        if number is None:
            del kept["_FillValue"]
        else:
            kept["_FillValue"] = number
    if not located:
        return kept
    return {
        name: value
        for name, value in kept.items()
        if name not in CONSUMED and not name.startswith(("spatial:", "proj:"))
    }


def _float_of(text: str) -> float | None:
    """A number that xarray writes in base64 where the format is Zarr v3."""
    try:
        return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
    except (ValueError, struct.error):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(text)
