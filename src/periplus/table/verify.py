"""Checks of rows: a reference lies inside its grid, its file and its lists before anyone acts on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Refs

INT64 = np.iinfo(np.int64).max


def verify(
    array: Array, refs: Refs, *, sizes: NDArray[np.int64], window: Sequence[tuple[int, int]] | None = None
) -> Refs:
    """The refs, or FormatError. `sizes` are the files' sizes in bytes, -1 where unknown."""
    count = len(refs)
    what = f"array {array.name!r}"
    if refs.chunk.ndim != 2 or refs.chunk.shape != (array.ndim, count) or refs.length.shape != (count,):
        raise FormatError(f"{what}: columns of references differ in length")
    if not count:
        return refs
    box = [(0, n) for n in array.grid] if window is None else window
    least, most = refs.chunk.min(axis=1).tolist(), refs.chunk.max(axis=1).tolist()
    for positions, dim, (low, high), first, last in zip(refs.chunk, array.dims, box, least, most, strict=True):
        if first < low or last >= high:
            raise FormatError(
                f"{what}: chunk position {_outside(positions, low, high)} along {dim!r} is not in the grid"
            )
    if refs.offset.min() < 0 or refs.length.min() < 0:
        raise FormatError(f"{what}: a reference has a negative offset or length")
    if int(refs.offset.max()) + int(refs.length.max()) > INT64 and (refs.offset > INT64 - refs.length).any():
        raise FormatError(f"{what}: offset plus length overflows")
    if refs.encoding is not None and (worst := int(refs.encoding.max())) >= max(1, len(array.encodings)):
        raise FormatError(f"{what}: encoding {worst} where {len(array.encodings)} are listed")
    _verify_files(what, refs, sizes)
    return refs


def verify_parts(array: Array, refs: Refs) -> None:
    """FormatError where a chunk's byte ranges, sorted by position and part, do not count 0, 1, 2 …"""
    if refs.part is None or not len(refs):
        return
    begins = np.ones(len(refs), bool)
    begins[1:] = (refs.chunk[:, 1:] != refs.chunk[:, :-1]).any(axis=0)
    rows = np.arange(len(refs))
    if (refs.part != rows - np.maximum.accumulate(np.where(begins, rows, 0))).any():
        raise FormatError(f"array {array.name!r}: a chunk lacks one of its parts")


def _verify_files(what: str, refs: Refs, sizes: NDArray[np.int64]) -> None:
    lowest, highest = (0, 0) if refs.file is None else (int(refs.file.min()), int(refs.file.max()))
    if lowest < -1 or highest >= len(sizes):
        raise FormatError(f"{what}: file {highest if highest >= len(sizes) else lowest} where {len(sizes)} are listed")
    file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
    if lowest < 0:
        _verify_inline(what, refs, np.flatnonzero(file < 0))
    if highest < 0:
        return
    end = refs.offset + refs.length
    known = sizes[lowest : lowest + 1] if lowest == highest else sizes
    if (known := known[known >= 0]).size and int(end.max()) > int(known.min()):
        size = sizes[file]
        past = np.flatnonzero((file >= 0) & (size >= 0) & (end > size))
        if past.size:
            row = int(past[0])
            raise FormatError(
                f"{what}: a reference ends at {int(end[row])}, past the end of its file of {int(size[row])} bytes",
                offset=int(refs.offset[row]),
            )


def _verify_inline(what: str, refs: Refs, rows: NDArray[np.intp]) -> None:
    for row in rows.tolist():
        data = None if refs.data is None else refs.data[row]
        if data is None:
            raise FormatError(f"{what}: a reference has neither a file nor inline bytes")
        if len(data) != refs.length[row]:
            raise FormatError(f"{what}: {len(data)} inline bytes where the length says {int(refs.length[row])}")


def _outside(positions: NDArray[np.int32], low: int, high: int) -> int:
    return int(positions[(positions < low) | (positions >= high)][0])
