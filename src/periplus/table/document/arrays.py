"""One array of the footer document: to JSON, and back with every field of it checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Georeference, GroundControlPoint
from periplus.parse.json import INT64, abbreviated, check_integer, check_list, check_number, check_object, check_text
from periplus.parse.zarr.dtypes import dtype_name, read_dtype, read_fill, write_fill
from periplus.table.document.encodings import Memory, frame_of, read_encodings, write_encoding
from periplus.table.document.values import read_free, write_free

INT32 = (1 << 31) - 1
PARTS = 1 << 16
"""Most byte ranges of one chunk: `part` is 16 bits wide."""


def write_array(array: Array, parts: int) -> dict[str, Any]:
    """The array as JSON, with no bare NaN; `parts` is the most rows that one of its chunks has."""
    what = f"array {array.name!r}"
    answer: dict[str, Any] = {
        "dims": list(array.dims),
        "shape": [int(n) for n in array.shape],
        "chunks": [int(n) for n in array.chunks],
        "dtype": dtype_name(array.dtype),
        "fill": write_fill(array.fill, array.dtype),
        "encodings": [write_encoding(encoding, what) for encoding in array.encodings],
    }
    if array.edges is not None:
        answer["edges"] = [None if edges is None else [int(n) for n in edges] for edges in array.edges]
    if array.attributes:
        answer["attributes"] = write_free(array.attributes, what)
    if array.level:
        answer["level"] = int(array.level)
    if parts != 1:
        answer["parts"] = parts
    if array.georeference is not None:
        answer |= _write_georeference(array.georeference, what)
    return answer


def _write_georeference(place: Georeference, what: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"registration": place.registration}
    if place.crs is not None:
        answer["crs"] = place.crs
    if place.transform is not None:
        answer["transform"] = [float(v) for v in place.transform]
    if place.gcps:
        answer["gcps"] = [[float(v) for v in (p.column, p.row, p.x, p.y, p.z)] for p in place.gcps]
    if place.rpc is not None:
        answer["rpc"] = write_free(place.rpc, what)
    return answer


def read_name(value: Any) -> str:
    """A path of one or several segments, none of them empty, `.` or `..`."""
    return _checked_name(check_text(value, "a name"))


@lru_cache(maxsize=1024)  # thousands of arrays have the same few dimensions
def _checked_name(name: str) -> str:
    if not name or len(name) > 4096 or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise FormatError(f"{abbreviated(name)} cannot be a name")
    return name


def read_array(name: str, value: Any, limits: Limits, memory: Memory) -> Array:
    """The array; `memory` has the encodings read before."""
    what = f"array {read_name(name)!r}"
    fields = check_object(value, what)
    shape = check_list(fields.get("shape"), f"{what}: shape", check_integer)
    rank = limits.check(f"{what}: rank", len(shape), limits.dims)
    dims = check_list(fields.get("dims"), f"{what}: dims", lambda item, _: read_name(item), size=rank)
    if len(set(dims)) != rank:
        raise FormatError(f"{what}: a dimension is named twice")
    chunks = check_list(
        fields.get("chunks"), f"{what}: chunks", lambda item, at: check_integer(item, at, least=1), size=rank
    )
    dtype = read_dtype(fields.get("dtype"), f"{what}: dtype")
    if math.prod(shape) > INT64:
        raise FormatError(f"{what} declares {math.prod(shape)} values, more than 64 bits can count")
    limits.check(f"{what}: bytes of one chunk", math.prod(chunks) * dtype.itemsize, limits.chunk_bytes)
    edges = _read_edges(fields.get("edges"), shape, chunks, what)
    array = Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=read_fill(fields.get("fill"), dtype, f"{what}: fill"),
        encodings=read_encodings(fields.get("encodings", []), frame_of(dims, chunks, dtype, edges), what, memory),
        attributes=read_free(check_object(fields.get("attributes", {}), f"{what}: attributes")),
        level=check_integer(fields.get("level", 0), f"{what}: level", most=255),
        georeference=_read_georeference(fields, what),
        edges=edges,
    )
    if any(count > INT32 for count in array.grid):
        raise FormatError(f"{what}: more than {INT32} chunks along a dimension")
    return array


def _read_edges(value: Any, shape: tuple[int, ...], chunks: tuple[int, ...], what: str) -> Any:
    if value is None:
        return None

    def sizes(item: Any, at: str) -> tuple[int, ...] | None:
        return None if item is None else check_list(item, at, lambda size, where: check_integer(size, where, least=1))

    edges = check_list(value, f"{what}: edges", sizes, size=len(shape))
    for one, extent, chunk in zip(edges, shape, chunks, strict=True):
        if one is not None and sum(one) != extent:
            raise FormatError(f"{what}: edges add up to {sum(one)}, not to the extent {extent}")
        if one and max(one) != chunk:
            raise FormatError(f"{what}: the largest edge is {max(one)}, the chunk size is {chunk}")
    return edges


def _read_georeference(fields: Mapping[str, Any], what: str) -> Georeference | None:
    if not any(key in fields for key in ("crs", "transform", "registration", "gcps", "rpc")):
        return None
    crs, transform, rpc = fields.get("crs"), fields.get("transform"), fields.get("rpc")
    registration = fields.get("registration", "area")
    if registration not in ("area", "point"):
        raise FormatError(f"{what}: registration must be area or point, not {abbreviated(registration)}")
    if crs is not None and type(crs) is not str:  # WKT may hold line breaks, so no check of characters
        raise FormatError(f"{what}: crs must be a string, not {abbreviated(crs)}")
    gcps = check_list(
        fields.get("gcps", []), f"{what}: gcps", lambda item, at: check_list(item, at, check_number, size=5)
    )
    return Georeference(
        crs=crs,
        transform=None if transform is None else check_list(transform, f"{what}: transform", check_number, size=6),
        registration=registration,
        gcps=tuple(GroundControlPoint(column=c, row=r, x=x, y=y, z=z) for c, r, x, y, z in gcps),
        rpc=None if rpc is None else read_free(check_object(rpc, f"{what}: rpc")),
    )
