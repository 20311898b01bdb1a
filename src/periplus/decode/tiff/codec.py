"""The tiff-tile codec: one strip or tile of a TIFF file, in any of its compressions, to (samples, rows, columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.compressions import TIFF_COMPRESSIONS, budget_of
from periplus.decode.native import native
from periplus.decode.scratch import Buffer
from periplus.decode.settings import Extent, Run
from periplus.decode.tiff import images, ycbcr
from periplus.decode.tiff.fax import fax
from periplus.decode.tiff.images import StreamDecoder
from periplus.decode.tiff.jpeg import jpeg
from periplus.decode.tiff.lerc import lerc
from periplus.decode.tiff.oldjpeg import old_jpeg
from periplus.decode.tiff.runs import logluv, nextstep, thunderscan
from periplus.decode.tiff.samples import values_of
from periplus.decode.tiff.tile import YCBCR, TileEncoding, tile_of
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames

NAME = codecnames.TIFF_TILE

PICTURES: dict[int, Callable[[TileEncoding, int], StreamDecoder]] = {
    2: fax,
    3: fax,
    4: fax,
    6: old_jpeg,
    7: jpeg,
    32766: nextstep,
    32809: thunderscan,
    33003: images.jpeg2000,
    33004: images.jpeg2000,
    33005: images.jpeg2000,
    34676: logluv,
    34712: images.jpeg2000,
    34887: lerc,
    34892: jpeg,
    34927: images.webp,
    34933: images.png,
    50001: images.webp,
    50002: images.jpeg_xl,
    52546: images.jpeg_xl,
}
"""Compressions of whole images, by TIFF's number."""
SLOW = frozenset(number for number, make in PICTURES.items() if make in (images.jpeg2000, images.jpeg_xl))
"""Those that take many times as long to decode as others."""
REFUSED = {
    32771: "CCITT RLE aligned to words",
    33007: "a private form of JPEG",
    34677: "LogLuv in 24 bits",
    34934: "JPEG XR, whose decoder crashes on damaged streams",
}
"""What we do not read on purpose."""


def tiff_extent(configuration: Mapping[str, Any]) -> Extent:
    """A whole strip or tile."""
    tile = tile_of(configuration)
    return (tile.samples, tile.height, tile.width), tile.dtype


def tiff_tile(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    """The decoder of one strip or tile, of which chunks may be the first rows and columns."""
    tile = tile_of(configuration)
    if chunks[1] > tile.height or chunks[2] > tile.width:
        raise FormatError(f"a tile of {tile.width} x {tile.height} pixels does not fill chunks of {chunks}")
    size = max(tile.row_bytes, tile.run * dtype.itemsize) * tile.height
    limits.check("the bytes of a tile", size, limits.chunk_bytes)
    picture = _picture(tile)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        return picture(data, valid[-2], valid[-1]).transpose(2, 0, 1)

    return run


def _picture(tile: TileEncoding) -> StreamDecoder:
    if tile.compression in PICTURES:
        return PICTURES[tile.compression](tile, 0)
    if tile.compression not in TIFF_COMPRESSIONS:
        why = REFUSED.get(tile.compression)
        raise FormatError(f"TIFF compression {tile.compression} is not supported" + (f": {why}" if why else ""))
    if tile.photometric == YCBCR and not tile.planar:
        return _rows(tile, ycbcr.to_rgb(tile), ycbcr.unit_bytes(tile), lambda rows: ycbcr.unit_rows(tile, rows))
    return _rows(tile, values_of(tile, slot=1), tile.row_bytes, lambda rows: rows)


def _rows(
    tile: TileEncoding, values: Callable[..., NDArray[Any]], row_bytes: int, stored: Callable[[int], int]
) -> StreamDecoder:
    """Compressed rows: only those needed are looked at, but all of them must be there."""
    decompress = TIFF_COMPRESSIONS[tile.compression](budget_of(row_bytes * stored(tile.height)), 0)
    reverse = native("bitorder_decode") if tile.reversed_bits else None

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:  # noqa: ARG001 - rows are coded whole
        need = row_bytes * stored(rows)
        found = decompress(data if reverse is None else reverse(bytes(data)), need)
        if len(found) < need:
            raise DecodeError(f"the chunk decodes to {len(found)} of {need} bytes")
        return values(found[:need], rows)

    return run
