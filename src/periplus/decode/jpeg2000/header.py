"""The main header of a JPEG 2000 codestream, checked, and written anew for one of its tiles at one of its levels."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.parse.jpeg2000.packets import Bounds, blocks, count
from periplus.parse.jpeg2000.segments import (
    COC,
    COD,
    COM,
    CRG,
    EPH,
    PLM,
    PLT,
    POC,
    PPM,
    PPT,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOP,
    TLM,
    Segment,
    Style,
    needed,
    read,
    reduced,
    reversible,
    style,
    width_of,
    written,
)

NOT_KEPT = frozenset({TLM, PLM, CRG, COM})
"""They speak of the whole codestream, or to people."""
ORDER = frozenset({POC, PPM, PPT, PLT, COM})
"""Of no use, and untrue, where packets are put into another order."""
LARGEST_LAYERS = 1_024
"""Quality layers of a JPEG 2000 tile; real ones have a few dozen at most, and each costs a pass over all packets."""
LARGEST_BITS = 31


@dataclass(frozen=True, slots=True)
class Header:
    """What one tile of a codestream needs of the main header."""

    grid: tuple[int, ...]
    """Right, bottom, left, top of the image, then width, height, left, top of the first tile."""
    capabilities: int
    components: bytes
    segments: tuple[Segment, ...]
    level: int

    @property
    def count(self) -> int:
        return len(self.components) // 3

    @property
    def depths(self) -> list[int]:
        """Bits of every component."""
        return [(depth & 0x7F) + 1 for depth in self.components[::3]]

    @property
    def steps(self) -> list[tuple[int, int]]:
        """Horizontal and vertical subsampling of every component."""
        return list(zip(self.components[1::3], self.components[2::3], strict=True))

    @property
    def kinds(self) -> list[tuple[int, int, int]]:
        """Of every component its depth with its sign, and its steps, as its size segment has them."""
        return list(zip(self.components[::3], self.components[1::3], self.components[2::3], strict=True))

    @property
    def chroma(self) -> bool:
        """Whether two of three components are colours at half the resolution, which native decoders spread."""
        one, *others = self.steps
        alike = len(others) == 2 and others[0] == others[1] and len(set(self.components[::3])) == 1 and not self.signed
        return alike and one == (1, 1) and others[0] in ((2, 1), (2, 2))

    @property
    def step(self) -> tuple[int, int]:
        """What every component has, where values are those of all of them; else those of the reference grid."""
        return self.steps[0] if len(set(self.steps)) == 1 else (1, 1)

    @property
    def single(self) -> bool:
        """Whether the image is one tile."""
        right, bottom, _, _, width, height, first_left, first_top = self.grid
        return right - first_left <= width and bottom - first_top <= height

    @property
    def movable(self) -> bool:
        """Whether every tile would decode to the same values at the origin of the reference grid.

        Wavelets, precincts and code-blocks are counted from the origin: tiles must begin where these do.
        """
        if any(self.grid[2:4]):
            return False
        return self.single or all(
            _fits(self.grid[axis], self.grid[axis + 4], step, [each[axis] for each in coding.precincts], block)
            for coding in set(self.style(()).codings)
            for axis, (step, block) in enumerate(zip(coding.steps, coding.blocks[:2], strict=True))
        )

    @property
    def signed(self) -> bool:
        return needed(self.components[::3])[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        signed, bits = needed(self.components[::3])
        return np.dtype(("i" if signed else "u") + ("1" if bits <= 8 else "2" if bits <= 16 else "4"))

    @property
    def packed(self) -> bytes | None:
        """Headers of the packets of this tile, where the main header holds them, part after part."""
        tables = sorted(data for marker, data in self.segments if marker == PPM)
        joined, found, position = b"".join(table[1:] for table in tables), b"", 0
        while position + 4 <= len(joined):
            length = int.from_bytes(joined[position : position + 4], "big")
            found += joined[position + 4 : position + 4 + length]
            position += 4 + length
        return found if tables else None

    def style(self, own: Iterable[Segment]) -> Style:
        """Of a tile with these segments of its own."""
        return _style(self.components, self.segments, tuple(own))

    def weight(self, own: Iterable[Segment], bounds: Bounds) -> tuple[int, int]:
        """Precincts, and code-blocks at most, of a tile with these bounds at this level."""
        codings = self.style(own).codings
        if self.level:
            codings = tuple(replace(coding, precincts=coding.precincts[: -self.level]) for coding in codings)
        return count(bounds, codings), blocks(bounds, codings)

    def bounds(self, tile: int, level: int = 0) -> Bounds | None:
        """Left, top, right and bottom of a tile at a level; None where there is no such tile."""
        right, bottom, left, top, width, height, first_left, first_top = self.grid
        columns, rows = -(-(right - first_left) // width), -(-(bottom - first_top) // height)
        if tile >= columns * rows:
            return None
        row, column = divmod(tile, columns)
        x, y = first_left + column * width, first_top + row * height
        places = max(x, left), max(y, top), min(x + width, right), min(y + height, bottom)
        x0, y0, x1, y1 = ((place + (1 << level) - 1) >> level for place in places)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def written(self, bounds: Bounds, *, plain: bool = False) -> bytes:
        """The main header of a codestream of one tile with these bounds, at this level.

        Where `plain`, packets come layer by layer and no markers stand around them.
        """
        left, top, right, bottom = bounds
        # The tile grid begins at 0: precincts and code-blocks are counted from there, wherever the tile lies.
        size = struct.pack(">H8IH", self.capabilities, right, bottom, left, top, right, bottom, 0, 0, self.count)
        # One depth for all, since the decoder takes no other; values are set right afterwards.
        deepest = bytes([max(self.components[::3])])
        components = b"".join(deepest + self.components[n + 1 : n + 3] for n in range(0, len(self.components), 3))
        return b"\xff\x4f" + written([(SIZ, size + components), *self.cut(self.segments, plain=plain)])

    def only(self, chosen: Sequence[int], own: Iterable[Segment]) -> tuple[Header, list[Segment]]:
        """The header of some of the components on their own grid, and a tile's own segments; numbered anew."""
        colours = list(chosen[:3]) == [0, 1, 2]
        wide, fewer = width_of(self.count), width_of(len(chosen))

        def kept(segments: Iterable[Segment]) -> list[Segment]:
            found = []
            for marker, data in segments:
                if marker == COD:
                    found.append((marker, data if colours else data[:4] + b"\0" + data[5:]))
                elif marker in (COC, QCC, RGN):
                    number = int.from_bytes(data[:wide], "big")
                    if number in chosen:
                        found.append((marker, chosen.index(number).to_bytes(fewer, "big") + data[wide:]))
                else:
                    found.append((marker, data))
            return found

        parts = b"".join(self.components[3 * number : 3 * number + 1] + b"\1\1" for number in chosen)
        return replace(self, components=parts, segments=tuple(kept(self.segments))), kept(own)

    def cut(self, segments: Iterable[Segment], *, plain: bool = False) -> list[Segment]:
        """Segments of the main header or of a tile's own, cut to this level."""
        found = [(marker, reduced(marker, data, self.level, self.count)) for marker, data in segments]
        if not plain:
            return found
        kept = [segment for segment in found if segment[0] not in ORDER]
        return [(marker, _plain(data) if marker == COD else data) for marker, data in kept]


