"""NITF 2.1, 2.0 and NSIF 1.0: every image segment, its blocks where they lie, masks, extensions and corners."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Array, Found, Need, Pipeline, Scalar, Shape, Source, Steps
from periplus.scan.blocks import Blocks
from periplus.scan.cursor import Cursor
from periplus.scan.j2karray import arrays
from periplus.scan.j2kparts import scan_codestream
from periplus.scan.nitfblocks import Layout, layout, locate, pipeline, plan
from periplus.scan.nitffields import MAGIC, PREFIX_BYTES, Header, Segment, Subheader, header, header_length, subheader
from periplus.scan.nitfgeo import georeference
from periplus.scan.nitfmask import Mask, held, pad_value, read_mask
from periplus.scan.nitfrsets import levels
from periplus.scan.nitfstreams import codestream, fax_pipeline, frame_size, jpeg_pipeline, stream_refs
from periplus.scan.nitfvq import CODEC as VQ
from periplus.scan.nitfvq import TRANSPARENT, covered, locations, vq_refs
from periplus.scan.tres import described

NAME = "nitf"
HEAD_BYTES = 16_384
"""The first request: holds the header and, most often, the first subheader."""
GAP_BYTES = 65_536
UNKNOWN = 9_999_999_999
"""The length of an image that was written before its end was known."""
Place = tuple[int, int]
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_CLOCK = r"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)"
TIME = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)" + _CLOCK, re.ASCII)
OLD_TIME = re.compile(rf"(?P<day>\d\d){_CLOCK}Z(?P<month>{'|'.join(MONTHS)})(?P<year>\d\d)", re.ASCII)


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is NITF or NSIF."""
    return bytes(head[:9]) in MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every image segment, levels of theirs in files beside this one, and what the file says of itself."""
    try:
        head, found, refusals = yield from _contents(source, limits)
        if found:
            more, refused = yield from levels(source, found, limits, _pictures)
            found += more
            refusals += refused
    except PeriplusError as error:
        raise error.at(url=source.url) from None
    if not found:
        raise FormatError(refusals[0] if refusals else "the file holds no image", url=source.url, offset=0)
    yield _about(head, refusals)
    yield from found


def _pictures(source: Source, limits: Limits) -> Generator[Need, Any, list[Found]]:
    """The arrays of another file."""
    _, found, refusals = yield from _contents(source, limits)
    if refusals or not found:
        raise FormatError(refusals[0] if refusals else "the file holds no image")
    return found


def _contents(source: Source, limits: Limits) -> Generator[Need, Any, tuple[Header, list[Found], list[str]]]:
    """The header, arrays of the segments we read, and why we do not read the others."""
    blocks = Blocks(source, limits)
    yield from blocks.hold("the header", 0, PREFIX_BYTES - 20, ahead=HEAD_BYTES - PREFIX_BYTES)
    version, length = header_length(_cursor(blocks, 0, min(PREFIX_BYTES, blocks.size or PREFIX_BYTES)))
    yield from blocks.hold("the header", 0, length)
    head = header(_cursor(blocks, 0, length), version)
    limits.check("the number of images", len(head.images), limits.images)
    found, refusals = yield from _images(blocks, head, version, limits)
    return head, found, refusals


def _images(
    blocks: Blocks, head: Header, version: str, limits: Limits
) -> Generator[Need, Any, tuple[list[Found], list[str]]]:
    """Arrays of the segments we read, and why we do not read the others."""
    yield from blocks.hold_all([("a subheader", s.start, s.head) for s in head.images], gap=GAP_BYTES)
    found: list[Found] = []
    refusals: list[str] = []
    for number, segment in enumerate(head.images):
        try:
            facts = subheader(_cursor(blocks, segment.start, segment.head), version, limits)
            coding = facts.fields["IC"]
            if coding not in CODINGS:
                refusals.append(f"image {number}: compression {coding} is not one we read")
                continue
            prefix = f"images/{number}/" if number else ""
            place = yield from _place(blocks, segment, lone=len(head.images) == 1)
            if coding == "I1" and (yield from _reduced(blocks, facts, place)):
                refusals.append(f"image {number}: compression I1 with fewer pixels stored than the image has")
                continue
            found += yield from CODINGS[coding](blocks, prefix, place, facts, limits)
        except PeriplusError as error:
            error.message = f"image {number}: {error.message}"
            raise error.at(offset=segment.start) from None
    return found, refusals


def _place(blocks: Blocks, segment: Segment, *, lone: bool) -> Generator[Need, Any, Place]:
    """Start and end of a segment's data, which must lie in the file."""
    start = segment.start + segment.head
    if segment.data == UNKNOWN and lone and blocks.size is not None:
        return start, blocks.size
    if segment.data < 1:
        raise FormatError("the image has no data")
    if blocks.size is None:
        yield from blocks.hold("the image", start + segment.data - 1, 1)
    blocks.check("the image", start, segment.data)
    return start, start + segment.data


