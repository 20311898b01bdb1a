"""LERC: blobs, perhaps in deflate or Zstandard, their mask as NaN or alpha; inspected where the library is careless."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.compressions import budget_of, deflate, plain, zstd
from periplus.decode.headers import Header
from periplus.decode.images import Picture, checked
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tile import FLOAT, Tile
from periplus.errors import DecodeError

UNASSOCIATED_ALPHA = 2
NAME = b"Lerc2 "
LARGEST_BLOCK = 32
SIZES = (1, 1, 2, 2, 4, 4, 4, 8)
"""Bytes of a value, by LERC's number for its type."""
NARROWER = ((0,) * 4, (1,) * 4, (2, 1, 0), (3, 1), (4, 3, 2, 1), (5, 3, 1), (6, 2, 1, 1), (7, 6, 4, 2))
"""Types in which the least value of a block may be stored instead of its own, by two bits."""


def lerc(tile: Tile, slot: int) -> Picture:
    """What libtiff makes of a blob: masked pixels are NaN in floats, transparent where the last band is an alpha."""
    decode = native("lerc_decode")
    full = tile.width * tile.height * (tile.samples * tile.dtype.itemsize + 1)
    inner = (plain, deflate, zstd)[tile.lerc_compression](budget_of(full), slot + 1)
    alpha = tile.samples > 1 and tile.dtype.itemsize == 1 and tile.extra_samples[-1:] == (UNASSOCIATED_ALPHA,)

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        blob = inner(data, 0)
        header = inspect(stream(blob))
        masked = alpha and header.samples == tile.samples - 1
        samples = header.samples if masked else tile.samples
        shape = checked(header, tile, rows, columns, samples)
        values, mask = decode(blob, masks=True, out=scratch_array(slot, shape, tile.dtype))
        return _unmasked(np.asarray(values).reshape(*shape[:2], samples), mask, tile, masked)

    return run


def _unmasked(values: NDArray[Any], mask: NDArray[Any] | None, tile: Tile, alpha: bool) -> NDArray[Any]:
    whole = np.ones(values.shape[:2], bool)
    valid = whole if mask is None else np.asarray(mask).reshape(-1, *values.shape[:2])[0] != 0
    if alpha:
        return np.concatenate([values, np.where(valid, 255, 0).astype(tile.dtype)[:, :, None]], axis=2)
    if tile.sample_format == FLOAT and not valid.all():
        values[~valid] = np.nan
    return values


def inspect(blob: memoryview) -> Header:
    """The header of a whole blob whose first blocks are sound.

    The library (4.0 to 4.2) trusts the number of values a block declares: a first block with too few makes it read
    where nothing was allocated. Once a full block has been unpacked its buffer is large enough for all others.
    """
    if bytes(blob[:6]) != NAME:
        raise DecodeError("the LERC blob does not begin with its name")
    version, _, height, width = struct.unpack_from("<iIii", blob, 6)
    if not 3 <= version <= 6:
        raise DecodeError(f"the LERC blob has version {version}; those before 3 have no checksum")
    position = 22
    depth = 1
    if version >= 4:
        (depth,) = struct.unpack_from("<i", blob, position)
        position += 4
    valid, block, size, kind = struct.unpack_from("<iiii", blob, position)
    position += 16 + (8 if version >= 6 else 0)
    error, low, high = struct.unpack_from("<ddd", blob, position)
    position += 24 + (16 if version >= 6 else 0)
    if not (0 < size <= len(blob) and 0 <= kind < len(SIZES) and 0 < block <= LARGEST_BLOCK and height > 0 < width):
        raise DecodeError("the LERC blob is cut off or has a broken header")
    if not 0 <= valid <= height * width or not 0 < depth < 1 << 16 or not all(map(math.isfinite, (error, low, high))):
        raise DecodeError("the LERC blob has a broken header")
    header = Header(width, height, depth, 8 * SIZES[kind])
    if valid and low != high:
        huffman = (kind < 2 and error == 0.5) or (version >= 6 and kind >= 6 and error == 0)
        _Blocks(blob[:size], header, version=version, block=block, kind=kind, valid=valid, huffman=huffman).check(
            position
        )
    return header


