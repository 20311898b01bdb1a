"""The main header of a JPEG 2000 codestream: its grid of tiles, components, coding and tile-part lengths."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Step
from periplus.parse.jpeg2000.packets import Bounds
from periplus.parse.jpeg2000.segments import (
    BARE,
    COC,
    COD,
    COM,
    CRG,
    EOC,
    PLM,
    POC,
    PPM,
    QCC,
    QCD,
    RGN,
    SIZ,
    SOC,
    SOD,
    SOT,
    TLM,
    CodingStyle,
    Segment,
    coding_style,
    component_bytes,
    is_reversible,
    pack_segments,
    reduce_order_changes,
    reduce_segment,
)
from periplus.parse.jpeg2000.size import CodestreamSize, parse_size
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor

NOT_KEPT = frozenset({TLM, PLM, PPM, CRG, COM})
"""Segments that decoding one tile does not need: they describe the whole codestream, or are comments."""
AHEAD_BYTES = 8_192
"""Read after the start of a codestream, enough for a usual main header."""


@dataclass(frozen=True, slots=True)
class TileAxis:
    """One direction of the reference grid: the image from `start` to `stop`, tiles of `size` from `origin` on."""

    start: int
    stop: int
    size: int
    origin: int
    step: int = 1
    """Of the values of all components, where they have the same one, and tiles begin between two values."""
    whole: int = 1
    """Chunks begin at multiples of this if tiles do not, because components are subsampled differently."""

    @property
    def tiles(self) -> int:
        return -(-(self.stop - self.origin) // self.size)

    def bounds(self, tile: int) -> tuple[int, int]:
        """Start and stop of one tile."""
        first = self.origin + tile * self.size
        return max(self.start, first), min(self.stop, first + self.size)

    @property
    def firsts(self) -> list[int]:
        """The first tile of every chunk; tiles without values are in no chunk."""
        if self.step > 1:
            places = [[-(-place // self.step) for place in self.bounds(n)] for n in range(self.tiles)]
            return [n for n, (start, stop) in enumerate(places) if start < stop]
        return [n for n in range(self.tiles) if n == 0 or (self.origin + n * self.size) % self.whole == 0]

    def edges(self, level: int = 0) -> tuple[int, ...]:
        """Pixels of every chunk at a reduction by 2^level."""
        bounds = [max(self.start, self.origin + n * self.size) for n in self.firsts]
        places = [-(-bound // (self.step << level)) for bound in (*bounds, self.stop)]
        return tuple(after - before for before, after in pairwise(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Codestream:
    """What a main header declares."""

    size: CodestreamSize
    """On the grid of the components, where all of them have the same steps and tiles begin at their values."""
    x: TileAxis
    y: TileAxis
    style: CodingStyle
    """The coding of every tile that does not override it."""
    segments: tuple[Segment, ...]
    """Of the main header behind its size, those that decoding one tile needs."""
    first: int
    """Where the first tile-part begins in the file."""
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]] | None
    """Tile and length of every tile-part, where the main header lists them."""
    packed: tuple[bytes, ...]
    """Packet headers of every tile-part in file order, where the main header holds them (PPM)."""
    packets: tuple[bytes, ...]
    """Packet lengths of every tile-part in file order, where the main header lists them (PLM)."""
    comments: tuple[str, ...]

    @property
    def joined(self) -> bool:
        """Whether a chunk holds several tiles, or a tile is in no chunk."""
        return any(len(axis.firsts) < axis.tiles for axis in (self.x, self.y))

    @property
    def header(self) -> bytes:
        """The main header without the segments that decoding one tile does not need."""
        return self.at(0)

    def at(self, level: int) -> bytes:
        """The main header of the image at a lower resolution; tiles must begin at multiples of 2^level."""
        size = replace(self.size, grid=tuple(-(-place >> level) for place in self.size.grid))
        most = max(len(coding.precincts) for coding in self.style.codings) - level
        cut = [
            (marker, reduce_order_changes(data, size.count, most) if level else data)
            if marker == POC
            else (marker, reduce_segment(marker, data, level, size.count))
            for marker, data in self.segments
        ]
        return b"\xff\x4f" + pack_segments([(SIZ, size.pack()), *cut])

    def bounds(self, tile: int) -> Bounds:
        """Left, top, right and bottom of one of its tiles."""
        bounds = self.size.bounds(tile)
        if bounds is None:
            raise FormatError(f"the codestream has no tile {tile}")
        return bounds

    def holds(self, tile: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether tiles hold a value: where all components are subsampled alike, narrow ones may not."""
        held = np.ones(len(tile), bool)
        for axis, place in zip((self.y, self.x), np.divmod(tile, self.x.tiles), strict=True):
            if axis.step > 1:
                held &= np.isin(place, axis.firsts)
        return held


