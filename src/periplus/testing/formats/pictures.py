"""Seeded JPEG and PNG files by Pillow and imagecodecs: every kind of pixel as a named case."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.testing.formats.tiff import picture

HEIGHT, WIDTH = 45, 61
"""Multiples neither of a JPEG block nor of 8."""
MODES = {1: "L", 3: "RGB", 4: "CMYK"}


def jpegs() -> dict[str, Callable[[], bytes]]:
    """Makers of JPEG files by name."""
    return {
        "gray": partial(pillow_jpeg, 1),
        "rgb": partial(pillow_jpeg, 3, subsampling=0),
        "rgb-420": partial(pillow_jpeg, 3, subsampling=2),
        "rgb-progressive": partial(pillow_jpeg, 3, progressive=True),
        "rgb-restarts": partial(pillow_jpeg, 3, restart_marker_rows=1),
        "cmyk": partial(pillow_jpeg, 4),
        "ycck": ycck_jpeg,
        "twelve": partial(coded_jpeg, "u2", 12),
        "lossless": partial(coded_jpeg, "u1", 8, lossless=True),
        "lossless-16": partial(coded_jpeg, "u2", 16, lossless=True),
    }


def pillow_jpeg(bands: int, **options: Any) -> bytes:
    """A JPEG by Pillow; options are those of its encoder."""
    from PIL import Image

    values = picture(f"jpeg-{bands}", "u1", (bands, HEIGHT, WIDTH))
    image = Image.fromarray(values[0] if bands == 1 else np.ascontiguousarray(np.moveaxis(values, 0, -1)), MODES[bands])
    target = io.BytesIO()
    image.save(target, "JPEG", **options)
    return target.getvalue()


def ycck_jpeg() -> bytes:
    """CMYK with three components as YCbCr, as Adobe writes it: Pillow's stream with other markers."""
    data = bytearray(pillow_jpeg(4, subsampling=0))
    data[data.index(b"Adobe") + 11] = 2
    frame, scan = data.index(b"\xff\xc0") + 10, data.index(b"\xff\xda") + 5
    for number in range(4):
        data[frame + 3 * number] = data[scan + 2 * number] = number + 1
    return bytes(data)


def coded_jpeg(dtype: str, bits: int, **options: Any) -> bytes:
    """A gray JPEG with more than 8 bits, or a lossless one."""
    import imagecodecs

    values = picture(f"jpeg-{bits}", dtype, (1, HEIGHT, WIDTH))[0]
    values >>= values.dtype.itemsize * 8 - bits
    return bytes(imagecodecs.jpeg8_encode(values, bitspersample=bits, **options))


def png(
    values: NDArray[Any],
    *,
    bits: int,
    colour: int,
    interlaced: bool = False,
    chunks: Sequence[tuple[bytes, bytes]] = (),
    pieces: int = 3,
    filters: Sequence[int] = range(5),
) -> bytes:
    """A PNG of (bands, y, x) values, its rows filtered by these in turn, with further chunks before the data."""
    _, height, width = values.shape
    passes = [(0, 0, 1, 1)] if not interlaced else PASSES
    raw = b"".join(_rows(values[:, y::dy, x::dx], bits, filters) for x, y, dx, dy in passes)
    stream = zlib.compress(raw)
    step = -(-len(stream) // pieces)
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    parts = [(b"IHDR", head), *chunks, *((b"IDAT", stream[n : n + step]) for n in range(0, len(stream), step))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in [*parts, (b"IEND", b"")])


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
"""First column, first row and steps of the passes of an interlaced PNG."""


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk with its length and check."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _rows(values: NDArray[Any], bits: int, filters: Sequence[int]) -> bytes:
    """Filtered rows of one pass."""
    bands, height, width = values.shape
    if not height or not width:
        return b""
    if bits >= 8:
        rows = np.moveaxis(values, 0, -1).astype(f">u{bits // 8}", order="C").reshape(height, -1).view(np.uint8)
    else:
        spread = values[0, :, :, None] >> np.arange(bits - 1, -1, -1, dtype=values.dtype) & 1
        rows = np.packbits(spread.astype(np.uint8).reshape(height, -1), axis=1)
    size = max(1, bands * bits // 8)
    above = np.zeros_like(rows[0])
    out = []
    for number, row in enumerate(rows):
        kind = filters[number % len(filters)]
        out.append(bytes([kind]) + _filtered(kind, row, above, size).tobytes())
        above = row
    return b"".join(out)


def _filtered(kind: int, row: NDArray[Any], above: NDArray[Any], size: int) -> NDArray[np.uint8]:
    x, b = row.astype(np.int16), above.astype(np.int16)
    a, c = (np.concatenate([np.zeros(size, np.int16), line[:-size]]) for line in (x, b))
    if kind == 4:
        distance = np.abs(np.stack([b - c, a - c, a + b - 2 * c]))
        guess = np.choose(distance.argmin(0), [a, b, c])
    else:
        guess = [np.zeros_like(x), a, b, (a + b) // 2][kind]
    residual: NDArray[np.uint8] = (x - guess).astype(np.uint8)
    return residual
