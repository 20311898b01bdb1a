"""The arrays of NITF image segments and their byte ranges, by compression."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Found, Refs, Scalar, Shape, Step
from periplus.model.codecnames import VECTOR_QUANTISED
from periplus.scan.buffer import FileBuffer
from periplus.scan.georeference.geotiff import reduced
from periplus.scan.jpeg2000.arrays import arrays
from periplus.scan.jpeg2000.tile_parts import scan_codestream
from periplus.scan.nitf.blocks import BlockLayout, encoding_of, layout, locate, plan, unpadded_blocks
from periplus.scan.nitf.fax import fax_pipeline, fax_starts
from periplus.scan.nitf.fields import ImageSubheader
from periplus.scan.nitf.georeference import georeference, unread
from periplus.scan.nitf.mask import ABSENT, BlockMask, pad_value, read_mask, read_tables
from periplus.scan.nitf.streams import (
    codestream_pipeline,
    cut_stream,
    find_codestream,
    frame_size,
    has_separate_codestreams,
    jpeg_pipeline,
    shared_tables,
    stream_refs,
)
from periplus.scan.nitf.tres import described
from periplus.scan.nitf.vq import MASKED, TRANSPARENT, covered, locations, outside, vq_refs

DataRange = tuple[int, int]
"""Start and end of an image's data in the file."""


def _mask(file: FileBuffer, place: DataRange, facts: ImageSubheader, number: int) -> Generator[Step, Any, BlockMask]:
    if not facts.fields["IC"].startswith("M") and facts.fields["IC"] != "NM":
        return BlockMask()
    return (yield from read_mask(file, place[0], place[1] - place[0], number))


def _plain(
    file: FileBuffer, prefix: str, place: DataRange, facts: ImageSubheader, limits: Limits
) -> Generator[Step, Any, list[Found]]:
    """NC and NM: uncompressed pixels."""
    image = layout(facts, limits)
    mask = yield from _mask(file, place, facts, image.blocks)
    if (found := unpadded_blocks(image, start=place[0] + mask.length, end=place[1], mask=mask.offsets)) is not None:
        refs, edges = found
        chunks, encoding = (image.samples, image.height, image.width), encoding_of(image, image.height, False)
        return [Found(replace(_array(prefix, image, facts, chunks, encoding, mask, limits), edges=edges), refs)]
    rows, separate = plan(image)
    refs = locate(image, rows, separate, start=place[0] + mask.length, end=place[1], mask=mask.offsets, limits=limits)
    bands = 1 if separate or image.separate else image.bands
    array = _array(prefix, image, facts, (bands, rows, image.width), encoding_of(image, rows, separate), mask, limits)
    return [Found(array, refs)]


def _streams(
    file: FileBuffer, prefix: str, place: DataRange, facts: ImageSubheader, limits: Limits
) -> Generator[Step, Any, list[Found]]:
    """C3, M3, C5 and M5: a JPEG stream a block; C1 and M1: fax."""
    image = layout(facts, limits)
    coding, rate = facts.fields["IC"], facts.fields["COMRAT"]
    mask = yield from _mask(file, place, facts, image.blocks)
    rows = image.height
    if coding in ("C1", "M1"):
        encoding = Encoding(fax_pipeline(image, rate))
        refs = yield from stream_refs(image, *place, mask, limits, find_starts=fax_starts(rate))
    else:
        refs = yield from stream_refs(image, *place, mask, limits)
        tables = None
        if len(refs) and coding in ("C3", "M3"):
            first, sizes = int(refs.offset[0]), {"bands": image.samples, "bits": image.bits}
            tables = yield from shared_tables(file, first, place[1], rate, **sizes)
        codecs = jpeg_pipeline(image, facts.fields["IREP"], lossless=coding in ("C5", "M5"), tables=tables)
        rows, encoding, refs = yield from cut_stream(file, image, codecs, refs, limits)
    array = _array(prefix, image, facts, (image.samples, rows, image.width), encoding, mask, limits)
    return [Found(array, refs)]


