"""Runs: the run lengths of NeXT, ThunderScan and SGI's LogLuv, row by row; rare, so made for safety, not speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.scratch import Buffer, Octets
from periplus.decode.tiff.images import StreamDecoder
from periplus.decode.tiff.tile import INT, TileEncoding
from periplus.errors import DecodeError, FormatError

LITERAL_ROW, LITERAL_SPAN = 0x00, 0x40
TWO_BITS = (0, 1, None, -1)
THREE_BITS = (0, 1, 2, 3, None, -3, -2, -1)
"""Differences by code; None if the code is not a pixel."""
UV_SCALE = 410.0
LOG_L = 32844


def nextstep(tile: TileEncoding, slot: int) -> StreamDecoder:  # noqa: ARG001 - allocates its own rows
    """NeXT: rows that are literal, a literal span on white, or runs of one of four greys."""
    if (tile.bits, tile.samples) != (2, 1):
        raise FormatError("NeXT compression of anything but two-bit grey does not exist")
    size = tile.row_bytes

    def row(data: bytes, position: int, out: Octets) -> int:
        mark = data[position]
        position += 1
        if mark == LITERAL_ROW:
            _spread(data[position : position + size], out, 0)
            return position + size
        if mark == LITERAL_SPAN:
            start, count = (
                int.from_bytes(data[position : position + 2]),
                int.from_bytes(data[position + 2 : position + 4]),
            )
            if start + count > size:
                raise DecodeError("a span of a NeXT row ends past the row")
            out[:] = 3
            _spread(data[position + 4 : position + 4 + count], out, 4 * start)
            return position + 4 + count
        column = 0
        while True:
            length = mark & 0x3F
            out[column : column + length] = mark >> 6
            column += length
            if column >= tile.width:
                return position
            mark = data[position]
            position += 1

    return _rows(tile, row, 1)


def _spread(packed: bytes, out: Octets, column: int) -> None:
    """Four greys a byte, the leftmost in the highest bits."""
    bits = np.frombuffer(packed, np.uint8)
    greys = np.stack([bits >> shift & 3 for shift in (6, 4, 2, 0)], axis=1).reshape(-1)
    wanted = out[column : column + len(greys)]
    wanted[:] = greys[: len(wanted)]


def thunderscan(tile: TileEncoding, slot: int) -> StreamDecoder:  # noqa: ARG001 - allocates its own rows
    """ThunderScan: runs, differences and plain values of sixteen greys; every row begins at 0."""
    if (tile.bits, tile.samples) != (4, 1):
        raise FormatError("ThunderScan compression of anything but four-bit grey does not exist")

    def row(data: bytes, position: int, out: Octets) -> int:
        column, last = 0, 0
        while column < tile.width:
            form, code = data[position] >> 6, data[position] & 0x3F
            position += 1
            if form == 0:
                out[column : column + code] = last
                column += code
                continue
            if form == 3:
                steps: tuple[int | None, ...] = (code - last,)
            elif form == 1:
                steps = tuple(TWO_BITS[code >> shift & 3] for shift in (4, 2, 0))
            else:
                steps = tuple(THREE_BITS[code >> shift & 7] for shift in (3, 0))
            for step in steps:
                if step is not None:
                    last = last + step & 0xF
                    out[column : column + 1] = last
                    column += 1
        return position

    return _rows(tile, row, 1)


def logluv(tile: TileEncoding, slot: int) -> StreamDecoder:  # noqa: ARG001 - allocates its own rows
    """SGI LogLuv of 32 bits as three signed 16-bit numbers, L, u and v; of 16 bits as L, as libtiff has it."""
    planes = 2 if tile.photometric == LOG_L else 4
    if (tile.bits, tile.sample_format, tile.samples) != (16, INT, 1 if planes == 2 else 3):
        raise FormatError("SGI LogLuv is read as signed 16-bit samples only")

    def row(data: bytes, position: int, out: Octets) -> int:
        for plane in range(planes):
            column = 0
            while column < tile.width:
                mark = data[position]
                count = mark - 126 if mark >= 128 else mark
                position += 1
                stop = min(column + count, tile.width)
                literal = np.frombuffer(data[position : position + (1 if mark >= 128 else count)], np.uint8)
                out[column:stop, plane] = literal if mark >= 128 else literal[: stop - column]
                position += 1 if mark >= 128 else count
                column += count
        return position

    read = _rows(tile, row, planes)

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        stored = read(data, rows, columns)
        number = stored.view(f">u{planes}")[:, :, 0].astype(np.uint32)
        if planes == 2:
            return number.astype(np.int16)[:, :, None]
        chroma = [((number >> shift & 0xFF) + 0.5) / UV_SCALE * (1 << 15) for shift in (8, 0)]
        return np.stack([number >> 16, *chroma], axis=2).astype(np.int64).astype(np.int16)

    return run


def _rows(tile: TileEncoding, row: Callable[[bytes, int, Octets], int], values: int) -> StreamDecoder:
    """All rows needed; running out of bytes is an error, wherever it happens."""

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:  # noqa: ARG001 - rows are coded whole
        stored, position = bytes(data), 0
        out = np.zeros((rows, tile.width, values), np.uint8)
        for line in out:
            position = row(stored, position, line[:, 0] if values == 1 else line)
            if position > len(stored):
                raise DecodeError("the strip is cut off")
        return out

    return run
