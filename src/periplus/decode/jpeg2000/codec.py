"""The jpeg2000 codec: the tile-parts of one tile, completed to a codestream, to (components, rows, columns)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.jpeg2000.build import (
    TilePart,
    check_packets,
    codestream,
    ended,
    of_components,
    parts_of,
    stepped,
    weigh,
)
from periplus.decode.jpeg2000.header import CodestreamHeader, header_of, is_lossless
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.settings import Extent, Run, encoded, number
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames
from periplus.parse.jpeg2000.packets import Bounds
from periplus.parse.jpeg2000.segments import COC, COD

NAME = codecnames.JPEG2000
KEYS = frozenset({"main_header", "resolution_level", "stretched_components"})
NATIVE_BYTES = 4
"""Bytes that the native decoder allocates for every value of a tile, whatever its depth."""
SLOT = 0
LARGEST_KINDS = 64
"""Depths and steps that components may have, each of which is decoded separately; images have two or three."""
ROWS = 64
"""Rows whose colours are converted at once."""


def jpeg2000_extent(configuration: Mapping[str, Any]) -> Extent:
    """One tile; at the edges of the image, and where tiles are decoded together, chunks have other rows and columns."""
    header = _header(configuration)
    width, height = (-(-size >> header.level) for size in header.size.grid[4:6])
    return (header.count, height, width), header.size.dtype


def jpeg2000(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    """The decoder of one tile."""
    header = _header(configuration)
    size = math.prod(chunks) * (NATIVE_BYTES + dtype.itemsize)
    limits.check("the memory that a tile takes while it is decoded", size, limits.memory_bytes)
    decode = native("jpeg2k_decode")
    mixed = len(set(header.size.components[::3])) > 1
    signs = len({depth & 0x80 for depth in header.size.components[::3]}) > 1
    spread = any(step != (1, 1) for step in header.size.steps)
    lossless = is_lossless(header.segments, header.count)
    stretched = _stretched(configuration, header)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        values = decoded(data, valid)
        for component in stretched:
            values[component] *= 255
        return values

    def decoded(data: Buffer, valid: Shape) -> NDArray[Any]:
        view = stream(data)
        tiles = parts_of(view, cut=header.level > 0, several=spread and header.step == (1, 1))
        bounds = _bounds(header, list(tiles))
        tiles = ended(header, tiles, view)
        check_packets(header, tiles, view)
        shape = _shape(header, bounds)
        columns, rows = shape[2], shape[1]
        if not (valid[-2] <= rows <= chunks[-2] and valid[-1] <= columns <= chunks[-1]):
            raise DecodeError(f"tile {min(tiles)} is {columns} x {rows}, its chunk {chunks[-1]} x {chunks[-2]}")
        [(tile, parts), *others] = tiles.items()
        own = mixed and any(marker in (COD, COC) for *_, segments in parts for marker, _, _ in segments)
        upsampled = spread and not (header.size.chroma and (header.single or not (bounds[0] | bounds[1]) % 2))
        if others or upsampled or signs or own or (mixed and not lossless):
            return _groups(header, tiles, bounds, view)
        made = codestream(header, tile, bounds, view, parts)
        out = scratch_array(SLOT, shape if header.count > 1 else shape[1:], dtype)
        # Planar, as in the decoder and in the result; the caller provides the threads.
        values = np.asarray(decode(made, planar=True, numthreads=1, out=out)).reshape(shape)
        if mixed:
            _deepened(values, header)
        return values

    return run


def _bounds(header: CodestreamHeader, tiles: list[int]) -> Bounds:
    """The bounds of the rectangle that some tiles form; DecodeError if they do not."""
    found = [header.bounds(tile, header.level) for tile in tiles]
    left, top, right, bottom = zip(*found, strict=True)
    joined = min(left), min(top), max(right), max(bottom)
    if sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in found) != (joined[2] - joined[0]) * (joined[3] - joined[1]):
        raise DecodeError(f"the {len(tiles)} tiles of a chunk do not form a rectangle")
    return joined


def _shape(header: CodestreamHeader, bounds: Bounds) -> tuple[int, int, int]:
    left, top, right, bottom = stepped(bounds, header.step)
    return header.count, bottom - top, right - left


def _groups(
    header: CodestreamHeader, tiles: Mapping[int, list[TilePart]], bounds: Bounds, data: memoryview
) -> NDArray[Any]:
    """Components of each depth and step decoded separately, because the native decoder supports only one at a time."""
    kinds = header.size.kinds
    joint = [style[4] for marker, style in header.segments if marker == COD]
    joint += [
        data[first + 8] for parts in tiles.values() for *_, segments in parts for m, first, _ in segments if m == COD
    ]
    if len(set(kinds[:3])) > 1 and any(joint):
        raise DecodeError("colours of different depth or steps are coded together")
    if len(set(kinds)) > LARGEST_KINDS:
        raise DecodeError(f"components of {len(set(kinds))} kinds are more than images have")
    weigh(header, tiles, data)
    shape = _shape(header, bounds)
    values = scratch_array(SLOT, shape, header.size.dtype)
    chosen = [[number for number, other in enumerate(kinds) if other == kind] for kind in sorted(set(kinds))]
    for numbers, found in zip(chosen, _planes(header, chosen, tiles, bounds, data), strict=True):
        steps = header.size.steps[numbers[0]]
        across, down = (1, 1) if steps == header.step else steps
        if bounds[0] % across or bounds[1] % down:
            raise DecodeError("subsampled components in a tile that does not begin at whole steps")
        values[numbers] = found.repeat(down, axis=1).repeat(across, axis=2)[:, : shape[1], : shape[2]]
    if header.size.chroma:
        for row in range(0, shape[1], ROWS):
            values[:, row : row + ROWS] = coloured(values[:, row : row + ROWS], header.size.depths[0])
    return values


def _planes(
    header: CodestreamHeader,
    chosen: list[list[int]],
    tiles: Mapping[int, list[TilePart]],
    bounds: Bounds,
    data: memoryview,
) -> list[NDArray[Any]]:
    """The values of components of each kind in some tiles, every tile in its place."""
    decode, found = native("jpeg2k_decode"), []
    for numbers in chosen:
        left, top, right, bottom = stepped(bounds, header.size.steps[numbers[0]])
        found.append(np.empty((len(numbers), bottom - top, right - left), header.size.dtype))
    for tile, parts in tiles.items():
        own = header.bounds(tile, header.level)
        made = of_components(header, chosen, tile, own, data, parts)
        for numbers, planes in zip(chosen, found, strict=True):
            left, top, _, _ = stepped(bounds, header.size.steps[numbers[0]])
            x0, y0, x1, y1 = stepped(own, header.size.steps[numbers[0]])
            if x0 < x1 and y0 < y1:
                one = next(made)
                values = np.asarray(decode(one, planar=True, numthreads=1)).reshape(len(numbers), y1 - y0, x1 - x0)
                planes[:, y0 - top : y1 - top, x0 - left : x1 - left] = values
    return found


def coloured(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Luma and chroma of all pixels as red, green and blue, as OpenJPEG does."""
    y, cb, cr = values.astype(np.int64)
    cb, cr = cb - (1 << (bits - 1)), cr - (1 << (bits - 1))
    red = y + (1.402 * cr).astype(np.int64)
    green = y - (0.344 * cb + 0.714 * cr).astype(np.int64)
    blue = y + (1.772 * cb).astype(np.int64)
    return np.stack([red, green, blue]).clip(0, (1 << bits) - 1).astype(values.dtype)


