"""The documents of one array, `.zarray` or `zarr.json`, to a description of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Scalar, Shape
from periplus.parse.json import INT64, abbreviated, check_integer, check_list, check_object, check_text
from periplus.parse.zarr.codecs import v2_codecs, v3_codecs
from periplus.parse.zarr.dtypes import DTYPES, dtype_name, is_number, read_dtype, read_fill, read_scalar
from periplus.parse.zarr.metadata import ArrayMetadata, ChunkKeys

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute by which xarray names the dimensions of an array of Zarr v2."""
NCZARR = ("_NCZARR_ARRAY", "_nczarr_array")
NCZARR_DIMENSIONS = ("dimension_references", "dimrefs")
"""Where netCDF-C has names of dimensions, as paths."""
MOST_EDGES = 1 << 22
"""Chunks along one dimension of a rectilinear grid."""


def parse_v2_array(document: Mapping[str, Any], attributes: Mapping[str, Any], limits: Limits) -> ArrayMetadata:
    """The array of a `.zarray` and its `.zattrs`."""
    if document.get("zarr_format", 2) != 2:
        raise FormatError(f"zarr_format is {abbreviated(document.get('zarr_format'))}, not 2")
    shape = _shape(document, limits)
    sizes = _sizes(document.get("chunks"), "chunks", size=len(shape))
    if any(not size and side for size, side in zip(sizes, shape, strict=True)):
        raise FormatError(f"chunks of {list(sizes)} cannot cover the shape {list(shape)}")
    order = document.get("order", "C")
    if order not in ("C", "F"):
        raise FormatError(f"order is {abbreviated(order)}, not C or F")
    filters = document.get("filters") or []
    if not isinstance(filters, list):
        raise FormatError(f"filters must be a list, not {abbreviated(filters)}")
    stored = _v2_type(document.get("dtype"))
    compressor = document.get("compressor")
    coded = [*filters, *([] if compressor is None else [compressor])]
    separator = document.get("dimension_separator") or "."
    if separator not in (".", "/"):
        raise FormatError(f"dimension_separator is {abbreviated(separator)}, not . or /")
    dtype = None if stored is None else stored.newbyteorder("=")
    return ArrayMetadata(
        zarr_format=2,
        shape=shape,
        chunks=tuple(max(size, 1) for size in sizes),
        data_type=document.get("dtype"),
        dtype=dtype,
        fill_value=None if dtype is None else _fill_value(document.get("fill_value"), dtype),
        codecs=v2_codecs(coded, dtype=stored, rank=len(shape), order=order),
        chunk_keys=ChunkKeys(prefix="", separator=separator),
        dimension_names=_v2_dimension_names(attributes),
        attributes=attributes,
    )


def parse_v3_array(document: Mapping[str, Any], limits: Limits) -> ArrayMetadata:
    """The array of a `zarr.json`."""
    shape = _shape(document, limits)
    dtype = _v3_type(document.get("data_type"))
    chunks, edges = _grid(check_object(document.get("chunk_grid"), "chunk_grid"), shape)
    transformers = document.get("storage_transformers") or []
    return ArrayMetadata(
        zarr_format=3,
        shape=shape,
        chunks=chunks,
        edges=edges,
        data_type=document.get("data_type"),
        dtype=dtype,
        fill_value=None if dtype is None else _fill_value(document.get("fill_value"), dtype),
        codecs=v3_codecs(document.get("codecs")),
        chunk_keys=_chunk_keys(document.get("chunk_key_encoding")),
        dimension_names=_names(document.get("dimension_names")),
        attributes=check_object(document.get("attributes") or {}, "attributes"),
        storage_transformers=check_list(transformers, "storage_transformers", check_object),
    )


def _shape(document: Mapping[str, Any], limits: Limits) -> Shape:
    shape = _sizes(document.get("shape"), "shape")
    limits.check("the rank", len(shape), limits.dims)
    if math.prod(shape) > INT64:
        raise FormatError(f"the shape {list(shape)} has more values than can be counted")
    return shape


def _sizes(value: Any, what: str, *, least: int = 0, size: int | None = None) -> Shape:
    return check_list(value, what, lambda item, at: check_integer(item, at, least=least), size=size)


# --- types and fill values ------------------------------------------------------------------------------------------


def _v2_type(value: Any) -> np.dtype[Any] | None:
    """The type in the byte order that is stored; None for records, objects and other types that arrays do not have."""
    if isinstance(value, list):
        return None
    try:
        stored = np.dtype(check_text(value, "dtype"))
    except (TypeError, ValueError, SyntaxError):
        raise FormatError(f"dtype {abbreviated(value)} is not a type of NumPy") from None
    try:
        dtype_name(stored.newbyteorder("="))
    except FormatError:
        return None
    return stored