def _downsampled(
    file: FileBuffer, prefix: str, place: DataRange, facts: ImageSubheader, limits: Limits
) -> Generator[Step, Any, list[Found]]:
    """I1: one JPEG stream of fewer pixels than the image; the array has the stored pixels."""
    whole = layout(facts, limits)
    if whole.blocks != 1:
        raise FormatError("a downsampled JPEG image of several blocks does not exist")
    rows, columns = yield from frame_size(file, *place)
    if not (0 < rows <= whole.rows and 0 < columns <= whole.columns):
        raise FormatError(f"the stream has {columns} x {rows} pixels, and the image {whole.columns} x {whole.rows}")
    image = replace(whole, rows=rows, columns=columns, height=rows, width=columns)
    codecs = jpeg_pipeline(image, facts.fields["IREP"], lossless=False)
    refs = yield from stream_refs(image, *place, BlockMask(), limits)
    band, encoding, refs = yield from cut_stream(file, image, codecs, refs, limits)
    array = _array(prefix, image, facts, (image.bands, band, columns), encoding, BlockMask(), limits)
    where = reduced(array.georeference, whole.columns / columns, whole.rows / rows)
    attributes = {**array.attributes, "downsampled_from": [whole.rows, whole.columns]}
    return [Found(replace(array, georeference=where, attributes=attributes), refs)]


def _jpeg2000(
    file: FileBuffer, prefix: str, place: DataRange, facts: ImageSubheader, limits: Limits
) -> Generator[Step, Any, list[Found]]:
    """C8, M8, CD and MD: one codestream, a tile a block; its resolutions are levels."""
    image = layout(facts, limits)
    mask = yield from _mask(file, place, facts, image.blocks)
    if (yield from has_separate_codestreams(file, image, *place, mask)):
        refs = yield from stream_refs(image, *place, mask, limits)
        encoding, chunks = Encoding(codestream_pipeline(image)), (image.samples, image.height, image.width)
        return [Found(_array(prefix, image, facts, chunks, encoding, mask, limits), refs)]
    offset, length = yield from find_codestream(file, place[0] + mask.length, place[1])
    absent = [] if mask.offsets is None else np.flatnonzero(mask.offsets == ABSENT).tolist()
    stream, ranges = yield from scan_codestream(file, offset, length, limits, absent=absent)
    if absent and (stream.y.tiles, stream.x.tiles) != (image.down, image.across):
        raise FormatError("the blocks of the mask are not the tiles of the codestream")
    pad = pad_value(stream.size.dtype, min(image.bits, stream.size.dtype.itemsize * 8), mask.pad)
    made = arrays(
        stream,
        ranges,
        limits,
        prefix=prefix,
        fill=0 if pad is None else pad,
        attributes=_attributes(facts, pad, rgb=stream.size.chroma),
        georeference=georeference(facts),
    )
    found = [Found(array, _stored(refs, image, array, absent)) for array, refs in made]
    shape = found[0].array.shape
    if shape != (image.bands, image.rows, image.columns):
        raise FormatError(
            f"the image is {image.bands} bands of {image.columns} x {image.rows}, its codestream {shape[0]} of"
            f" {shape[2]} x {shape[1]}"
        )
    return found


def _stored(refs: Refs, image: BlockLayout, array: Array, absent: Sequence[int]) -> Refs:
    """References without the tiles that a mask declares absent; the codestream may hold them, empty."""
    if not absent or array.grid[-2:] != (image.down, image.across):
        return refs
    number = refs.chunk[-2].astype(np.int64) * image.across + refs.chunk[-1]
    return refs.take(~np.isin(number, absent))


