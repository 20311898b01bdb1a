"""Compressed NITF images: where the stream of every block lies, and where a JPEG 2000 codestream begins."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Encoding, Need, Pipeline, Refs, Step, chunk_positions
from periplus.model.codecnames import JPEG, TIFF_TILE
from periplus.scan.blocks import Blocks
from periplus.scan.jpeg.bands import banded, large
from periplus.scan.jpeg.markers import walk
from periplus.scan.nitf.blocks import Layout
from periplus.scan.nitf.jpeg_tables import HEAD_BYTES, markers
from periplus.scan.nitf.mask import ABSENT, Mask, held

START = re.compile(rb"\xff*(?=\xff\xd8\xff)")
"""The start of a stream, and what may fill the space before it."""
WINDOW = 4 << 20
"""Bytes looked at a time for the starts of streams."""
OVERLAP = 32
"""More than the end of a stream, what pads it and the start of another."""
MOST_STREAMED = 1 << 32
"""Bytes of an image that may pass by so."""
BETWEEN = re.compile(rb"\xff\xd9[\0\xff]{0,16}?(?=\xff\xd8\xff)")
"""The end of a stream, and what may pad it before the next one starts."""
FRAMES = range(0xC0, 0xC4)
MOST_BOXES = 256
RAW = b"\xff\x4f\xff\x51"
SIZE_BYTES = 24
"""The start of a codestream, with the size of its image."""
JPEG_2000 = 34712
"""TIFF's number of the compression."""
MOST_BITS = 16


def jpeg_pipeline(image: Layout, colours: str, *, lossless: bool, tables: str | None = None) -> Pipeline:
    """The codec of one stream; all its bands are in it whichever way its scans interleave them.

    `tables` are those that streams lack, as base64.
    """
    bands = image.samples
    if image.kind != "INT" or image.bits not in (range(2, 17) if lossless else (8, 12, 16)):
        raise FormatError(f"JPEG of pixels of type {image.kind!r} with {image.bits} bits is not known")
    configuration = {
        "bits_per_pixel": image.bits if lossless else min(image.bits, 12),
        "num_bands": bands,
        "block_width": image.width,
        "block_height": image.height,
        "imode": "P" if bands > 1 else "B",
        "color_space": "MONO" if bands == 1 else "YCbCr601" if colours == "YCbCr601" else "RGB",
    }
    if tables is not None:
        configuration["jpeg_tables"] = tables
    return ({"name": JPEG, "configuration": configuration},)


Look = Callable[[int, int, int, Limits], Generator[Step, Any, NDArray[np.int64]]]
"""(start, end, number, limits) of the streams of blocks -> where they start, counted from the first."""


