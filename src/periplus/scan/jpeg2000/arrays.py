"""Arrays and references of a JPEG 2000 codestream: one array for each resolution that can be read."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Georeference, Inline, Refs, Scalar, Shape, affine
from periplus.model.codecnames import JPEG2000
from periplus.parse.jpeg2000.segments import PPM, pack_segments
from periplus.scan.georeference.geotiff import reduced
from periplus.scan.jpeg2000.markers import Codestream
from periplus.scan.jpeg2000.ranges import LevelRanges, ranks

LARGEST_PACKED = 4_096
"""Most tiles whose packet headers are in the main header: each needs an encoding of its own in the index."""
PPM_BYTES = 65_532
LARGEST_PARTS = 65_535


def encodings_of(
    facts: Codestream, found: LevelRanges, level: int = 0, stretched: Sequence[int] = ()
) -> tuple[Encoding, ...]:
    """The encodings of tiles at one resolution: one for all, unless the main header holds their packet headers.

    Bits of the `stretched` components are decoded to 0 and 255.
    """
    if level and found.starts is not None:
        # The bytes hold only the packets of this level, so they are the full resolution of a smaller image.
        return (_encoding(facts.at(level), 0, stretched),)
    if not facts.packed:
        return (_encoding(facts.header, level, stretched),)
    ranges = found.parts
    if facts.joined or facts.size.tiles > LARGEST_PACKED or len(facts.packed) != len(ranges.tile):
        raise FormatError("packet headers in the main header (PPM) are of too many tiles, or not of all tile-parts")
    own: list[list[bytes]] = [[] for _ in range(facts.size.tiles)]
    for row, packets in zip(np.argsort(ranges.offset), facts.packed, strict=True):
        own[int(ranges.tile[row])].append(len(packets).to_bytes(4, "big") + packets)
    return tuple(_encoding(facts.header + _packets(b"".join(parts)), level, stretched) for parts in own)


def _encoding(header: bytes, level: int, stretched: Sequence[int]) -> Encoding:
    text = base64.b64encode(header).decode("ascii")
    settings: dict[str, Any] = {"main_header": text, "resolution_level": level}
    if stretched:
        settings["stretched_components"] = list(stretched)
    return Encoding(({"name": JPEG2000, "configuration": settings},))


def _packets(data: bytes) -> bytes:
    """PPM segments that hold these bytes."""
    pieces = [data[start : start + PPM_BYTES] for start in range(0, len(data), PPM_BYTES)]
    if len(pieces) > 256:
        raise FormatError("the packet headers of one tile are too long")
    return pack_segments((PPM, bytes([number]) + piece) for number, piece in enumerate(pieces))


def layout(facts: Codestream, level: int = 0) -> tuple[Shape, Shape, tuple[tuple[int, ...] | None, ...] | None]:
    """Shape, chunks and edges of the (bands, y, x) array of one resolution."""
    sizes = facts.y.edges(level), facts.x.edges(level)
    edges = tuple(None if _regular(size) else size for size in sizes)
    shape = (facts.size.count, *(sum(size) for size in sizes))
    chunks = (facts.size.count, *(max(size) for size in sizes))
    return shape, chunks, None if edges == (None, None) else (None, *edges)


def references(facts: Codestream, found: LevelRanges, level: int = 0) -> Refs:
    """Byte ranges of every tile at one resolution; only those it needs, if these are known."""
    ranges, starts = found.ranges[level], found.starts if level else None
    tile, part, offset, length = ranges.tile, ranges.part, ranges.offset, ranges.length
    inline = None if starts is None else Inline.of(starts[level])
    if inline is not None and starts is not None:
        count = len(starts[level])
        order = np.argsort(np.concatenate([np.arange(count), tile]), kind="stable")
        sizes = [len(start) for start in starts[level]]
        tile = np.concatenate([np.arange(count), tile])[order]
        part = np.concatenate([np.zeros(count, np.int64), part + 1])[order]
        offset = np.concatenate([np.zeros(count, np.int64), offset])[order]
        length = np.concatenate([np.array(sizes, np.int64), length])[order]
        inline = Inline(np.concatenate([inline.at, np.full(len(order) - count, -1)])[order], inline.buffer)
    rows, columns = np.divmod(tile, facts.x.tiles)
    if facts.joined:
        rows, columns = (
            np.searchsorted(axis.firsts, place, "right") - 1 for axis, place in ((facts.y, rows), (facts.x, columns))
        )
        chunk = rows * facts.x.tiles + columns
        order = np.argsort(chunk, kind="stable")
        order = order[facts.holds(tile)[order]]
        rows, columns, offset, length = rows[order], columns[order], offset[order], length[order]
        part = ranks(chunk[order])
        if int(part.max()) > LARGEST_PARTS:
            raise FormatError("tiles that do not begin at whole steps of subsampled components are too many")
    return Refs(
        chunk=np.stack([np.zeros_like(rows), rows, columns]).astype(np.int32),
        offset=offset,
        length=length,
        part=part.astype(np.uint16) if part.any() else None,
        encoding=tile.astype(np.uint16) if facts.packed else None,
        inline=inline,
    )


def arrays(
    facts: Codestream,
    found: LevelRanges,
    limits: Limits,
    *,
    prefix: str = "",
    fill: Scalar = 0,
    attributes: Mapping[str, Any] | None = None,
    georeference: Georeference | None = None,
    stretched: Sequence[int] = (),
) -> Iterator[tuple[Array, Refs]]:
    """Every resolution as an array `<prefix><level>/data`, full resolution first."""
    # If tiles are so large that only lower resolutions can be read, these are indexed; reading the others fails.
    _, chunks, _ = layout(facts, len(found) - 1)
    limits.check("the number of tiles", facts.size.tiles, limits.chunks)
    limits.check("the bytes of a tile", math.prod(chunks) * facts.size.dtype.itemsize, limits.chunk_bytes)
    for level in range(len(found)):
        shape, chunks, edges = layout(facts, level)
        array = Array(
            name=f"{prefix}{level}/data",
            dims=("bands", "y", "x"),
            shape=shape,
            chunks=chunks,
            dtype=facts.size.dtype,
            fill=fill,
            encodings=encodings_of(facts, found, level, stretched),
            attributes=attributes or {},
            level=level,
            georeference=_grown(georeference, facts, level),
            edges=edges,
        )
        yield array, references(facts, found, level)


def _grown(where: Georeference | None, facts: Codestream, level: int) -> Georeference | None:
    """Pixels of a resolution are 2^level as large, on a grid that begins at 0 of the reference grid."""
    if where is None or level == 0:
        return where
    size = 1 << level
    larger = reduced(where, size, size)
    if larger is None:
        return None
    begins = [-(-axis.start // axis.step) for axis in (facts.x, facts.y)]
    across, down = (-(-begin // size) - begin / size for begin in begins)
    return affine.cropped(larger, down, across)


def _regular(sizes: tuple[int, ...]) -> bool:
    """Whether all chunks are as large as the first, but for a smaller last one."""
    return len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]
