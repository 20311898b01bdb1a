"""Byte ranges of the chunks of a TIFF image, checked; uncompressed strips are cut or joined to row bands."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Refs, chunk_positions
from periplus.scan.row_bands import BAND_BYTES, Integers, band_rows, cut_to_bands
from periplus.scan.tiff.image import OLD_JPEG, TiffImage

MOST_BYTES = 1 << 62
SHARED_GRID = 1 << 14
"""Positions of grids up to this many chunks are kept and shared between files."""


lowest, highest = np.minimum.reduce, np.maximum.reduce
"""Half the cost of the methods on arrays as short as these."""


def locate(
    image: TiffImage, offsets: Integers | None, counts: Integers | None, *, limits: Limits, size: int | None
) -> tuple[int, Refs]:
    """Rows per chunk and the byte range of every stored chunk."""
    rows, grid = image.chunk_height, image.grid
    if image.compression == OLD_JPEG and (stream := jpeg_stream(image, offsets, counts)) is not None:
        limits.check("the bytes of a chunk", image.chunk_bytes(image.height), limits.chunk_bytes)
        return image.height, _whole(stream, size)
    number = grid[0] * grid[1] * grid[2]
    limits.check("the number of chunks", number, limits.chunks)
    if offsets is None:
        raise FormatError("the image has no offsets of its strips or tiles")
    if len(offsets) != number:
        if len(offsets) < number:
            raise FormatError(f"the image has {number} strips or tiles but {len(offsets)} offsets")
        offsets = offsets[:number]
    if image.plain and number == 1 and not image.tiled:
        # One strip that is one band, the whole of most small images, needs no arithmetic on lists.
        start, length = int(offsets[0]), image.row_bytes * rows
        if start > 0 and length <= BAND_BYTES and size is not None and start + length <= size:
            return rows, Refs(chunk=_positions(grid), offset=offsets, length=np.array([length]))
    if image.plain:
        limits.check("the bytes of the image", image.row_bytes * rows * number, MOST_BYTES)
        counts, expected = _counts(image, offsets, counts, size), _expected(image, number)
        if not image.tiled and _inside(offsets, expected, size) and bool((counts >= expected).all()):
            rows, offsets, counts = _bands(image, offsets, expected)
            grid = (grid[0], -(-image.height // rows), 1)
        elif highest(counts) > image.row_bytes * rows:
            counts = np.minimum(counts, expected)
    elif counts is None or len(counts) != number or number == 1:
        counts = _counts(image, offsets, counts, size)
    limits.check("the bytes of a chunk", image.chunk_bytes(rows), limits.chunk_bytes)
    return rows, _refs(image, grid, offsets, counts, size)


def _inside(offsets: Integers, lengths: Integers, size: int | None) -> bool:
    """Whether all chunks are stored, in a file of known size."""
    return (
        size is not None
        and int(offsets.min()) > 0
        and int(offsets.max()) < size
        and int((offsets + lengths).max()) <= size
    )


def jpeg_stream(image: TiffImage, offsets: Integers | None, counts: Integers | None) -> tuple[int, int] | None:
    """The one JPEG stream that holds an old-style JPEG image, where it is more than the tables its strips need."""
    start, length = image.stream
    if image.compression != OLD_JPEG or start <= 0:
        return None
    if offsets is None or counts is None:
        return (start, length) if length > 0 else None
    if length <= 0 and len(offsets) == len(counts) == 1 and int(offsets[0]) == start:
        length = int(counts[0])
    inside = start <= int(offsets.min()) and int(offsets.max()) < start + length
    return (start, length) if inside else None


def _whole(stream: tuple[int, int], size: int | None) -> Refs:
    offset, length = stream
    if size is not None and offset + length > size:
        raise FormatError("the JPEG stream ends past the end of the file", offset=offset)
    return Refs(chunk=_positions((1, 1, 1)), offset=np.array([offset]), length=np.array([length]))


def _refs(image: TiffImage, grid: tuple[int, int, int], offsets: Integers, counts: Integers, size: int | None) -> Refs:
    positions = _positions(grid)
    # A chunk of no bytes was never written; GDAL sets its offset to 0, or to a reserved position.
    if lowest(counts) == 0 or lowest(offsets) == 0:
        stored = counts > 0
        if bool((offsets[stored] == 0).any()):
            chunk = int(np.flatnonzero(stored & (offsets == 0))[0])
            raise FormatError(f"{_kind(image)} {chunk} has {counts[chunk]} bytes but no offset")
        offsets, counts, positions = offsets[stored], counts[stored], positions[:, stored]
    end = MOST_BYTES if size is None else size
    # Both are below 2^63, so a sum that does not fit in int64 is huge when seen as uint64.
    ends = (offsets + counts).view(np.uint64)
    if len(ends) and highest(ends) > end:
        chunk = int(np.flatnonzero(ends > end)[0])
        raise FormatError(
            f"{_kind(image)} {chunk} ends past the end of the file ({offsets[chunk]} + {counts[chunk]} > {end})",
            offset=int(offsets[chunk]),
        )
    return Refs(chunk=positions, offset=offsets, length=counts)


def _kind(image: TiffImage) -> str:
    return "tile" if image.tiled else "strip"


def _counts(image: TiffImage, offsets: Integers, counts: Integers | None, size: int | None) -> Integers:
    """Byte counts; absent ones, and that of a lone plain strip, are computed where that is safe, as libtiff does."""
    number = len(offsets)
    if counts is not None and len(counts) > number:
        counts = counts[:number]
    lost = counts is None or len(counts) < number or (number == 1 and counts[0] == 0 and offsets[0] > 0)
    if image.plain and (lost or (number == 1 and not image.tiled and offsets[0] > 0)):
        return _expected(image, number) * (offsets > 0)
    if counts is not None and not lost:
        return counts
    if number == 1 and size is not None and int(offsets[0]) < size:
        return np.array([size - int(offsets[0])])
    raise FormatError(f"the image has {number} strips or tiles but {0 if counts is None else len(counts)} byte counts")


def _expected(image: TiffImage, number: int) -> Integers:
    """Bytes of every plain chunk; the last strip of a plane holds only the rows that exist."""
    expected = np.full(number, image.row_bytes * image.chunk_height, np.int64)
    short = image.height % image.chunk_height
    if short and not image.tiled:
        expected[image.grid[1] - 1 :: image.grid[1]] = image.row_bytes * short
    return expected


def _bands(image: TiffImage, offsets: Integers, expected: Integers) -> tuple[int, Integers, Integers]:
    """Rows, offsets and lengths of row bands: free where strips adjoin, else a divisor of the strip's rows."""
    planes, strips, _ = image.grid
    starts, row_bits = offsets.reshape(planes, strips, 1), 8 * image.row_bytes
    if strips == 1 or bool((starts[:, 1:] == starts[:, :-1] + expected[0]).all()):
        starts, strip_rows, rows = starts[:, :1], image.height, band_rows(image.height, row_bits)
    else:
        strip_rows = image.chunk_height
        rows = band_rows(strip_rows, row_bits, divide=True)
        if rows == strip_rows:
            return rows, offsets, expected
    cut, lengths = cut_to_bands(starts, strip_rows, rows, row_bits=row_bits, height=image.height, clipped=True)
    return rows, cut.ravel(), lengths.ravel()


def _positions(grid: tuple[int, int, int]) -> NDArray[np.int32]:
    return _shared(grid) if grid[0] * grid[1] * grid[2] <= SHARED_GRID else chunk_positions(grid)


@lru_cache(maxsize=128)
def _shared(grid: tuple[int, int, int]) -> NDArray[np.int32]:
    positions = chunk_positions(grid)
    positions.flags.writeable = False
    return positions
