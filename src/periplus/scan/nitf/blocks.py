"""Byte ranges of uncompressed NITF blocks: any interleave and mask, large blocks cut to row bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Codec, Encoding, Refs, chunk_positions
from periplus.model.codecnames import JBP_BLOCK
from periplus.scan.nitf.fields import ImageSubheader
from periplus.scan.nitf.mask import ABSENT
from periplus.scan.row_bands import BAND_BYTES, band_rows, cut_to_bands

LARGE_BYTES = 8 << 20
"""Blocks of an image that has several are cut only when larger than this."""
ORDERS = {"P": [1, 2, 0], "R": [1, 0, 2]}
"""Which dimensions of (bands, y, x) a block of pixels or of rows of bands stores first."""
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """How the pixels of an image are stored; a block is `width` x `height` pixels."""

    bands: int
    rows: int
    columns: int
    mode: str
    down: int
    across: int
    height: int
    width: int
    bits: int
    kind: str
    dtype: np.dtype[Any]

    @property
    def separate(self) -> bool:
        """Whether every band has its own blocks."""
        return self.mode == "S" and self.bands > 1

    @property
    def planes(self) -> int:
        return self.bands if self.separate else 1

    @property
    def samples(self) -> int:
        """Bands in one block."""
        return 1 if self.separate else self.bands

    @property
    def whole(self) -> bool:
        """Whether samples are stored as a NumPy type."""
        return self.bits == self.dtype.itemsize * 8

    @property
    def band_bytes(self) -> int:
        """Bytes of one band of a block whose bands follow each other: each starts at a whole byte."""
        return -(-self.height * self.width * self.bits // 8)

    @property
    def ragged(self) -> bool:
        """Whether there are unused bits between the bands of a block."""
        return self.mode == "B" and self.bands > 1 and self.height * self.width * self.bits % 8 != 0

    @property
    def block_bytes(self) -> int:
        if self.mode == "B":
            return self.samples * self.band_bytes
        return -(-self.samples * self.height * self.width * self.bits // 8)

    @property
    def blocks(self) -> int:
        """Blocks that a mask lists."""
        return self.planes * self.down * self.across


def layout(head: ImageSubheader, limits: Limits) -> BlockLayout:
    """The layout a subheader declares, checked."""
    fields = head.fields
    rows, columns = fields["NROWS"], fields["NCOLS"]
    down, across, mode = fields["NBPC"], fields["NBPR"], fields["IMODE"]
    # Blocks too large for four digits are declared as 0, and are as large as the image.
    height = fields["NPPBV"] or (rows if down == 1 else 0)
    width = fields["NPPBH"] or (columns if across == 1 else 0)
    if not all((rows, columns, down, across, height, width, head.bands)):
        raise FormatError("the image, or a block of it, is empty")
    if mode not in ("B", "P", "R", "S"):
        raise FormatError(f"image mode {mode!r} is not supported")
    if down * height < rows or across * width < columns:
        raise FormatError(f"{across} x {down} blocks of {width} x {height} pixels do not cover {columns} x {rows}")
    bits, kind = fields["NBPP"], fields["PVTYPE"]
    found = BlockLayout(
        len(head.bands), rows, columns, mode, down, across, height, width, bits, kind, dtype_of(kind, bits)
    )
    limits.check("the number of blocks", found.blocks, limits.chunks)
    return found


def dtype_of(kind: str, bits: int) -> np.dtype[Any]:
    """The type of decoded values."""
    letter = {"INT": "u", "SI": "i", "B": "u", "R": "f", "C": "c"}.get(kind)
    exact = {"R": (32, 64), "C": (64,), "B": (1, 8)}.get(kind)
    if letter is None or not 0 < bits <= 64 or (exact and bits not in exact):
        raise FormatError(f"pixels of type {kind!r} with {bits} bits are not supported")
    size = next(n for n in (8, 16, 32, 64) if bits <= n) // 8
    return np.dtype(f"{letter}{size}")


def plan(image: BlockLayout) -> tuple[int, bool]:
    """Rows of a chunk, and whether each band is a chunk of its own.

    Chunks are whole blocks, or row bands of large ones. Bands with unused bits between them are always separate.
    """
    lone = image.down == image.across == 1
    if image.block_bytes <= (BAND_BYTES if lone else LARGE_BYTES):
        return image.height, image.ragged
    separate = image.mode in ("B", "S") and image.bands > 1
    row_bits = image.width * image.bits * (1 if image.mode in ("B", "S") else image.bands)
    if image.down == 1:
        rows = band_rows(image.rows, row_bits, most=image.height)
    else:
        rows = band_rows(image.height, row_bits, divide=True)
    return rows, separate and (rows < image.height or image.ragged)


def locate(
    image: BlockLayout, rows: int, separate: bool, *, start: int, end: int, mask: Offsets | None, limits: Limits
) -> Refs:
    """The byte range of every chunk of `rows` rows; `start` and `end` are those of the data after the mask."""
    size = image.block_bytes
    if mask is None and start + image.blocks * size > end:
        raise FormatError(f"{image.blocks} blocks of {size} bytes do not fit in the {end - start} bytes of the image")
    one_band = separate or image.separate
    planes = image.bands if one_band else 1
    down, across = -(-image.rows // rows), -(-image.columns // image.width)
    limits.check("the number of chunks", planes * down * across, limits.chunks)
    plane = np.arange(planes, dtype=np.int64)[:, None, None]
    number = np.arange(image.down, dtype=np.int64)[:, None] * image.across + np.arange(across, dtype=np.int64)
    number = plane * (image.down * image.across * image.separate) + number
    block = number * size if mask is None else mask[number]
    in_block = plane * (image.band_bytes if separate and not image.separate else 0)
    offset, length = cut_to_bands(
        start + block + in_block,
        image.height,
        rows,
        row_bits=image.width * image.bits * (1 if one_band else image.samples),
        height=image.rows,
        clipped=image.down == 1 and rows < image.height,
    )
    refs = Refs(chunk=chunk_positions(offset.shape), offset=offset.ravel(), length=length.ravel())
    if mask is None:
        return refs
    stored = block != ABSENT
    refs = refs.take(np.repeat(stored, -(-image.height // rows), axis=1)[:, :down].ravel())
    if len(refs) and int((refs.offset + refs.length).max()) > end:
        raise FormatError("the mask has a block that ends past the end of the image")
    if bool((np.diff(np.unique(block[stored])) < size).any()):
        # Some writers cut the blocks at the edge of an image; read as full blocks they would overlap.
        raise FormatError("the mask has blocks that overlap")
    return refs


Edges = tuple[tuple[int, ...] | None, ...]


def unpadded_blocks(image: BlockLayout, *, start: int, end: int, mask: Offsets | None) -> tuple[Refs, Edges] | None:
    """Blocks that end with the image, though the standard pads them, and the sizes of chunks.

    osml-imagery-io (0.2.2) writes them so. None unless such blocks fill the data exactly, which full blocks that extend
    beyond the image never do.
    """
    heights = np.minimum(image.height, image.rows - np.arange(image.down, dtype=np.int64) * image.height)
    widths = np.minimum(image.width, image.columns - np.arange(image.across, dtype=np.int64) * image.width)
    if mask is None or not image.whole or min(heights.min(), widths.min()) < 1:
        return None
    sizes = np.broadcast_to(heights[:, None] * widths, (image.planes, image.down, image.across)).ravel()
    sizes = sizes * image.samples * image.dtype.itemsize
    stored = mask != ABSENT
    order = np.argsort(mask[stored], kind="stable")
    offsets, lengths = mask[stored][order], sizes[stored][order]
    wanted = np.cumsum(lengths) - lengths
    if not len(offsets) or lengths.min() == image.block_bytes or not np.array_equal(offsets, wanted):
        return None
    if start + int(lengths.sum()) != end:
        return None
    grid = (image.planes, image.down, image.across)
    refs = Refs(chunk=chunk_positions(grid), offset=start + mask, length=sizes).take(stored)
    return refs, (None, tuple(heights.tolist()), tuple(widths.tolist()))


def encoding_of(image: BlockLayout, rows: int, separate: bool) -> Encoding:
    """Standard codecs where samples are whole bytes, always with a byte order; else the jbp-block codec."""
    bands = 1 if separate or image.separate else image.bands
    # The last band of a lone block ends with the image, and the codecs of Zarr itself support full chunks only.
    clipped = image.down == 1 and rows < image.height and image.rows % rows != 0
    if clipped or not image.whole:
        configuration = {
            "num_bands": bands,
            "block_height": rows,
            "block_width": image.width,
            "nbpp": image.bits,
            "imode": "B" if bands == 1 else image.mode,
            "pvtype": image.kind,
        }
        return Encoding(({"name": JBP_BLOCK, "configuration": configuration},), clipped=("y",) if clipped else ())
    codecs: list[Codec] = []
    if bands > 1 and image.mode in ORDERS:
        codecs.append({"name": "transpose", "configuration": {"order": ORDERS[image.mode]}})
    endian = {"configuration": {"endian": "big"}} if image.dtype.itemsize > 1 else {}
    return Encoding((*codecs, {"name": "bytes", **endian}))
