"""The jpeg codec: one whole JPEG stream, of a file or of a block of NITF, to (bands, rows, columns)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.jpeg import header as jpegheader
from periplus.decode.jpeg.bands import band_of
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.settings import choice, known, number
from periplus.decode.tiff.jpeg import jpeg
from periplus.decode.tiff.tile import tile_of
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames

NAME = codecnames.JPEG
LARGEST = 1 << 16
KEYS = frozenset({
    "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space", "jpeg_tables", "last_rows",
    "header", "margin",
})  # fmt: skip
INKS = ("CMYK", "YCCK")
LARGEST_UNIT = 32
"""Rows that are coded together at most."""
FILLED = re.compile(rb"\xff+(?=\xff\xd8)")
JPEG = 7
"""TIFF's number of this compression."""


def jpeg_block(
    configuration: Mapping[str, Any], *, chunks: Shape, dtype: np.dtype[Any], limits: Limits
) -> Callable[[Buffer, Shape], NDArray[Any]]:
    """The decoder of one stream; leading dimensions beyond (bands, y, x) have size 1.

    `color_space` says only whether inks (CMYK, YCCK) become red, green and blue, which three bands ask for: indexes
    exist that name it wrongly, and the markers of the stream say the rest. With a `header` the bytes are a band of rows
    between restart markers, of which the codec knows the markers before them.
    """

    known("jpeg", configuration, KEYS)

    def setting(key: str, high: int) -> int:
        return number("jpeg", configuration, key, 1, high)

    bits, bands = setting("bits_per_pixel", 17), setting("num_bands", 256)
    width, height = setting("block_width", LARGEST), setting("block_height", LARGEST)
    mode = choice("jpeg", configuration, "imode", ("P", "B", "R", "S"))
    if mode != "P" and bands > 1:
        raise FormatError(f"jpeg codec: {bands} bands in one stream are interleaved by pixel, not {mode}")
    if len(chunks) < 3 or any(n != 1 for n in chunks[:-3]) or tuple(chunks[-3:]) != (bands, height, width):
        raise FormatError(f"a JPEG of {bands} bands of {width} x {height} pixels does not fill chunks of {chunks}")
    inks = bands == 3 and bits == 8 and configuration.get("color_space") in INKS
    band = band_of(configuration, height) if "header" in configuration else None
    tile = tile_of(
        {
            "compression": JPEG,
            "bits_per_sample": bits,
            "samples_per_pixel": 4 if inks else bands,
            "tile_width": width,
            "tile_height": height if band is None else band.most,
            "jpeg_tables": configuration.get("jpeg_tables"),
        }
    )
    if tile.dtype != dtype:
        raise FormatError(f"a JPEG of {bits} bits does not fill an array of {dtype}")
    limits.check("the bytes of a chunk", tile.run * tile.height * dtype.itemsize, limits.chunk_bytes)
    picture = jpeg(tile, 0, told=True)
    lead = (None,) * (len(chunks) - 3)

    def run(data: Buffer, valid: Shape, want: tuple[slice, ...] | None = None) -> NDArray[Any]:
        rows, above = valid[-2], 0
        if band is not None:
            data, above = band.whole(data, rows)
        elif want is not None:
            data, rows = upper(begun(stream(data)), range(rows)[want[-2]], rows)
        else:
            data = begun(stream(data))
        values = picture(data, above + rows, valid[-1])
        if band is not None:
            values = values[above : above + rows]
        if inks:
            values = light(values)
        return values.transpose(2, 0, 1)[lead]

    return run


def begun(data: memoryview) -> memoryview:
    """The stream without the bytes of ones that may fill the space before its first marker, as before any other."""
    found = FILLED.match(data)
    return data[found.end() :] if found else data


def upper(data: memoryview, seen: range, rows: int) -> tuple[Buffer, int]:
    """The stream, said to be no higher than what is looked at, and how many rows are then needed of it.

    libjpeg stops where it has the rows it was told of. One more unit of rows is told, over which colours are smoothed.
    """
    last = max(seen, default=0) + 1
    told = (last // LARGEST_UNIT + 2) * LARGEST_UNIT
    header = jpegheader.jpeg(data)
    if told >= header.height or header.kind not in jpegheader.SEQUENTIAL or not header.alone:
        return data, rows
    lower = bytearray(data)
    lower[header.frame + 5 : header.frame + 7] = told.to_bytes(2, "big")
    return lower, last


def light(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Red, green and blue of inks that are stored inverted, as Adobe stores them and GDAL takes them all."""
    rows, columns, _ = values.shape
    out = scratch_array(2, (rows, columns, 3), np.dtype(np.uint8))
    wide = scratch_array(3, (columns, 3), np.dtype(np.uint16))
    for line, into in zip(values, out, strict=True):
        np.multiply(line[:, :3], line[:, 3:], out=wide, dtype=np.uint16)
        np.floor_divide(wide, 255, out=into, casting="unsafe")
    return out