def _mask(blocks: Blocks, place: Place, facts: Subheader, number: int) -> Generator[Need, Any, Mask]:
    if not facts.fields["IC"].startswith("M") and facts.fields["IC"] != "NM":
        return Mask()
    return (yield from read_mask(blocks, place[0], place[1] - place[0], number))


def _plain(
    blocks: Blocks, prefix: str, place: Place, facts: Subheader, limits: Limits
) -> Generator[Need, Any, list[Found]]:
    """NC and NM: pixels as they are."""
    image = layout(facts, limits)
    rows, apart = plan(image)
    mask = yield from _mask(blocks, place, facts, image.blocks)
    refs = locate(image, rows, apart, start=place[0] + mask.length, end=place[1], mask=mask.offsets, limits=limits)
    bands = 1 if apart or image.apart else image.bands
    array = _array(prefix, image, facts, (bands, rows, image.width), pipeline(image, rows, apart), mask, limits)
    return [Found(array, refs)]


def _streams(
    blocks: Blocks, prefix: str, place: Place, facts: Subheader, limits: Limits
) -> Generator[Need, Any, list[Found]]:
    """C3, M3, C5, M5 and I1: a JPEG stream a block; C1 and M1: fax in one block."""
    image = layout(facts, limits)
    coding = facts.fields["IC"]
    if coding in ("C1", "M1"):
        codecs = fax_pipeline(image, facts.fields["COMRAT"])
    else:
        codecs = jpeg_pipeline(image, facts.fields["IREP"], lossless=coding in ("C5", "M5"))
    mask = yield from _mask(blocks, place, facts, image.blocks)
    refs = yield from stream_refs(blocks, image, *place, mask, limits)
    array = _array(prefix, image, facts, (image.samples, image.height, image.width), codecs, mask, limits)
    return [Found(array, refs)]


def _reduced(blocks: Blocks, facts: Subheader, place: Place) -> Generator[Need, Any, bool]:
    """Whether a downsampled JPEG has fewer pixels than its image."""
    size = yield from frame_size(blocks, *place)
    return size != (facts.fields["NROWS"], facts.fields["NCOLS"])


def _jpeg2000(
    blocks: Blocks, prefix: str, place: Place, facts: Subheader, limits: Limits
) -> Generator[Need, Any, list[Found]]:
    """C8, M8, CD and MD: one codestream, a tile a block; its resolutions are levels."""
    image = layout(facts, limits)
    mask = yield from _mask(blocks, place, facts, image.blocks)
    offset, length = yield from codestream(blocks, place[0] + mask.length, place[1])
    stream, ranges = yield from scan_codestream(blocks, offset, length, limits)
    pad = pad_value(stream.dtype, min(image.bits, stream.dtype.itemsize * 8), mask.pad)
    made = arrays(
        stream,
        ranges,
        limits,
        prefix=prefix,
        fill=0 if pad is None else pad,
        attributes=_attributes(facts, pad),
        georeference=georeference(facts),
    )
    found = [Found(array, refs) for array, refs in made]
    shape = found[0].array.shape
    if shape != (image.bands, image.rows, image.columns):
        raise FormatError(
            f"the image is {image.bands} bands of {image.columns} x {image.rows}, its codestream {shape[0]} of"
            f" {shape[2]} x {shape[1]}"
        )
    return found


