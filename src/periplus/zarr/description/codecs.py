"""The Zarr codecs of stored chunks, and which readers have them: stock Zarr, imagery tools, or periplus only.

`standard` codecs come with zarr-python; `imagery` are the five URIs shared with osml-imagery-io; `ours` have names that
begin with `periplus.` and need it installed. Chunks that no list of codecs can represent are `decoded`: our stores
return them as plain values.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode import CODECS, prepare
from periplus.decode.pipeline import IMAGES, LIST
from periplus.decode.zarr import unpack
from periplus.errors import PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Codec, Encoding, Pipeline, Refs, Shape
from periplus.model.codecnames import CROP, IMAGERY, JBP_BLOCK, JPEG, OURS, TIFF_TILE
from periplus.parse.zarr.codecs import bytes_codec
from periplus.parse.zarr.dtypes import is_number
from periplus.zarr.codecs.translate import NotRepresentableError, block, imagery_fault, interleaved

Kind: TypeAlias = Literal["standard", "imagery", "ours", "decoded"]
KINDS: tuple[Kind, ...] = ("standard", "imagery", "ours", "decoded")
"""From those that every reader has to those that no list of codecs can represent."""
ANY = Limits(chunk_bytes=1 << 62, memory_bytes=1 << 62)
"""Arrays with giant chunks may be opened, so that others in the group can be read; their chunks are refused."""
LEVELS = {
    "zstd": (0, 22),
    "gzip": (0, 9),
    "numcodecs.zlib": (0, 9),
    "numcodecs.gzip": (0, 9),
    "numcodecs.zstd": (0, 22),
}
"""Compressors whose only setting is their level, and its range."""
ARRAY_CODECS = ("transpose", CROP, unpack.NAME)
"""Codecs that turn an array into another one, and depend on its shape."""
_COMPRESSION_ONLY = ("level", "acceleration", "checksum")
"""Settings that only matter to compression."""


@dataclass(frozen=True, slots=True)
class ZarrCodecs:
    """The codecs of an array's chunks in Zarr."""

    kind: Kind
    codecs: Pipeline
    """A Zarr v3 codec list; of plain bytes where the kind is `decoded`."""
    why: str = ""
    """Why the chunks cannot be returned as they are stored; empty where they can."""
    pipeline: Pipeline = ()
    """The same codecs as our decoders take them; empty where the kind is `decoded`."""


def zarr_codecs(array: Array) -> ZarrCodecs:
    """The codecs of an array; pure, from the catalog alone."""
    try:
        if array.edges is not None and not _is_regular(array):
            raise NotRepresentableError("its chunks vary in size")
        if not array.encodings:
            raise NotRepresentableError("it lists no encoding")
        if len({_meaning(encoding) for encoding in array.encodings}) > 1:
            raise NotRepresentableError(f"its chunks are encoded in {len(array.encodings)} ways")
        pipeline = exclusive(with_facts(array.encodings[0], array), array)
        names = [str(codec.get("name", "")) for codec in pipeline]
        kind: Kind = "standard"
        if any(name.startswith(IMAGERY) for name in names):
            kind = "imagery"
        if any(name.startswith(OURS) for name in names):
            kind = "ours"
        # One invalid array would keep Zarr from opening all others; it must fail when it is read.
        limits = Limits() if kind == "standard" else ANY  # codecs of ours and of imagery keep the limits themselves
        prepare(pipeline, chunks=array.chunks or (1,), dtype=array.dtype, limits=limits)
        return ZarrCodecs(kind, zarr_list(pipeline, array.dtype), pipeline=pipeline)
    except PeriplusError as error:
        return ZarrCodecs("decoded", plain(array.dtype), error.message)


