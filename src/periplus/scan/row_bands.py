"""Uncompressed strips and blocks divided into row bands: chunks that are small enough to read a window from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

BAND_BYTES = 512 * 1024
"""The size of a band, about: small enough for a window, large enough for few rows of the table."""

Integers = NDArray[np.int64]


def band_rows(height: int, row_bits: int, *, most: int | None = None, divide: bool = False) -> int:
    """Rows of a band of about BAND_BYTES, at most `most`, that starts and ends at whole bytes.

    Somewhat fewer rows if then all bands of `height` rows are equal, as Zarr has its chunks. With `divide` they must
    be, down to bands of one row.
    """
    unit = 8 // math.gcd(8, row_bits)
    wanted = min(max(1, BAND_BYTES * 8 // (row_bits * unit)) * unit, height if most is None else most)
    fewest = 0 if divide else wanted // 2
    equal = (rows for rows in range(wanted, fewest, -1) if height % rows == 0 and rows % unit == 0)
    return next(equal, height if divide else wanted)


def cut_to_bands(
    starts: Integers, strip_rows: int, rows: int, *, row_bits: int, height: int, clipped: bool
) -> tuple[Integers, Integers]:
    """Offsets and lengths of the bands of `rows` rows of an image that is `height` rows high.

    `starts` are the offsets of its strips or blocks of `strip_rows` rows, along planes, down and across. The last band
    ends with the image where it is `clipped`.
    """
    planes, _, across = starts.shape
    bands = -(-height // rows)
    inside = np.arange(-(-strip_rows // rows), dtype=np.int64) * (rows * row_bits // 8)
    offsets = (starts[:, :, None, :] + inside[:, None]).reshape(planes, -1, across)[:, :bands]
    lengths = np.full(offsets.shape, -(-rows * row_bits // 8), np.int64)
    if clipped:
        lengths[:, -1] = -(-(height - (bands - 1) * rows) * row_bits // 8)
    return offsets, lengths
