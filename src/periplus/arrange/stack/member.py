"""One stacked array: the shape all its files share, its encodings, and which of them each file uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.encodings import Book
from periplus.arrange.packing import (
    packing_of,
    physical,
    physical_dtype,
    raised,
    unpacked,
)
from periplus.model import Array, Encoding, Refs


@dataclass(slots=True, kw_only=True, eq=False)
class Layer:
    """An array of a stack while it is being laid."""

    name: str
    like: Array
    """The first file's array, without the new dimension."""
    packed: bool
    """Whether stored values are turned into physical ones while decoding, because files differ in what they mean."""
    attributes: dict[str, Any]
    book: Book
    _codes: dict[int, NDArray[np.uint16]] = field(default_factory=dict)

    def codes(self, array: Array) -> NDArray[np.uint16]:
        """For each encoding of a file's array, its number here; those not seen before are added."""
        known = self._codes.get(id(array))
        if known is None:
            known = self._codes[id(array)] = np.array([self._add(each, array) for each in array.encodings], np.uint16)
        return known

    def _add(self, encoding: Encoding, array: Array) -> int:
        lifted = raised(encoding)
        return self.book.number(unpacked(lifted, array) if self.packed else lifted)

    def array(self, dim: str, steps: int) -> Array:
        """The stacked array."""
        like = self.like
        dtype, fill = like.dtype, like.fill
        if self.packed:
            dtype, fill = physical_dtype(like.dtype) or like.dtype, math.nan
        return Array(
            name=self.name,
            dims=(dim, *like.dims),
            shape=(steps, *like.shape),
            chunks=(1, *like.chunks),
            dtype=dtype,
            fill=fill,
            encodings=tuple(self.book.encodings),
            attributes=self.attributes,
            level=like.level,
            georeference=like.georeference,
            edges=None if like.edges is None else (None, *like.edges),
        )


def lay(name: str, arrays: Sequence[Array], *, gaps: bool) -> Layer:
    """The layer of arrays that fit; with `gaps` some steps have no file, so a hole needs a value that says so."""
    first = arrays[0]
    packed = needs_unpacking(arrays, gaps=gaps)
    attributes = common(array.attributes for array in arrays)
    if packed:
        attributes = physical(attributes)
    layer = Layer(name=name, like=first, packed=packed, attributes=attributes, book=Book(name))
    for array in arrays:
        layer.codes(array)
    return layer


def needs_unpacking(arrays: Sequence[Array], *, gaps: bool) -> bool:
    """Whether raw values of these arrays would not mean the same, or a missing step could be taken for data."""
    first = arrays[0]
    if first.is_mask:  # a mask's missing chunk is 0, which says just that
        return False
    packings = {packing_of(array).key for array in arrays}
    hole = first.fill is not None and packing_of(first).nodata is not None
    return len(packings) > 1 or (gaps and not hole)


def hides_holes(array: Array) -> bool:
    """Whether a missing chunk of this file means a value, which a stack of physical values would show as a hole."""
    return packing_of(array).nodata is None


def is_sparse(array: Array, refs: Refs) -> bool:
    """Whether a file does not store all chunks of its array."""
    stored = len(refs) if refs.part is None else int((refs.part == 0).sum())
    return stored < math.prod(array.grid)


def clash(a: Array, b: Array) -> str | None:
    """Why two arrays that fit in shape cannot share one array of values, or None."""
    ours, theirs = packing_of(a), packing_of(b)
    if a.is_mask or ours.key == theirs.key or physical_dtype(a.dtype) is not None:
        return None
    return f"{a.name} has {ours}, not {theirs}, and no float holds every {a.dtype} exactly"


def common(many: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The attributes on which all agree; of one that is a table of fields, the fields on which all do."""
    shared: dict[str, Any] | None = None
    last: Mapping[str, Any] | None = None
    for attributes in many:
        if shared is None:
            shared = dict(attributes)
        elif attributes is not last:
            shared = _agreed(shared, attributes)
        last = attributes
    return shared or {}


def _agreed(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in ours.items():
        other = theirs.get(name)
        if name in theirs and _same(value, other):
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(other, Mapping):
            fields = {field: v for field, v in value.items() if field in other and _same(v, other[field])}
            found |= {name: fields} if fields else {}
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)
