"""Compressed NITF images: where the stream of every block starts, and the codecs of JPEG and JPEG 2000 blocks."""

from __future__ import annotations

import base64
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
from periplus.parse.jpeg import QUANTISATION, SCAN, parse_header, segments
from periplus.scan.buffer import FileBuffer
from periplus.scan.jpeg.bands import find_bands, is_large
from periplus.scan.jpeg.markers import read_markers
from periplus.scan.jpeg2000.boxes import read_box
from periplus.scan.nitf.blocks import BlockLayout
from periplus.scan.nitf.mask import ABSENT, BlockMask

START = re.compile(rb"\xff*(?=\xff\xd8\xff)")
"""The start of a stream, after any fill bytes."""
WINDOW = 4 << 20
"""Bytes searched at a time for the starts of streams."""
OVERLAP = 32
"""More than the end of a stream, its padding and the start of another."""
MOST_STREAMED = 1 << 32
"""Bytes of an image that may be searched so."""
BETWEEN = re.compile(rb"\xff\xd9[\0\xff]{0,16}?(?=\xff\xd8\xff)")
"""The end of a stream and the padding before the next one."""
MOST_BOXES = 256
RAW = b"\xff\x4f\xff\x51"
SIZE_BYTES = 24
"""The start of a codestream, with the size of its image."""
JPEG_2000 = 34712
"""The number of the compression in TIFF."""
MOST_BITS = 16
NAMED_TABLES = re.compile(r"(\d\d)\.([1-5])", re.ASCII)
"""A rate that names a kind of image and a quality of MIL-STD-188-198A; 00.0 means that streams have tables."""
HEAD_BYTES = 4_096
"""Enough for the segments before the first scan of a stream."""
GENERAL = {
    "1": "084848484848484848484e4a4c4a4e5951545451596a5d5e635e5d6a"
         "816f6c74746c6f81878088918880879ba0b1b1a09bc1d5e4d5c1ffffffffffffffffffff",
    "2": "0824242424242424242427252625272d292a2a292d352f2f322f2f35"
         "4138363b3b363841444045494540444e515959514e626c736c6282909082b2beb2f3f3ff",
    "3": "080a0a0a0a0a0a0a0a0a0b0a0b0a0b0d0b0c0c0b0d0f0d0d0e0d0d0f"
         "12100f10100f1012131213151312131617191917161b1e201e1b2428282432353244445b",
    "4": "0807070707070707070708070807080908080808090b09090a09090b"
         "0d0b0b0c0c0b0b0d0e0d0e0f0e0d0e10101212101014161716141a1d1d1a242624313141",
    "5": "04040404040404040404040404040405050505050506050506050506"
         "07060606060606070807080808070809090a0a09090b0c0d0c0b0e10100e1415141b1b24",
}  # fmt: skip
"""Quantisation tables of general 8-bit images by quality, in zigzag order, as a stream stores them.

GDAL (3.10) reads these lists row by row. The JITC's own streams show the order: `i_3025b.ntf` stores the first list as
its table, and after it the same bytes that `U_1125C.NTF` has without a table at rate 00.1; `U_1122A.NTF`, at rate 00.3,
has the third list. All five are scaled from one list.
"""


def jpeg_pipeline(image: BlockLayout, colours: str, *, lossless: bool, tables: str | None = None) -> Pipeline:
    """The codec of one stream, which holds all bands however its scans interleave them.

    `tables` are those that the streams lack, as base64.
    """
    bands = image.samples
    if image.kind != "INT" or image.bits not in (range(2, 17) if lossless else (8, 12, 16)):
        raise FormatError(f"JPEG of pixels of type {image.kind!r} with {image.bits} bits is not supported")
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


StartFinder = Callable[[int, int, int, Limits], Generator[Step, Any, NDArray[np.int64]]]
"""(start, end, number, limits) of the streams of blocks -> where they start, counted from the first."""


def stream_refs(
    image: BlockLayout, start: int, end: int, mask: BlockMask, limits: Limits, *, find_starts: StartFinder | None = None
) -> Generator[Step, Any, Refs]:
    """The stream of every block: all data for a single block, else by the mask, else by searching all data."""
    start += mask.length
    if mask.offsets is not None:
        offsets = mask.offsets
        if bool((offsets[offsets != ABSENT] >= end - start).any()):
            raise FormatError("the mask has a block that starts past the end of the image")
    elif image.blocks == 1:
        offsets = np.zeros(1, np.int64)
    else:
        offsets = yield from (find_starts or _find_starts)(start, end, image.blocks, limits)
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


def _find_starts(start: int, end: int, wanted: int, limits: Limits) -> Generator[Step, Any, NDArray[np.int64]]:
    """Offsets of the streams of blocks from the start of the data, found by searching all of it."""
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
        # A stream may end in one window, and the next one start in another.
        tail = data[-OVERLAP:]
    if len(found) != wanted:
        raise FormatError(f"the image has {wanted} blocks, but {len(found)} JPEG streams are found in it")
    return np.array(sorted(found), np.int64)


