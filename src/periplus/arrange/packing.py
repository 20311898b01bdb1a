"""How stored values mean physical ones (nodata, scale, offset), and the codec that says so where files differ."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from periplus.model import Array, Codec, Encoding, Pipeline, Shape
from periplus.model.codecnames import UNPACK

NAMES = ("_FillValue", "scale_factor", "add_offset")


class Packing(NamedTuple):
    """Nodata, scale and offset as an array's attributes give them; None where they say nothing."""

    nodata: Any = None
    scale: Any = None
    offset: Any = None

    @property
    def key(self) -> str:
        """Equal for equal packings, NaN included."""
        return json.dumps([_plain(part) for part in self])

    def __str__(self) -> str:
        return f"nodata {_plain(self.nodata)}, scale {_plain(self.scale)}, offset {_plain(self.offset)}"


def packing_of(array: Array) -> Packing:
    """What the array's attributes say."""
    return Packing(*(array.attributes.get(name) for name in NAMES))


def physical_dtype(stored: np.dtype[Any]) -> np.dtype[Any] | None:
    """The float that holds every stored value exactly; None where there is none (64-bit integers, complex)."""
    if stored.kind in "iub":
        return np.dtype(np.float32) if stored.itemsize <= 2 else np.dtype(np.float64) if stored.itemsize == 4 else None
    if stored.kind == "f":
        return np.dtype(np.float32) if stored.itemsize <= 4 else stored if stored.itemsize == 8 else None
    return None


def unpack_codec(stored: np.dtype[Any], packing: Packing) -> Codec:
    """The codec that turns stored values into physical ones."""
    return {
        "name": UNPACK,
        "configuration": {
            "dtype": stored.str,
            "nodata": packing.nodata,
            "scale": packing.scale,
            "offset": packing.offset,
        },
    }


def without_packing(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes apart from nodata, scale and offset."""
    return {name: value for name, value in attributes.items() if name not in NAMES}


def physical(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of unpacked values: their nodata is NaN, and scale and offset must not be applied a second time."""
    return {NAMES[0]: math.nan, **without_packing(attributes)}


def unpacked(encoding: Encoding, array: Array) -> Encoding:
    """The encoding of an array, with its values turned into physical ones."""
    return replace(encoding, codecs=(unpack_codec(array.dtype, packing_of(array)), *encoding.codecs))


def raised(encoding: Encoding) -> Encoding:
    """The encoding for an array with one more leading dimension of chunk size 1."""
    codecs = _with_orders(encoding.codecs, lambda order: [0, *(axis + 1 for axis in order)])
    return _with_shapes(encoding, codecs, lambda shape, first: (first, *shape))


def lowered(encoding: Encoding) -> Encoding:
    """The inverse of `raised`."""
    codecs = _with_orders(encoding.codecs, lambda order: [axis - 1 for axis in order[1:]])
    return _with_shapes(encoding, codecs, lambda shape, _: shape[1:])


def split_unpack(encoding: Encoding) -> tuple[Codec | None, Encoding]:
    """The unpacking codec, if the codecs begin with one, and the encoding without it."""
    codecs = encoding.codecs
    if codecs and codecs[0]["name"] == UNPACK:
        return codecs[0], replace(encoding, codecs=codecs[1:])
    return None, encoding


def _with_shapes(encoding: Encoding, codecs: Pipeline, change: Callable[[Shape, int], Shape]) -> Encoding:
    extent, region = encoding.extent, encoding.region
    if extent is not None:
        extent = change(extent, 1)
    if region is not None:
        begin, at, size = change(region.begin, 0), change(region.at, 0), change(region.size, 1)
        region = replace(region, begin=begin, at=at, size=size)
    return replace(encoding, codecs=codecs, extent=extent, region=region)


def _with_orders(codecs: Pipeline, change: Callable[[list[int]], list[int]]) -> Pipeline:
    return tuple(_with_order(codec, change) for codec in codecs)


def _with_order(codec: Codec, change: Callable[[list[int]], list[int]]) -> Codec:
    if codec["name"] != "transpose":
        return codec
    settings = codec["configuration"]
    return {**codec, "configuration": {**settings, "order": change(list(settings["order"]))}}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    # 0 and 0.0 are one number; which of them a file says, and an index after it, differs.
    return int(value) if isinstance(value, float) and value.is_integer() else value
