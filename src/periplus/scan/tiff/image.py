"""The size, type and layout of the image that one TIFF directory declares, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.scan.tiff import tags as tag
from periplus.scan.tiff.entries import DirectoryForm, Values
from periplus.scan.tiff.tags import Fields

NONE, OLD_JPEG, JPEG = 1, 6, 7
PREDICTED = frozenset({5, 8, 32946, 34925, 34926, 50000})
"""Compressions that libtiff runs a predictor for; elsewhere the tag is ignored."""
OWN_COLOURS = frozenset({
    2, 3, 4, 32766, 32809, 33003, 33004, 33005, 34676, 34712, 34887, 34927, 34933, 50001, 50002, 52546
})  # fmt: skip
"""Compressions of whole images, other than JPEG, whose decoders ignore the photometric tag."""
YCBCR, MASK_PHOTOMETRIC = 6, 4
REDUCED_BIT, MASK_BIT = 1, 4


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TiffImage:
    """What a directory declares. Compared by identity: equal fields give the same object, from the cache."""

    width: int
    height: int
    samples: int
    bits: int
    sample_format: int
    dtype: np.dtype[Any]
    compression: int
    photometric: int | None
    planar: bool
    """Whether bands are stored separately."""
    tiled: bool
    chunk_width: int
    chunk_height: int
    """Of tiles, or the rows of a strip, as declared but never above the image's height."""
    predictor: int
    fill_order: int
    subsampling: tuple[int, int]
    reduced: bool
    mask: bool
    stream: tuple[int, int]
    """Offset and length of the JPEG stream of an old-style JPEG image; 0 if not declared."""
    refusal: str | None
    """Why values of this kind are refused; the rest of the file may be fine."""
    form: DirectoryForm
    fields: Fields
    """The fields that decide how pixels are stored."""

    stored: int
    """Samples in one chunk."""
    grid: tuple[int, int, int]
    """Chunks along bands, y and x, as declared."""
    row_bytes: int
    """Bytes of one row of a chunk, uncompressed; rows start at whole bytes."""
    plain: bool
    """Whether values are stored uncompressed, row after row."""

    @property
    def becomes_rgb(self) -> bool:
        """Whether values are RGB that the file stores as YCbCr."""
        if self.compression == OLD_JPEG:
            return self.samples == 3
        return self.photometric == YCBCR and not self.planar and self.compression not in OWN_COLOURS

    def chunk_bytes(self, rows: int) -> int:
        """Bytes of one decoded chunk of that many rows."""
        return self.stored * rows * self.chunk_width * self.dtype.itemsize


