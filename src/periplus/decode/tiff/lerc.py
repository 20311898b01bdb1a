"""LERC: blobs, perhaps in deflate or Zstandard, their mask as NaN or alpha; inspected where the library is careless."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.compressions import budget_of, deflate, plain, zstd
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tiff.headers import StreamSize
from periplus.decode.tiff.images import StreamDecoder, checked
from periplus.decode.tiff.tile import FLOAT, TileEncoding
from periplus.errors import DecodeError

UNASSOCIATED_ALPHA = 2
NAME = b"Lerc2 "
LARGEST_BLOCK = 32
SIZES = (1, 1, 2, 2, 4, 4, 4, 8)
"""Bytes of a value, by LERC's number for its type."""
NARROWER = ((0,) * 4, (1,) * 4, (2, 1, 0), (3, 1), (4, 3, 2, 1), (5, 3, 1), (6, 2, 1, 1), (7, 6, 4, 2))
"""Types in which the least value of a block may be stored instead of its own, by two bits."""


def lerc(tile: TileEncoding, slot: int) -> StreamDecoder:
    """What libtiff makes of a blob: masked pixels are NaN in floats, transparent where the last band is an alpha."""
    decode = native("lerc_decode")
    full = tile.width * tile.height * (tile.samples * tile.dtype.itemsize + 1)
    inner = (plain, deflate, zstd)[tile.lerc_compression](budget_of(full), slot + 1)
    alpha = tile.samples > 1 and tile.dtype.itemsize == 1 and tile.extra_samples[-1:] == (UNASSOCIATED_ALPHA,)

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        blob = inner(data, 0)
        blocks = _blocks(stream(blob))
        header = blocks.header
        if header.samples == 1 < tile.samples and len(blocks.blob) < len(blob):
            return _apart(blob, blocks, tile, checked(header, tile, rows, columns, 1)[:2], slot)
        masked = alpha and header.samples == tile.samples - 1
        samples = header.samples if masked else tile.samples
        shape = checked(header, tile, rows, columns, samples)
        blocks.check()
        values, mask = decode(blob, masks=True, out=scratch_array(slot, shape, tile.dtype))
        return _unmasked(_byte_swapped(values, tile).reshape(*shape[:2], samples), mask, tile, masked)

    return run


def _apart(blob: Buffer, first: _Blocks, tile: TileEncoding, size: tuple[int, ...], slot: int) -> NDArray[Any]:
    """One blob per band, one after the other, as written if only some bands have NaN."""
    whole, blocks, mask = stream(blob), first, None
    position = bands = 0
    while True:
        if blocks.header != first.header or blocks.kind != first.kind:
            raise DecodeError("the LERC blobs of the bands of a tile differ in size or type")
        mask = blocks.check(mask)
        position, bands = position + len(blocks.blob), bands + 1
        if position >= len(whole):
            break
        blocks = _blocks(whole[position:])
    if bands != tile.samples:
        raise DecodeError(f"the tile has {bands} LERC blobs for {tile.samples} bands")
    decode = native("lerc_decode")
    values, masks = decode(blob, masks=True, out=scratch_array(slot, (bands, *size), tile.dtype))
    found = _byte_swapped(values, tile).reshape(bands, *size)
    if tile.sample_format == FLOAT and masks is not None:
        found[np.broadcast_to(np.asarray(masks).reshape(-1, *size) == 0, found.shape)] = np.nan
    return found.transpose(1, 2, 0)


def _byte_swapped(values: Any, tile: TileEncoding) -> NDArray[Any]:
    """Values of a big-endian file: libtiff turns their bytes round before it encodes them, as if it stored them.

    Those that look like NaN then are lost. They are NaN here; libtiff gives NaN with its bytes turned round.
    """
    found = np.asarray(values)
    return found.byteswap(inplace=True) if tile.big else found


def _unmasked(values: NDArray[Any], mask: NDArray[Any] | None, tile: TileEncoding, alpha: bool) -> NDArray[Any]:
    whole = np.ones(values.shape[:2], bool)
    valid = whole if mask is None else np.asarray(mask).reshape(-1, *values.shape[:2])[0] != 0
    if alpha:
        return np.concatenate([values, np.where(valid, 255, 0).astype(tile.dtype)[:, :, None]], axis=2)
    if tile.sample_format == FLOAT and not valid.all():
        values[~valid] = np.nan
    return values


