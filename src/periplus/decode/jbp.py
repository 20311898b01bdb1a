"""The jbp-block codec: one uncompressed block of a NITF image, samples of any width, big endian, in any interleave."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode.bits import packed
from periplus.decode.scratch import Buffer, Octets, octets, scratch_array
from periplus.decode.settings import known
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames

NAME = codecnames.JBP_BLOCK
Run: TypeAlias = Callable[[Buffer, Shape], NDArray[Any]]
ORDERS = {"B": (0, 1, 2), "S": (0, 1, 2), "P": (1, 2, 0), "R": (1, 0, 2)}
"""Which of (bands, y, x) each stored dimension is."""
KINDS = {"INT": "u", "SI": "i", "B": "u", "R": "f", "C": "c"}
LARGEST = 1 << 31
KEYS = frozenset({"num_bands", "block_height", "block_width", "nbpp", "imode", "pvtype", "last_rows"})


def jbp_block(configuration: Mapping[str, Any], *, chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    """The decoder of one block; leading dimensions beyond (bands, y, x) have size 1."""
    known("jbp-block", configuration, KEYS)
    bands, height, width, nbpp = (
        _number(configuration, name) for name in ("num_bands", "block_height", "block_width", "nbpp")
    )
    order = ORDERS.get(str(configuration.get("imode")))
    if order is None:
        raise FormatError(f"codec jbp-block: imode is {configuration.get('imode')!r}")
    _fits(configuration, (bands, height, width), nbpp, chunks, dtype)
    limits.check("the bytes of a block", bands * height * width * dtype.itemsize, limits.chunk_bytes)
    sizes = (bands, height, width)
    stored = tuple(sizes[axis] for axis in order)
    back = tuple(order.index(axis) for axis in range(3))
    # Blocks cut to rows end with the image: the outermost stored dimension may be short.
    outer = next((place for place, n in enumerate(stored) if n > 1), 2)
    step = math.prod(stored[outer + 1 :])
    lead = (None,) * (len(chunks) - 3)
    values_of = _whole(dtype) if nbpp == dtype.itemsize * 8 else _packed(nbpp, dtype)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        rows = valid[-3:][order[outer]]
        count = rows * step
        need = -(-count * nbpp // 8)
        found = octets(data)
        if len(found) < need:
            raise DecodeError(f"the block has {len(found)} of {need} bytes")
        values = values_of(found[:need], count).reshape(*stored[:outer], rows, *stored[outer + 1 :])
        return values.transpose(back)[lead] if lead else values.transpose(back)

    return run


def _fits(
    configuration: Mapping[str, Any], sizes: tuple[int, int, int], nbpp: int, chunks: Shape, dtype: np.dtype[Any]
) -> None:
    if len(chunks) < 3 or any(n != 1 for n in chunks[:-3]) or tuple(chunks[-3:]) != sizes:
        raise FormatError(f"a block of {sizes} does not fill chunks of {tuple(chunks)}")
    kind = configuration.get("pvtype")
    whole = nbpp == dtype.itemsize * 8
    narrow = dtype.kind in "ui" and dtype.itemsize * 8 == next((n for n in (8, 16, 32, 64) if nbpp <= n), 0)
    if KINDS.get(str(kind)) != dtype.kind or not (whole or narrow):
        raise FormatError(f"a block of {nbpp}-bit {kind!r} values does not fill an array of {dtype}")


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


def _number(configuration: Mapping[str, Any], name: str) -> int:
    value = configuration.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < LARGEST:
        raise FormatError(f"codec jbp-block: {name} is {value!r}")
    return value
