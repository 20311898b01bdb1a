"""The periplus.png codec: one whole PNG file to (bands, rows, columns), values and palette indices as stored."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.bits import packed as packed_bits
from periplus.decode.compressions import Decompress, deflate
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, Octets, scratch, scratch_array, stream
from periplus.decode.settings import Extent, Run, number
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames
from periplus.parse.png import (
    GRAY,
    GRAY_ALPHA,
    LARGEST,
    MAGIC,
    RGB,
    RGB_ALPHA,
    parse_png_header,
    png_chunks,
)

NAME = codecnames.PNG
LARGEST_SIDE = 1_000_000
"""Columns, and rows of less than a byte a value, that libpng takes."""
STORED_BYTES = 65_535
"""Of a block that deflate stores as it is."""
SLACK = 64 * 1024
"""Bytes after the last row that a stream may hold; decoders step over them."""
TOGETHER = 1 << 20
"""Bytes of rows that are undone at once, so that they stay in the processor's cache on their way through libpng."""
LEFT, UP = 1, 2
"""Filters of a row by one neighbour of each pixel; 0 is none, and those above are by several."""
KEYS = frozenset({"width", "height", "bands", "bits"})
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column, first row and steps of every pass of an interlaced image."""
COLOR_TYPES = {1: GRAY, 2: GRAY_ALPHA, 3: RGB, 4: RGB_ALPHA}
"""Colour type to decode as: a palette's indices are gray to libpng."""


def png_extent(configuration: Mapping[str, Any]) -> Extent:
    """The size of the image in the file."""
    bands, height, width, bits = (
        number("png", configuration, key, 1, high)
        for key, high in (("bands", 5), ("height", LARGEST), ("width", LARGEST), ("bits", 17))
    )
    if bits not in (1, 2, 4, 8, 16) or (bits < 8 and bands > 1):
        raise FormatError(f"png codec: {bands} bands of {bits} bits do not exist")
    return (bands, height, width), np.dtype(np.uint16 if bits == 16 else np.uint8)


def png(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], _limits: Limits) -> Run:
    """The decoder of one file."""
    (bands, height, width), bits = chunks, number("png", configuration, "bits", 1, 17)
    if width > LARGEST_SIDE or (bits < 8 and height > LARGEST_SIDE):
        raise FormatError(f"a PNG of {width} x {height} pixels is larger than its decoder takes")
    whole = _bytes(width, height, bands * bits)
    passes = [(each, _bytes(*_size(each, width, height), bands * bits)) for each in PASSES]
    # libdeflate, because libpng's own zlib takes twice the time; libpng then finds the rows stored.
    inflate = deflate(max(whole, sum(size for _, size in passes)) + SLACK, 1)
    undo = _undo(bands, bits)

    def run(data: Buffer, valid: Shape, want: tuple[slice, ...] | None = None) -> NDArray[Any]:  # noqa: ARG001 - whole
        interlaced, packed = _image_data(stream(data), (width, height, bits), bands)
        raw = _rows(inflate, packed, sum(size for _, size in passes) if interlaced else whole)
        if not interlaced:
            seen = range(height) if want is None else range(height)[want[-2]]
            out = undo(raw, (height, width), min(seen, default=0), max(seen, default=-1) + 1)
        else:
            out, start = scratch_array(0, (height, width, bands), dtype), 0
            for each, size in passes:
                if size:
                    x, y, dx, dy = each
                    wide, high = _size(each, width, height)
                    out[y::dy, x::dx] = undo(raw[start : start + size], (high, wide), 0, high)
                    start += size
        return out.transpose(2, 0, 1)

    return run


def without_metadata(view: memoryview, width: int, height: int, bits: int, bands: int) -> Octets:
    """The same picture as a file with only its header and rows, without anything that libpng warns about."""
    interlaced, packed = _image_data(view, (width, height, bits), bands)
    sizes = [_size(each, width, height) for each in PASSES] if interlaced else [(width, height)]
    need = sum(_bytes(*size, bands * bits) for size in sizes)
    raw = _rows(deflate(need + SLACK, 1), packed, need)
    head = struct.pack(">IIBBBBB", width, height, bits, COLOR_TYPES[bands], 0, 0, interlaced)
    return _file(_chunk(b"IHDR", head), raw, native("deflate_encode"))


def _rows(inflate: Decompress, packed: Octets, need: int) -> Octets:
    """The filtered rows of a picture, which are that many bytes."""
    raw = inflate(packed, need)[:need]
    if len(raw) < need:
        raise DecodeError(f"the PNG file decodes to {len(raw)} of {need} bytes")
    return raw


