"""The main header of a JPEG 2000 codestream, checked and rewritten for one of its tiles at one of its levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from periplus.errors import DecodeError, FormatError
from periplus.parse.jpeg2000.packets import Bounds, count_code_blocks, count_precincts
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
    CodingStyle,
    Segment,
    coding_style,
    component_bytes,
    is_reversible,
    pack_segments,
    read_segments,
    reduce_segment,
)
from periplus.parse.jpeg2000.size import CodestreamSize, parse_size

NOT_KEPT = frozenset({TLM, PLM, CRG, COM})
"""Segments about the whole codestream, and comments."""
ORDER = frozenset({POC, PPM, PPT, PLT, COM})
"""Segments that do not apply if packets are reordered."""


@dataclass(frozen=True, slots=True)
class CodestreamHeader:
    """What decoding one tile of a codestream needs of its main header."""

    size: CodestreamSize
    segments: tuple[Segment, ...]
    level: int

    @property
    def count(self) -> int:
        """Number of components."""
        return self.size.count

    @property
    def step(self) -> tuple[int, int]:
        """The common subsampling of all components; (1, 1) if they differ."""
        steps = self.size.steps
        return steps[0] if len(set(steps)) == 1 else (1, 1)

    @property
    def single(self) -> bool:
        """Whether the image is one tile."""
        return self.size.tiles == 1

    @property
    def movable(self) -> bool:
        """Whether every tile would decode to the same values at the origin of the reference grid.

        Wavelets, precincts and code-blocks are counted from the origin: tiles must begin where these do.
        """
        grid = self.size.grid
        if any(grid[2:4]):
            return False
        return self.single or all(
            _fits(grid[axis], grid[axis + 4], step, [each[axis] for each in coding.precincts], block)
            for coding in set(self.style(()).codings)
            for axis, (step, block) in enumerate(zip(coding.steps, coding.blocks[:2], strict=True))
        )

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

    def style(self, own: Iterable[Segment]) -> CodingStyle:
        """The coding of a tile that overrides these segments."""
        return _style(self.size.components, self.segments, tuple(own))

    def weight(self, own: Iterable[Segment], bounds: Bounds) -> tuple[int, int]:
        """Precincts, and code-blocks at most, of a tile with these bounds at this level."""
        codings = self.style(own).codings
        if self.level:
            codings = tuple(replace(coding, precincts=coding.precincts[: -self.level]) for coding in codings)
        return count_precincts(bounds, codings), count_code_blocks(bounds, codings)

    def bounds(self, tile: int, level: int = 0) -> Bounds:
        """Left, top, right and bottom of a tile at a level; DecodeError if there is no such tile."""
        found = self.size.bounds(tile, level)
        if found is None:
            raise DecodeError(f"the codestream has no tile {tile} at this level")
        return found

    def written(self, bounds: Bounds, *, plain: bool = False) -> bytes:
        """The main header of a codestream of one tile with these bounds, at this level.

        With `plain`, packets are ordered by layer and have no markers around them.
        """
        left, top, right, bottom = bounds
        # The tile grid begins at 0: precincts and code-blocks are counted from there, wherever the tile is.
        # The native decoder supports only one depth for all components; values are corrected afterwards.
        deepest = max(self.size.components[::3])
        components = b"".join(bytes([deepest, *step]) for step in self.size.steps)
        size = CodestreamSize(self.size.capabilities, (right, bottom, left, top, right, bottom, 0, 0), components)
        return b"\xff\x4f" + pack_segments([(SIZ, size.pack()), *self.cut(self.segments, plain=plain)])

    def only(self, chosen: Sequence[int], own: Iterable[Segment]) -> tuple[CodestreamHeader, list[Segment]]:
        """The header of some of the components on their own grid, and a tile's own segments; renumbered."""
        colours = list(chosen[:3]) == [0, 1, 2]
        wide, fewer = component_bytes(self.count), component_bytes(len(chosen))

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

        components = b"".join(bytes([self.size.components[3 * number], 1, 1]) for number in chosen)
        return replace(self, size=replace(self.size, components=components), segments=tuple(kept(self.segments))), kept(
            own
        )

    def cut(self, segments: Iterable[Segment], *, plain: bool = False) -> list[Segment]:
        """Segments of the main header or of a tile's own, cut to this level."""
        found = [(marker, reduce_segment(marker, data, self.level, self.count)) for marker, data in segments]
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
def _style(components: bytes, main: tuple[Segment, ...], own: tuple[Segment, ...]) -> CodingStyle:
    return coding_style(list(zip(components[1::3], components[2::3], strict=True)), main, own)


def header_of(raw: bytes, level: int) -> CodestreamHeader:
    """A main header, checked; FormatError if it is damaged, or if it does not allow decoding at this level."""
    try:
        return _header(raw, level)
    except IndexError:
        raise FormatError("the main header of the codestream is cut off") from None


def _header(raw: bytes, level: int) -> CodestreamHeader:
    if raw[:2] != b"\xff\x4f":
        raise FormatError("the main header of the codestream does not begin with its marker")
    segments = read_segments(raw, 2, len(raw))
    if not segments or segments[0][0] != SIZ:
        raise FormatError("the main header of the codestream does not begin with its size")
    size = parse_size(segments[0][1])
    kept = tuple(segment for segment in segments[1:] if segment[0] not in NOT_KEPT)
    styles = [data for marker, data in kept if marker == COD]
    if len(styles) != 1 or not any(marker == QCD for marker, _ in kept):
        raise FormatError("the codestream has no single coding style, or no quantisation")
    if not is_lossless(kept, size.count) and len(set(size.components[:9:3])) > 1 and styles[0][4]:
        raise FormatError("colours of different depth are coded together, with loss")
    header = CodestreamHeader(size, kept, level)
    header.style(())
    header.cut(kept)
    return header


def is_lossless(segments: Iterable[Segment], count: int) -> bool:
    """Whether all components have the reversible wavelet."""
    return all(is_reversible(*segment, count) for segment in segments if segment[0] in (COD, COC))