def main_header(file: FileBuffer, offset: int, end: int | None, limits: Limits) -> Generator[Step, Any, Codestream]:
    """Read the segments from SOC to the first SOT."""
    if (yield from file.read("the codestream", offset, 4, ahead=AHEAD_BYTES)) != b"\xff\x4f\xff\x51":
        raise FormatError("the codestream does not begin with its markers", offset=offset)
    segments: list[tuple[int, bytes]] = []
    position, bare = offset + 2, 0
    while True:
        lead = yield from file.read("a marker of the codestream", position, 4, ahead=AHEAD_BYTES)
        marker, length = int.from_bytes(lead[:2], "big"), int.from_bytes(lead[2:], "big")
        if marker == SOT:
            break
        if marker in BARE:
            limits.check("the number of markers in a main header", bare, limits.tags, offset=position)
            position, bare = position + 2, bare + 1
            continue
        if marker < 0xFF4F or marker in (SOC, SOD, EOC) or length < 2:
            raise FormatError(f"the main header of the codestream is damaged at marker {marker:04X}", offset=position)
        if end is not None and position + 2 + length > end:
            raise FormatError("the main header ends past the end of the codestream", offset=position)
        limits.check("the number of markers in a main header", len(segments), 4 * limits.tags, offset=position)
        raw = yield from file.read("a marker of the codestream", position, 2 + length, ahead=AHEAD_BYTES)
        file.count_parsed("a marker of the codestream", position, 2 + length)
        segments.append((marker, raw[4:]))
        position += 2 + length
    try:
        return _parse(segments, position)
    except FormatError as error:
        raise error.at(offset=offset) from None


def _parse(segments: list[tuple[int, bytes]], first: int) -> Codestream:
    size = _component_grid(parse_size(segments[0][1]))
    x, y = _axes(size)
    count = size.count
    if not x.firsts or not y.firsts:
        raise FormatError("the codestream holds no value of its components")
    found = dict(reversed(segments))
    if COD not in found or QCD not in found:
        raise FormatError("the codestream has no coding style or no quantisation")
    wide = component_bytes(count)
    if any(int.from_bytes(data[:wide], "big") >= count for marker, data in segments if marker in (COC, QCC, RGN)):
        raise FormatError("the codestream describes a component that it does not have")
    coding = coding_style(size.steps, [(marker, data) for marker, data in segments if marker in (COD, COC, POC)])
    lossless = all(is_reversible(*segment, count) for segment in segments if segment[0] in (COD, COC))
    _check_kinds(size.kinds, lossless=lossless, together=bool(found[COD][4]))
    return Codestream(
        size=size,
        x=x,
        y=y,
        style=coding,
        segments=tuple((marker, data) for marker, data in segments[1:] if marker not in NOT_KEPT),
        first=first,
        lengths=_lengths([data for marker, data in segments if marker == TLM]),
        packed=_packed([data for marker, data in segments if marker == PPM]),
        packets=_listed([data for marker, data in segments if marker == PLM]),
        comments=tuple(d[2:].decode("latin-1") for m, d in segments if m == COM and d[:2] == b"\x00\x01")[:16],
    )


