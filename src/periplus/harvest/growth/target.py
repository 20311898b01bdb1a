"""An array of an index, and the arrays and references of its files, checked against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.compatibility import equal_crs
from periplus.arrange.encodings import remove_leading_dimension, split_unpack
from periplus.arrange.packing import NAMES, Packing, packing_of, physical_dtype, without_packing
from periplus.errors import FormatError
from periplus.model import Array, Codec, Encoding, Georeference, Refs, Transform, affine, codecnames

TRIMS = ("trim_top", "trim_right")
"""Settings that an elevation mosaic adds to the codec of a cell: rows and columns that the mosaic does not show."""
SIZE_TOLERANCE = 1e-5
"""Fraction of a pixel by which pixels of a file and of the array may differ."""
ORIGIN_TOLERANCE = 1e-2
"""Fraction of a pixel by which the corner of a file may be off its origin in the array; when files are arranged, they
are within a tenth of it."""


@dataclass(frozen=True, slots=True, eq=False)
class _EncodingParts:
    """For each encoding of the array, which part of which stored chunk it shows; dimensions are those of the file."""

    own: NDArray[np.int64]
    """Number of the encoding in the file; -1 if the file does not have it."""
    at: NDArray[np.int64]
    """(encodings, dimensions): first element in the chunk of the array."""
    begin: NDArray[np.int64]
    """First element in the stored chunk."""
    extent: NDArray[np.int64]
    """Shape of the stored chunk; -1 if it is that of the chunk of the array."""
    trim: NDArray[np.int64]
    """Elements of the stored chunk that the codec omits."""


@dataclass(slots=True, eq=False)
class TargetArray:
    """An array of an index, of which arrays of files are parts.

    Placements describe the arrays of files. Metadata that the array of the index has as well is taken from it, and a
    description that contradicts it is a FormatError.
    """

    array: Array
    starts: list[NDArray[np.int64]]
    physical: bool
    """Whether values are converted to physical ones."""
    _parts: dict[int, _EncodingParts] = field(default_factory=dict)
    _sources: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    """Descriptions and the arrays made of them, by identity."""

    @classmethod
    def of(cls, array: Array) -> TargetArray:
        physical = any(split_unpack(encoding)[0] is not None for encoding in array.encodings)
        return cls(array, [array.starts(d) for d in range(array.ndim)], physical)

    # --- arrays of files ----------------------------------------------------------------------------------------------

    def source_array(self, described: Array) -> Array:
        """The array of a file, with what the array of the index has for all of its files."""
        if id(described) not in self._sources:
            self._check(described)
            self._sources[id(described)] = described, self._completed(described)
        return self._sources[id(described)][1]

    def _completed(self, described: Array) -> Array:
        ours = self.array
        if self.physical or ours.is_mask:
            return replace(described, attributes={**without_packing(ours.attributes), **described.attributes})
        attributes = {
            **without_packing(described.attributes),
            **{n: v for n, v in ours.attributes.items() if n in NAMES},
        }
        return replace(described, attributes={**without_packing(ours.attributes), **attributes}, fill=ours.fill)

    def _check(self, described: Array) -> None:
        """FormatError if a description contradicts the array."""
        ours, lead = self.array, self.array.ndim - described.ndim
        stored = physical_dtype(described.dtype) if self.physical else described.dtype
        theirs, place = described.georeference or Georeference(), ours.georeference or Georeference()
        contradictions = {
            "names": ours.name != described.name and not ours.name.endswith("/" + described.name),
            "values": stored != ours.dtype,
            "levels": described.level != ours.level,
            "chunks": bool(lead) and (described.chunks != ours.chunks[lead:] or self._edges(lead) != _edges(described)),
            "CRS": not equal_crs(theirs.crs, place.crs),
            "registration": theirs.registration != place.registration,
            "pixels": not _same_pixels(theirs.transform, place.transform),
            "encodings": bool(described.encodings) and int(self._parts_of(described).own.max(initial=-1)) < 0,
            "control points": bool(lead) and theirs.gcps != place.gcps,
            "polynomials": bool(lead) and theirs.rpc != place.rpc,
        }
        what = next((name for name, wrong in contradictions.items() if wrong), None)
        if what is not None:
            raise FormatError(
                f"the placements of {ours.name!r} describe an array of a file with other {what} than it has"
            )

    def _edges(self, lead: int) -> list[tuple[int, ...] | None]:
        return _edges(self.array)[lead:]

    def check_origin(self, source: Array, origin: NDArray[np.int64]) -> None:
        """FormatError if the corner of a file is not at its origin."""
        place, ours = self.array.georeference, source.georeference
        if place is None or ours is None or place.transform is None or ours.transform is None:
            return
        a, b, _, d, e, _ = place.transform
        if not math.isfinite(a * e - b * d) or a * e == b * d:
            return
        row, column = affine.position(place.transform, ours.transform[2], ours.transform[5])
        expected = origin[self.array.ndim - 2 : self.array.ndim]
        if not max(abs(row - expected[0]), abs(column - expected[1])) <= ORIGIN_TOLERANCE:
            raise FormatError(f"a placement in {self.array.name!r} has another origin than the corner of its file")

    # --- references ---------------------------------------------------------------------------------------------------

    def source_refs(self, rows: Refs, source: Array, origin: NDArray[np.int64]) -> Refs:
        """Rows of one placement in chunks of the file, each stored chunk once."""
        parts, lead = self._parts_of(source), self.array.ndim - source.ndim
        code = np.zeros(len(rows), np.intp) if rows.encoding is None else rows.encoding.astype(np.intp)
        if len(rows) and int(parts.own[code].min()) < 0:
            raise FormatError(f"a row of {self.array.name!r} has an encoding that its file does not have")
        chunk = np.empty((source.ndim, len(rows)), np.int32)
        right = np.ones(len(rows), bool)
        for d in range(lead):
            right &= rows.chunk[d] == origin[d]
        own = parts.own[code]
        for dim in range(source.ndim):
            d, starts = dim + lead, source.starts(dim)
            first = self.starts[d][rows.chunk[d]] - origin[d] + parts.at[code, dim]
            number = np.clip(np.searchsorted(starts, first, side="right") - 1, 0, max(source.grid[dim] - 1, 0))
            right &= first - starts[number] == parts.begin[code, dim]
            right &= self._stored_size(rows, d, parts, code) == _size(source, dim, number, own)
            chunk[dim] = number
        if not right.all():
            raise FormatError(f"rows of {self.array.name!r} are not where their placement is")
        found = replace(rows, chunk=chunk, file=None, encoding=own.astype(np.uint16) if own.any() else None)
        return _once(found, rows, source)

    def _stored_size(self, rows: Refs, d: int, parts: _EncodingParts, code: NDArray[np.intp]) -> NDArray[np.int64]:
        """Elements of the stored chunk of each row along a dimension of the array."""
        dim = d - (self.array.ndim - parts.extent.shape[1])
        uneven = _edges(self.array)[d] is not None
        shown = np.diff(self.starts[d])[rows.chunk[d]] if uneven else np.full(len(rows), self.array.chunks[d])
        extent = parts.extent[code, dim]
        return np.where(extent < 0, shown, extent) + parts.trim[code, dim]  # type: ignore[no-any-return]

    def _parts_of(self, source: Array) -> _EncodingParts:
        if id(source) not in self._parts:
            self._parts[id(source)] = self._matched(source)
        return self._parts[id(source)]

    def _matched(self, source: Array) -> _EncodingParts:
        lead, none = self.array.ndim - source.ndim, (0,) * source.ndim
        packing = (source.dtype.str, packing_of(source).key) if self.physical else None
        numbers = {(_whole(encoding), packing): n for n, encoding in enumerate(source.encodings)}
        own, columns = [], []
        for encoding in self.array.encodings:
            unpack, plain = split_unpack(encoding)
            if lead:
                plain = remove_leading_dimension(plain)
            own.append(numbers.get((_whole(plain), None if unpack is None else _packing(unpack)), -1))
            trim = _trims(plain.codecs, source.ndim)
            region = plain.region
            columns.append(
                (
                    none if region is None else region.at,
                    (*none[:-2], *(trim[-2:-1]), *none[-1:]) if region is None else region.begin,
                    (-1,) * source.ndim if plain.extent is None else plain.extent,
                    trim,
                )
            )
        shape = len(self.array.encodings), 4, source.ndim
        at, begin, extent, trims = np.array(columns, np.int64).reshape(shape).transpose(1, 0, 2)
        return _EncodingParts(np.array(own, np.int64), at, begin, extent, trims)


def _edges(array: Array) -> list[tuple[int, ...] | None]:
    return [None] * array.ndim if array.edges is None else list(array.edges)


def _same_pixels(a: Transform | None, b: Transform | None) -> bool:
    """Whether pixels of two transforms have the same size and direction."""
    if a is None or b is None:
        return a is b
    pixel = min(abs(b[0]) + abs(b[3]), abs(b[1]) + abs(b[4]))
    return all(abs(a[k] - b[k]) <= SIZE_TOLERANCE * pixel for k in (0, 1, 3, 4))


def _size(source: Array, dim: int, chunk: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Elements of stored chunks of a file along a dimension."""
    uneven = _edges(source)[dim] is not None
    plain = np.diff(source.starts(dim))[chunk] if uneven else np.full(len(chunk), source.chunks[dim])
    given = [-1 if encoding.extent is None else encoding.extent[dim] for encoding in source.encodings]
    extent = np.array(given, np.int64)[own]
    return np.where(extent < 0, plain, extent)


