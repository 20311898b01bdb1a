"""The main header of a JPEG 2000 codestream, checked, and written anew for one of its tiles at one of its levels."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from periplus.errors import FormatError

SIZ, COD, COC, QCD, QCC, POC, PPM, PPT = 0xFF51, 0xFF52, 0xFF53, 0xFF5C, 0xFF5D, 0xFF5F, 0xFF60, 0xFF61
NOT_KEPT = frozenset({0xFF55, 0xFF57, 0xFF63, 0xFF64})
"""TLM, PLM, CRG and COM speak of the whole codestream, or to people."""
LARGEST_LAYERS = 1_024
"""Quality layers of a JPEG 2000 tile; real ones have a few dozen at most, and each costs a pass over all packets."""
LARGEST_BITS = 31
PRECINCTS = 0x01
"""The bit of a coding style that says precinct sizes follow."""


@dataclass(frozen=True, slots=True)
class Header:
    """What one tile of a codestream needs of the main header."""

    grid: tuple[int, ...]
    """Right, bottom, left, top of the image, then width, height, left, top of the first tile."""
    capabilities: int
    components: bytes
    segments: tuple[tuple[int, bytes], ...]
    level: int
    levels: int
    """Lower resolutions of the codestream as a whole."""

    @property
    def count(self) -> int:
        return len(self.components) // 3

    @property
    def depths(self) -> list[int]:
        """Bits of every component."""
        return [(depth & 0x7F) + 1 for depth in self.components[::3]]

    @property
    def signed(self) -> bool:
        return bool(self.components[0] & 0x80)

    @property
    def dtype(self) -> np.dtype[Any]:
        bits = max(self.depths)
        return np.dtype(
            ("i" if self.components[0] & 0x80 else "u") + ("1" if bits <= 8 else "2" if bits <= 16 else "4")
        )

    def bounds(self, tile: int) -> tuple[int, int, int, int] | None:
        """Left, top, right and bottom of a tile at this level; None where there is no such tile."""
        right, bottom, left, top, width, height, first_left, first_top = self.grid
        columns, rows = -(-(right - first_left) // width), -(-(bottom - first_top) // height)
        if tile >= columns * rows:
            return None
        row, column = divmod(tile, columns)
        x, y = first_left + column * width, first_top + row * height
        places = max(x, left), max(y, top), min(x + width, right), min(y + height, bottom)
        x0, y0, x1, y1 = ((place + (1 << self.level) - 1) >> self.level for place in places)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def written(self, bounds: tuple[int, int, int, int]) -> bytes:
        """The main header of a codestream of one tile with these bounds."""
        left, top, right, bottom = bounds
        # The tile grid begins at 0: precincts and code-blocks are counted from there, wherever the tile lies.
        size = struct.pack(">H8IH", self.capabilities, right, bottom, left, top, right, bottom, 0, 0, self.count)
        # One depth for all, since the decoder takes no other; values are set right afterwards.
        deepest = bytes([max(self.components[::3])])
        components = b"".join(deepest + self.components[n + 1 : n + 3] for n in range(0, len(self.components), 3))
        parts = [(SIZ, size + components), *self.segments]
        return b"\xff\x4f" + b"".join(struct.pack(">HH", m, len(data) + 2) + data for m, data in parts)

    def tile_segment(self, marker: int, data: bytes) -> bytes:
        """A segment of a tile's own header, cut to this level."""
        wide = 1 if self.count < 257 else 2
        cut = reduced(marker, data, self.level, wide)
        if (marker == COD and data[5] != self.levels) or (marker == COC and data[wide + 1] != self.levels):
            raise FormatError("a tile has other resolutions than the codestream as a whole")
        return cut


def header_of(raw: bytes, level: int) -> Header:
    """A main header read strictly; FormatError where it is broken, or where this level cannot be had from it."""
    try:
        return _header(raw, level)
    except (struct.error, IndexError):
        raise FormatError("the main header of the codestream is cut off") from None