@lru_cache(maxsize=2048)
def image(form: DirectoryForm, structure: Values) -> TiffImage | None:
    """The facts of a directory, or None where it describes no image (Exif data, for example)."""
    values = form.fields(structure)
    width, height = values.number(tag.WIDTH, 0), values.number(tag.HEIGHT, 0)
    if tag.WIDTH not in values and tag.HEIGHT not in values:
        if tag.BITS in values and tag.PHOTOMETRIC in values:
            raise FormatError("the image has no width and no height")
        return None
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        raise FormatError(f"the image is {width} x {height}")
    compression = values.number(tag.COMPRESSION, 1)
    photometric = values.number(tag.PHOTOMETRIC, YCBCR if compression == OLD_JPEG else -1)
    # Old-style JPEG writers omit what the stream declares; libtiff uses the same defaults.
    samples = values.number(tag.SAMPLES, 3 if compression == OLD_JPEG and photometric in (2, YCBCR) else 1)
    if not 0 < samples < 1 << 16:
        raise FormatError(f"the image has {samples} samples per pixel")
    planar = _planar(values, samples)
    tiled = tag.TILE_WIDTH in values or tag.TILE_HEIGHT in values
    chunk = _tile(values) if tiled else (_rows(values, height), width)
    kind = values.number(tag.NEW_SUBFILE_TYPE, {2: 1}.get(values.number(tag.SUBFILE_TYPE, 0), 0))
    bits, sample_format, dtype, refusal = _type(values, samples, compression)
    subsampling = _subsampling(values) if photometric == YCBCR and not planar and compression != JPEG else (1, 1)
    if photometric == YCBCR and planar and tag.YCBCR_SUBSAMPLING in values and _subsampling(values) != (1, 1):
        refusal = "the colour planes of a planar YCbCr image are smaller than the image"
    stored = 1 if planar else samples
    return TiffImage(
        width=width,
        height=height,
        samples=samples,
        bits=bits,
        sample_format=sample_format,
        dtype=dtype,
        compression=compression,
        photometric=None if photometric < 0 else photometric,
        planar=planar,
        tiled=tiled,
        chunk_width=chunk[1],
        chunk_height=chunk[0],
        predictor=values.number(tag.PREDICTOR, 1) if compression in PREDICTED else 1,
        fill_order=values.number(tag.FILL_ORDER, 1),
        subsampling=subsampling,
        reduced=bool(kind & REDUCED_BIT),
        mask=bool(kind & MASK_BIT) or photometric == MASK_PHOTOMETRIC,
        stream=(values.number(tag.JPEG_STREAM, 0), values.number(tag.JPEG_STREAM_LENGTH, 0)),
        refusal=refusal,
        form=form,
        fields=values,
        stored=stored,
        grid=(samples if planar else 1, -(-height // chunk[0]), -(-width // chunk[1])),
        row_bytes=-(-chunk[1] * bits * stored // 8),
        plain=compression == NONE and subsampling == (1, 1),
    )


def _planar(values: Fields, samples: int) -> bool:
    planar = values.number(tag.PLANAR, 1)
    if planar not in (1, 2):
        raise FormatError(f"planar configuration {planar} does not exist")
    return planar == 2 and samples > 1


def _tile(values: Fields) -> tuple[int, int]:
    height, width = values.number(tag.TILE_HEIGHT, 0), values.number(tag.TILE_WIDTH, 0)
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        raise FormatError(f"tiles are {width} x {height}")
    return height, width


def _rows(values: Fields, height: int) -> int:
    """Rows of a strip; absent, zero or huge means one strip for the whole image, as libtiff has it."""
    rows = values.number(tag.ROWS_PER_STRIP, 0)
    return rows if 0 < rows < height else height


def _subsampling(values: Fields) -> tuple[int, int]:
    numbers = values.numbers(tag.YCBCR_SUBSAMPLING) or (2, 2)
    if len(numbers) < 2 or not all(n in (1, 2, 4) for n in numbers[:2]):
        raise FormatError(f"chroma subsampling {numbers} does not exist")
    return int(numbers[0]), int(numbers[1])


def _type(values: Fields, samples: int, compression: int) -> tuple[int, int, np.dtype[Any], str | None]:
    """(bits, sample format, type of decoded values, why it is refused)."""
    byte = np.dtype("u1")
    try:
        bits = values.same(tag.BITS, 1, samples)
        form = values.same(tag.SAMPLE_FORMAT, 1, samples)
    except FormatError as error:
        return 8, 1, byte, error.message
    if tag.BITS not in values and compression in (OLD_JPEG, JPEG):
        bits = 8  # JPEG streams of fewer bits do not exist; Exif thumbnails leave the tag out.
    if not 0 < bits <= 128:
        raise FormatError(f"samples have {bits} bits")
    form = 1 if form in (0, 4) else form
    name = _dtype(bits, form)
    if name is None:
        return bits, form, byte, f"samples of {bits} bits in sample format {form} have no NumPy type"
    return bits, form, np.dtype(name), None


def _dtype(bits: int, form: int) -> str | None:
    """NumPy's type for a TIFF sample: the next larger one for other bit depths, complex floats for complex integers."""
    if form in (1, 2):
        size = max(1, 2 ** math.ceil(math.log2(bits / 8)))
        return f"{'ui'[form - 1]}{size}" if bits <= 64 else None
    if form == 3:
        return {16: "f2", 24: "f4", 32: "f4", 64: "f8"}.get(bits)
    if form == 5:
        return {16: "c8", 32: "c8", 64: "c16"}.get(bits)
    return {32: "c8", 64: "c8", 128: "c16"}.get(bits) if form == 6 else None
