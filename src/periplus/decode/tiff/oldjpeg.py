"""Old-style JPEG: streams of strips, with chroma repeated and converted to RGB by TIFF's numbers, as in libtiff."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.jpeg.checks import checked_header
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, stream
from periplus.decode.tiff import ycbcr
from periplus.decode.tiff.images import StreamDecoder
from periplus.decode.tiff.jpeg import jpeg
from periplus.decode.tiff.tile import YCBCR, TileEncoding
from periplus.errors import DecodeError
from periplus.parse.jpeg import SEQUENTIAL, JpegHeader

BLOCK = 8
LARGEST_SIDE = 65_535
QUARTERS = 0x41
"""Sampling factors of 4 x 1."""


def old_jpeg(tile: TileEncoding, slot: int) -> StreamDecoder:
    """YCbCr as in libtiff; all else, and streams of whole images, as other JPEG."""
    whole = jpeg(tile, slot)
    if tile.photometric != YCBCR or tile.samples != 3:
        return whole
    convert = ycbcr.to_rgb(tile)
    across, down = tile.subsampling

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        whole(data, rows, columns)  # checks that the stream is complete
        view = stream(data)
        header = checked_header(view)
        single = header.kind in SEQUENTIAL and header.single_scan
        if header.factors != (tile.subsampling, (1, 1), (1, 1)) or not single or header.width != tile.width:
            raise DecodeError("the old-style JPEG stream has other sampling factors, sizes or scans than its image")
        luma, *chroma = _planes(bytes(view), header)
        high, wide = -(-rows // down), -(-tile.width // across)
        units = np.empty((high, wide, across * down + 2), np.uint8)
        blocks = luma[: high * down, : wide * across].reshape(high, down, wide, across)
        units[:, :, :-2] = blocks.transpose(0, 2, 1, 3).reshape(high, wide, across * down)
        for position, plane in enumerate(chroma, across * down):
            units[:, :, position] = plane[:high, :wide]
        return convert(units.reshape(-1), rows)

    return run


def _planes(data: bytes, header: JpegHeader) -> list[NDArray[Any]]:
    """Luma and chroma, each at its own resolution and complete to whole units.

    libjpeg interpolates chroma of half the resolution. It does not where blocks of luma that are coded together are
    declared in another order, or as components of their own; neither changes what is decoded of chroma.
    """
    (across, down), *_ = header.factors
    width, height = header.unit
    columns, rows = -(-header.width // width), -(-header.height // height)
    if (across, down) == (2, 2):
        # The four blocks of luma next to each other, so that chroma is a fourth of the width, and repeated.
        values = _decoded(_framed(data, header, 4 * BLOCK * columns, BLOCK * rows, (QUARTERS, 0x11, 0x11)), "YCBCR")
        blocks = values[:, :, 0].reshape(rows, BLOCK, columns, 2, 2, BLOCK).transpose(0, 3, 1, 2, 4, 5)
        return [blocks.reshape(rows * height, columns * width), values[:, ::4, 1], values[:, ::4, 2]]
    values = _decoded(_framed(data, header, columns * width, rows * height, None), "YCBCR")
    if across * down != 2:
        return [values[:, :, 0], values[::down, ::across, 1], values[::down, ::across, 2]]
    # Two components of luma predict each other no longer, so that only chroma is right.
    apart = _framed(data, header, BLOCK * columns, BLOCK * rows, (0x11,) * 4)
    return [values[:, :, 0], *np.moveaxis(_decoded(apart, "UNKNOWN")[:, :, 2:], -1, 0)]


def _decoded(data: bytes, colours: str) -> NDArray[Any]:
    return np.asarray(native("jpeg8_decode")(data, colorspace=colours, outcolorspace=colours))


def _framed(data: bytes, header: JpegHeader, width: int, height: int, factors: tuple[int, ...] | None) -> bytes:
    """The stream with another size, and other sampling factors; of four components two are luma."""
    if max(width, height) > LARGEST_SIDE:
        raise DecodeError(f"an old-style JPEG stream of {header.width} x {header.height} pixels is too large")
    names, tables = list(header.components), data[header.frame_offset + 12 : header.frame_offset + 10 + 9 : 3]
    scanned = [data[header.scan_offset + 5 + 2 * n : header.scan_offset + 7 + 2 * n] for n in range(3)]
    chosen = [0, 0, 1, 2] if factors and len(factors) == 4 else [0, 1, 2]
    if len(chosen) == 4:
        names.insert(1, next(name for name in range(256) if name not in names))
    packed = factors or [16 * across + down for across, down in header.factors]
    frame = struct.pack(">BHHB", header.bits, height, width, len(chosen))
    frame += b"".join(bytes([name, both, tables[n]]) for name, both, n in zip(names, packed, chosen, strict=True))
    scan = bytes([len(chosen)])
    scan += b"".join(bytes([name]) + scanned[n][1:] for name, n in zip(names, chosen, strict=True)) + b"\0\x3f\0"
    end = header.frame_offset + 2 + int.from_bytes(data[header.frame_offset + 2 : header.frame_offset + 4], "big")
    pieces = [
        data[: header.frame_offset + 2],
        struct.pack(">H", len(frame) + 2) + frame,
        data[end : header.scan_offset + 2],
        struct.pack(">H", len(scan) + 2) + scan,
        data[header.data_offset :],
    ]
    return b"".join(pieces)