def _deepened(values: NDArray[Any], header: CodestreamHeader) -> None:
    """Shallower components were decoded as if they were as deep as the deepest: centre them where they belong."""
    deepest = max(header.size.depths)
    for plane, depth in zip(values, header.size.depths, strict=True):
        if depth == deepest:
            continue
        half = 1 << (depth - 1)
        if header.size.signed:
            np.clip(plane, -half, half - 1, out=plane)
        else:
            middle = 1 << (deepest - 1)
            np.clip(plane, middle - half, middle + half - 1, out=plane)
            np.subtract(plane, middle - half, out=plane)


def _stretched(configuration: Mapping[str, Any], header: CodestreamHeader) -> list[int]:
    """Components of one bit, next to bytes, that are decoded to 0 and 255; FormatError for others."""
    found = configuration.get("stretched_components", [])
    depths = header.size.depths
    if not isinstance(found, list) or any(type(n) is not int or not 0 <= n < header.count for n in found):
        raise FormatError(f"jpeg2000 codec: stretched_components is a list of numbers of components, not {found!r}")
    if found and (header.size.dtype != np.uint8 or any(depths[n] != 1 for n in found) or len(set(found)) < len(found)):
        raise FormatError("jpeg2000 codec: only components of one bit next to bytes can be stretched")
    return found


def _header(configuration: Mapping[str, Any]) -> CodestreamHeader:
    level = number("jpeg2000", configuration, "resolution_level", 0, 33, 0)
    return header_of(encoded("jpeg2000", configuration, "main_header") or b"", level)