def _quantised(
    blocks: Blocks, prefix: str, place: Place, facts: Subheader, limits: Limits
) -> Generator[Need, Any, list[Found]]:
    """C4 and M4: codes of 4 x 4 pixels, and the code books they share."""
    image = layout(facts, limits)
    known = locations(facts.tres)
    mask = Mask()
    if known or facts.fields["IC"] == "M4":
        mask = yield from read_mask(blocks, place[0], place[1] - place[0], image.blocks, more=True)
    refs = yield from vq_refs(blocks, image, known, place, mask, place[0] + mask.used)
    if mask.pad is None and facts.bands[0].luts and len(facts.bands[0].luts[0]) == TRANSPARENT:
        mask = replace(mask, pad=bytes([TRANSPARENT]))
    array = _array(prefix, image, facts, (1, image.height, image.width), ({"name": VQ},), mask, limits)
    return [Found(replace(array, georeference=covered(blocks, known, image) or array.georeference), refs)]


def _array(
    prefix: str, image: Layout, facts: Subheader, chunks: Shape, codecs: Pipeline, mask: Mask, limits: Limits
) -> Array:
    limits.check("the bytes of a chunk", math.prod(chunks) * image.dtype.itemsize, limits.chunk_bytes)
    pad = pad_value(image.dtype, image.bits, mask.pad)
    return Array(
        name=f"{prefix}0/data",
        dims=("bands", "y", "x"),
        shape=(image.bands, image.rows, image.columns),
        chunks=chunks,
        dtype=image.dtype,
        fill=0 if pad is None else pad,
        encodings=(codecs,),
        attributes=_attributes(facts, pad),
        georeference=georeference(facts),
    )


CODINGS: dict[str, Callable[..., Generator[Need, Any, list[Found]]]] = {
    **dict.fromkeys(("NC", "NM"), _plain),
    **dict.fromkeys(("C1", "M1", "C3", "M3", "C5", "M5", "I1"), _streams),
    **dict.fromkeys(("C4", "M4"), _quantised),
    **dict.fromkeys(("C8", "M8", "CD", "MD"), _jpeg2000),
}
"""How each compression that we read is found; others are refused by name."""


def _attributes(facts: Subheader, pad: Scalar | None) -> dict[str, Any]:
    """The subheader's fields, extensions, names of bands and look-up tables."""
    found: dict[str, Any] = {"nitf": facts.fields}
    if facts.comments:
        found["comments"] = list(facts.comments)
    if facts.tres:
        found["tres"] = described(facts.tres)
    names = [band.fields["IREPBAND"] or band.fields["ISUBCAT"] for band in facts.bands]
    if any(names):
        found["band_names"] = names
    if any(band.fields["ISUBCAT"] for band in facts.bands):
        found["band_categories"] = [band.fields["ISUBCAT"] for band in facts.bands]
    luts = facts.bands[0].luts
    if len(facts.bands) == 1 and len(luts) in (1, 3):
        red, green, blue = luts if len(luts) == 3 else luts * 3
        found["colormap"] = [list(entry) for entry in zip(red, green, blue, strict=True)]
    if pad is not None and not isinstance(pad, complex):
        found["_FillValue"] = pad
    return found


def _about(head: Header, refusals: list[str]) -> About:
    attributes: dict[str, Any] = {"nitf": head.fields}
    if head.tres:
        attributes["tres"] = described(head.tres)
    if refusals:
        attributes["refused"] = refusals
    return About(datetime=_moment(head.fields["FDT"], head.fields["FVER"]), attributes=attributes)


def _moment(text: str, version: str) -> datetime | None:
    """CCYYMMDDhhmmss, or DDhhmmssZMONYY in NITF 2.0; None where it is neither."""
    found = (OLD_TIME if version == "02.00" else TIME).fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    month = MONTHS.index(parts["month"]) + 1 if parts["month"] in MONTHS else int(parts["month"])
    # Two digits of a year are of the century in which NITF 2.0 was written, or of the one after.
    year = int(parts["year"]) + (0 if len(parts["year"]) == 4 else 1900 if int(parts["year"]) >= 70 else 2000)
    day, hour, minute, second = (int(parts[name]) for name in ("day", "hour", "minute", "second"))
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _cursor(blocks: Blocks, offset: int, length: int) -> Cursor:
    return Cursor(held(blocks, offset, length), base=offset, url=blocks.url)
