"""The size segment (SIZ) of a JPEG 2000 codestream: the image and its tiles on the reference grid, its components."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.parse.jpeg2000.packets import Bounds

MOST_COMPONENTS = 16_384
MOST_TILES = 65_535
MOST_BITS = 31
"""Bits of a component that OpenJPEG decodes; the standard has up to 38."""
LARGEST_EXTENT = (1 << 31) - 1
SIGNED = 0x80
HALVED = ([(1, 1), (2, 1), (2, 1)], [(1, 1), (2, 2), (2, 2)])
"""Steps of luma and chroma."""
_FIXED = struct.Struct(">H8IH")


@dataclass(frozen=True, slots=True)
class CodestreamSize:
    """What a size segment declares."""

    capabilities: int
    grid: tuple[int, ...]
    """Right, bottom, left, top of the image, then width, height, left, top of the first tile."""
    components: bytes
    """Depth, horizontal and vertical subsampling of every component, a byte each, as stored."""

    @property
    def count(self) -> int:
        """Number of components."""
        return len(self.components) // 3

    @property
    def depths(self) -> list[int]:
        """Bits of every component."""
        return [(depth & ~SIGNED) + 1 for depth in self.components[::3]]

    @property
    def steps(self) -> list[tuple[int, int]]:
        """Horizontal and vertical subsampling of every component."""
        return list(zip(self.components[1::3], self.components[2::3], strict=True))

    @property
    def kinds(self) -> list[tuple[int, int, int]]:
        """Depth with its sign bit and the subsampling of every component, as stored."""
        return list(zip(self.components[::3], self.components[1::3], self.components[2::3], strict=True))

    @property
    def signed(self) -> bool:
        """Whether any component has a sign."""
        return any(depth & SIGNED for depth in set(self.components[::3]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds the values of all components."""
        signed = self.signed
        # Unsigned values need one bit more in a signed type.
        bits = max((depth & ~SIGNED) + 1 + (signed and not depth & SIGNED) for depth in set(self.components[::3]))
        return np.dtype(("i" if signed else "u") + ("1" if bits <= 8 else "2" if bits <= 16 else "4"))

    @property
    def chroma(self) -> bool:
        """Whether two of three components are colours at half the resolution, which decoders convert to RGB."""
        return self.steps in HALVED and not self.signed and len(set(self.depths)) == 1

    @property
    def across(self) -> int:
        """Tiles along a row."""
        return -(-(self.grid[0] - self.grid[6]) // self.grid[4])

    @property
    def tiles(self) -> int:
        return self.across * -(-(self.grid[1] - self.grid[7]) // self.grid[5])

    def bounds(self, tile: int, level: int = 0) -> Bounds | None:
        """Left, top, right and bottom of a tile at a level; None if there is no such tile, or it is empty there."""
        right, bottom, left, top, width, height, first_left, first_top = self.grid
        if tile >= self.tiles:
            return None
        row, column = divmod(tile, self.across)
        x, y = first_left + column * width, first_top + row * height
        corners = max(x, left), max(y, top), min(x + width, right), min(y + height, bottom)
        x0, y0, x1, y1 = ((corner + (1 << level) - 1) >> level for corner in corners)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def pack(self) -> bytes:
        """The content of the segment."""
        return _FIXED.pack(self.capabilities, *self.grid, self.count) + self.components


def parse_size(data: bytes | memoryview) -> CodestreamSize:
    """The content of a size segment, checked; FormatError if it makes no sense or exceeds what decoders support."""
    if len(data) < _FIXED.size:
        raise FormatError("the size segment of the codestream is cut off")
    capabilities, *grid, count = _FIXED.unpack_from(data)
    if not 0 < count <= MOST_COMPONENTS or len(data) != _FIXED.size + 3 * count:
        raise FormatError(f"the codestream declares {count} components")
    found = CodestreamSize(capabilities, tuple(grid), bytes(data[_FIXED.size :]))
    for stop, start, size, origin in zip(grid[:2], grid[2:4], grid[4:6], grid[6:], strict=True):
        if stop > LARGEST_EXTENT:
            raise FormatError(f"the codestream extends to {stop}, and decoders support {LARGEST_EXTENT} at most")
        if not (start < stop and size and origin <= start < origin + size):
            raise FormatError("the codestream declares an empty image or first tile")
    if found.tiles > MOST_TILES:
        raise FormatError(f"the codestream declares {found.tiles} tiles; at most {MOST_TILES} are possible")
    if 0 in found.components[1::3] or 0 in found.components[2::3]:
        raise FormatError("a component of the codestream has no subsampling step")
    if (deepest := max(found.depths)) > MOST_BITS:
        raise FormatError(f"components of {deepest} bits are not supported")
    return found
