"""Samples: decompressed bytes of a strip or tile to values; byte order, predictors, any bit width, complex integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode import bits
from periplus.decode.native import native
from periplus.decode.scratch import Octets, scratch_array
from periplus.decode.tiff.tile import COMPLEX, COMPLEX_INT, FLOAT, INT, UINT, TileEncoding
from periplus.errors import FormatError

Values: TypeAlias = Callable[[Octets, int], NDArray[Any]]
"""(bytes of whole rows, rows) -> (rows, width, samples), native; may overwrite bytes in scratch memory."""

PREDICTED = frozenset({5, 8, 32946, 34925, 34926, 50000})
"""Compressions that have a predictor; libtiff ignores the tag for others."""
NO_PREDICTOR, HORIZONTAL, FLOATING = 1, 2, 3


def values_of(tile: TileEncoding, *, slot: int) -> Values:
    """How the bytes of that tile become values; uses scratch slots `slot` and `slot + 1`."""
    predictor = tile.predictor if tile.compression in PREDICTED else NO_PREDICTOR
    if predictor == FLOATING:
        return _floating(tile, slot)
    if predictor == HORIZONTAL:
        return _horizontal(tile, slot)
    if predictor != NO_PREDICTOR:
        raise FormatError(f"predictor {predictor} is not known")
    shape = (tile.width, tile.samples)
    if tile.sample_format in (UINT, INT) and tile.bits != tile.dtype.itemsize * 8:
        unpack = bits.packed(tile.bits, tile.run, tile.dtype, slot=slot)
        return lambda raw, rows: unpack(raw, rows).reshape(rows, *shape)
    if tile.sample_format == FLOAT and tile.bits == 24:
        small = bits.float24(tile.run, big=tile.big, slot=slot)
        return lambda raw, rows: small(raw, rows).reshape(rows, *shape)
    return _whole(tile, slot)


def _whole(tile: TileEncoding, slot: int) -> Values:
    """Samples that are a NumPy type, or pairs of them."""
    stored, parts = _stored(tile)
    width, samples, dtype = tile.width, tile.samples, tile.dtype
    if parts == 1 and (stored.itemsize == 1 or not tile.big):
        return lambda raw, rows: raw.view(stored).reshape(rows, width, samples)
    order = stored.newbyteorder(">" if tile.big else "<")
    into = np.dtype(f"f{dtype.itemsize // 2}") if parts == 2 else dtype

    def convert(raw: Octets, rows: int) -> NDArray[Any]:
        out = scratch_array(slot, (rows * width * samples * parts,), into)
        np.copyto(out, raw.view(order))
        return out.view(dtype).reshape(rows, width, samples)

    return convert


def _stored(tile: TileEncoding) -> tuple[np.dtype[Any], int]:
    """(type of what is stored, how many make one value)."""
    if tile.sample_format == COMPLEX_INT:
        return np.dtype(f"i{tile.bits // 16}"), 2
    if tile.sample_format == COMPLEX:
        half = np.dtype(f"f{tile.bits // 16}")
        return (half, 2) if tile.big or tile.bits == 32 else (tile.dtype, 1)
    return tile.dtype, 1


def _horizontal(tile: TileEncoding, slot: int) -> Values:
    """Differences to the pixel at the left, of whole samples taken as integers whatever they are."""
    if tile.bits not in (8, 16, 32, 64):
        raise FormatError(f"horizontal differencing of {tile.bits}-bit samples does not exist")
    integer = np.dtype(f"u{tile.bits // 8}")
    order = integer.newbyteorder(">" if tile.big else "<")
    undo = _sums_apart(tile, integer, slot + 1) if tile.samples > 1 and _stored(tile)[1] == 1 else _sums(tile, slot + 1)

    def run(raw: Octets, rows: int) -> NDArray[Any]:
        if tile.big and integer.itemsize > 1:
            numbers = scratch_array(slot, (rows * tile.run,), integer)
            np.copyto(numbers, raw.view(order))
        else:
            numbers = raw.view(integer)
        return undo(numbers, rows)

    return run


def _sums(tile: TileEncoding, slot: int) -> Callable[[NDArray[Any], int], NDArray[Any]]:
    """Differences undone in place; values that are more than their bits (complex integers) are converted after that."""
    undo, after = native("delta_decode"), _whole(replace(tile, big=False), slot)
    shape = (tile.width,) if tile.samples == 1 else (tile.width, tile.samples)

    def run(numbers: NDArray[Any], rows: int) -> NDArray[Any]:
        grid = numbers.reshape(rows, *shape)
        undo(grid, axis=1, out=grid)
        return after(numbers.view(np.uint8), rows)

    return run


def _sums_apart(tile: TileEncoding, integer: np.dtype[Any], slot: int) -> Callable[[NDArray[Any], int], NDArray[Any]]:
    """Differences undone while interleaved samples are separated into planes: one pass instead of two (measured)."""
    undo = native("delta_decode")
    width, samples, dtype = tile.width, tile.samples, tile.dtype

    def run(numbers: NDArray[Any], rows: int) -> NDArray[Any]:
        planes = scratch_array(slot, (samples, rows, width), integer)
        undo(numbers.reshape(rows, width, samples).transpose(2, 0, 1), axis=2, out=planes)
        return planes.view(dtype).transpose(1, 2, 0)

    return run


def _floating(tile: TileEncoding, slot: int) -> Values:
    """Bytes of all floats of a row gathered by significance, then differenced as bytes."""
    if tile.sample_format != FLOAT:
        raise FormatError("floating point predictor on samples that are no floating point numbers")
    undo = native("delta_decode")
    size, width, samples, run_length = tile.bits // 8, tile.width, tile.samples, tile.run
    octets = (width * size,) if samples == 1 else (width * size, samples)
    join = _joiner(size)
    small = bits.float24(run_length, big=True, slot=slot + 1) if size == 3 else None

    def run(raw: Octets, rows: int) -> NDArray[Any]:
        # Undone as bytes by the delta decoder and joined by NumPy: a quarter of the time of floatpred_decode, measured.
        grid = raw.reshape(rows, *octets)
        undo(grid, axis=1, out=grid)
        planes = raw.reshape(rows, size, run_length)
        if small is not None:
            triples = scratch_array(slot, (rows, run_length, size), np.dtype(np.uint8))
            np.copyto(triples, planes.transpose(0, 2, 1))
            found = small(triples.reshape(-1), rows)
        else:
            found = scratch_array(slot, (rows, run_length), tile.dtype)
            join(planes, found)
        return found.reshape(rows, width, samples)

    return run


def _joiner(size: int) -> Callable[[Octets, NDArray[Any]], None]:
    """How planes of bytes, the most significant first, become numbers."""
    integer = np.dtype(f"u{size if size != 3 else 4}")

    def shift(planes: Octets, out: NDArray[Any]) -> None:
        numbers = out.view(integer)
        np.copyto(numbers, planes[:, 0])
        for plane in range(1, size):
            np.left_shift(numbers, 8, out=numbers)
            np.bitwise_or(numbers, planes[:, plane], out=numbers)

    def place(planes: Octets, out: NDArray[Any]) -> None:
        parts = out.view(np.uint8).reshape(*out.shape, size)
        little = np.little_endian
        for plane in range(size):
            parts[:, :, size - 1 - plane if little else plane] = planes[:, plane]

    # Shifting is vectorised for narrow types, placing bytes is faster for wide ones (measured: 0.23 ms against 0.31 ms
    # for 512 x 512 float32, 1.06 ms against 0.63 ms for float64).
    return shift if size < 8 else place
