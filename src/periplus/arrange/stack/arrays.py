"""One array of a stack: its files in the order of their steps, its encodings, and its references block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import Lookup, Placement, file_column
from periplus.arrange.encodings import EncodingList, add_leading_dimension, unpacked
from periplus.arrange.packing import (
    common_attributes,
    packing_of,
    physical_attributes,
    physical_dtype,
    same_packing,
)
from periplus.model import Array, Encoding, Refs

STEPS = 512
"""Steps in a block: long enough to read a time series from few row groups, short enough to read a map."""
ROWS = 1 << 22
"""Rows in a block, about 150 MB of columns."""


class StackedFile(NamedTuple):
    """A file in an array of a stack."""

    step: int
    entry: int
    array: int
    """Number of the array in the entry."""
    codes: NDArray[np.uint16]
    """For each encoding of the file's array, its number in the stack."""


@dataclass(slots=True, kw_only=True, eq=False)
class StackBuilder:
    """Collects the encodings of the files of one array of a stack."""

    name: str
    like: Array
    """The array of the first file, without the new dimension."""
    physical: bool
    """Whether stored values are converted to physical ones, because their meaning differs between files."""
    attributes: dict[str, Any]
    encodings: EncodingList
    _codes: dict[int, NDArray[np.uint16]] = field(default_factory=dict)

    def codes(self, array: Array) -> NDArray[np.uint16]:
        """For each encoding of a file's array, its number in the stack; new ones are added."""
        known = self._codes.get(id(array))
        if known is None:
            known = self._codes[id(array)] = np.array(
                [self._number(each, array) for each in array.encodings], np.uint16
            )
        return known

    def _number(self, encoding: Encoding, array: Array) -> int:
        stacked = add_leading_dimension(encoding)
        return self.encodings.number(unpacked(stacked, array) if self.physical else stacked)

    def array(self, dim: str, steps: int) -> Array:
        """The stacked array."""
        like = self.like
        dtype, fill = like.dtype, like.fill
        if self.physical:
            dtype, fill = physical_dtype(like.dtype) or like.dtype, math.nan
        return Array(
            name=self.name,
            dims=(dim, *like.dims),
            shape=(steps, *like.shape),
            chunks=(1, *like.chunks),
            dtype=dtype,
            fill=fill,
            encodings=tuple(self.encodings.encodings),
            attributes=self.attributes,
            level=like.level,
            georeference=like.georeference,
            edges=None if like.edges is None else (None, *like.edges),
        )


def stack_builder(name: str, arrays: Sequence[Array], *, gaps: bool) -> StackBuilder:
    """The builder for arrays that fit together; with `gaps`, some steps have no file."""
    physical = needs_physical_values(arrays, gaps=gaps)
    attributes = common_attributes(array.attributes for array in arrays)
    if physical:
        attributes = physical_attributes(attributes)
    builder = StackBuilder(
        name=name, like=arrays[0], physical=physical, attributes=attributes, encodings=EncodingList(name)
    )
    for array in arrays:
        builder.codes(array)
    return builder


def needs_physical_values(arrays: Sequence[Array], *, gaps: bool) -> bool:
    """Whether stored values mean different things, or a missing step could be mistaken for data."""
    first = arrays[0]
    if first.is_mask:  # a missing chunk of a mask is 0, which is its nodata
        return False
    has_nodata = first.fill is not None and packing_of(first).nodata is not None
    return not same_packing(arrays) or (gaps and not has_nodata)


def packing_conflict(a: Array, b: Array) -> str | None:
    """Why two arrays of one shape cannot share an array of physical values; None if they can."""
    ours, theirs = packing_of(a), packing_of(b)
    if a.is_mask or ours.key == theirs.key or physical_dtype(a.dtype) is not None:
        return None
    return f"{a.name} has {ours}, not {theirs}, and no float type holds every {a.dtype} exactly"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedArray:
    """An array of a stack with its files."""

    array: Array
    like: Array
    """The array of the first file, without the new dimension."""
    files: Sequence[StackedFile]
    """In the order of their steps."""
    physical: bool = False
    """Whether stored values are converted to physical ones."""
    start: int = 0
    """The first entry whose references are needed; those of earlier entries are already in the index."""

    @property
    def placements(self) -> list[Placement]:
        """All files in order; the whole array of each file is one step."""
        rest = (0,) * self.like.ndim
        extent = (1, *self.like.shape)
        return [Placement(f.entry, f.array, self.array.name, (f.step, *rest), extent, f.entry) for f in self.files]

    def blocks(self, refs: Lookup) -> Iterator[tuple[str, Refs]]:
        """References of up to 512 steps at a time, and never more rows than fit in memory."""
        files = [file for file in self.files if file.entry >= self.start]
        for start in range(0, len(files), STEPS):
            block = files[start : start + STEPS]
            slabs = _slabs(self.like, len(block))
            for slab in slabs:
                found = [refs(file.entry, file.array) for file in block]
                if len(slabs) > 1:
                    found = [_chunk_rows(each, *slab) for each in found]
                joined = self._join(block, found)
                if len(joined):
                    yield self.array.name, joined

    def _join(self, block: Sequence[StackedFile], found: Sequence[Refs]) -> Refs:
        counts = np.array([len(refs) for refs in found], dtype=np.int64)
        joined = Refs.joined(found, self.array.ndim - 1)
        steps = np.repeat(np.array([file.step for file in block], dtype=np.int32), counts)
        return replace(
            joined,
            chunk=np.concatenate([steps[None], joined.chunk]),
            file=np.concatenate([file_column(refs, file.entry) for refs, file in zip(found, block, strict=True)]),
            encoding=_encoding_column(block, found, counts),
        )


def _slabs(array: Array, steps: int) -> list[tuple[int, int]]:
    """Ranges of chunk rows (along the second last dimension) that are small enough for all steps of a block."""
    grid = array.grid
    rows = grid[-2] if len(grid) >= 2 else 1
    each = max(1, ROWS // max(1, steps * math.prod(grid) // max(1, rows)))
    return [(low, min(low + each, rows)) for low in range(0, rows, each)] or [(0, 0)]


def _chunk_rows(refs: Refs, low: int, high: int) -> Refs:
    row = refs.chunk[-2]
    return refs.take((row >= low) & (row < high))


def _encoding_column(
    block: Sequence[StackedFile], found: Sequence[Refs], counts: NDArray[np.int64]
) -> NDArray[np.uint16] | None:
    if all(refs.encoding is None for refs in found):
        first = np.array([file.codes[0] if len(file.codes) else 0 for file in block], dtype=np.uint16)
        return np.repeat(first, counts) if first.any() else None
    column = np.concatenate(
        [
            np.full(len(refs), file.codes[0], np.uint16) if refs.encoding is None else file.codes[refs.encoding]
            for refs, file in zip(found, block, strict=True)
        ]
    )
    return column if column.any() else None