def stream_refs(
    image: Layout, start: int, end: int, mask: Mask, limits: Limits, *, look: Look | None = None
) -> Generator[Step, Any, Refs]:
    """The stream of every block: all of the data where there is one, by the mask, else by a look at all of the data."""
    start += mask.length
    if mask.offsets is not None:
        offsets = mask.offsets
        if bool((offsets[offsets != ABSENT] >= end - start).any()):
            raise FormatError("the mask has a block that starts past the end of the image")
    elif image.blocks == 1:
        offsets = np.zeros(1, np.int64)
    else:
        offsets = yield from (look or _starts)(start, end, image.blocks, limits)
    stored = offsets != ABSENT
    # A stream ends where the next one in the file starts.
    ordered = np.append(np.unique(offsets[stored]), end - start)
    stops = ordered[np.searchsorted(ordered, np.where(stored, offsets, 0), side="right").clip(max=len(ordered) - 1)]
    grid = (image.planes, -(-image.rows // image.height), -(-image.columns // image.width))
    limits.check("the number of chunks", grid[0] * grid[1] * grid[2], limits.chunks)
    positions = chunk_positions(grid)
    number = (positions[0].astype(np.int64) * image.down + positions[1]) * image.across + positions[2]
    refs = Refs(chunk=positions, offset=start + offsets[number], length=(stops - offsets)[number])
    return refs.take(stored[number])


def _starts(start: int, end: int, wanted: int, limits: Limits) -> Generator[Step, Any, NDArray[np.int64]]:
    """Where the streams of blocks start, counted from the first: nothing but the streams themselves tells.

    All of the data pass by, a window at a time.
    """
    limits.check("the bytes of JPEG blocks without a mask", end - start, MOST_STREAMED, offset=start)
    found: set[int] = set()
    tail = b""
    for at in range(start, end, WINDOW):
        data = tail + bytes((yield Need(at, min(WINDOW, end - at), sparse=True, passing=True)))
        if at == start and (match := START.match(data)):
            found.add(match.end())
        first = at - start - len(tail)
        found.update(first + match.end() for match in BETWEEN.finditer(data))
        if len(found) > wanted:
            break
        # One stream may end, and the next one start, in two windows.
        tail = data[-OVERLAP:]
    if len(found) != wanted:
        raise FormatError(f"the image has {wanted} blocks, but {len(found)} JPEG streams are found in it")
    return np.array(sorted(found), np.int64)


def cut_stream(
    blocks: Blocks, image: Layout, codecs: Pipeline, refs: Refs, limits: Limits
) -> Generator[Step, Any, tuple[int, Encoding, Refs]]:
    """Rows of a chunk, encoding and references of a lone large block that can be cut into bands; else as they were."""
    if image.blocks != 1 or len(refs) != 1 or not large(image.width, image.height, image.samples):
        return image.height, Encoding(codecs), refs
    start, length = int(refs.offset[0]), int(refs.length[0])
    yield from blocks.hold("the JPEG stream", start, 2)
    if held(blocks, start, 2) != b"\xff\xd8":  # but for what may fill the space before it
        return image.height, Encoding(codecs), refs
    frame = (yield from walk(blocks, limits, start)).cut()
    if (frame.height, frame.width, len(frame.sampling)) != (image.rows, image.columns, image.samples):
        return image.height, Encoding(codecs), refs
    bands = yield from banded(frame, blocks, limits, start + length)
    if bands is None:
        return image.height, Encoding(codecs), refs
    configuration = {**codecs[0]["configuration"], "block_height": bands.rows, **bands.settings}
    encoding = Encoding(({"name": JPEG, "configuration": configuration},), clipped=bands.clipped)
    return bands.rows, encoding, bands.refs


def frame_size(blocks: Blocks, start: int, end: int) -> Generator[Step, Any, tuple[int, int]]:
    """Rows and columns of the JPEG stream at a place."""
    length = min(HEAD_BYTES, end - start)
    yield from blocks.hold("the JPEG stream", start, length)
    data = held(blocks, start, length)
    for marker, at in markers(data):
        if marker in FRAMES and at + 9 <= len(data):
            rows, columns = struct.unpack_from(">HH", data, at + 5)
            return rows, columns
    raise FormatError("the JPEG stream does not say how large it is", offset=start)


def separate(blocks: Blocks, image: Layout, start: int, end: int, mask: Mask) -> Generator[Step, Any, bool]:
    """Whether every block that a mask lists has a codestream of its own, as osml-imagery-io writes them.

    The standard has one for all of the image, and the mask point to its tiles.
    """
    if image.blocks == 1 or mask.offsets is None:
        return False
    # Of blocks that are not there the offset is the greatest that can be.
    place = start + mask.length + int(mask.offsets.min())
    if place + SIZE_BYTES > end:
        return False
    yield from blocks.hold("a codestream", place, SIZE_BYTES)
    head = held(blocks, place, SIZE_BYTES)
    right, bottom, left, top = struct.unpack_from(">4I", head, 8)
    within = right - left <= image.width and bottom - top <= image.height
    return head.startswith(RAW) and within and (bottom - top, right - left) != (image.rows, image.columns)


def codestream_pipeline(image: Layout) -> Pipeline:
    """The codec of a block that is a codestream of its own, as TIFF has it too."""
    if image.kind not in ("INT", "SI") or image.bits > MOST_BITS:
        raise FormatError(f"JPEG 2000 of pixels of type {image.kind!r} with {image.bits} bits is not known")
    configuration = {
        "compression": JPEG_2000,
        "bits_per_sample": image.dtype.itemsize * 8,
        "samples_per_pixel": image.samples,
        "photometric": 1,
        "planar_config": 1,
        "predictor": 1,
        "tile_width": image.width,
        "tile_height": image.height,
        "sample_format": 2 if image.kind == "SI" else 1,
        "jpeg_tables": None,
    }
    return ({"name": TIFF_TILE, "configuration": configuration},)


def codestream(blocks: Blocks, start: int, end: int) -> Generator[Step, Any, tuple[int, int]]:
    """Offset and length of the codestream in an image's data, which may be a JP2 file of boxes."""
    position = start
    for _ in range(MOST_BOXES):
        if position + 8 > end:
            break
        yield from blocks.hold("the codestream", position, 8, ahead=min(4_096, end - position - 8))
        length, kind = struct.unpack(">I4s", held(blocks, position, 8))
        if position == start and held(blocks, position, 4) == RAW:
            return start, end - start
        head = 8
        if length == 1 and position + 16 <= end:
            yield from blocks.hold("the codestream", position, 16)
            (length,) = struct.unpack(">Q", held(blocks, position + 8, 8))
            head = 16
        elif length == 0:
            length = end - position
        if length < head or length > end - position:
            break
        if kind == b"jp2c":
            return position + head, length - head
        position += length
    raise FormatError("the image holds no JPEG 2000 codestream", offset=start)
