"""Nodata, scale and offset of arrays, what missing chunks mean, and the attributes that files have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from periplus.model import Array, Codec, Refs
from periplus.model.codecnames import UNPACK

NAMES = ("_FillValue", "scale_factor", "add_offset")


class Packing(NamedTuple):
    """Nodata, scale and offset of an array; None if its attributes do not have them."""

    nodata: Any = None
    scale: Any = None
    offset: Any = None

    @property
    def key(self) -> str:
        """Equal for equal packings, including those with NaN."""
        return json.dumps([_plain(part) for part in self])

    def __str__(self) -> str:
        return f"nodata {_plain(self.nodata)}, scale {_plain(self.scale)}, offset {_plain(self.offset)}"


def packing_of(array: Array) -> Packing:
    """Nodata, scale and offset in the attributes of an array."""
    return Packing(*(array.attributes.get(name) for name in NAMES))


def same_packing(arrays: Iterable[Array]) -> bool:
    """Whether stored values mean the same in all arrays; masks do not count."""
    return len({packing_of(array).key for array in arrays if not array.is_mask}) < 2


def physical_dtype(stored: np.dtype[Any]) -> np.dtype[Any] | None:
    """The float type that holds every stored value exactly; None if there is none (64-bit integers, complex)."""
    if stored.kind in "iub":
        return np.dtype(np.float32) if stored.itemsize <= 2 else np.dtype(np.float64) if stored.itemsize == 4 else None
    if stored.kind == "f":
        return np.dtype(np.float32) if stored.itemsize <= 4 else stored if stored.itemsize == 8 else None
    return None


def unpack_codec(stored: np.dtype[Any], packing: Packing) -> Codec:
    """The codec that converts stored values to physical ones."""
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
    """The attributes without nodata, scale and offset."""
    return {name: value for name, value in attributes.items() if name not in NAMES}


def physical_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of physical values: nodata is NaN; scale and offset have been applied."""
    return {NAMES[0]: math.nan, **without_packing(attributes)}


def has_missing_chunks(array: Array, refs: Refs) -> bool:
    """Whether a file does not store all chunks of its array."""
    stored = len(refs) if refs.part is None else int((refs.part == 0).sum())
    return stored < math.prod(array.grid)


def common_attributes(many: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The attributes that are equal in all; of an attribute that is a mapping, the fields that are."""
    shared: dict[str, Any] | None = None
    last: Mapping[str, Any] | None = None
    for attributes in many:
        if shared is None:
            shared = dict(attributes)
        elif attributes is not last:
            shared = _intersection(shared, attributes)
        last = attributes
    return shared or {}


def _intersection(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in ours.items():
        other = theirs.get(name)
        if name in theirs and _equal(value, other):
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(other, Mapping):
            fields = {field: v for field, v in value.items() if field in other and _equal(v, other[field])}
            found |= {name: fields} if fields else {}
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    # 0 and 0.0 are equal: files, and indexes of them, may have either.
    return int(value) if isinstance(value, float) and value.is_integer() else value