def _check_kinds(kinds: list[tuple[int, int, int]], *, lossless: bool, together: bool) -> None:
    """Refuse components whose depths and steps no decoder gives back as they were; `together` are colours coded."""
    if together and len({(depth & 0x80, *step) for depth, *step in kinds[:3]}) > 1:
        raise FormatError("colours with and without a sign, or of different steps, are coded together")
    if together and not lossless and len({depth for depth, *_ in kinds[:3]}) > 1:
        raise FormatError("colours of different depth are coded together, with loss")


def _component_grid(size: CodestreamSize) -> CodestreamSize:
    """The size on the grid of the components, where all of them have the same steps.

    Tiles that begin between two values keep their positions and steps, because these decide the order of packets.
    """
    if len(set(size.steps)) > 1 or size.steps[0] == (1, 1):
        return size
    for axis, step in zip(_axes(size), size.steps[0], strict=True):
        if axis.start % step or axis.origin % step or (axis.size % step and axis.tiles > 1):
            return size
    grid = tuple(-(-place // step) for place, step in zip(size.grid, size.steps[0] * 4, strict=True))
    return replace(size, grid=grid, components=b"".join(bytes([depth, 1, 1]) for depth, _, _ in size.kinds))


def _axes(size: CodestreamSize) -> tuple[TileAxis, TileAxis]:
    """Both directions of the grid; chunks begin at whole steps where components differ in these.

    Components of different steps are upsampled chunk by chunk. Two of three at half the resolution are chroma: decoders
    return RGB, for a single tile wherever it begins.
    """
    same = len(set(size.steps)) == 1
    found = []
    for n, along in enumerate(zip(*size.steps, strict=True)):
        stop, start, extent, origin = size.grid[n::2]
        step, whole = (along[0], 1) if same else (1, math.lcm(*along))
        if start % whole and not (size.chroma and size.tiles == 1):
            raise FormatError("subsampled components are not supported in an image that does not begin at whole steps")
        found.append(TileAxis(start, stop, extent, origin, step, whole))
    return found[0], found[1]


def _packed(tables: list[bytes]) -> tuple[bytes, ...]:
    """PPM segments joined in their order, then split by tile-part."""
    cursor = Cursor(b"".join(table[1:] for table in sorted(tables, key=lambda table: table[:1])), order=">")
    found = []
    while cursor.position < len(cursor.data):
        found.append(cursor.take(*cursor.unpack("I")))
    return tuple(found)


def _listed(tables: list[bytes]) -> tuple[bytes, ...]:
    """PLM segments joined in their order, then split by tile-part; empty if they do not match."""
    joined = b"".join(table[1:] for table in sorted(tables, key=lambda table: table[:1]))
    found, position = [], 0
    while position < len(joined):
        found.append(joined[position + 1 : position + 1 + joined[position]])
        position += 1 + joined[position]
    return tuple(found) if position == len(joined) else ()


def _lengths(tables: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """TLM segments joined in their order; None if there are none or they are invalid."""
    if not tables or any(len(table) < 2 for table in tables):
        return None
    tiles: list[NDArray[np.int64]] = []
    lengths: list[NDArray[np.int64]] = []
    for table in sorted(tables, key=lambda table: table[0]):
        kind = table[1] >> 4 & 3
        layout = [("tile", ">u2" if kind == 2 else "u1")] * (kind > 0) + [
            ("length", ">u4" if table[1] & 0x40 else ">u2")
        ]
        entry = np.dtype(layout)
        if kind == 3 or (len(table) - 2) % entry.itemsize:
            return None
        rows = np.frombuffer(table, entry, offset=2)
        before = sum(len(block) for block in lengths)
        tiles.append(rows["tile"].astype(np.int64) if kind else np.arange(before, before + len(rows), dtype=np.int64))
        lengths.append(rows["length"].astype(np.int64))
    return np.concatenate(tiles), np.concatenate(lengths)
