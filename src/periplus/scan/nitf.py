"""NITF 2.1, 2.0 and NSIF 1.0: every image segment, its blocks where they lie, masks, extensions and corners."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Array, Found, Need, Scalar, Source, Steps
from periplus.scan.blocks import Blocks
from periplus.scan.cursor import Cursor
from periplus.scan.nitfblocks import Layout, Offsets, layout, locate, pipeline, plan
from periplus.scan.nitffields import MAGIC, PREFIX_BYTES, Header, Segment, Subheader, header, header_length, subheader
from periplus.scan.nitfgeo import georeference
from periplus.scan.tres import described

NAME = "nitf"
HEAD_BYTES = 16_384
"""The first request: holds the header and, most often, the first subheader."""
GAP_BYTES = 65_536
MASK_HEAD = 10
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_CLOCK = r"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)"
TIME = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)" + _CLOCK, re.ASCII)
OLD_TIME = re.compile(rf"(?P<day>\d\d){_CLOCK}Z(?P<month>{'|'.join(MONTHS)})(?P<year>\d\d)", re.ASCII)
PLAIN, MASKED = ("NC",), ("NM",)


@dataclass(frozen=True, slots=True)
class Mask:
    """The mask of an image: bytes it takes, offsets of the blocks after it, and the value of pad pixels."""

    length: int
    offsets: Offsets | None
    pad: bytes | None


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is NITF or NSIF."""
    return bytes(head[:9]) in MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every image segment, and what the file says of itself."""
    blocks = Blocks(source, limits)
    try:
        yield from blocks.hold("the header", 0, PREFIX_BYTES - 20, ahead=HEAD_BYTES - PREFIX_BYTES)
        version, length = header_length(_cursor(blocks, 0, min(PREFIX_BYTES, blocks.size or PREFIX_BYTES)))
        yield from blocks.hold("the header", 0, length)
        head = header(_cursor(blocks, 0, length), version)
        limits.check("the number of images", len(head.images), limits.images)
        found, refusals = yield from _images(blocks, head, version, limits)
    except PeriplusError as error:
        raise error.at(url=source.url) from None
    if not found:
        raise FormatError(refusals[0] if refusals else "the file holds no image", url=source.url, offset=0)
    yield _about(head, refusals)
    yield from found


def _images(
    blocks: Blocks, head: Header, version: str, limits: Limits
) -> Generator[Need, Any, tuple[list[Found], list[str]]]:
    """Arrays of the segments we read, and why we do not read the others; the first must be one we read."""
    yield from blocks.hold_all([("a subheader", s.start, s.head) for s in head.images], gap=GAP_BYTES)
    found: list[Found] = []
    refusals: list[str] = []
    for number, segment in enumerate(head.images):
        try:
            facts = subheader(_cursor(blocks, segment.start, segment.head), version, limits)
            coding = facts.fields["IC"]
            if coding not in PLAIN + MASKED:
                refusals.append(f"image {number}: compression {coding} is not one we read")
                continue
            name = "0/data" if number == 0 else f"images/{number}/0/data"
            found.append((yield from _image(blocks, name, segment, facts, limits)))
        except PeriplusError as error:
            error.message = f"image {number}: {error.message}"
            raise error.at(offset=segment.start) from None
    return found, refusals


def _image(
    blocks: Blocks, name: str, segment: Segment, facts: Subheader, limits: Limits
) -> Generator[Need, Any, Found]:
    image = layout(facts, limits)
    rows, apart = plan(image)
    start = segment.start + segment.head
    end = start + segment.data
    if segment.data < 1:
        raise FormatError("the image has no data")
    if blocks.size is None:
        yield from blocks.hold("the image", end - 1, 1)
    blocks.check("the image", start, segment.data)
    mask = Mask(0, None, None)
    if facts.fields["IC"] in MASKED:
        mask = yield from _mask(blocks, start, segment.data, image.blocks)
    bands = 1 if apart or image.apart else image.bands
    limits.check("the bytes of a chunk", bands * rows * image.width * image.dtype.itemsize, limits.chunk_bytes)
    refs = locate(image, rows, apart, start=start + mask.length, end=end, mask=mask.offsets, limits=limits)
    pad = _pad(image, mask.pad)
    array = Array(
        name=name,
        dims=("bands", "y", "x"),
        shape=(image.bands, image.rows, image.columns),
        chunks=(bands, rows, image.width),
        dtype=image.dtype,
        fill=0 if pad is None else pad,
        encodings=(pipeline(image, rows, apart),),
        attributes=_attributes(facts, pad),
        georeference=georeference(facts),
    )
    return Found(array, refs)


def _mask(blocks: Blocks, start: int, length: int, number: int) -> Generator[Need, Any, Mask]:
    """The mask in front of an image: where its blocks lie, in the order of the image."""
    yield from blocks.hold("the mask", start, MASK_HEAD)
    cursor = Cursor(_bytes(blocks, start, MASK_HEAD), order=">", base=start, url=blocks.url)
    size, block_record, pad_record, pad_bits = cursor.unpack("IHHH")
    if block_record not in (0, 4) or pad_record not in (0, 4):
        raise FormatError(f"the mask has records of {block_record} and {pad_record} bytes", offset=start)
    pad_bytes = -(-pad_bits // 8)
    table = number * block_record
    used = MASK_HEAD + pad_bytes + table + number * pad_record
    if not used <= size <= length:
        raise FormatError(f"the mask of {size} bytes does not hold its {used} bytes in {length}", offset=start)
    yield from blocks.hold("the mask", start, MASK_HEAD + pad_bytes + table)
    held = _bytes(blocks, start + MASK_HEAD, pad_bytes + table)
    offsets = np.frombuffer(held, ">u4", number, pad_bytes).astype(np.int64) if table else None
    return Mask(size, offsets, held[:pad_bytes] if pad_bits else None)


def _pad(image: Layout, stored: bytes | None) -> Scalar | None:
    """The value of pad pixels, which is also that of blocks that are not stored."""
    if stored is None:
        return None
    if image.dtype.kind in "fc":
        if len(stored) != image.dtype.itemsize:
            return None
        value = np.frombuffer(stored, image.dtype.newbyteorder(">"))[0].item()
        return value if isinstance(value, float | complex) else None
    number = int.from_bytes(stored, "big") & ((1 << image.bits) - 1)
    if image.dtype.kind == "i" and number >> (image.bits - 1):
        number -= 1 << image.bits
    return number


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
    return Cursor(_bytes(blocks, offset, length), base=offset, url=blocks.url)


def _bytes(blocks: Blocks, offset: int, length: int) -> bytes:
    place = blocks.locate(offset, length)
    if place is None:
        raise FormatError("a header ends past the end of the file", offset=offset)
    return place[0][place[1] : place[1] + length]
