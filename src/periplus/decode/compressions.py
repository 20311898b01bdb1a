"""Compressions: bytes to bytes, into scratch, never past a budget; callers check whether they yield enough."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

from periplus.decode.native import native
from periplus.decode.scratch import Buffer, Octets, octets, scratch, stream
from periplus.errors import DecodeError, LimitError
from periplus.limits import MIB

Decompress: TypeAlias = Callable[[Buffer, int], Octets]
"""(compressed, bytes needed) -> decoded bytes, read only or in scratch."""
Maker: TypeAlias = Callable[[int, int], Decompress]
"""(budget in bytes, scratch slot) -> Decompress."""

LZMA_BYTES = 256 * MIB
"""Memory an xz stream may ask for; the strongest preset takes 65 MiB."""
LEAST_OUTPUT = 1 << 16
"""Bytes of the first attempt to decompress what does not declare its size."""


def budget_of(full: int) -> int:
    """Bytes a chunk of `full` bytes may decode to: every reader accepts more rows than needed."""
    return full + min(full, MIB) + 64 * 1024


def _full_of(budget: int) -> int:
    """Bytes of a whole chunk, the reverse of budget_of."""
    return max((budget - 64 * 1024) // 2, budget - 64 * 1024 - MIB)


def over(budget: int) -> DecodeError:
    """The error for a stream that does not end."""
    return DecodeError(f"the chunk decodes to more than {budget} bytes, far more than it should")


def plain(_budget: int, _slot: int) -> Decompress:
    """Stored bytes are the values' bytes."""
    return lambda data, _need: octets(data)


def deflate(budget: int, slot: int) -> Decompress:
    """A zlib stream."""
    # libdeflate takes half the time of zlib (measured: 1.5 ms against 3.1 ms for 512 x 512 int16).
    decode = native("deflate_decode")

    def run(data: Buffer, need: int) -> Octets:
        try:
            return octets(decode(data, out=scratch(slot, budget)))
        except RuntimeError:
            return _inflate_cut(zlib.decompressobj(), data, need, budget)

    return run


def gzip(budget: int, slot: int) -> Decompress:
    """Gzip members, one after the other."""
    decode = native("gzip_decode")

    def run(data: Buffer, need: int) -> Octets:
        try:
            found = octets(decode(data, out=scratch(slot, budget)))
        except RuntimeError:
            found = None
        if found is not None and len(found) >= need:
            return found
        whole = bytearray()
        rest: Buffer = data
        while len(rest) and len(whole) < need:
            member = zlib.decompressobj(wbits=31)
            whole += _inflate_cut(member, rest, 0, budget - len(whole)).data
            rest = member.unused_data
        return octets(whole)

    return run


def _inflate_cut(inflate: zlib._Decompress, data: Buffer, need: int, budget: int) -> Octets:
    """The output of zlib for a stream that libdeflate refused: it may be cut off after the last byte needed."""
    found = inflate.decompress(stream(data), budget)
    if not inflate.eof and len(found) >= budget:
        raise over(budget)
    if len(found) < need:
        raise DecodeError(f"the deflate stream ends after {len(found)} of {need} bytes")
    return octets(found)


def zstd(budget: int, slot: int) -> Decompress:
    """Zstandard frames."""
    decode = native("zstd_decode")

    def run(data: Buffer, _need: int) -> Octets:
        return octets(decode(data, out=scratch(slot, budget)))

    return run


def unzstd(data: bytes | memoryview, *, most: int) -> bytes:
    """The content of a Zstandard frame of undeclared size; LimitError where that is more than `most` bytes."""
    decode = native("zstd_decode")
    size = min(max(LEAST_OUTPUT, 8 * len(data)), most)
    while True:
        try:
            return bytes(decode(data, out=size))
        except RuntimeError as error:
            if "too small" not in str(error):
                raise DecodeError(f"a Zstandard frame is damaged: {error}") from None
        if size >= most:
            raise LimitError(f"a compressed file holds more than {most} bytes")
        size = min(8 * size, most)


def lzw(budget: int, slot: int) -> Decompress:
    """TIFF's LZW, old style too, by libtiff.

    The LZW decoder of imagecodecs itself takes twice the time (measured: 2.2 ms against 1.1 ms for 512 x 512
    int16) and reads uninitialised memory where a damaged stream uses a code that it has not defined.
    """
    decode = native("tiff_decode")

    def run(data: Buffer, need: int) -> Octets:
        # libtiff stops where it has enough. A code has at most 12 bits and yields at least a byte.
        if len(data) * 8 // 12 > budget:
            raise over(budget)
        out = scratch(slot, need)
        decode(_strip(data, need), out=out.reshape(1, need))
        return out

    return run


def _strip(data: Buffer, need: int) -> bytes:
    """A TIFF file of one row of bytes in one LZW strip."""
    tags = ((256, need), (257, 1), (258, 8), (259, 5), (262, 1), (273, 0), (277, 1), (278, 1), (279, len(data)))
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in tags)
    return b"".join((b"II*\0", struct.pack("<IH", 8, len(tags)), entries, bytes(4), stream(data)))


def packbits(budget: int, slot: int) -> Decompress:
    """Byte-wise run lengths, of which one ends where the rows needed end, or the whole chunk."""
    decode = native("packbits_decode")
    full = _full_of(budget)

    def run(data: Buffer, need: int) -> Octets:
        try:
            found = octets(decode(data, out=scratch(slot, budget)))
        except RuntimeError:
            found = None
        if found is not None and (len(found) <= need or len(found) == full or not need):
            return found
        return _unpack_runs(data, need, full, budget)

    return run


def _unpack_runs(data: Buffer, need: int, full: int, budget: int) -> Octets:
    """PackBits one run at a time: padding after the last byte needed may look like a broken run."""
    stored, found, position, whole = bytes(data), bytearray(), 0, not need
    while position < len(stored):
        control = stored[position]
        position += 1
        if control < 128:
            found += stored[position : position + control + 1]
            position += control + 1
        elif control > 128:
            found += stored[position : position + 1] * (257 - control)
            position += 1
        whole = whole or (position <= len(stored) and len(found) in (need, full))
        if len(found) > budget:
            raise over(budget)
    if len(found) < need:
        raise DecodeError(f"the PackBits stream ends after {len(found)} of {need} bytes")
    if not whole:
        raise DecodeError(f"the PackBits stream is damaged: a run extends past the {need} bytes of the chunk")
    return octets(found)


def _incremental(make: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor]) -> Maker:
    """A decompressor of the standard library, which allocates its own output."""

    def maker(budget: int, _slot: int) -> Decompress:
        def run(data: Buffer, _need: int) -> Octets:
            decoder = make()
            found = decoder.decompress(stream(data), budget)
            if not decoder.eof and len(found) >= budget:
                raise over(budget)
            return octets(found)

        return run

    return maker


xz = _incremental(lambda: lzma.LZMADecompressor(memlimit=LZMA_BYTES))
bzip2 = _incremental(bz2.BZ2Decompressor)


TIFF_COMPRESSIONS: dict[int, Maker] = {
    1: plain,
    5: lzw,
    8: deflate,
    32946: deflate,
    32773: packbits,
    34925: xz,
    34926: zstd,
    50000: zstd,
}
"""By TIFF's compression number."""
