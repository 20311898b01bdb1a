"""The jpeg codec: one JPEG stream, of a file or of a NITF block, to (bands, rows, columns)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.jpeg.bands import band_decoding
from periplus.decode.jpeg.checks import checked_header
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.settings import Extent, Run, choice, number
from periplus.decode.tiff.jpeg import jpeg
from periplus.decode.tiff.tile import tile_of
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames
from periplus.parse.jpeg import SEQUENTIAL

NAME = codecnames.JPEG
LARGEST = 1 << 16
KEYS = frozenset({
    "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space", "jpeg_tables", "last_rows",
    "header", "margin",
})  # fmt: skip
INKS = ("CMYK", "YCCK")
LARGEST_UNIT = 32
"""Most rows that are coded together."""
FILL = re.compile(rb"\xff+(?=\xff\xd8)")
JPEG = 7
"""The number of this compression in TIFF."""


def jpeg_extent(configuration: Mapping[str, Any]) -> Extent:
    """The size of the picture."""
    bands, height, width, bits = (
        number("jpeg", configuration, key, 1, high)
        for key, high in (
            ("num_bands", 256),
            ("block_height", LARGEST),
            ("block_width", LARGEST),
            ("bits_per_pixel", 17),
        )
    )
    return (bands, height, width), np.dtype(np.uint8 if bits <= 8 else np.uint16)


def jpeg_block(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    """The decoder of one stream.

    `color_space` decides only whether CMYK and YCCK are converted to RGB, which needs three bands: some indexes name it
    wrongly, and the segments of the stream declare the rest. With a `header` the bytes are a band of rows between
    restart markers, and `header` holds the segments before them.
    """
    (bands, height, width), bits = chunks, number("jpeg", configuration, "bits_per_pixel", 1, 17)
    mode = choice("jpeg", configuration, "imode", ("P", "B", "R", "S"))
    if mode != "P" and bands > 1:
        raise FormatError(f"jpeg codec: {bands} bands in one stream are interleaved by pixel, not {mode}")
    inks = bands == 3 and bits == 8 and configuration.get("color_space") in INKS
    band = band_decoding(configuration, height) if "header" in configuration else None
    tile = tile_of(
        {
            "compression": JPEG,
            "bits_per_sample": bits,
            "samples_per_pixel": 4 if inks else bands,
            "tile_width": width,
            "tile_height": height if band is None else band.most_rows,
            "jpeg_tables": configuration.get("jpeg_tables"),
        }
    )
    limits.check("the bytes of a chunk", tile.run * tile.height * dtype.itemsize, limits.chunk_bytes)
    picture = jpeg(tile, 0, ignore_photometric=True)

    def run(data: Buffer, valid: Shape, want: tuple[slice, ...] | None = None) -> NDArray[Any]:
        rows, above = valid[-2], 0
        if band is not None:
            data, above = band.complete(data, rows)
        elif want is not None:
            data, rows = upper_rows(without_fill(stream(data)), range(rows)[want[-2]], rows)
        else:
            data = without_fill(stream(data))
        values = picture(data, above + rows, valid[-1])
        if band is not None:
            values = values[above : above + rows]
        if inks:
            values = inks_to_rgb(values)
        return values.transpose(2, 0, 1)

    return run


def without_fill(data: memoryview) -> memoryview:
    """The stream without the bytes of ones that may precede its first marker, as any other."""
    found = FILL.match(data)
    return data[found.end() :] if found else data


def upper_rows(data: memoryview, wanted: range, rows: int) -> tuple[Buffer, int]:
    """The stream with a smaller declared height, and how many rows of it are then needed.

    libjpeg stops after the declared rows. One more unit of rows is declared, over which colours are smoothed.
    """
    last = max(wanted, default=0) + 1
    declared = (last // LARGEST_UNIT + 2) * LARGEST_UNIT
    header = checked_header(data)
    if declared >= header.height or header.kind not in SEQUENTIAL or not header.single_scan:
        return data, rows
    lower = bytearray(data)
    lower[header.frame_offset + 5 : header.frame_offset + 7] = declared.to_bytes(2, "big")
    return lower, last


def inks_to_rgb(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """RGB of CMYK that is stored inverted, as Adobe stores it and GDAL assumes."""
    rows, columns, _ = values.shape
    out = scratch_array(2, (rows, columns, 3), np.dtype(np.uint8))
    wide = scratch_array(3, (columns, 3), np.dtype(np.uint16))
    for line, into in zip(values, out, strict=True):
        np.multiply(line[:, :3], line[:, 3:], out=wide, dtype=np.uint16)
        np.floor_divide(wide, 255, out=into, casting="unsafe")
    return out