def _header(raw: bytes, level: int) -> Header:
    segments = _segments(raw)
    if segments[0][0] != SIZ:
        raise FormatError("the main header of the codestream does not begin with its size")
    capabilities, *grid, count = struct.unpack_from(">H8IH", segments[0][1])
    components = segments[0][1][36:]
    right, bottom, left, top, width, height, first_left, first_top = grid
    sane = left < right < 1 << 31 and top < bottom < 1 << 31 and width and height
    if not sane or not first_left <= left < first_left + width or not first_top <= top < first_top + height:
        raise FormatError("the codestream declares an empty image or first tile")
    if len(components) != 3 * count or not 0 < count <= 16_384 or 0 in components[1::3] or 0 in components[2::3]:
        raise FormatError("the codestream declares broken components")
    if len({depth & 0x80 for depth in components[::3]}) != 1 or (max(components[::3]) & 0x7F) >= LARGEST_BITS:
        raise FormatError("the codestream has signed and unsigned components, or too deep ones")
    kept = [segment for segment in segments[1:] if segment[0] not in NOT_KEPT]
    styles = [data for marker, data in kept if marker == COD]
    if len(styles) != 1 or not any(marker == QCD for marker, _ in kept):
        raise FormatError("the codestream has no single coding style, or no quantisation")
    layers = int.from_bytes(styles[0][2:4], "big")
    if not 0 < layers <= LARGEST_LAYERS:
        raise FormatError(f"the codestream declares {layers} quality layers")
    wide = 1 if count < 257 else 2
    mixed = len(set(components[::3])) > 1
    if mixed and {reversible(marker, data, wide) for marker, data in kept if marker in (COD, COC)} != {True}:
        raise FormatError("components of different depth are read only where they are coded without loss")
    if level:
        kept = [(marker, reduced(marker, data, level, wide)) for marker, data in kept]
    return Header(tuple(grid), capabilities, components, tuple(kept), level, styles[0][5])


def _segments(raw: bytes) -> list[tuple[int, bytes]]:
    if raw[:2] != b"\xff\x4f":
        raise FormatError("the main header of the codestream does not begin with its marker")
    found, position = [], 2
    while position < len(raw):
        marker, length = struct.unpack_from(">HH", raw, position)
        if marker < 0xFF50 or length < 2 or position + 2 + length > len(raw):
            raise FormatError("the main header of the codestream is broken")
        found.append((marker, raw[position + 4 : position + 2 + length]))
        position += 2 + length
    return found


def reduced(marker: int, data: bytes, level: int, wide: int) -> bytes:
    """A segment of coding or quantisation without its finest levels; `wide` bytes name a component."""
    if marker == COD:
        if data[1] not in (1, 2) and not (data[1] == 0 and data[2:4] == b"\0\1"):
            raise FormatError("lower resolutions do not come first in this codestream")
        return _style(data, 5, bool(data[0] & PRECINCTS), level)
    if marker == COC:
        return _style(data, wide + 1, bool(data[wide] & PRECINCTS), level)
    if marker in (QCD, QCC):
        at = 0 if marker == QCD else wide
        size = {0: 1, 1: 0, 2: 2}.get(data[at] & 0x1F)
        if size is None:
            raise FormatError("the quantisation of the codestream is none we know")
        return data if size == 0 else data[: len(data) - 3 * level * size]
    if marker in (POC, PPM, PPT):
        raise FormatError("lower resolutions do not come first in this codestream")
    return data


def reversible(marker: int, data: bytes, wide: int) -> bool:
    """Whether a segment of coding style names the wavelet that loses nothing."""
    return data[9 if marker == COD else wide + 5] == 1


def _style(data: bytes, at: int, precincts: bool, level: int) -> bytes:
    levels = data[at]
    if level > levels:
        raise FormatError(f"the codestream has {levels} lower resolutions, not {level}")
    cut = data[:at] + bytes([levels - level]) + data[at + 1 :]
    return cut[: len(cut) - level] if precincts else cut