def with_facts(encoding: Encoding, array: Array) -> Pipeline:
    """The codecs, with the other facts of the encoding as codecs and settings; NotRepresentableError where none fit."""
    unknown = next((name for codec in encoding.codecs if (name := str(codec.get("name", ""))) not in CODECS), None)
    if unknown is not None:
        raise NotRepresentableError(f"codec {unknown!r} is unknown")
    if encoding.region is not None:
        raise NotRepresentableError("its chunks are composed of regions of stored ones")
    extent = encoding.extent or array.chunks
    codecs, rows = encoding.codecs, last_rows(encoding, array)
    if rows is not None:
        prepare(encoding, chunks=array.chunks, dtype=array.dtype, limits=ANY)  # invalid settings raise here
        codecs = _short(codecs, extent, array.dtype, rows)
    if extent == array.chunks:
        return codecs
    return ({"name": CROP, "configuration": {"shape": list(extent)}}, *codecs)


def last_rows(encoding: Encoding, array: Array) -> int | None:
    """How many rows a stored chunk may have that has fewer than others; None where all are whole."""
    extent = encoding.extent or array.chunks
    sides = zip(array.dims, array.shape, array.chunks, extent, strict=True)
    cut = {dim: (n % chunk, chunk) for dim, n, chunk, stored in sides if n % chunk or stored > chunk}
    clipped = [dim for dim in encoding.clipped if dim in cut]
    if not clipped:
        return None
    (rest, rows), *others = (cut[dim] for dim in clipped)
    # Where the array shows the first rows of stored chunks, all of these may be clipped to what it shows.
    two = rest and array.grid[-2] > 1 and extent[-2] > rows
    if others or array.ndim < 2 or clipped[0] != array.dims[-2] or two:
        raise NotRepresentableError(f"its chunks are clipped along {', '.join(clipped)}, which no codec supports")
    return rest or rows


def _short(codecs: Pipeline, chunks: Shape, dtype: np.dtype[Any], rows: int) -> Pipeline:
    """The codecs with the setting for clipped chunks: image codecs have one, periplus.pipeline for all others."""
    if codecs[0]["name"] == unpack.NAME:
        stored = unpack.stored_dtype(codecs[0].get("configuration") or {})
        return (codecs[0], *_short(codecs[1:], chunks, stored, rows))
    own = len(codecs) == 1 and codecs[0]["name"] in (TIFF_TILE, JBP_BLOCK, JPEG, LIST)
    tile = codecs[0] if own else None
    for make in (block, interleaved):
        tile = tile or make(codecs, chunks=chunks, dtype=dtype)
    if tile is None:
        return (as_one(codecs, chunks, dtype, last_rows=rows),)
    return ({"name": tile["name"], "configuration": {**tile["configuration"], "last_rows": rows}},)


def exclusive(pipeline: Pipeline, array: Array) -> Pipeline:
    """The pipeline, as one codec under our own name where another library has its name and cannot decode it.

    osml-imagery-io ignores settings that it does not have, and decodes a tile of JPEG 2000 as if it lay at the origin.
    """
    name = str(pipeline[0].get("name", "")) if pipeline else ""
    if not name.startswith(IMAGERY) or imagery_fault(pipeline[0]) is None:
        return pipeline
    rows = (pipeline[0].get("configuration") or {}).get("last_rows")
    return (as_one(pipeline, array.chunks, array.dtype, **({} if rows is None else {"last_rows": rows})),)


def one_codec(pipeline: Pipeline, array: Array) -> Codec | None:
    """A whole pipeline as one codec that has the shape of its chunks: an image codec, or ours; None where none fits."""
    if not is_number(array.dtype):
        return None
    for make in (block, interleaved):
        tile = make(pipeline, chunks=array.chunks, dtype=array.dtype)
        if tile is not None:
            return exclusive((tile,), array)[0]
    return as_one(pipeline, array.chunks, array.dtype)


def as_one(pipeline: Pipeline, chunks: Shape, dtype: np.dtype[Any], **more: Any) -> Mapping[str, Any]:
    """A whole pipeline as one codec of ours."""
    settings = {
        "codecs": jsonable(list(pipeline)),
        "shape": list(chunks),
        "dtype": dtype.newbyteorder("<").str,
        **more,
    }
    return {"name": LIST, "configuration": settings}


