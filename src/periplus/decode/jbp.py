"""The jbp-block codec: one uncompressed block of a NITF image, samples of any width, big endian, in any interleave."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.bits import packed
from periplus.decode.scratch import Buffer, Octets, octets, scratch_array
from periplus.decode.settings import Extent, Run, number
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames

NAME = codecnames.JBP_BLOCK
ORDERS = {"B": (0, 1, 2), "S": (0, 1, 2), "P": (1, 2, 0), "R": (1, 0, 2)}
"""Which of (bands, y, x) each stored dimension is."""
KINDS = {"INT": "u", "SI": "i", "B": "u", "R": "f", "C": "c"}
LARGEST = 1 << 31
SIZES = ("num_bands", "block_height", "block_width")
KEYS = frozenset({*SIZES, "nbpp", "imode", "pvtype", "last_rows"})


def jbp_extent(configuration: Mapping[str, Any]) -> Extent:
    """A whole block; integers of other widths take the next larger type."""
    shape = tuple(number("jbp-block", configuration, key, 1, LARGEST) for key in SIZES)
    bits, kind = number("jbp-block", configuration, "nbpp", 1, 129), configuration.get("pvtype")
    letter = KINDS.get(str(kind), "")
    size = next(n for n in (8, 16, 32, 64, 128) if bits <= n)
    try:
        if bits == size or letter in "ui":
            return shape, np.dtype(f"{letter}{size // 8}")
    except TypeError:
        pass
    raise FormatError(f"jbp-block codec: {kind!r} of {bits} bits is no type")


def jbp_block(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], _limits: Limits) -> Run:
    """The decoder of one block."""
    order = ORDERS.get(str(configuration.get("imode")))
    if order is None:
        raise FormatError(f"jbp-block codec: imode is {configuration.get('imode')!r}")
    nbpp = number("jbp-block", configuration, "nbpp", 1, 129)
    stored = tuple(chunks[axis] for axis in order)
    back = tuple(order.index(axis) for axis in range(3))
    # Blocks cut to rows end with the image: the outermost stored dimension may be short.
    outer = next((place for place, n in enumerate(stored) if n > 1), 2)
    step = math.prod(stored[outer + 1 :])
    values_of = _whole(dtype) if nbpp == dtype.itemsize * 8 else _packed(nbpp, dtype)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        rows = valid[order[outer]]
        count = rows * step
        need = -(-count * nbpp // 8)
        found = octets(data)
        if len(found) < need:
            raise DecodeError(f"the block has {len(found)} of {need} bytes")
        values = values_of(found[:need], count).reshape(*stored[:outer], rows, *stored[outer + 1 :])
        return values.transpose(back)

    return run


def _whole(dtype: np.dtype[Any]) -> Callable[[Octets, int], NDArray[Any]]:
    stored = dtype.newbyteorder(">")

    def run(raw: Octets, count: int) -> NDArray[Any]:
        if stored.isnative:
            return raw.view(dtype)
        values = scratch_array(15, (count,), dtype)
        np.copyto(values, raw.view(stored))
        return values

    return run


def _packed(nbpp: int, dtype: np.dtype[Any]) -> Callable[[Octets, int], NDArray[Any]]:
    """Samples follow each other without a gap through the whole block, rows included."""

    def run(raw: Octets, count: int) -> NDArray[Any]:
        return packed(nbpp, count, dtype, slot=15)(raw, 1).reshape(count)

    return run
