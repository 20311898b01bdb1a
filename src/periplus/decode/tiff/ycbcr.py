"""YCbCr: luma with shared chroma, uncompressed or losslessly compressed, to RGB with TIFF's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.scratch import Octets
from periplus.decode.tiff.samples import HORIZONTAL, NO_PREDICTOR, PREDICTED
from periplus.decode.tiff.tile import UINT, TileEncoding
from periplus.errors import FormatError

FIXED = 1 << 16
HALF = 1 << 15


def unit_rows(tile: TileEncoding, rows: int) -> int:
    """Rows of chroma units that hold that many rows of pixels."""
    return -(-rows // tile.subsampling[1])


def unit_bytes(tile: TileEncoding) -> int:
    """Bytes of one row of chroma units: each holds its block of luma, then Cb, then Cr."""
    across, down = tile.subsampling
    return -(-tile.width // across) * (across * down + 2)


def to_rgb(tile: TileEncoding) -> Callable[[Octets, int], NDArray[Any]]:
    """(bytes of whole unit rows, rows of pixels) -> (rows, width, 3)."""
    if tile.bits != 8 or tile.sample_format != UINT or tile.samples != 3:
        raise FormatError(f"YCbCr of {tile.samples} samples of {tile.bits} bits is not supported")
    luma, red, green_cb, green_cr, blue = _tables(tile)
    across, down = tile.subsampling
    predictor = tile.predictor if tile.compression in PREDICTED else NO_PREDICTOR
    if predictor not in (NO_PREDICTOR, HORIZONTAL) or (predictor == HORIZONTAL and tile.subsampling != (1, 1)):
        raise FormatError(f"predictor {predictor} on YCbCr with subsampling {across} x {down} is not supported")

    def run(raw: Octets, rows: int) -> NDArray[Any]:
        high = unit_rows(tile, rows)
        units = raw.reshape(high, -1, across * down + 2)
        if predictor == HORIZONTAL:
            units = np.add.accumulate(units, axis=1, dtype=np.uint8)
        y = luma[units[:, :, :-2].reshape(high, -1, down, across).transpose(0, 2, 1, 3).reshape(high * down, -1)]
        y = y[:rows, : tile.width]

        def spread(chroma: NDArray[np.int64]) -> NDArray[np.int64]:
            return chroma.repeat(down, 0).repeat(across, 1)[:rows, : tile.width]

        cb, cr = units[:, :, -2], units[:, :, -1]
        rgb = np.empty((rows, tile.width, 3), np.uint8)
        for band, chroma in enumerate((red[cr], (green_cb[cb] + green_cr[cr]) >> 16, blue[cb])):
            np.clip(y + spread(chroma), 0, 255, out=rgb[:, :, band], casting="unsafe")
        return rgb

    return run


def _tables(tile: TileEncoding) -> tuple[NDArray[np.int64], ...]:
    """Contributions of every code, in the 16-bit fixed point that libtiff uses, so that values agree exactly."""
    kr, kg, kb = tile.coefficients
    if kg == 0:
        raise FormatError("YCbCr coefficients without green")
    black = tile.reference
    codes = np.arange(256, dtype=np.float64)
    luma = _coded(codes, black[0], black[1], 255)
    cb = _coded(codes - 128, black[2] - 128, black[3] - 128, 127)
    cr = _coded(codes - 128, black[4] - 128, black[5] - 128, 127)
    red, blue = 2 - 2 * kr, 2 - 2 * kb
    return (
        luma,
        (_fixed(red) * cr + HALF) >> 16,
        -_fixed(kb * blue / kg) * cb + HALF,
        -_fixed(kr * red / kg) * cr,
        (_fixed(blue) * cb + HALF) >> 16,
    )


def _coded(code: NDArray[np.float64], black: float, white: float, span: int) -> NDArray[np.int64]:
    width = white - black if white != black else 1.0
    return np.clip(np.trunc((code - black) * span / width), -4096, 4096).astype(np.int64)


def _fixed(value: float) -> int:
    return int(value * FIXED + 0.5)
