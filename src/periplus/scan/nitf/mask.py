"""The mask before the data of a NITF image: offsets of its blocks, which of them are stored, and the pad value."""

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

HEAD_BYTES, OFFSET_BYTES = 10, 4
"""Bytes of a mask before its tables, and those of them that hold the offset of the blocks."""
ABSENT = 0xFFFFFFFF
"""The offset in a mask of a block that is not stored."""


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
    """The mask of an image of `number` blocks in `length` bytes from `start`; with `more`, other tables follow it."""
    head = yield from file.read("the mask", start, HEAD_BYTES)
    size = int.from_bytes(head[:OFFSET_BYTES], "big")
    mask = yield from read_tables(file, start + OFFSET_BYTES, number, sparing=more)
    used = OFFSET_BYTES + mask.used
    if used > length or not (more or used <= size <= length):
        raise FormatError(
            f"the mask of {size} bytes cannot hold its {used} bytes of tables in {length} bytes of data", offset=start
        )
    return replace(mask, length=size, used=used)


def read_tables(file: FileBuffer, start: int, number: int, *, sparing: bool = False) -> Generator[Step, Any, BlockMask]:
    """What follows the length of a mask: the pad pixel, and the offsets of `number` blocks.

    With `sparing`, as in raster products, the table of pad pixels exists only if there is a pad value.
    """
    head = yield from file.read("the mask", start, HEAD_BYTES - OFFSET_BYTES)
    cursor = Cursor(head, order=">", base=start)
    block_record, pad_record, pad_bits = cursor.unpack("HHH")
    if block_record not in (0, 4) or pad_record not in (0, 4):
        raise FormatError(f"the mask has records of {block_record} and {pad_record} bytes", offset=start)
    pad_bytes = -(-pad_bits // 8)
    table = number * block_record
    after = start + HEAD_BYTES - OFFSET_BYTES
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
