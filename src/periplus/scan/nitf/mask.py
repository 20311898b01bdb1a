"""The mask in front of a NITF image: which of its blocks are stored and where, and the value of pad pixels."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Scalar, Step
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor

HEAD_BYTES, WHERE_BYTES = 10, 4
"""Bytes of a mask before its tables, and of these the ones that say where the blocks start."""
ABSENT = 0xFFFFFFFF
"""What a mask has for a block that is not stored."""


@dataclass(frozen=True, slots=True)
class BlockMask:
    """Bytes the mask takes, offsets of the blocks after it, and a pad pixel as stored."""

    length: int = 0
    offsets: NDArray[np.int64] | None = None
    pad: bytes | None = None
    used: int = 0
    """Bytes of the mask up to where its tables end."""


def read_mask(
    file: FileBuffer, start: int, length: int, number: int, *, more: bool = False
) -> Generator[Step, Any, BlockMask]:
    """The mask of an image of `number` blocks whose data are `length` bytes from `start`; `more` may lie behind it."""
    head = yield from file.read("the mask", start, HEAD_BYTES)
    size = int.from_bytes(head[:WHERE_BYTES], "big")
    mask = yield from read_tables(file, start + WHERE_BYTES, number, sparing=more)
    used = WHERE_BYTES + mask.used
    if used > length or not (more or used <= size <= length):
        raise FormatError(f"the mask of {size} bytes does not hold its {used} bytes in {length}", offset=start)
    return replace(mask, length=size, used=used)


def read_tables(file: FileBuffer, start: int, number: int, *, sparing: bool = False) -> Generator[Step, Any, BlockMask]:
    """What follows the length of a mask: the pad pixel, and the offsets of `number` blocks.

    Where `sparing`, as raster products are, tables of pad pixels are there only where there is a value for them.
    """
    head = yield from file.read("the mask", start, HEAD_BYTES - WHERE_BYTES)
    cursor = Cursor(head, order=">", base=start, url=file.url)
    block_record, pad_record, pad_bits = cursor.unpack("HHH")
    if block_record not in (0, 4) or pad_record not in (0, 4):
        raise FormatError(f"the mask has records of {block_record} and {pad_record} bytes", offset=start)
    pad_bytes = -(-pad_bits // 8)
    table = number * block_record
    after = start + HEAD_BYTES - WHERE_BYTES
    rest = yield from file.read("the mask", after, pad_bytes + table)
    offsets = np.frombuffer(rest, ">u4", number, pad_bytes).astype(np.int64) if table else None
    used = after - start + pad_bytes + table + (number * pad_record if pad_bits or not sparing else 0)
    return BlockMask(0, offsets, rest[:pad_bytes] if pad_bits else None, used)


def pad_value(dtype: np.dtype[Any], bits: int, stored: bytes | None) -> Scalar | None:
    """The value of pad pixels, which is also that of blocks that are not stored."""
    if stored is None:
        return None
    if dtype.kind in "fc":
        if len(stored) != dtype.itemsize:
            return None
        value: Scalar = np.frombuffer(stored, dtype.newbyteorder(">"))[0].item()
        return value
    number = int.from_bytes(stored, "big") & ((1 << bits) - 1)
    if dtype.kind == "i" and number >> (bits - 1):
        number -= 1 << bits
    return number