def _packing(unpack: Codec) -> tuple[Any, str]:
    """Type and packing of stored values, as a codec that converts them has them."""
    settings = unpack["configuration"]
    return settings.get("dtype"), Packing(*(settings.get(name) for name in ("nodata", "scale", "offset"))).key


def _trims(codecs: Sequence[Codec], ndim: int) -> tuple[int, ...]:
    """Rows and columns that the codec of an elevation cell omits."""
    trims = (0,) * ndim
    if ndim >= 2 and _is_elevation(codecs):
        settings = codecs[0].get("configuration") or {}
        trims = (*trims[:-2], *(int(settings.get(name) == 1) for name in TRIMS))
    return trims


def _is_elevation(codecs: Sequence[Codec]) -> bool:
    return len(codecs) == 1 and codecs[0]["name"] == codecnames.DTED


def _whole(encoding: Encoding) -> Encoding:
    """The encoding of a stored chunk, without the part that an array shows."""
    codecs = encoding.codecs
    if _is_elevation(codecs):
        settings = codecs[0].get("configuration") or {}
        codecs = ({**codecs[0], "configuration": {**settings, **dict.fromkeys(TRIMS, 0)}},)
    return replace(encoding, codecs=codecs, extent=None, region=None)


def _once(found: Refs, rows: Refs, source: Array) -> Refs:
    """Each stored chunk once, its parts numbered from 0; several chunks of the target may show parts of it."""
    if not len(found):
        return found
    stored = np.ravel_multi_index(tuple(found.chunk), source.grid) if source.ndim else np.zeros(len(found), np.int64)
    _, shown = np.unique(rows.chunk, axis=1, return_inverse=True)
    part = np.zeros(len(rows), np.int64) if rows.part is None else rows.part.astype(np.int64)
    order = np.lexsort((part, shown.ravel(), stored))
    stored, shown = stored[order], shown.ravel()[order]
    begins = np.flatnonzero(np.diff(stored, prepend=-1))
    first = np.repeat(shown[begins], np.diff(np.append(begins, len(stored))))
    keep = shown == first
    order, stored = order[keep], stored[keep]
    begins = np.flatnonzero(np.diff(stored, prepend=-1))
    counted = np.arange(len(stored)) - np.repeat(begins, np.diff(np.append(begins, len(stored))))
    return replace(found.take(order), part=counted.astype(np.uint16) if counted.any() else None)
