"""Write PNG: 8-bit grey or colour with an optional alpha channel."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's colour type by number of channels: grey, grey and alpha, RGB, RGBA."""


def encode(image: NDArray[np.uint8]) -> bytes:
    """A PNG file of a (height, width, channels) image."""
    height, width, channels = image.shape
    rows = image.reshape(height, width * channels)
    # Filter 2 (Up) stores each row as its difference from the row above: this compresses images better.
    filtered = np.empty((height, 1 + width * channels), np.uint8)
    filtered[:, 0] = 2
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.data, 6)), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def stretch(
    bands: NDArray[Any], *, nodata: Sequence[Any] = (), limits: tuple[float, float] | None = None
) -> tuple[NDArray[np.uint8], tuple[float, float] | None]:
    """Convert (bands, y, x) of any type to a (y, x, channels) image; returns also the values of black and white.

    All bands have the same range, to keep the colour balance: from the 2nd to the 98th percentile of the valid values,
    or `limits`. 8-bit values are not changed (then the range is None). `nodata` is a
    value, or None, for each band; where all bands are nodata or not finite, the image is transparent.
    """
    valid = np.isfinite(bands)
    for band, value in enumerate(nodata):
        if value is not None:
            valid[band] &= bands[band] != value
    if limits is None and bands.dtype == np.uint8:
        image, shown = bands, None
    else:
        shown = limits or percentiles(bands[valid])
        low, high = shown
        scale = 255.0 / (high - low) if high > low else 0.0
        image = np.clip((np.where(valid, bands, low).astype(np.float64) - low) * scale + 0.5, 0, 255).astype(np.uint8)
    if not valid.all():
        opaque = image[3] if len(image) == 4 else 255
        alpha = np.where(valid.any(axis=0), opaque, 0).astype(np.uint8)
        image = np.concatenate([np.where(valid, image, 0)[:3], alpha[None]])
    return np.array(image.transpose(1, 2, 0), np.uint8, order="C"), shown  # never a view of the values


def paint(
    values: NDArray[Any], colours: Sequence[Sequence[int]], *, nodata: int | float | None = None
) -> NDArray[np.uint8]:
    """Convert (y, x) palette numbers to a (y, x, 3) image; with an alpha channel where some have no colour."""
    palette = np.array(colours, np.uint8).reshape(-1, 3)
    known = (values >= 0) & (values < len(palette))
    image = palette[np.where(known, values, 0)]
    if nodata is not None:
        known &= values != nodata
    return image if known.all() else np.dstack([image, np.where(known, 255, 0)]).astype(np.uint8)


def percentiles(values: NDArray[Any]) -> tuple[float, float]:
    """The 2nd and the 98th percentile; (0, 1) without values."""
    if not values.size:
        return 0.0, 1.0
    step = max(1, values.size // 4_000_000)
    low, high = np.percentile(values[::step].astype(np.float64), (2, 98))
    return float(low), float(high)
