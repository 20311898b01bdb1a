"""The jpeg2000 codec: bare tile-parts of one tile, made a codestream of their own, to (components, rows, columns)."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.codestream.packets import Bounds
from periplus.codestream.segments import COC, COD
from periplus.decode.j2kbuild import Part, codestream, of_components, parts_of
from periplus.decode.j2kheader import Header, header_of, whole
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape

NAME = "https://awslabs.github.io/osml-imagery-io/codecs/jpeg2000"
KEYS = {"main_header", "resolution_level"}
NATIVE_BYTES = 4
"""What the native decoder keeps for every value of a tile, whatever its depth."""
SLOT = 0
Run: TypeAlias = Callable[[Buffer, Shape], NDArray[Any]]


def jpeg2000(
    configuration: Mapping[str, Any],
    *,
    chunks: Shape,
    dtype: np.dtype[Any],
    limits: Limits,
) -> Run:
    """The decoder of one tile; leading dimensions beyond (bands, y, x) have size 1."""
    header = _header(configuration)
    if len(chunks) < 3 or any(n != 1 for n in chunks[:-3]) or chunks[-3] != header.count:
        raise FormatError(f"a codestream of {header.count} components does not fill chunks of shape {chunks}")
    if header.dtype != dtype:
        raise FormatError(f"a codestream of {header.dtype} values does not fill an array of {dtype}")
    size = math.prod(chunks) * (NATIVE_BYTES + dtype.itemsize)
    limits.check("the memory that a tile takes while it is decoded", size, limits.memory_bytes)
    decode = native("jpeg2k_decode")
    mixed = len(set(header.depths)) > 1
    spread = len(set(header.steps)) > 1 and not header.chroma
    lossless = whole(header.segments, header.count)
    lead = (None,) * (len(chunks) - 3)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        view = stream(data)
        tile, parts = parts_of(view, cut=header.level > 0)
        bounds = header.bounds(tile, header.level)
        if bounds is None:
            raise DecodeError(f"the codestream has no tile {tile} at this level")
        columns, rows = bounds[2] - bounds[0], bounds[3] - bounds[1]
        if not (valid[-2] <= rows <= chunks[-2] and valid[-1] <= columns <= chunks[-1]):
            raise DecodeError(f"tile {tile} is {columns} x {rows}, its chunk {chunks[-1]} x {chunks[-2]}")
        shape = (header.count, rows, columns)
        own = mixed and any(marker in (COD, COC) for *_, segments in parts for marker, _, _ in segments)
        if spread or own or (mixed and not lossless):
            values = _groups(header, tile, bounds, view, parts)
            return values[lead] if lead else values
        made = codestream(header, tile, bounds, view, parts)
        out = scratch_array(SLOT, shape if header.count > 1 else shape[1:], dtype)
        # Plane by plane, as the decoder has them and the caller wants them; threads are those of the caller.
        values = np.asarray(decode(made, planar=True, numthreads=1, out=out)).reshape(shape)
        if mixed:
            _deepened(values, header)
        return values[lead] if lead else values

    return run


def _groups(header: Header, tile: int, bounds: Bounds, data: memoryview, parts: list[Part]) -> NDArray[Any]:
    """Components of each depth and step decoded apart, since the native decoder takes but one at a time."""
    shape = bounds[3] - bounds[1], bounds[2] - bounds[0]
    kinds = list(zip(header.depths, header.steps, strict=True))
    joint = [style[4] for marker, style in header.segments if marker == COD]
    joint += [data[first + 8] for *_, segments in parts for marker, first, _ in segments if marker == COD]
    if len(set(kinds[:3])) > 1 and any(joint):
        raise DecodeError("colours of different depth or steps are coded together")
    values = scratch_array(SLOT, (header.count, *shape), header.dtype)
    decode = native("jpeg2k_decode")
    for kind in sorted(set(kinds)):
        across, down = kind[1]
        if bounds[0] % across or bounds[1] % down:
            raise DecodeError("subsampled components in a tile that does not begin at whole steps")
        chosen = [number for number, other in enumerate(kinds) if other == kind]
        made = of_components(header, chosen, tile, bounds, data, parts)
        size = -(-shape[0] // down), -(-shape[1] // across)
        found = np.asarray(decode(made, planar=True, numthreads=1)).reshape(len(chosen), *size)
        values[chosen] = found.repeat(down, axis=1).repeat(across, axis=2)[:, : shape[0], : shape[1]]
    return values


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