def _undo(bands: int, bits: int) -> Callable[[Octets, tuple[int, int], int, int], NDArray[Any]]:
    """The function that undoes the filters of a (high, wide) picture from one row up to another; others are undefined.

    libpng does it, a few rows at a time, each as a file. If no row is filtered by more than one neighbour, as in many
    scanned maps, NumPy takes a third of the time (measured).
    """
    decode, store, add = native("png_decode"), native("deflate_encode"), native("delta_decode")
    pixel = max(1, bands * bits // 8)
    # libpng spreads few bits over the whole range.
    spread = 255 // ((1 << bits) - 1) if bits < 8 else 1
    dtype = np.dtype(np.uint16 if bits == 16 else np.uint8)
    big = dtype.newbyteorder(">")

    def run(raw: Octets, shape: tuple[int, int], low: int, stop: int) -> NDArray[Any]:
        high, wide = shape
        rows = (raw if raw.flags.writeable else raw.copy()).reshape(high, -1)
        step = max(1, TOGETHER // rows.shape[1]) if bits >= 8 else high
        # A row that is filtered by nothing, or by what is left of each value, needs none above it.
        free = np.flatnonzero(rows[: low + 1, 0] <= 1)
        begin = int(free[-1]) if len(free) else 0
        into = scratch_array(3, (high, wide, bands), dtype)
        if rows[begin:stop, 0].max(initial=0) <= UP:
            body = rows[begin:stop, 1:]
            _undo_simple(rows[begin:stop, 0], body.reshape(len(body), body.shape[1] // pixel, pixel), add)
            if bits == 8:
                return rows[:, 1:].reshape(high, wide, bands)
            if bits < 8:
                body = packed_bits(bits, wide, dtype, slot=2)(np.ascontiguousarray(body).reshape(-1), len(body))
            into[begin:stop] = body.view(big).reshape(len(body), wide, bands)
            return into
        for first in range(begin, stop, step):
            last = min(first + step, stop)
            if first > begin:
                # The row above leads, as it is.
                first -= 1
                rows[first, 0] = 0
                rows[first, 1:] = into[first].reshape(-1).astype(big, copy=False).view(np.uint8)
            head = struct.pack(">IIBBBBB", wide, last - first, bits, COLOR_TYPES[bands], 0, 0, 0)
            part = into[first:last, :, 0] if bands == 1 else into[first:last]
            decode(_file(_chunk(b"IHDR", head), rows[first:last].reshape(-1), store), out=part)
        if spread > 1:
            np.floor_divide(into[begin:stop], spread, out=into[begin:stop])
        return into

    return run


def _undo_simple(kinds: Octets, rows: Octets, add: Callable[..., Any]) -> None:
    """Undo filters by one neighbour, in place: (rows, columns, bytes)."""
    left = np.flatnonzero(kinds == LEFT)
    for run in np.split(left, np.flatnonzero(np.diff(left) > 1) + 1) if len(left) else ():
        part = rows[run[0] : run[-1] + 1]
        add(part, axis=1, out=part)
    for row in np.flatnonzero(kinds[1:] == UP).tolist():
        np.add(rows[row + 1], rows[row], out=rows[row + 1])


def _image_data(view: memoryview, size: tuple[int, int, int], bands: int) -> tuple[bool, Octets]:
    """Whether the file is interlaced, and its compressed pixels; DecodeError if it is another picture than expected."""
    try:
        header = parse_png_header(view)
    except FormatError as error:
        raise DecodeError(error.message) from None
    if (header.width, header.height, header.bits) != size or header.bands != bands:
        raise DecodeError("the PNG file is another image")
    crc32 = native("deflate_crc32")
    found: list[memoryview] = []
    for kind, start, stop in png_chunks(view):
        if kind in (b"IHDR", b"IDAT"):
            if stop + 4 > len(view):
                raise DecodeError("the PNG file is cut off")
            if crc32(view[start - 4 : stop]) != int.from_bytes(view[stop : stop + 4], "big"):
                raise DecodeError("a chunk of the PNG file fails its checksum")
        if kind == b"IDAT":
            found.append(view[start:stop])
        elif kind == b"IEND" or found:
            # All chunks with pixels follow one another.
            break
    if not found:
        raise DecodeError("the PNG file has no image")
    packed, end = scratch(2, sum(map(len, found))), 0
    for piece in found:
        packed.data[end : end + len(piece)] = piece
        end += len(piece)
    return header.interlaced, packed


def _size(each: tuple[int, int, int, int], width: int, height: int) -> tuple[int, int]:
    """Columns and rows of one pass; either may be none."""
    x, y, dx, dy = each
    return -(-max(width - x, 0) // dx), -(-max(height - y, 0) // dy)


def _bytes(width: int, height: int, bits: int) -> int:
    """Bytes of filtered rows of `bits` bits a pixel."""
    return height * (1 + -(-width * bits // 8)) if width else 0


def _file(head: bytes, raw: Octets, store: Callable[..., Any]) -> Octets:
    """A PNG with only header and rows, so that nothing else can change or slow its decoding.

    Assembled in place: allocating memory for every step would take as long as the decoding.
    """
    start = len(MAGIC) + len(head) + 8
    blocks = -(-len(raw) // STORED_BYTES) + 1
    file = scratch(2, start + len(raw) + 5 * blocks + 64 + len(END))
    size = len(store(raw, level=0, out=file[start : -len(END)]))
    if size >= LARGEST:
        raise DecodeError("the PNG file is larger than its decoder takes")
    front = MAGIC + head + struct.pack(">I4s", size, b"IDAT")
    file[:start] = np.frombuffer(front, np.uint8)
    check = native("deflate_crc32")(file[start - 4 : start + size])
    stop = start + size + len(END)
    file[start + size : stop] = np.frombuffer(check.to_bytes(4, "big") + END[4:], np.uint8)
    return file[:stop]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(body, zlib.crc32(kind)).to_bytes(4, "big")


END = bytes(4) + _chunk(b"IEND", b"")
"""The check of the rows, yet to be put in, and the end of the file."""
