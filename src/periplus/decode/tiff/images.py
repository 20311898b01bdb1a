"""Strips and tiles that are image streams, whose headers are compared with the tile before decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode.native import native
from periplus.decode.png import without_metadata
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tiff import headers
from periplus.decode.tiff.headers import StreamSize
from periplus.decode.tiff.jpegxl import jpegxl
from periplus.decode.tiff.tile import TileEncoding
from periplus.errors import DecodeError, FormatError

StreamDecoder: TypeAlias = Callable[[Buffer, int, int], NDArray[Any]]
"""(stream, rows needed, columns needed) -> (rows, columns, samples), native."""


def checked(
    header: StreamSize, tile: TileEncoding, rows: int, columns: int, samples: int | None = None
) -> tuple[int, ...]:
    """The shape to decode to; DecodeError where the stream is anything but this tile or its part inside the image."""
    samples = tile.samples if samples is None else samples
    if not (rows <= header.height <= tile.height and columns <= header.width <= tile.width):
        raise DecodeError(
            f"the image stream is {header.width} x {header.height}, its tile {tile.width} x {tile.height}"
            f" with {columns} x {rows} needed"
        )
    if header.samples not in (0, samples):
        raise DecodeError(f"the image stream has {header.samples} samples a pixel, its tile {samples}")
    if header.bits and -(-header.bits // 8) not in (tile.dtype.itemsize, tile.dtype.itemsize - 1):
        raise DecodeError(f"the image stream has {header.bits} bits a sample, its tile {tile.bits}")
    return (header.height, header.width) if samples == 1 else (header.height, header.width, samples)


def _stream(
    name: str,
    parse: Callable[[memoryview], StreamSize],
    *,
    slot: int,
    tile: TileEncoding,
    clean: Callable[[memoryview, StreamSize], Buffer] | None = None,
    **options: Any,
) -> StreamDecoder:
    """A stream whose decoder takes an output array and refuses it unless shape and type are those of the image.

    `clean` rewrites a stream before it is decoded.
    """
    decode = native(name)

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        header = parse(stream(data))
        shape = checked(header, tile, rows, columns)
        data = data if clean is None else clean(stream(data), header)
        out = scratch_array(slot, shape, tile.dtype)
        return np.asarray(decode(data, out=out, **options)).reshape(*shape[:2], tile.samples)

    return run


def jpeg2000(tile: TileEncoding, slot: int) -> StreamDecoder:
    """JPEG 2000, its components as they are stored."""
    return _stream("jpeg2k_decode", headers.jpeg2000, slot=slot, tile=tile, numthreads=1)


def jpeg_xl(tile: TileEncoding, slot: int) -> StreamDecoder:
    """JPEG XL, extra channels behind the colours."""
    if tile.big and tile.bits > 8:
        # libtiff swaps the bytes of values before it encodes them, Adobe does not; the stream does not show which.
        raise FormatError(f"JPEG XL of {tile.bits} bits in a big-endian TIFF may have its bytes in either order")
    return _stream("jpegxl_decode", jpegxl, slot=slot, tile=tile, numthreads=1)


def png(tile: TileEncoding, slot: int) -> StreamDecoder:
    """PNG, without the metadata that libpng warns about."""
    return _stream("png_decode", headers.png, slot=slot, tile=tile, clean=_plain_png)


def _plain_png(data: memoryview, header: StreamSize) -> Buffer:
    return without_metadata(data, header.width, header.height, header.bits, header.samples)


def webp(tile: TileEncoding, slot: int) -> StreamDecoder:
    """WebP, lossy or not."""
    if tile.samples not in (3, 4) or tile.dtype != np.uint8:
        raise FormatError(f"WebP of {tile.samples} samples of {tile.bits} bits does not exist")
    # A tile that is opaque throughout may be stored without its alpha.
    return _stream("webp_decode", headers.webp, slot=slot, tile=tile, hasalpha=tile.samples == 4)