def cut_stream(
    file: FileBuffer, image: BlockLayout, codecs: Pipeline, refs: Refs, limits: Limits
) -> Generator[Step, Any, tuple[int, Encoding, Refs]]:
    """Rows of a chunk, encoding and references: in row bands for a lone large block that allows it, else unchanged."""
    unchanged = image.height, Encoding(codecs), refs
    if image.blocks != 1 or len(refs) != 1 or not is_large(image.width, image.height, image.samples):
        return unchanged
    start, length = int(refs.offset[0]), int(refs.length[0])
    # Fill bytes may precede the stream.
    if (yield from file.read("the JPEG stream", start, 2)) != b"\xff\xd8":
        return unchanged
    markers = yield from read_markers(file, limits, start)
    frame = markers.header
    if (frame.height, frame.width, frame.samples) != (image.rows, image.columns, image.samples):
        return unchanged
    bands = yield from find_bands(markers, file, limits, start + length)
    if bands is None:
        return unchanged
    configuration = {**codecs[0]["configuration"], "block_height": bands.rows, **bands.settings}
    encoding = Encoding(({"name": JPEG, "configuration": configuration},), clipped=bands.clipped)
    return bands.rows, encoding, bands.refs


def read_jpeg_head(file: FileBuffer, start: int, end: int) -> Generator[Step, Any, bytes]:
    """The first bytes of the JPEG stream at an offset, without the fill bytes before it."""
    head = yield from file.read("the JPEG stream", start, min(HEAD_BYTES, end - start))
    return head[max(0, head.find(b"\xff\xd8")) :]


def frame_size(file: FileBuffer, start: int, end: int) -> Generator[Step, Any, tuple[int, int]]:
    """Rows and columns of the JPEG stream at an offset."""
    header = parse_header((yield from read_jpeg_head(file, start, end)))
    return header.height, header.width


def shared_tables(
    file: FileBuffer, start: int, end: int, rate: str, *, bands: int, bits: int
) -> Generator[Step, Any, str | None]:
    """The tables that streams such as the one at `start` lack, as base64 of a stream of tables; None if they have them.

    Nothing is read for a rate that names no quality, because then streams have their tables. The tables of special
    kinds of images, of colours and of 12 bits are unknown to us.
    """
    named = NAMED_TABLES.fullmatch(rate)
    if named is None:
        return None
    markers = [marker for marker, _, _ in segments((yield from read_jpeg_head(file, start, end)))]
    # Only the first scan shows that no table precedes it.
    if QUANTISATION in markers or SCAN not in markers:
        return None
    if named[1] != "00" or (bands, bits) != (1, 8):
        raise FormatError(
            f"the JPEG streams of {bands} bands of {bits} bits have no tables, and those of rate {rate} are unknown"
        )
    table = b"\xff\xdb\x00\x43\x00" + bytes.fromhex(GENERAL[named[2]])
    return base64.b64encode(b"\xff\xd8" + table + b"\xff\xd9").decode()


def has_separate_codestreams(
    file: FileBuffer, image: BlockLayout, start: int, end: int, mask: BlockMask
) -> Generator[Step, Any, bool]:
    """Whether every block that a mask lists is a codestream of its own, as osml-imagery-io writes them.

    By the standard there is one codestream for the image, and the mask points to its tiles.
    """
    if image.blocks == 1 or mask.offsets is None:
        return False
    # A block that is not stored has the greatest possible offset.
    offset = start + mask.length + int(mask.offsets.min())
    if offset + SIZE_BYTES > end:
        return False
    head = yield from file.read("a codestream", offset, SIZE_BYTES)
    right, bottom, left, top = struct.unpack_from(">4I", head, 8)
    within = right - left <= image.width and bottom - top <= image.height
    return head.startswith(RAW) and within and (bottom - top, right - left) != (image.rows, image.columns)


def codestream_pipeline(image: BlockLayout) -> Pipeline:
    """The codec of a block that is a codestream of its own, the same as in TIFF."""
    if image.kind not in ("INT", "SI") or image.bits > MOST_BITS:
        raise FormatError(f"JPEG 2000 of pixels of type {image.kind!r} with {image.bits} bits is not supported")
    return tiff_tile(image, compression=JPEG_2000, bits=image.dtype.itemsize * 8, photometric=1)


def tiff_tile(image: BlockLayout, *, compression: int, bits: int, photometric: int, **options: int) -> Pipeline:
    """The codec of a block in a compression of TIFF."""
    configuration = {
        "compression": compression,
        "bits_per_sample": bits,
        "samples_per_pixel": image.samples,
        "photometric": photometric,
        "planar_config": 1,
        "predictor": 1,
        "tile_width": image.width,
        "tile_height": image.height,
        "sample_format": 2 if image.kind == "SI" else 1,
        "jpeg_tables": None,
        **options,
    }
    return ({"name": TIFF_TILE, "configuration": configuration},)


def find_codestream(file: FileBuffer, start: int, end: int) -> Generator[Step, Any, tuple[int, int]]:
    """Offset and length of the codestream in the data of an image, which may be a JP2 file of boxes."""
    if (
        start + 8 <= end
        and (yield from file.read("the codestream", start, 4, ahead=min(4_096, end - start - 4))) == RAW
    ):
        return start, end - start
    position = start
    for _ in range(MOST_BOXES):
        if position + 8 > end:
            break
        try:
            kind, content, stop = yield from read_box(file, position, end)
        except FormatError:
            break
        if stop is None or stop > end:
            break
        if kind == b"jp2c":
            return content, stop - content
        position = stop
    raise FormatError("the image holds no JPEG 2000 codestream", offset=start)
