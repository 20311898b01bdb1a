"""The jpeg2000 codec: bare tile-parts of one tile, made a codestream of their own, to (components, rows, columns)."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode.j2kheader import COC, COD, LARGEST_LAYERS, Header, header_of
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape

NAME = "https://awslabs.github.io/osml-imagery-io/codecs/jpeg2000"
KEYS = {"main_header", "resolution_level"}
SOT, SOD, EOC = 0xFF90, 0xFF93, b"\xff\xd9"
INDEXES = frozenset({0xFF58, 0xFF64})
"""PLT and COM: of no use to a decoder, and untrue of a part."""
POISON = b"\xff\x7f" * 6
"""Ones: whoever takes them for the header of a packet fails on a length that has too many digits. A decoder that has
all the packets of its level never looks at them; one that lacks some would else fill in zeros and say nothing."""
SLOT = 0
Run: TypeAlias = Callable[[Buffer, Shape], NDArray[Any]]
Part: TypeAlias = tuple[int, int, list[tuple[int, int, int]]]
"""Start and end of a tile-part, and marker, start and end of the segments in its header."""


def jpeg2000(
    configuration: Mapping[str, Any],
    *,
    chunks: Shape,
    dtype: np.dtype[Any],
    limits: Limits,  # noqa: ARG001 - checked
) -> Run:
    """The decoder of one tile; leading dimensions beyond (bands, y, x) have size 1."""
    header = _header(configuration)
    if len(chunks) < 3 or any(n != 1 for n in chunks[:-3]) or chunks[-3] != header.count:
        raise FormatError(f"a codestream of {header.count} components does not fill chunks of shape {chunks}")
    if header.dtype != dtype:
        raise FormatError(f"a codestream of {header.dtype} values does not fill an array of {dtype}")
    decode = native("jpeg2k_decode")
    mixed = len(set(header.depths)) > 1
    lead = (None,) * (len(chunks) - 3)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        view = stream(data)
        tile, parts = _parts(view, cut=header.level > 0)
        bounds = header.bounds(tile)
        if bounds is None:
            raise DecodeError(f"the codestream has no tile {tile} at this level")
        columns, rows = bounds[2] - bounds[0], bounds[3] - bounds[1]
        if not (valid[-2] <= rows <= chunks[-2] and valid[-1] <= columns <= chunks[-1]):
            raise DecodeError(f"tile {tile} is {columns} x {rows}, its chunk {chunks[-1]} x {chunks[-2]}")
        shape = (rows, columns) if header.count == 1 else (rows, columns, header.count)
        out = scratch_array(SLOT, shape, dtype)
        values = np.asarray(decode(_codestream(header, bounds, view, parts), numthreads=1, out=out))
        turned = values.reshape(rows, columns, header.count).transpose(2, 0, 1)
        if mixed:
            if any(marker in (COD, COC) for *_, segments in parts for marker, _, _ in segments):
                raise DecodeError("a tile coded in a way of its own has components of different depth")
            _deepened(turned, header)
        return turned[lead] if lead else turned

    return run


def _deepened(values: NDArray[Any], header: Header) -> None:
    """Shallower components were decoded as if they were as deep as the deepest: centre them where they belong."""
    deepest = max(header.depths)
    for plane, depth in zip(values, header.depths, strict=True):
        if depth == deepest:
            continue
        half = 1 << (depth - 1)
        if header.signed:
            np.clip(plane, -half, half - 1, out=plane)
        else:
            middle = 1 << (deepest - 1)
            np.clip(plane, middle - half, middle + half - 1, out=plane)
            np.subtract(plane, middle - half, out=plane)


def _header(configuration: Mapping[str, Any]) -> Header:
    unknown = set(configuration) - KEYS
    if unknown:
        raise FormatError(f"the jpeg2000 codec has no setting {sorted(unknown)[0]!r}")
    text, level = configuration.get("main_header"), configuration.get("resolution_level", 0)
    if not isinstance(text, str) or not isinstance(level, int) or isinstance(level, bool) or not 0 <= level <= 32:
        raise FormatError("the jpeg2000 codec needs main_header, a text, and resolution_level, a number up to 32")
    try:
        raw = base64.b64decode(text.removeprefix("base64:"), validate=True)
    except (binascii.Error, ValueError):
        raise FormatError("the main header of the jpeg2000 codec is not base64") from None
    return header_of(raw, level)


def _parts(data: memoryview, *, cut: bool) -> tuple[int, list[Part]]:
    """The tile these tile-parts are of, and where each lies; DecodeError unless they are in order, and whole.

    Where the tile may be `cut`, its last tile-parts may be missing or end early.
    """
    position, end, tile, most = 0, len(data), -1, 0
    parts: list[Part] = []
    while position < end:
        if bytes(data[position : position + 2]) == EOC and end - position == 2 and parts:
            break
        if end - position < 14:
            raise DecodeError("a tile-part of the codestream is cut off")
        marker, size, number, length, part, count = struct.unpack_from(">HHHIBB", data, position)
        if marker != SOT or size != 10 or part != len(parts) or (tile >= 0 and number != tile):
            raise DecodeError("the tile-parts are not those of one tile, in order")
        whole = length or end - position
        if length == 0 and bytes(data[end - 2 : end]) == EOC:
            whole -= 2
        if cut:
            whole = length = min(whole, end - position)
        if whole < 14 or position + whole > end:
            raise DecodeError("a tile-part of the codestream is cut off")
        tile = number
        parts.append((position, position + whole, _segments(data, position + 12, position + whole)))
        position += length or end - position
        most = max(most, count)
    if not parts:
        raise DecodeError("there is no tile-part")
    if len(parts) < most and not cut:
        raise DecodeError(f"the tile has {most} tile-parts, and {len(parts)} of them are here")
    return tile, parts


def _segments(data: memoryview, position: int, end: int) -> list[tuple[int, int, int]]:
    """Marker, start and end of every segment between the SOT of a tile-part and its data."""
    found: list[tuple[int, int, int]] = []
    while position + 4 <= end:
        marker, size = struct.unpack_from(">HH", data, position)
        if marker == SOD:
            return found
        if marker < 0xFF50 or marker == SOT or size < 2:
            break
        if marker == COD and int.from_bytes(data[position + 6 : position + 8], "big") > LARGEST_LAYERS:
            raise DecodeError("a tile declares too many quality layers")
        found.append((marker, position, position + 2 + size))
        position += 2 + size
    if position + 2 <= end and bytes(data[position : position + 2]) == SOD.to_bytes(2, "big"):
        return found
    raise DecodeError("the header of a tile-part is broken")


def _codestream(header: Header, bounds: tuple[int, int, int, int], data: memoryview, parts: list[Part]) -> bytes:
    """A codestream of one tile: number 0, its tile-parts counted anew, a coding of its own cut to the level."""
    pieces: list[bytes | memoryview] = [header.written(bounds)]
    for number, (start, stop, segments) in enumerate(parts):
        own: list[bytes | memoryview] = []
        body = start + 12
        if header.level:
            for marker, first, last in segments:
                if marker not in INDEXES:
                    cut = header.tile_segment(marker, bytes(data[first + 4 : last]))
                    own += [struct.pack(">HH", marker, len(cut) + 2), cut]
                body = last
        end = POISON if header.level and number == len(parts) - 1 else b""
        length = 12 + sum(map(len, own)) + stop - body + len(end)
        pieces += [struct.pack(">HHHIBB", SOT, 10, 0, length, number, len(parts)), *own, data[body:stop], end]
    pieces.append(EOC)
    return b"".join(pieces)
