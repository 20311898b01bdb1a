"""Checks of rows before they are used: every reference is within its grid, its file and its lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, LimitError
from periplus.model import Array, Refs

INT64 = np.iinfo(np.int64).max
NARROW = "narrow it by array, level, window, bbox or time"
MORE = "pass limits=periplus.Limits(memory_bytes=...) to allow more"


def check_count(count: int, most: int | None) -> None:
    """LimitError where a selection has more references than `most`."""
    if most is not None and count > most:
        raise LimitError(
            f"the selection has {count:,} references or more, over the limit of {most:,}; {NARROW}, count them by SQL, "
            f"or {MORE}"
        )


Fault = tuple[str, str, int | None]
"""What is wrong: a kind, a message, and the offset of the reference if that helps."""


def verify(
    array: Array, refs: Refs, *, sizes: NDArray[np.int64], window: Sequence[tuple[int, int]] | None = None
) -> Refs:
    """The refs, or FormatError. `sizes` are the files' sizes in bytes, -1 where unknown."""
    for _, message, offset in faults(array, refs, sizes=sizes, window=window):
        raise FormatError(message, offset=offset)
    return refs


def faults(
    array: Array, refs: Refs, *, sizes: NDArray[np.int64], window: Sequence[tuple[int, int]] | None = None
) -> Iterator[Fault]:
    """All that is wrong with rows, each kind once."""
    count = len(refs)
    what = f"array {array.name!r}"
    if refs.chunk.ndim != 2 or refs.chunk.shape != (array.ndim, count) or refs.length.shape != (count,):
        yield "range", f"{what}: columns of references differ in length", None
        return
    if not count:
        return
    box = [(0, n) for n in array.grid] if window is None else window
    least, most = refs.chunk.min(axis=1).tolist(), refs.chunk.max(axis=1).tolist()
    for positions, dim, (low, high), first, last in zip(refs.chunk, array.dims, box, least, most, strict=True):
        if first < low or last >= high:
            outside = _outside(positions, low, high)
            yield "position", f"{what}: chunk position {outside} along {dim!r} is not in the grid", None
    if refs.encoding is not None and (worst := int(refs.encoding.max())) >= max(1, len(array.encodings)):
        yield "encoding", f"{what}: encoding {worst} where {len(array.encodings)} are listed", None
    yield from range_faults(what, refs, sizes)


def range_faults(what: str, refs: Refs, sizes: NDArray[np.int64]) -> Iterator[Fault]:
    """All errors in the byte ranges of rows, of any array; there is at least one row."""
    if refs.offset.min() < 0 or refs.length.min() < 0:
        yield "range", f"{what}: a reference has a negative offset or length", None
    if int(refs.offset.max()) + int(refs.length.max()) > INT64 and (refs.offset > INT64 - refs.length).any():
        yield "range", f"{what}: offset plus length overflows", None
    yield from _file_faults(what, refs, sizes)


def verify_parts(array: Array, refs: Refs) -> None:
    """FormatError where a chunk's byte ranges, sorted by position and part, do not count 0, 1, 2 …"""
    if refs.part is None or not len(refs):
        return
    begins = np.ones(len(refs), bool)
    begins[1:] = (refs.chunk[:, 1:] != refs.chunk[:, :-1]).any(axis=0)
    rows = np.arange(len(refs))
    if (refs.part != rows - np.maximum.accumulate(np.where(begins, rows, 0))).any():
        raise FormatError(f"array {array.name!r}: a chunk lacks one of its parts")


def _file_faults(what: str, refs: Refs, sizes: NDArray[np.int64]) -> Iterator[Fault]:
    lowest, highest = (0, 0) if refs.file is None else (int(refs.file.min()), int(refs.file.max()))
    if lowest < -1 or highest >= len(sizes):
        worst = highest if highest >= len(sizes) else lowest
        yield "file", f"{what}: file {worst} where {len(sizes)} are listed", None
        return
    file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
    if lowest < 0 or refs.inline is not None:
        yield from _inline_faults(what, refs, file < 0)
    if highest < 0:
        return
    end = refs.offset + refs.length
    known = sizes[lowest : lowest + 1] if lowest == highest else sizes
    if (known := known[known >= 0]).size and int(end.max()) > int(known.min()):
        size = sizes[file]
        past = np.flatnonzero((file >= 0) & (size >= 0) & (end > size))
        if past.size:
            row = int(past[0])
            ends = f"ends at {int(end[row])}, past the end of its file of {int(size[row])} bytes"
            yield "range", f"{what}: a reference {ends}", int(refs.offset[row])


def _inline_faults(what: str, refs: Refs, fileless: NDArray[np.bool_]) -> Iterator[Fault]:
    held = np.zeros(len(refs), bool) if refs.inline is None else refs.inline.held
    if (fileless & ~held).any():
        yield "inline", f"{what}: a reference has neither a file nor inline bytes", None
    if refs.inline is not None and (held & (refs.inline.at > refs.inline.buffer.size - refs.length)).any():
        yield "inline", f"{what}: a reference has fewer inline bytes than its length", None


def _outside(positions: NDArray[np.int32], low: int, high: int) -> int:
    return int(positions[(positions < low) | (positions >= high)][0])
