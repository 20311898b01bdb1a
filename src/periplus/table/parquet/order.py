"""Blocked order: space-time blocks of rows, sorted y, x, t inside, and where to cut row groups. Pure NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError

STEPS = 512
"""Steps of the leading dimension in one block: a time series then touches few row groups, a map few steps it skips."""
GROUP_ROWS = 80_000
"""Most rows of a row group. Measured on 22.1 M rows, decoding for a time series of one tile: 69 CPU ms with groups of
218 k rows, 23 ms with 73 k, whose footer is 194 kB; smaller ones would make opening, which reads it, dearer."""

Rows = NDArray[np.intp]


def blocked(chunk: NDArray[np.int32], part: NDArray[np.uint16] | None) -> tuple[Rows, list[int]]:
    """The rows in blocked order, and the ends of the row groups among them; FormatError where a row comes twice.

    Inside one row group the rows are sorted by every dimension after the first, then by the first, then by part.
    Arrays of fewer than three dimensions have no leading dimension and keep C order.
    """
    rank, count = chunk.shape
    if count == 0:
        return np.empty(0, np.intp), []
    digits, sizes = _digits(chunk, part)
    if math.prod(sizes) < 1 << 62:
        key = _mixed(digits, sizes)
        rows = _argsort(key, math.prod(sizes))
        key = key[rows]
        if count > 1 and not (key[1:] > key[:-1]).all():
            raise FormatError("two rows describe the same part of the same chunk")
        tail = 2 if rank >= 3 else 1  # the leading dimension and the part come last
        return rows, _ends(
            key, [math.prod(sizes[1:]), math.prod(sizes[len(sizes) - tail - 1 :]), math.prod(sizes[-tail:])]
        )
    rows = np.lexsort(digits[::-1])
    same = np.ones(count - 1, bool)
    for digit in digits:
        same &= digit[rows][1:] == digit[rows][:-1]
    if same.any():
        raise FormatError("two rows describe the same part of the same chunk")
    return rows, [*range(GROUP_ROWS, count, GROUP_ROWS), count]


def c_order(chunk: NDArray[np.int32], part: NDArray[np.uint16] | None) -> Rows | None:
    """The rows in C order of chunk position, then part; None where they already are; FormatError for twins."""
    rank, count = chunk.shape
    if count < 2:
        return None
    low = chunk.min(axis=1) if rank else np.empty(0, np.int32)
    sizes = [int(n) for n in chunk.max(axis=1) - low.astype(np.int64) + 1] if rank else []
    digits = [chunk[d] - low[d] for d in range(rank)]
    if part is not None:
        digits.append(part.astype(np.int32))
        sizes.append(int(part.max()) + 1)
    if math.prod(sizes) < 1 << 62:
        key = _mixed(digits, sizes) if digits else np.zeros(count, np.int64)
        if (key[1:] > key[:-1]).all():
            return None
        rows = _argsort(key, math.prod(sizes))
        if not (np.diff(key[rows]) > 0).all():
            raise FormatError("two rows describe the same part of the same chunk")
        return rows
    rows = np.lexsort(digits[::-1])
    if np.logical_and.reduce([digit[rows][1:] == digit[rows][:-1] for digit in digits]).any():
        raise FormatError("two rows describe the same part of the same chunk")
    return rows


def _digits(chunk: NDArray[np.int32], part: NDArray[np.uint16] | None) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Sort keys from the most significant on, each from 0 up, and how many values each may have."""
    rank, count = chunk.shape
    low = [int(chunk[d].min()) for d in range(rank)]
    size = [int(chunk[d].max()) - low[d] + 1 for d in range(rank)]
    place = [chunk[d] - np.int32(low[d]) if low[d] else chunk[d] for d in range(rank)]
    if rank >= 3 and size[0] > STEPS and count > GROUP_ROWS:
        block, step = np.divmod(place[0], np.int32(STEPS))
        digits, sizes = [block, *place[1:], step], [-(-size[0] // STEPS), *size[1:], STEPS]
    elif rank >= 3:
        digits, sizes = [*place[1:], place[0]], [*size[1:], size[0]]
        digits, sizes = [np.zeros(count, np.int32), *digits], [1, *sizes]
    else:
        digits, sizes = [np.zeros(count, np.int32), *place], [1, *size]
    digits.append(np.zeros(count, np.int32) if part is None else part.astype(np.int32))
    sizes.append(1 if part is None else int(part.max()) + 1)
    return digits, sizes


def _mixed(digits: list[NDArray[np.int32]], sizes: list[int]) -> NDArray[np.int64]:
    key: NDArray[np.int64] | None = None
    for digit, size in zip(digits, sizes, strict=True):
        if key is None:
            key = digit.astype(np.int64)
        elif size > 1:
            key *= size
            key += digit
    assert key is not None
    return key


def _argsort(key: NDArray[np.int64], span: int) -> Rows:
    """argsort; by scattering where the keys are dense, which is five times cheaper."""
    count = len(key)
    if span <= 8 * count:
        slot: NDArray[Any] = np.full(span, -1, np.int32 if count < 1 << 31 else np.int64)
        slot[key] = np.arange(count, dtype=slot.dtype)
        rows = slot[slot >= 0]
        if len(rows) == count:
            return rows.astype(np.intp, copy=False)
    return np.argsort(key, kind="stable")


def _ends(key: NDArray[np.int64], spans: list[int]) -> list[int]:
    """Ends of row groups: at every block, else after whole lines, else after whole tiles, else at the row limit."""
    count, start, ends = len(key), 0, []
    block, line, tile = spans
    while start < count:
        stop = min(start + GROUP_ROWS, count)
        edge = (int(key[start]) // block + 1) * block
        if key[stop - 1] >= edge:
            stop = int(np.searchsorted(key, edge))
        elif stop < count and key[stop] < edge:
            for span in (line, tile):
                snapped = int(np.searchsorted(key, key[stop] // span * span))
                if snapped > start + GROUP_ROWS // 4:
                    stop = snapped
                    break
        ends.append(stop)
        start = stop
    return ends
