"""The shape and type of a chunk that the configuration of its codec declares, for readers that know neither."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from periplus.decode import dted, jbp, png
from periplus.decode.jpeg import codec as jpegblock
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.jpeg2000.header import header_of
from periplus.decode.pipeline import LIST
from periplus.decode.settings import kind, number
from periplus.decode.tiff import codec as tifftile
from periplus.decode.tiff.tile import tile_of
from periplus.errors import FormatError
from periplus.model import Shape

Extent = tuple[Shape, "np.dtype[Any]"]
LARGEST = 1 << 31


def extent(name: str, configuration: Mapping[str, Any]) -> Extent:
    """(bands, rows, columns) of a full chunk and the type of its values; FormatError if they are not declared."""
    if name not in EXTENTS:
        raise FormatError(f"codec {name} does not say how large its chunks are")
    return EXTENTS[name](configuration)


def _tiff_tile(configuration: Mapping[str, Any]) -> Extent:
    tile = tile_of(configuration)
    return (tile.samples, tile.height, tile.width), tile.dtype


def _jbp_block(configuration: Mapping[str, Any]) -> Extent:
    bands, height, width = _numbers("jbp-block", configuration, "num_bands", "block_height", "block_width")
    bits = number("jbp-block", configuration, "nbpp", 1, 129)
    letter = jbp.KINDS.get(str(configuration.get("pvtype")))
    size = next((n for n in (8, 16, 32, 64, 128) if bits <= n), 0) // 8
    try:
        return (bands, height, width), np.dtype(f"{letter}{size}")
    except TypeError:
        raise FormatError(f"jbp-block codec: {configuration.get('pvtype')!r} of {bits} bits is no type") from None


def _jpeg(configuration: Mapping[str, Any]) -> Extent:
    bands, height, width = _numbers("jpeg", configuration, "num_bands", "block_height", "block_width")
    bits = number("jpeg", configuration, "bits_per_pixel", 1, 17)
    return (bands, height, width), np.dtype(np.uint8 if bits <= 8 else np.uint16)


def _png(configuration: Mapping[str, Any]) -> Extent:
    bands, height, width = _numbers("png", configuration, "bands", "height", "width")
    bits = number("png", configuration, "bits", 1, 17)
    return (bands, height, width), np.dtype(np.uint8 if bits <= 8 else np.uint16)


def _dted(configuration: Mapping[str, Any]) -> Extent:
    posts, lines = _numbers("dted", configuration, "num_lat_points", "num_lon_lines")
    top, bottom, left, right = (
        number("dted", configuration, f"trim_{side}", 0, dted.MOST, 0) for side in ("top", "bottom", "left", "right")
    )
    return (1, posts - top - bottom, lines - left - right), np.dtype(np.int16)


def _jpeg2000(configuration: Mapping[str, Any]) -> Extent:
    level = number("jpeg2000", configuration, "resolution_level", 0, 33, 0)
    try:
        raw = base64.b64decode(str(configuration.get("main_header")).removeprefix("base64:"), validate=True)
    except ValueError:
        raise FormatError("jpeg2000 codec: main_header is not base64 text") from None
    header = header_of(raw, level)
    width, height = (-(-size >> header.level) for size in header.size.grid[4:6])
    return (header.count, height, width), header.dtype


def _listed(configuration: Mapping[str, Any]) -> Extent:
    shape = configuration.get("shape")
    if not isinstance(shape, list) or not shape or not all(type(n) is int and 0 < n < LARGEST for n in shape):
        raise FormatError(f"codec {LIST}: shape is {shape!r}")
    return tuple(shape), kind(LIST, configuration, "biufc")


def _numbers(codec: str, configuration: Mapping[str, Any], *keys: str) -> list[int]:
    return [number(codec, configuration, key, 1, LARGEST) for key in keys]


EXTENTS: dict[str, Callable[[Mapping[str, Any]], Extent]] = {
    tifftile.NAME: _tiff_tile,
    jbp.NAME: _jbp_block,
    jpegblock.NAME: _jpeg,
    png.NAME: _png,
    dted.NAME: _dted,
    jpeg2000.NAME: _jpeg2000,
    LIST: _listed,
}