class _Blocks:
    """The beginning of a blob's data, as far as the library must be kept from trusting it."""

    def __init__(
        self, blob: memoryview, header: Header, *, version: int, block: int, kind: int, valid: int, huffman: bool
    ) -> None:
        self._blob, self._header = blob, header
        self._version, self._block, self._kind, self._valid = version, block, kind, valid
        self._huffman = huffman

    def check(self, position: int) -> None:
        """DecodeError where a block declares fewer values than it has valid pixels before any block was full."""
        blob, header = self._blob, self._header
        (packed,) = struct.unpack_from("<i", blob, position)
        if not 0 <= packed <= len(blob):
            raise DecodeError("the LERC blob has a broken mask")
        mask = self._mask(position + 4, packed)
        position += 4 + packed
        if self._version >= 4:
            position += 2 * header.samples * SIZES[self._kind]
        if blob[position]:
            return
        position += 1
        if self._huffman:
            if blob[position]:
                return
            position += 1
        full = min(self._block, header.height) * min(self._block, header.width)
        known = 0
        for needed in self._needed(mask):
            position, values = self._skip(position, needed)
            known = max(known, values)
            if values >= 0 and known < needed:
                raise DecodeError("the LERC blob has a block of too few values")
            if known >= full:
                return

    def _needed(self, mask: NDArray[np.bool_] | None) -> Iterator[int]:
        """Valid pixels of each block, once a band."""
        height, width, block = self._header.height, self._header.width, self._block
        for top in range(0, height, block):
            for left in range(0, width, block):
                if mask is None:
                    count = min(block, height - top) * min(block, width - left)
                else:
                    count = int(mask[top : top + block, left : left + block].sum())
                for _ in range(self._header.samples):
                    yield count

    def _skip(self, position: int, needed: int) -> tuple[int, int]:
        """(where the next block begins, values unpacked to a buffer, or -1 where none is used)."""
        flag = self._blob[position]
        position += 1
        form, narrow = flag & 3, flag >> 6
        if form == 2:
            return position, -1
        if form == 0:
            return position + needed * SIZES[self._kind], -1
        # Differences to the band before are stored as 32-bit integers, whatever type of integer the values are.
        kind = 4 if self._version >= 5 and flag & 4 and self._kind < 6 else self._kind
        if narrow >= len(NARROWER[kind]):
            raise DecodeError("the LERC blob has a block of an unknown type")
        position += SIZES[NARROWER[kind][narrow]]
        return (position, -1) if form == 3 else self._stuffed(position)

    def _stuffed(self, position: int) -> tuple[int, int]:
        head = self._blob[position]
        count = 4 if head >> 6 == 0 else 3 - (head >> 6)
        values = int.from_bytes(self._blob[position + 1 : position + 1 + count], "little")
        position += 1 + count
        bits = head & 31
        if not head & 32:
            return position + -(-values * bits // 8), values if bits else 0
        table = self._blob[position] - 1
        if table < 1 or not bits:
            raise DecodeError("the LERC blob has a block with an empty table")
        return position + 1 + -(-table * bits // 8) + -(-values * table.bit_length() // 8), values

    def _mask(self, position: int, packed: int) -> NDArray[np.bool_] | None:
        """Valid pixels where not all are, from run lengths."""
        height, width = self._header.height, self._header.width
        if self._valid == height * width:
            return None
        wanted, stop = -(-height * width // 8), position + packed
        found = bytearray()
        while packed > 0 and position + 2 <= stop and len(found) < wanted:
            (run,) = struct.unpack_from("<h", self._blob, position)
            position += 2
            if run > 0:
                found += self._blob[position : position + run]
                position += run
            else:
                found += bytes(self._blob[position : position + 1]) * -run
                position += 1
        if len(found) < wanted:
            raise DecodeError("the LERC blob has a broken mask")
        bits = np.unpackbits(np.frombuffer(found, np.uint8, wanted), count=height * width)
        return bits.reshape(height, width).astype(bool)
