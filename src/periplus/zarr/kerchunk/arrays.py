"""Metadata documents of Zarr v2 and v3 to the arrays of a catalog: what a kerchunk index says apart from its chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from periplus.conventions.node import DIMENSIONS
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Scalar
from periplus.parse.json import INT64
from periplus.parse.zarr.dtypes import DTYPES, dtype_name, is_number, read_dtype, read_fill, read_scalar
from periplus.table.document.encodings import encoding_of, frame_of
from periplus.table.document.values import listed, mapped, shown, text, whole
from periplus.zarr.codecs.translate import bytes_codec, is_image, known_codec, pipeline_of

INT32 = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Described:
    """An array and how the keys of its chunks are spelt."""

    array: Array
    prefix: str
    """`c` before the numbers, or nothing."""
    separator: str
    """Between numbers: a dot or a slash."""


def describe(name: str, document: Any, attributes: Any, limits: Limits) -> Described:
    """The array of one metadata document, checked; FormatError names the key of what is wrong."""
    what = f"{name}/zarr.json" if attributes is None else f"{name}/.zarray"
    try:
        fields = mapped(document, "the metadata")
        made = _v3(name, fields) if attributes is None else _v2(name, fields, attributes)
        _check(made.array, limits)
    except PeriplusError as error:
        if not error.message.startswith(name):
            error.message = f"{what}: {error.message}"
        raise
    return made


def _check(array: Array, limits: Limits) -> None:
    limits.check("the rank", array.ndim, limits.dims)
    if math.prod(array.shape) > INT64 or any(count > INT32 for count in array.grid):
        raise FormatError(
            f"the shape {list(array.shape)} in chunks of {list(array.chunks)} is more than can be counted"
        )
    limits.check("the bytes of one chunk", math.prod(array.chunks) * array.dtype.itemsize, limits.chunk_bytes)


def _sizes(value: Any, what: str, *, least: int = 0, size: int | None = None) -> tuple[int, ...]:
    return listed(value, what, lambda item, at: whole(item, at, least=least), size=size)


# --- version 2 ------------------------------------------------------------------------------------------------------


def _v2(name: str, fields: Mapping[str, Any], attributes: Any) -> Described:
    if fields.get("zarr_format", 2) != 2:
        raise FormatError(f"zarr_format is {fields.get('zarr_format')!r}")
    said = {key: value for key, value in mapped(attributes, ".zattrs").items() if key != DIMENSIONS}
    shape = _sizes(fields.get("shape"), "shape")
    sizes = _sizes(fields.get("chunks"), "chunks", size=len(shape))
    if any(not size and side for size, side in zip(sizes, shape, strict=True)):
        raise FormatError(f"chunks of {list(sizes)} hold nothing of the shape {list(shape)}")
    chunks = tuple(max(n, 1) for n in sizes)
    stored = _type(fields.get("dtype"))
    dtype = stored.newbyteorder("=")
    order = fields.get("order", "C")
    if order not in ("C", "F"):
        raise FormatError(f"order is {shown(order)}")
    filters = fields.get("filters") or []
    if not isinstance(filters, list):
        raise FormatError("filters are no list")
    pipeline = pipeline_of(
        dtype=stored,
        rank=len(shape),
        order=order,
        filters=filters,
        compressor=fields.get("compressor"),
        what=f"{name}/.zarray",
    )
    separator = fields.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise FormatError(f"dimension_separator is {shown(separator)}")
    fill = _fill(fields.get("fill_value"), dtype)
    if fill and "_FillValue" not in said:
        # In Zarr v2 there is but one place for nodata; zero is there by default, and means nothing.
        said["_FillValue"] = fill
    dims = _dims(attributes.get(DIMENSIONS), len(shape))
    array = Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=fill,
        encodings=(encoding_of(pipeline, frame_of(dims, chunks, dtype), f"{name}/.zarray"),),
        attributes=said,
    )
    return Described(array, "", separator)


def _type(value: Any) -> np.dtype[Any]:
    """The type as stored."""
    if isinstance(value, list):
        raise FormatError("values are records of several fields, which are not read")
    try:
        stored = np.dtype(text(value, "dtype"))
    except (TypeError, ValueError):
        raise FormatError(f"dtype is {shown(value)}") from None
    if stored.subdtype is not None:
        raise FormatError(f"dtype is {shown(value)}: values that are arrays are not read")
    dtype_name(stored.newbyteorder("="))
    return stored


def _fill(value: Any, dtype: np.dtype[Any]) -> Scalar | None:
    if not is_number(dtype):
        if value in ("", 0) and dtype.kind in "SU":
            return None
        return read_fill("NaT" if dtype.kind in "mM" and value == -INT64 - 1 else value, dtype, "fill_value")
    if dtype.kind == "b" and value in (0, 1):
        return bool(value)
    if dtype.kind in "iu" and type(value) in (float, bool) and math.isfinite(value) and value == int(value):
        value = int(value)
    if dtype.kind in "iu" and (value in ("", "NaN", "NaT") or value != value):
        return None  # what a float, a string or a time would have said
    return read_scalar(value, dtype, "fill_value")


def _dims(value: Any, rank: int) -> tuple[str, ...]:
    """Names of dimensions; those not said are numbered, and one that comes twice gets a number."""
    names: list[Any] = list(value) if isinstance(value, list) and len(value) == rank else [None] * rank
    dims: list[str] = []
    for place, name in enumerate(names):
        dim = text(name, "a dimension") if name else f"dim_{place}"
        dims.append(f"{dim}_{place}" if dim in dims else dim)
    return tuple(dims)


# --- version 3 ------------------------------------------------------------------------------------------------------


def _v3(name: str, fields: Mapping[str, Any]) -> Described:
    if fields.get("storage_transformers"):
        raise FormatError("storage transformers are not read")
    shape = _sizes(fields.get("shape"), "shape")
    kind = fields.get("data_type")
    dtype = _v3_type(kind)
    said = mapped(fields.get("attributes") or {}, "attributes")
    chunks, edges = _grid(mapped(fields.get("chunk_grid"), "chunk_grid"), shape)
    prefix, separator = _keys(mapped(fields.get("chunk_key_encoding"), "chunk_key_encoding"))
    dims = _dims(fields.get("dimension_names"), len(shape))
    codecs = _codecs(fields.get("codecs"), dtype, f"{name}/zarr.json")
    array = Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=_fill(fields.get("fill_value"), dtype),
        encodings=(encoding_of(codecs, frame_of(dims, chunks, dtype, edges), f"{name}/zarr.json"),),
        attributes=said,
        edges=edges,
    )
    return Described(array, prefix, separator)


def _v3_type(kind: Any) -> np.dtype[Any]:
    if isinstance(kind, str) and kind in DTYPES:
        return DTYPES[kind]
    named = kind if isinstance(kind, Mapping) else {}
    settings = mapped(named.get("configuration") or {}, "data_type")
    size, name = settings.get("length_bytes"), ""
    if named.get("name") == "null_terminated_bytes":
        name = f"S{size}"
    elif named.get("name") == "fixed_length_utf32" and type(size) is int and size % 4 == 0:
        name = f"U{size // 4}"
    elif named.get("name") in ("numpy.datetime64", "numpy.timedelta64") and settings.get("scale_factor") == 1:
        name = f"{named['name'][len('numpy.') :]}[{settings.get('unit')}]"
    try:
        return read_dtype(name, "data_type")
    except FormatError:
        raise FormatError(f"values of type {shown(kind)} are not read") from None


def _grid(grid: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    settings = mapped(grid.get("configuration"), "chunk_grid")
    if grid.get("name") == "regular":
        return _sizes(settings.get("chunk_shape"), "chunk_shape", least=1, size=len(shape)), None
    raise FormatError(f"chunk grid {shown(grid.get('name'))} is not known")


def _keys(encoding: Mapping[str, Any]) -> tuple[str, str]:
    kind = encoding.get("name")
    settings = mapped(encoding.get("configuration") or {}, "chunk_key_encoding")
    separator = settings.get("separator", "/" if kind == "default" else ".")
    if kind not in ("default", "v2") or separator not in (".", "/"):
        raise FormatError(f"chunk keys of kind {shown(kind)} with separator {shown(separator)} are not known")
    return ("c" if kind == "default" else ""), separator


def _codecs(value: Any, dtype: np.dtype[Any], what: str) -> tuple[Mapping[str, Any], ...]:
    """Codecs as our decoders want them: codecs of whole images stand alone, and bytes always say their order."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise FormatError("codecs are no list")
    pipeline = tuple(known_codec(codec, what) for codec in value)
    images = [place for place, codec in enumerate(pipeline) if is_image(codec["name"])]
    if images:
        # Whatever is written before it, an image codec yields the values themselves.
        before = [codec for codec in pipeline[: images[0]] if codec["name"] != "bytes"]
        if len(pipeline) > images[0] + 1:
            raise FormatError(f"codec {pipeline[images[0] + 1]['name']!r} follows one of whole images")
        return (*before, pipeline[images[0]])
    little = bytes_codec(dtype.newbyteorder("<"))
    return tuple(
        little
        if codec["name"] == "bytes" and dtype.itemsize > 1 and dtype.kind != "S" and not codec.get("configuration")
        else codec
        for codec in pipeline
    )