def _fits(image: int, tile: int, step: int, precincts: Sequence[int], block: int) -> bool:
    """Whether the tiles of an axis are cut into precincts and code-blocks as one at the origin is."""
    levels, tiles = len(precincts) - 1, -(-image // tile)
    if tile % (step << levels):
        return False
    for resolution, precinct in enumerate(precincts):
        samples = tile // step >> (levels - resolution)
        # Subbands of all but the lowest resolution have half its samples, and half the precinct.
        half = int(resolution > 0)
        for size, part in ((samples, 1 << precinct), (samples >> half, 1 << max(0, min(block, precinct - half)))):
            if size % part and part % size and size * tiles > part:
                return False
    return True


def _plain(data: bytes) -> bytes:
    return bytes([data[0] & ~(SOP | EPH), 0]) + data[2:]


@lru_cache(maxsize=64)
def _style(components: bytes, main: tuple[Segment, ...], own: tuple[Segment, ...]) -> Style:
    return style(list(zip(components[1::3], components[2::3], strict=True)), main, own)


def header_of(raw: bytes, level: int) -> Header:
    """A main header read strictly; FormatError where it is broken, or where this level cannot be had from it."""
    try:
        return _header(raw, level)
    except (struct.error, IndexError):
        raise FormatError("the main header of the codestream is cut off") from None


def _header(raw: bytes, level: int) -> Header:
    if raw[:2] != b"\xff\x4f":
        raise FormatError("the main header of the codestream does not begin with its marker")
    segments = read(raw, 2)
    if not segments or segments[0][0] != SIZ:
        raise FormatError("the main header of the codestream does not begin with its size")
    capabilities, *grid, count = struct.unpack_from(">H8IH", segments[0][1])
    components = segments[0][1][36:]
    right, bottom, left, top, width, height, first_left, first_top = grid
    sane = left < right < 1 << 31 and top < bottom < 1 << 31 and width and height
    if not sane or not first_left <= left < first_left + width or not first_top <= top < first_top + height:
        raise FormatError("the codestream declares an empty image or first tile")
    if len(components) != 3 * count or not 0 < count <= 16_384 or 0 in components[1::3] or 0 in components[2::3]:
        raise FormatError("the codestream declares broken components")
    if max(depth & 0x7F for depth in components[::3]) >= LARGEST_BITS:
        raise FormatError("the codestream has components that are too deep")
    kept = tuple(segment for segment in segments[1:] if segment[0] not in NOT_KEPT)
    styles = [data for marker, data in kept if marker == COD]
    if len(styles) != 1 or not any(marker == QCD for marker, _ in kept):
        raise FormatError("the codestream has no single coding style, or no quantisation")
    layers = int.from_bytes(styles[0][2:4], "big")
    if not 0 < layers <= LARGEST_LAYERS:
        raise FormatError(f"the codestream declares {layers} quality layers")
    if not whole(kept, count) and len(set(components[:9:3])) > 1 and styles[0][4]:
        raise FormatError("colours of different depth are coded together, with loss")
    header = Header(tuple(grid), capabilities, components, kept, level)
    header.cut(kept)
    return header


def whole(segments: Iterable[Segment], count: int) -> bool:
    """Whether no component loses anything by its wavelet."""
    return all(reversible(*segment, count) for segment in segments if segment[0] in (COD, COC))