def _v3_type(value: Any) -> np.dtype[Any] | None:
    """The type in native byte order; None for types that arrays do not have."""
    if isinstance(value, str):
        return DTYPES.get(value)
    settings = check_object(value, "data_type")
    options = check_object(settings.get("configuration") or {}, "the configuration of data_type")
    size, name = options.get("length_bytes"), settings.get("name")
    if name == "null_terminated_bytes":
        spelled = f"S{size}"
    elif name == "fixed_length_utf32" and type(size) is int and size % 4 == 0:
        spelled = f"U{size // 4}"
    elif name in ("numpy.datetime64", "numpy.timedelta64") and options.get("scale_factor") == 1:
        spelled = f"{name.removeprefix('numpy.')}[{options.get('unit')}]"
    else:
        return None
    try:
        return read_dtype(spelled, "data_type")
    except FormatError:
        return None


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Scalar | None:
    """A fill value of either version; writers of v2 put text or NaN where a number belongs, which is none."""
    if not is_number(dtype):
        if value in ("", 0) and dtype.kind in "SU":
            return None
        return read_fill("NaT" if dtype.kind in "mM" and value == -INT64 - 1 else value, dtype, "fill_value")
    if dtype.kind == "b" and value in (0, 1):
        return bool(value)
    if dtype.kind in "iu":
        if value in ("", "NaN", "NaT") or value != value:
            return None
        if type(value) in (float, bool) and math.isfinite(value) and value == int(value):
            value = int(value)
    if dtype.kind == "f" and isinstance(value, str) and value.startswith("0x"):
        return _from_bits(value, dtype)
    return read_scalar(value, dtype, "fill_value")


def _from_bits(value: str, dtype: np.dtype[Any]) -> float:
    """A float that Zarr v3 spells by its bits, big-endian in hexadecimal."""
    try:
        bits = bytes.fromhex(value[2:])
    except ValueError:
        bits = b""
    if len(bits) != dtype.itemsize:
        raise FormatError(f"fill_value is {abbreviated(value)}, which is not a {dtype.name}")
    return float(np.frombuffer(bits, dtype.newbyteorder(">"))[0])


# --- chunks ---------------------------------------------------------------------------------------------------------


def _grid(grid: Mapping[str, Any], shape: Shape) -> tuple[Shape, tuple[tuple[int, ...] | None, ...] | None]:
    """The shape of chunks, and the sizes of all chunks of a rectilinear grid."""
    settings = check_object(grid.get("configuration"), "chunk_grid")
    if grid.get("name") == "regular":
        return _sizes(settings.get("chunk_shape"), "chunk_shape", least=1, size=len(shape)), None
    if grid.get("name") != "rectilinear" or settings.get("kind", "inline") != "inline":
        raise FormatError(f"chunk grid {abbreviated(grid.get('name'))} is unsupported")
    declared = settings.get("chunk_shapes")
    if not isinstance(declared, list) or len(declared) != len(shape):
        raise FormatError(f"chunk_shapes must be a list of {len(shape)} items, one for each dimension")
    edges: list[tuple[int, ...] | None] = []
    chunks: list[int] = []
    for value, side in zip(declared, shape, strict=True):
        if isinstance(value, list):
            sizes = _expanded(value, side)
            edges.append(sizes)
            chunks.append(max(sizes, default=1))
        else:
            edges.append(None)
            chunks.append(check_integer(value, "chunk_shapes", least=1))
    return tuple(chunks), tuple(edges)


def _expanded(value: list[Any], side: int) -> tuple[int, ...]:
    """Sizes of chunks along a dimension: integers, and pairs [size, how many]; counted before they are made."""
    runs: list[tuple[int, int]] = []
    for item in value:
        size, count = item if isinstance(item, list) and len(item) == 2 else (item, 1)
        runs.append((check_integer(size, "chunk_shapes", least=1), check_integer(count, "chunk_shapes", least=1)))
    if sum(count for _, count in runs) > MOST_EDGES:
        raise FormatError(f"chunk_shapes has more than {MOST_EDGES} chunks along one dimension")
    sizes = tuple(size for size, count in runs for _ in range(count))
    if sum(sizes) < side:
        raise FormatError(f"chunk_shapes covers {sum(sizes)} of {side} elements of a dimension")
    return sizes


def _chunk_keys(value: Any) -> ChunkKeys:
    encoding = {"name": value} if isinstance(value, str) else check_object(value, "chunk_key_encoding")
    name = encoding.get("name")
    settings = check_object(encoding.get("configuration") or {}, "chunk_key_encoding")
    separator = settings.get("separator", "/" if name == "default" else ".")
    if name not in ("default", "v2") or separator not in (".", "/"):
        raise FormatError(
            f"chunk_key_encoding {abbreviated(name)} with separator {abbreviated(separator)} is unsupported"
        )
    return ChunkKeys(prefix="c" if name == "default" else "", separator=separator)


# --- dimensions -----------------------------------------------------------------------------------------------------


def _v2_dimension_names(attributes: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Names of dimensions as declared by the attribute of xarray, or by that of netCDF-C."""
    if attributes.get(DIMENSIONS) is not None:
        return _names(attributes[DIMENSIONS])
    described: Any = next((attributes[key] for key in NCZARR if isinstance(attributes.get(key), Mapping)), {})
    paths: Any = next((described[key] for key in NCZARR_DIMENSIONS if isinstance(described.get(key), list)), [])
    return _names([str(path).rpartition("/")[2] for path in paths])


def _names(value: Any) -> tuple[str | None, ...]:
    """Names as declared; None for items that are not text. No names where it is not a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(check_text(item, "the name of a dimension") if isinstance(item, str) else None for item in value)
