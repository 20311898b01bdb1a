"""Bits: samples of any width, packed most significant bit first, each row starting at a whole byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode.native import native
from periplus.decode.scratch import Octets, scratch_array

Unpack: TypeAlias = Callable[[Octets, int], NDArray[Any]]
"""(bytes of whole rows, rows) -> (rows, run) values, in scratch."""

BLOCK_VALUES = 1 << 16
"""Values turned to single bits at a time, where no decoder exists: 64 bytes each."""


def packed(bits: int, run: int, dtype: np.dtype[Any], *, slot: int) -> Unpack:
    """Integers of 1 to 64 bits; `run` of them a row; signed ones keep their sign.

    Whole bytes too (24 bits) come most significant first whatever the file's byte order, as GDAL and tifffile have it.
    """
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if bits <= 32 or bits == 64:
        decode = native("packints_decode")

        def unpack(raw: Octets, rows: int) -> NDArray[Any]:
            out = scratch_array(slot, (rows * run,), unsigned)
            return np.asarray(decode(raw, unsigned, bits, runlen=run, out=out)).reshape(rows, run)

    else:

        def unpack(raw: Octets, rows: int) -> NDArray[Any]:
            return _wide(raw, rows, bits, run, scratch_array(slot, (rows, run), unsigned))

    return _signed(unpack, bits, dtype)


def _wide(raw: Octets, rows: int, bits: int, run: int, out: NDArray[Any]) -> NDArray[Any]:
    """33 to 63 bits, by way of single bits."""
    packed_rows = raw.reshape(rows, -1)
    step = max(1, BLOCK_VALUES // run)
    for start in range(0, rows, step):
        single = np.unpackbits(packed_rows[start : start + step], axis=1, count=run * bits).reshape(-1, run, bits)
        padded = np.zeros((*single.shape[:2], 64), np.uint8)
        padded[:, :, 64 - bits :] = single
        out[start : start + step] = np.packbits(padded, axis=2).view(">u8")[:, :, 0]
    return out


def _signed(unpack: Unpack, bits: int, dtype: np.dtype[Any]) -> Unpack:
    if dtype.kind != "i" or bits == dtype.itemsize * 8:
        return unpack if dtype.kind == "u" else lambda raw, rows: unpack(raw, rows).view(dtype)
    up = dtype.itemsize * 8 - bits

    def extend(raw: Octets, rows: int) -> NDArray[Any]:
        values = unpack(raw, rows).view(dtype)
        np.left_shift(values, up, out=values)
        np.right_shift(values, up, out=values)
        return values

    return extend


def float24(run: int, *, big: bool, slot: int) -> Unpack:
    """The 24-bit floats of the TIFF supplement, as float32."""
    decode = native("float24_decode")
    single = np.dtype(np.float32)

    def unpack(raw: Octets, rows: int) -> NDArray[Any]:
        out = scratch_array(slot, (rows * run,), single)
        return np.asarray(decode(raw, byteorder=">" if big else "<", out=out)).reshape(rows, run)

    return unpack
