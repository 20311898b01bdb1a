"""The periplus.png codec: one whole PNG file to (bands, rows, columns), values and palette indices as stored."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.compressions import deflate
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, Octets, scratch, scratch_array, stream
from periplus.decode.settings import known, number
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape

NAME = "periplus.png"
MAGIC = b"\x89PNG\r\n\x1a\n"
LARGEST = 1 << 31
STORED_BYTES = 65_535
"""Of a block that deflate stores as it is."""
SLACK = 64 * 1024
"""Bytes after the last row that a stream may hold; decoders step over them."""
KEYS = frozenset({"width", "height", "bands", "bits"})
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column, first row and steps of every pass of an interlaced image."""
BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
"""Colour type to decode as: a palette's indices are gray to libpng."""


def png(
    configuration: Mapping[str, Any], *, chunks: Shape, dtype: np.dtype[Any], limits: Limits
) -> Callable[[Buffer, Shape], NDArray[Any]]:
    """The decoder of one file; leading dimensions beyond (bands, y, x) have size 1."""

    known("png", configuration, KEYS)

    def setting(key: str, high: int) -> int:
        return number("png", configuration, key, 1, high)

    width, height = setting("width", LARGEST), setting("height", LARGEST)
    bands, bits = setting("bands", 5), setting("bits", 17)
    if bits not in (1, 2, 4, 8, 16) or (bits < 8 and bands > 1):
        raise FormatError(f"png codec: {bands} bands of {bits} bits do not exist")
    if len(chunks) < 3 or any(n != 1 for n in chunks[:-3]) or tuple(chunks[-3:]) != (bands, height, width):
        raise FormatError(f"a PNG of {bands} bands of {width} x {height} pixels does not fill chunks of {chunks}")
    if dtype != np.dtype(np.uint16 if bits == 16 else np.uint8):
        raise FormatError(f"a PNG of {bits} bits does not fill an array of {dtype}")
    limits.check("the bytes of a chunk", bands * height * width * dtype.itemsize, limits.chunk_bytes)
    decode, store = native("png_decode"), native("deflate_encode")
    whole = _bytes(width, height, bands * bits)
    passes = [(each, _bytes(*_size(each, width, height), bands * bits)) for each in PASSES]
    # libdeflate, because libpng's own zlib takes twice the time; libpng then finds the rows stored (measured: 48 ms
    # against 57 ms for 2048 x 2048 x 3 bytes).
    inflate = deflate(max(whole, sum(size for _, size in passes)) + SLACK, 1)
    lead = (None,) * (len(chunks) - 3)
    step = 255 // ((1 << bits) - 1) if bits < 8 else 1

    def rows(raw: Octets, into: NDArray[Any]) -> None:
        """Rows without interlacing; libpng spreads few bits over the whole range, which is undone."""
        high, wide = into.shape[:2]
        file = _file(_chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, bits, COLOURS[bands], 0, 0, 0)), raw, store)
        found = decode(file, out=into[:, :, 0] if bands == 1 else into)
        if found.shape[:2] != (high, wide):
            raise DecodeError("the PNG file is another image")
        if step > 1:
            np.floor_divide(into, step, out=into)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:  # noqa: ARG001 - a file is always whole
        interlaced, packed = _parts(stream(data), (width, height, bits), bands)
        out = scratch_array(0, (height, width, bands), dtype)
        if not interlaced:
            rows(inflate(packed, whole)[:whole], out)
        else:
            raw = inflate(packed, sum(size for _, size in passes))
            start = 0
            for each, size in passes:
                if size:
                    x, y, dx, dy = each
                    wide, high = _size(each, width, height)
                    own = np.empty((high, wide, bands), dtype)
                    rows(raw[start : start + size], own)
                    out[y::dy, x::dx] = own
                    start += size
        return out.transpose(2, 0, 1)[lead]

    return run


def _parts(view: memoryview, size: tuple[int, int, int], bands: int) -> tuple[bool, bytes]:
    """Whether the file is interlaced, and its compressed pixels; DecodeError where it is not the picture expected."""
    if bytes(view[:8]) != MAGIC:
        raise DecodeError("the PNG file does not begin with its magic number")
    position, found, interlaced = 8, [], None
    while position + 12 <= len(view):
        length, kind = struct.unpack_from(">I4s", view, position)
        end = position + 8 + length
        if kind in (b"IHDR", b"IDAT"):
            if end + 4 > len(view):
                raise DecodeError("the PNG file is cut off")
            if zlib.crc32(view[position + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
                raise DecodeError("a chunk of the PNG file fails its check")
        if interlaced is None:
            if kind != b"IHDR" or length != 13:
                raise DecodeError("the PNG file does not begin with its header")
            *seen, colour, compression, filtering, interlaced = struct.unpack_from(">IIBBBBB", view, position + 8)
            if tuple(seen) != size or BANDS.get(colour) != bands or compression or filtering or interlaced > 1:
                raise DecodeError("the PNG file is another image")
        elif kind == b"IDAT":
            found.append(view[position + 8 : end])
        elif kind == b"IEND" or found:
            # Pixels come in chunks one after another.
            break
        position = end + 4
    if interlaced is None or not found:
        raise DecodeError("the PNG file has no image")
    return bool(interlaced), b"".join(found)


def _size(each: tuple[int, int, int, int], width: int, height: int) -> tuple[int, int]:
    """Columns and rows of one pass; either may be none."""
    x, y, dx, dy = each
    return -(-max(width - x, 0) // dx), -(-max(height - y, 0) // dy)


def _bytes(width: int, height: int, bits: int) -> int:
    """Bytes of filtered rows of `bits` bits a pixel."""
    return height * (1 + -(-width * bits // 8)) if width else 0


def _file(head: bytes, raw: Octets, store: Callable[..., Any]) -> Octets:
    """A PNG of nothing but header and rows: what else was in the file could only change or slow its decoding.

    Put together where it lies: fresh memory for every step would take as long as the decoding.
    """
    start = len(MAGIC) + len(head) + 8
    blocks = -(-len(raw) // STORED_BYTES) + 1
    file = scratch(2, start + len(raw) + 5 * blocks + 64 + len(END))
    size = len(store(raw, level=0, out=file[start : -len(END)]))
    if size >= LARGEST:
        raise DecodeError("the PNG file is larger than its decoder takes")
    front = MAGIC + head + struct.pack(">I4s", size, b"IDAT")
    file[:start] = np.frombuffer(front, np.uint8)
    check = zlib.crc32(file[start - 4 : start + size].data)
    stop = start + size + len(END)
    file[start + size : stop] = np.frombuffer(check.to_bytes(4, "big") + END[4:], np.uint8)
    return file[:stop]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(body, zlib.crc32(kind)).to_bytes(4, "big")


END = bytes(4) + _chunk(b"IEND", b"")
"""The check of the rows, yet to be put in, and the end of the file."""