def single_ranges(refs: Refs) -> NDArray[np.bool_]:
    """Which rows are a whole chunk in a file, of at least one byte; the rows of a chunk follow each other."""
    single = refs.length > 0
    if refs.file is not None:
        single &= refs.file >= 0
    if refs.part is not None and len(refs):
        same = (refs.chunk[:, 1:] == refs.chunk[:, :-1]).all(axis=0)
        single[1:] &= ~same
        single[:-1] &= ~same
    return single


def plain(dtype: np.dtype[Any]) -> Pipeline:
    """The codecs of chunks that are returned decoded."""
    return (bytes_codec(dtype.newbyteorder("<")),)


def array_document(
    shape: Shape,
    chunks: Shape,
    dims: Sequence[str],
    *,
    data_type: Any,
    fill_value: Any,
    codecs: Pipeline,
    attributes: Mapping[str, Any],
) -> dict[str, Any]:
    """Zarr v3 metadata of an array."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": [dict(codec) for codec in codecs],
        "attributes": attributes,
        "dimension_names": list(dims),
    }


def data_type(dtype: np.dtype[Any]) -> Any:
    """The type of values as Zarr v3 names it; those beyond the numbers are as zarr-python registers them."""
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    if dtype.kind in "SU":
        name = "null_terminated_bytes" if dtype.kind == "S" else "fixed_length_utf32"
        return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def fill_value(fill: NDArray[Any]) -> Any:
    """A value of an array as metadata of Zarr v2 and v3 have it."""
    if fill.dtype.kind == "S":
        return base64.b64encode(fill.item()).decode()
    return int(fill.view(np.int64)) if fill.dtype.kind in "mM" else jsonable(fill)


def _is_regular(array: Array) -> bool:
    """Whether the sizes listed are those of a regular grid after all: full chunks, the last one perhaps cut."""
    return all(
        edges is None or (all(n == size for n in edges[:-1]) and edges[-1:] in ((), (size,)))
        for edges, size in zip(array.edges or (), array.chunks, strict=True)
    )


def _meaning(encoding: Encoding) -> str:
    """A text that is equal for encodings that decode alike."""
    kept = [
        [codec.get("name"), {k: v for k, v in (codec.get("configuration") or {}).items() if k not in _COMPRESSION_ONLY}]
        for codec in encoding.codecs
    ]
    return json.dumps(
        [kept, encoding.extent, encoding.clipped, repr(encoding.region)], sort_keys=True, default=jsonable
    )


def zarr_list(pipeline: Pipeline, dtype: np.dtype[Any]) -> Pipeline:
    """The codecs as Zarr lists them: an image codec follows `bytes`, whose bytes it yields, little-endian."""
    listed: list[Codec] = []
    for codec in pipeline:
        name, configuration = str(codec["name"]), codec.get("configuration") or {}
        if name in IMAGES:
            listed += plain(dtype)
        elif name == unpack.NAME:
            dtype = unpack.stored_dtype(configuration)
        settings = {} if name == "bytes" and dtype.kind == "S" else jsonable(configuration)
        listed.append(_strict(name, settings))
    return tuple(listed)


def _strict(name: str, settings: dict[str, Any]) -> Mapping[str, Any]:
    """A codec with settings that zarr-python accepts, which also checks those of compression."""
    name = {"zlib": "numcodecs.zlib"}.get(name, name)
    if name in LEVELS:
        low, high = LEVELS[name]
        level = settings.get("level")
        settings = {"level": level if type(level) is int and low <= level <= high else low}
        if name == "zstd":
            settings["checksum"] = False
    elif name == "bytes":
        settings = {key: settings[key] for key in ("endian",) if settings.get(key) is not None}
    elif name == "transpose":
        settings = {"order": settings["order"]}
    return {"name": name, **({"configuration": settings} if settings else {})}


def jsonable(value: Any) -> Any:
    """The value as JSON has it: numbers that JSON lacks as Zarr spells them, anything else as text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, complex):
        return [jsonable(value.real), jsonable(value.imag)]
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | memoryview):
        return [jsonable(item) for item in value]
    return str(value)
