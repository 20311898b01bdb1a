"""Codecs of either version as one list in the style of Zarr v3; which of them can be decoded is not checked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.model import Codec, Pipeline
from periplus.model.codecnames import (
    DTED,
    JBP_BLOCK,
    JPEG,
    JPEG2000,
    OURS,
    PIPELINE,
    PNG,
    TIFF_TILE,
    VECTOR_QUANTISED,
)
from periplus.parse.json import abbreviated

ENDIAN = {"<": "little", ">": "big"}
STANDARD = ("zstd", "gzip", "blosc", "crc32c")
"""Compressors and checksums that have the same name in Zarr v3 and in numcodecs."""
OBJECTS = ("vlen-utf8", "vlen-bytes", "vlen-array")
"""Codecs that make bytes of strings and other values of variable length."""
IMAGES = frozenset({JPEG2000, JPEG, JBP_BLOCK, TIFF_TILE, DTED, PNG, VECTOR_QUANTISED, PIPELINE})
"""Codecs of whole blocks of an image: array to bytes."""
DELTA, FLOAT_PREDICTOR = OURS + "delta", OURS + "floatpred"
ON_VALUES = frozenset(
    {
        *(f"numcodecs.{name}" for name in ("delta", "fixedscaleoffset", "quantize", "bitround", "astype")),
        DELTA,
        FLOAT_PREDICTOR,
    }
)
"""Filters on values: array to array."""
IMAGECODECS = {
    "imagecodecs_zstd": "zstd",
    "imagecodecs_zlib": "numcodecs.zlib",
    "imagecodecs_deflate": "numcodecs.zlib",
    "imagecodecs_lzma": "numcodecs.lzma",
    "imagecodecs_lzw": OURS + "lzw",
    "imagecodecs_packbits": OURS + "packbits",
    "imagecodecs_delta": DELTA,
    "imagecodecs_floatpred": FLOAT_PREDICTOR,
}
"""Names of TIFF's codecs in references of tifffile and kerchunk; their settings repeat facts of the array."""
SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
"""Values of blosc's setting in numcodecs and in Zarr v3."""


def bytes_codec(dtype: np.dtype[Any]) -> Codec:
    """The codec that stores values in the byte order of a dtype."""
    if dtype.itemsize == 1 or dtype.kind == "S":
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": ENDIAN[dtype.newbyteorder(dtype.byteorder).str[0]]}}


def v3_codecs(value: Any) -> Pipeline:
    """The codecs of a `zarr.json`, each as an object with a name and, where it has settings, a configuration."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise FormatError("codecs must be a list of at least one codec")
    return tuple(_v3_codec(codec) for codec in value)


def _v3_codec(value: Any) -> Codec:
    codec = {"name": value} if isinstance(value, str) else value
    if not isinstance(codec, Mapping) or not isinstance(codec.get("name"), str):
        raise FormatError("a codec is an object with a name")
    name, settings = codec["name"], codec.get("configuration") or {}
    if not isinstance(settings, Mapping):
        raise FormatError(f"the configuration of codec {abbreviated(name)} must be an object")
    return {"name": name, "configuration": dict(settings)} if settings else {"name": name}


def v2_codecs(value: Sequence[Any], *, dtype: np.dtype[Any] | None, rank: int, order: str) -> Pipeline:
    """The filters and the compressor of a `.zarray` as codecs of Zarr v3.

    `dtype` is that of the array in its stored byte order, None where no array of ours has it. The memory order `F` is
    a transpose. A codec of whole images stands alone: it yields the values themselves.
    """
    stages = [_v2_codec(codec, dtype) for codec in value]
    images = [stage for stage in stages if stage["name"] in IMAGES]
    if images:
        if len(stages) > 1:
            raise FormatError(f"codec {images[0]['name']!r} cannot be combined with others")
        return (images[0],)
    on_values = [stage for stage in stages if stage["name"] in ON_VALUES]
    if stages[: len(on_values)] != on_values:
        raise FormatError(f"filter {on_values[-1]['name']!r} follows a codec of bytes")
    rest = stages[len(on_values) :]
    head: list[Codec] = []
    if order == "F" and rank > 1:
        head.append({"name": "transpose", "configuration": {"order": list(range(rank))[::-1]}})
    if rest and rest[0]["name"] in OBJECTS:
        return (*head, *on_values, *rest)
    if dtype is None:
        return (*head, *on_values, {"name": "bytes"}, *rest)
    stored = _stored_dtype(on_values, dtype)
    if stored.str[0] == ">" and any(stage["name"] == FLOAT_PREDICTOR for stage in on_values):
        raise FormatError("a float predictor of big-endian values is unsupported")
    return (*head, *on_values, bytes_codec(stored), *rest)


def _stored_dtype(filters: Sequence[Codec], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that is stored as bytes, where filters change it."""
    for codec in filters:
        settings = codec.get("configuration") or {}
        changed = settings.get("encode_dtype", settings.get("astype"))
        if changed is None:
            continue
        try:
            dtype = np.dtype(changed if isinstance(changed, str) else "V")
        except (TypeError, ValueError, SyntaxError):
            dtype = np.dtype("V")
        if dtype.kind not in "biufc":
            raise FormatError(f"codec {codec['name']!r} stores {abbreviated(changed)}, which is not a type of numbers")
    if filters and dtype.kind not in "biufc":
        raise FormatError(f"filter {filters[0]['name']!r} cannot be applied to values of type {dtype}")
    return dtype


def _v2_codec(codec: Any, dtype: np.dtype[Any] | None) -> Codec:
    if not isinstance(codec, Mapping) or not isinstance(codec.get("id"), str):
        raise FormatError("a codec of Zarr v2 is an object with an id")
    name, settings = codec["id"], {key: value for key, value in codec.items() if key != "id"}
    itemsize = 1 if dtype is None else dtype.itemsize
    if name in IMAGECODECS:
        name, settings = IMAGECODECS[name], {"axis": settings["axis"]} if "axis" in settings else {}
    elif name == "blosc":
        settings = _blosc(settings, itemsize)
    elif name == "gzip":
        settings = {"level": settings.get("level", 1)}
    elif name == "zstd":
        settings = {"level": settings.get("level", 0), "checksum": bool(settings.get("checksum", False))}
    elif name not in (*STANDARD, *OBJECTS) and name not in IMAGES:
        if name == "shuffle":
            settings = {"elementsize": settings.get("elementsize", itemsize)}
        name = f"numcodecs.{name}"
    return {"name": name, "configuration": settings} if settings else {"name": name}


def _blosc(settings: Mapping[str, Any], itemsize: int) -> dict[str, Any]:
    shuffle = settings.get("shuffle", 1)
    if shuffle == -1:
        shuffle = 2 if itemsize == 1 else 1
    if type(shuffle) is not int or shuffle not in SHUFFLES:
        raise FormatError(f"blosc has no shuffle {abbreviated(shuffle)}")
    return {
        "typesize": itemsize,
        "cname": settings.get("cname", "lz4"),
        "clevel": settings.get("clevel", 5),
        "shuffle": SHUFFLES[shuffle],
        "blocksize": settings.get("blocksize", 0),
    }