def _blocks(blob: memoryview) -> _Blocks:
    """The description of its blocks in the header of a blob."""
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
    return _Blocks(
        blob=blob[:size],
        header=StreamSize(width, height, depth, 8 * SIZES[kind]),
        version=version,
        block=block,
        kind=kind,
        valid=valid,
        constant=low == high,
        huffman=(kind < 2 and error == 0.5) or (version >= 6 and kind >= 6 and error == 0),
        start=position,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """The beginning of a blob's data, as far as the library must be kept from trusting it."""

    blob: memoryview
    header: StreamSize
    version: int
    block: int
    kind: int
    valid: int
    constant: bool
    huffman: bool
    start: int

    def check(self, before: NDArray[np.bool_] | None = None) -> NDArray[np.bool_] | None:
        """DecodeError where a block declares fewer values than it has valid pixels before any block was full.

        A blob without mask has that of the band `before` it. Returns the mask; None where all pixels are valid.

        The library (4.0 to 4.2) trusts that number: a first block with too few makes it read where nothing was
        allocated. Once a full block has been unpacked its buffer is large enough for all others.
        """
        blob, header, position = self.blob, self.header, self.start
        (packed,) = struct.unpack_from("<i", blob, position)
        if not 0 <= packed <= len(blob):
            raise DecodeError("the LERC blob has a broken mask")
        mask = self._mask(position + 4, packed, before)
        if self.valid and not self.constant:
            self._look(position + 4 + packed, mask, min(self.block, header.height) * min(self.block, header.width))
        return mask

    def _look(self, position: int, mask: NDArray[np.bool_] | None, full: int) -> None:
        blob, header = self.blob, self.header
        if self.version >= 4:
            least, most = position + header.samples * SIZES[self.kind], position + 2 * header.samples * SIZES[self.kind]
            if blob[position:least] == blob[least:most]:
                return  # Every band has one value, and nothing follows.
            position = most
        if blob[position]:
            return
        position += 1
        if self.huffman:
            if blob[position]:
                return
            position += 1
        known, size = 0, SIZES[self.kind]
        for needed in self._needed(mask):
            # Most blocks are stored as they are or have one value, and there are many.
            form = blob[position] & 3
            if form == 0:
                position += 1 + needed * size
            elif form == 2:
                position += 1
            else:
                position, values = self._skip(position)
                known = max(known, values)
                if values >= 0 and known < needed:
                    raise DecodeError("the LERC blob has a block of too few values")
                if known >= full:
                    return

    def _needed(self, mask: NDArray[np.bool_] | None) -> Iterator[int]:
        """Valid pixels of each block, once a band; a row of blocks at a time."""
        height, width, block, bands = self.header.height, self.header.width, self.block, self.header.samples
        lefts = np.arange(0, width, block)
        for top in range(0, height, block):
            if mask is None:
                counts = min(block, height - top) * np.minimum(block, width - lefts)
            else:
                counts = np.add.reduceat(mask[top : top + block].sum(axis=0), lefts)
            yield from counts.repeat(bands).tolist()

    def _skip(self, position: int) -> tuple[int, int]:
        """Of a packed block (where the next begins, values unpacked to a buffer, or -1 where none is used)."""
        flag = self.blob[position]
        position += 1
        form, narrow = flag & 3, flag >> 6
        # Differences to the band before are stored as 32-bit integers, whatever type of integer the values are.
        kind = 4 if self.version >= 5 and flag & 4 and self.kind < 6 else self.kind
        if narrow >= len(NARROWER[kind]):
            raise DecodeError("the LERC blob has a block of an unknown type")
        position += SIZES[NARROWER[kind][narrow]]
        return (position, -1) if form == 3 else self._stuffed(position)

    def _stuffed(self, position: int) -> tuple[int, int]:
        head = self.blob[position]
        count = 4 if head >> 6 == 0 else 3 - (head >> 6)
        values = int.from_bytes(self.blob[position + 1 : position + 1 + count], "little")
        position += 1 + count
        bits = head & 31
        if not head & 32:
            return position + -(-values * bits // 8), values if bits else 0
        table = self.blob[position] - 1
        if table < 1 or not bits:
            raise DecodeError("the LERC blob has a block with an empty table")
        return position + 1 + -(-table * bits // 8) + -(-values * table.bit_length() // 8), values

    def _mask(self, position: int, packed: int, before: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Valid pixels where not all are, from run lengths."""
        height, width = self.header.height, self.header.width
        if self.valid == height * width:
            return None
        if not self.valid:
            return np.zeros((height, width), bool)
        if not packed and before is not None and np.count_nonzero(before) == self.valid:
            return before
        wanted, stop = -(-height * width // 8), position + packed
        found = bytearray()
        while packed > 0 and position + 2 <= stop and len(found) < wanted:
            (run,) = struct.unpack_from("<h", self.blob, position)
            position += 2
            if run > 0:
                found += self.blob[position : position + run]
                position += run
            else:
                found += bytes(self.blob[position : position + 1]) * -run
                position += 1
        if len(found) < wanted:
            raise DecodeError("the LERC blob has a broken mask")
        bits = np.unpackbits(np.frombuffer(found, np.uint8, wanted), count=height * width)
        return bits.reshape(height, width).astype(bool)
