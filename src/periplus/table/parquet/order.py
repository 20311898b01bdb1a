"""Blocked order: space-time blocks of rows, sorted y, x, t inside, and where to cut row groups. Pure NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    rows, key = _sorted(digits, sizes)
    rows = np.arange(count) if rows is None else rows
    if key is None:
        return rows, [*range(GROUP_ROWS, count, GROUP_ROWS), count]
    tail = 2 if rank >= 3 else 1  # the leading dimension and the part come last
    return rows, _ends(key, [math.prod(sizes[1:]), math.prod(sizes[len(sizes) - tail - 1 :]), math.prod(sizes[-tail:])])


def c_order(chunk: NDArray[np.int32], part: NDArray[np.uint16] | None) -> Rows | None:
    """The rows in C order of chunk position, then part; None where they already are; FormatError for duplicates."""
    if chunk.shape[1] < 2:
        return None
    digits, sizes = _from_zero(chunk)
    if part is not None or not digits:
        digits.append(np.zeros(chunk.shape[1], np.int32) if part is None else part.astype(np.int32))
        sizes.append(1 if part is None else int(part.max()) + 1)
    return _sorted(digits, sizes)[0]


def _digits(chunk: NDArray[np.int32], part: NDArray[np.uint16] | None) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Sort keys from the most significant on, each from 0 up, and how many values each may have."""
    rank, count = chunk.shape
    place, size = _from_zero(chunk)
    if rank >= 3 and size[0] > STEPS and count > GROUP_ROWS:
        block, step = np.divmod(place[0], np.int32(STEPS))
        digits, sizes = [block, *place[1:], step], [-(-size[0] // STEPS), *size[1:], STEPS]
    else:
        turn = 1 if rank >= 3 else 0
        digits, sizes = [np.zeros(count, np.int32), *place[turn:], *place[:turn]], [1, *size[turn:], *size[:turn]]
    digits.append(np.zeros(count, np.int32) if part is None else part.astype(np.int32))
    sizes.append(1 if part is None else int(part.max()) + 1)
    return digits, sizes


def _from_zero(chunk: NDArray[np.int32]) -> tuple[list[NDArray[np.int32]], list[int]]:
    """Positions along each dimension, counted from the first one, and how many there are up to the last."""
    low = [int(positions.min()) for positions in chunk]
    sizes = [int(positions.max()) - first + 1 for positions, first in zip(chunk, low, strict=True)]
    return [positions - np.int32(first) if first else positions for positions, first in zip(chunk, low)], sizes


def _sorted(digits: list[NDArray[np.int32]], sizes: list[int]) -> tuple[Rows | None, NDArray[np.int64] | None]:
    """The rows in order of their digits, None where they already are, and their sorted keys where these fit 64 bits.

    FormatError where a row comes twice.
    """
    key = None
    if math.prod(sizes) < 1 << 62:
        key = flat_positions(digits, sizes)
        if (key[1:] > key[:-1]).all():
            return None, key
        rows = _argsort(key, math.prod(sizes))
        key = key[rows]
        twice = (key[1:] == key[:-1]).any()
    else:
        rows = np.lexsort(digits[::-1])
        twice = np.logical_and.reduce([digit[rows][1:] == digit[rows][:-1] for digit in digits]).any()
    if twice:
        raise FormatError("two rows describe the same part of the same chunk")
    return rows, key


def flat_positions(positions: Sequence[NDArray[Any]] | NDArray[Any], shape: Sequence[int]) -> NDArray[np.int64]:
    """One number for each place in a grid of one or more dimensions, in C order; all places are in the grid."""
    key = np.asarray(positions[0]).astype(np.int64)
    for along, size in zip(positions[1:], shape[1:], strict=True):
        if size > 1:
            key *= size
            key += along
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
