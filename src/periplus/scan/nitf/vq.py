"""Vector quantised NITF images (CADRG, CIB): offsets of their code books and blocks, and their corners."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.model import Georeference, Refs, Step, chunk_positions
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor
from periplus.scan.nitf.blocks import BlockLayout
from periplus.scan.nitf.georeference import fit_corners
from periplus.scan.nitf.mask import ABSENT, BlockMask
from periplus.scan.nitf.tres import Tre

COVERAGE, LOOKUP, MASKED, SPATIAL = 130, 132, 138, 140
"""Numbers of the parts of a frame in its table of locations."""
BOOKS, CODES, KERNEL = 4, 4096, 4
BOOK_BYTES = BOOKS * CODES * KERNEL
LOOKUP_BYTES = 62
"""The table of code books: where it starts and how long its records are, then four records."""
TRANSPARENT = 216
"""The colour of pixels that are not there, in palettes of 216 colours."""
CORNERS = struct.Struct(">8d")
"""Latitude and longitude of the outer corners of a frame."""
Locations = dict[int, tuple[int, int]]


def locations(tres: Iterable[Tre]) -> Locations:
    """Offset in the file and length of every part of a frame, from its RPFIMG extension; empty if it has none."""
    for tre in tres:
        if tre.tag == "RPFIMG":
            cursor = Cursor(tre.data, order=">")
            _, start, count, record, _ = cursor.unpack("HIHHI")
            if record != 10:
                raise FormatError(f"the table of locations has records of {record} bytes")
            cursor.at(start)
            return {number: (offset, length) for number, length, offset in (cursor.unpack("HII") for _ in range(count))}
    return {}


def vq_refs(
    file: FileBuffer, image: BlockLayout, known: Locations, place: tuple[int, int], mask: BlockMask, after: int
) -> Generator[Step, Any, Refs]:
    """Two ranges a block: the code books, which all share, and its own codes; `after` is where the mask ends."""
    if image.bands != 1 or image.bits != 8 or image.width % KERNEL or image.height % KERNEL or image.kind != "INT":
        raise FormatError("vector quantisation of anything but one band of 8 bits in blocks of fours is not supported")
    size = -(-(image.height // KERNEL) * (image.width // KERNEL) * 12 // 8)
    grid = (1, -(-image.rows // image.height), -(-image.columns // image.width))
    positions = chunk_positions(grid)
    number = positions[1].astype(np.int64) * image.across + positions[2]
    offsets = number * size if mask.offsets is None else mask.offsets[number]
    stored = offsets != ABSENT
    books = (yield from _books(file, known, after)) if stored.any() else 0
    # Without a table of offsets all blocks are stored, and fill the data after the code books.
    follow = place[0] + mask.length if mask.length else books + BOOK_BYTES
    if SPATIAL not in known and not mask.length and follow + image.blocks * size != place[1]:
        raise FormatError(f"{image.blocks} blocks of {size} bytes do not fill the data after the code books")
    start, _ = known.get(SPATIAL, (follow, 0))
    offsets, positions = start + offsets[stored], positions[:, stored]
    if len(offsets) and (offsets.max() + size > place[1] or start < place[0]):
        raise FormatError("a block is outside the data of the image")
    return Refs(
        chunk=np.repeat(positions, 2, axis=1),
        offset=np.stack([np.full_like(offsets, books), offsets], axis=1).ravel(),
        length=np.tile(np.array([BOOK_BYTES, size], np.int64), len(offsets)),
        part=np.tile(np.array([0, 1], np.uint16), len(offsets)),
    )


def _books(file: FileBuffer, known: Locations, after: int) -> Generator[Step, Any, int]:
    """The offset of the four code books, which follow each other."""
    # Without a table of locations: rows, columns and bits of the codes, then the kind and numbers of code books.
    start, _ = known.get(LOOKUP, (after + 15, 0))
    table = yield from file.read("the table of code books", start, LOOKUP_BYTES)
    cursor = Cursor(table, order=">", base=start)
    if cursor.unpack("IH") != (6, 14):
        raise FormatError("the table of code books is not where it should be", offset=start)
    records = [cursor.unpack("HIHHI") for _ in range(BOOKS)]
    first = records[0][4]
    wanted = [(n + 1, CODES, KERNEL, 8, first + n * CODES * KERNEL) for n in range(BOOKS)]
    if records != wanted:
        raise FormatError("code books of another kind than 4096 codes for 4 x 4 pixels are not supported", offset=start)
    file.check("the code books", start + first, BOOK_BYTES)
    return int(start + first)


def outside(file: FileBuffer, known: Locations) -> bool:
    """Whether the declared offset of the corners is past the end of the file."""
    start, length = known.get(COVERAGE, (0, 0))
    return length >= CORNERS.size and file.size is not None and start + CORNERS.size > file.size


def covered(file: FileBuffer, known: Locations, image: BlockLayout) -> Generator[Step, Any, Georeference | None]:
    """Georeferencing by the outer corners of a frame; None if the file has no such section, or it is invalid."""
    start, length = known.get(COVERAGE, (0, 0))
    if length < CORNERS.size or outside(file, known):
        return None
    values = CORNERS.unpack((yield from file.read("the coverage section", start, CORNERS.size)))
    (top, left), (low, west), (high, right), (bottom, east) = zip(values[::2], values[1::2], strict=True)
    if not all(abs(y) <= 90 and abs(x) <= 360 for y, x in zip(values[::2], values[1::2], strict=True)):
        return None
    # Longitudes of a frame across the 180th meridian continue to the east.
    right, east = (x + 360 if x < left - 180 else x for x in (right, east))
    size = float(image.columns), float(image.rows)
    pixels = ((0.0, 0.0), (size[0], 0.0), size, (0.0, size[1]))
    return fit_corners("EPSG:4326", pixels, [(left, top), (right, high), (east, bottom), (west, low)], None, frame=True)