def _quantised(
    file: FileBuffer, prefix: str, place: DataRange, facts: ImageSubheader, limits: Limits
) -> Generator[Step, Any, list[Found]]:
    """C4 and M4: codes of 4 x 4 pixels, and the code books they share."""
    image = layout(facts, limits)
    known = locations(facts.tres)
    mask = BlockMask()
    if MASKED in known:
        mask = yield from read_tables(file, known[MASKED][0], image.blocks, sparing=True)
    elif facts.fields["IC"] == "M4":
        mask = yield from read_mask(file, place[0], place[1] - place[0], image.blocks, more=True)
    refs = yield from vq_refs(file, image, known, place, mask, place[0] + mask.used)
    if mask.pad is None and facts.bands[0].luts and len(facts.bands[0].luts[0]) == TRANSPARENT:
        mask = replace(mask, pad=bytes([TRANSPARENT]))
    encoding = Encoding(({"name": VECTOR_QUANTISED},))
    array = _array(prefix, image, facts, (1, image.height, image.width), encoding, mask, limits)
    where = yield from covered(file, known, image)
    if outside(file, known):
        attributes = {**array.attributes, "grid_unread": "the coverage section of the frame is outside the file"}
        array = replace(array, attributes=attributes)
    return [Found(replace(array, georeference=where or array.georeference), refs)]


def _array(
    prefix: str,
    image: BlockLayout,
    facts: ImageSubheader,
    chunks: Shape,
    encoding: Encoding,
    mask: BlockMask,
    limits: Limits,
) -> Array:
    limits.check("the bytes of a chunk", math.prod(chunks) * image.dtype.itemsize, limits.chunk_bytes)
    lossy = facts.fields["IC"] in ("C3", "M3", "I1") and image.samples == 3
    pad = pad_value(image.dtype, image.bits, mask.pad)
    return Array(
        name=f"{prefix}0/data",
        dims=("bands", "y", "x"),
        shape=(image.bands, image.rows, image.columns),
        chunks=chunks,
        dtype=image.dtype,
        fill=0 if pad is None else pad,
        encodings=(encoding,),
        attributes=_attributes(facts, pad, rgb=lossy),
        georeference=georeference(facts),
    )


CODINGS: dict[str, Callable[..., Generator[Step, Any, list[Found]]]] = {
    **dict.fromkeys(("NC", "NM"), _plain),
    **dict.fromkeys(("C1", "M1", "C3", "M3", "C5", "M5"), _streams),
    "I1": _downsampled,
    **dict.fromkeys(("C4", "M4"), _quantised),
    **dict.fromkeys(("C8", "M8", "CD", "MD"), _jpeg2000),
}
"""The function for each supported compression; others are refused by name."""


def _look_up(facts: ImageSubheader) -> dict[str, Any]:
    """Look-up tables: colours of a single band, grey levels of two bytes, or a table for each of several bands."""
    luts = facts.bands[0].luts
    if len(facts.bands) > 1:
        tables = [[list(lut) for lut in band.luts] for band in facts.bands]
        return {"luts": tables} if any(tables) else {}
    if len(luts) == 2:
        return {"lut": [high << 8 | low for high, low in zip(*luts, strict=True)]}
    if len(luts) in (1, 3):
        red, green, blue = luts if len(luts) == 3 else luts * 3
        return {"colormap": [list(entry) for entry in zip(red, green, blue, strict=True)]}
    return {}


def _attributes(facts: ImageSubheader, pad: Scalar | None, *, rgb: bool) -> dict[str, Any]:
    """The subheader's fields, extensions, names of bands and look-up tables.

    With `rgb`, decoders convert YCbCr to RGB, and bands are named so.
    """
    found: dict[str, Any] = {"nitf": facts.fields}
    if facts.comments:
        found["comments"] = list(facts.comments)
    if facts.tres:
        found["tres"] = described(facts.tres)
    if why := unread(facts):
        found["grid_unread"] = why
    names = [band.fields["IREPBAND"] or band.fields["ISUBCAT"] for band in facts.bands]
    if rgb and len(names) == 3 and (facts.fields["IREP"] == "YCbCr601" or names == ["Y", "Cb", "Cr"]):
        names = ["R", "G", "B"]
    if any(names):
        found["band_names"] = names
    if any(band.fields["ISUBCAT"] for band in facts.bands):
        found["band_categories"] = [band.fields["ISUBCAT"] for band in facts.bands]
    found |= _look_up(facts)
    if pad is not None and not isinstance(pad, complex):
        found["_FillValue"] = pad
    return found
