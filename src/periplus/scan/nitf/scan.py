"""NITF 2.1, 2.0 and NSIF 1.0: the arrays of every image segment and its R-sets, and metadata of the file."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Found, Source, Step, Steps
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor
from periplus.scan.nitf.fields import (
    MAGIC,
    PREFIX_BYTES,
    NitfHeader,
    NitfSegment,
    header,
    header_length,
    overflow,
    subheader,
)
from periplus.scan.nitf.images import CODINGS, DataRange
from periplus.scan.nitf.rsets import levels
from periplus.scan.nitf.segments import final_header, segments
from periplus.scan.nitf.tres import Tre, described, listed

NAME = "nitf"
HEAD_BYTES = 16_384
"""The first request: holds the header and, most often, the first subheader."""
GAP_BYTES = 65_536
LISTED = frozenset({"NM", "C4", "M4"})
"""Compressions whose blocks are found one by one, each of a known length."""
UNKNOWN = 9_999_999_999
"""The length of an image that was written before its end was known."""
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_CLOCK = r"(?P<hour>\d\d|--)(?P<minute>\d\d|--)(?P<second>\d\d|--)"
"""Hyphens replace unknown digits."""
TIME = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)" + _CLOCK, re.ASCII)
OLD_TIME = re.compile(rf"(?P<day>\d\d){_CLOCK}Z(?P<month>{'|'.join(MONTHS)})(?P<year>\d\d)", re.ASCII)


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a NITF or NSIF file."""
    return bytes(head[:9]) in MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every image segment, their levels in R-sets, and metadata of the file."""
    file = FileBuffer(source, limits)
    head, found, refusals = yield from _contents(file, limits)
    others = yield from segments(file, head)
    more, refused = yield from levels(source, found, limits, _images_of)
    yield _about(head, found + more, others, refusals + refused)
    yield from found + more


def _images_of(source: Source, limits: Limits) -> Generator[Step, Any, list[Found]]:
    """The arrays of another file."""
    _, found, refusals = yield from _contents(FileBuffer(source, limits), limits)
    if refusals or not found:
        raise FormatError(refusals[0] if refusals else "the file holds no image")
    return found


def _contents(file: FileBuffer, limits: Limits) -> Generator[Step, Any, tuple[NitfHeader, list[Found], list[str]]]:
    """The header, arrays of the supported segments, and why the others are not supported."""
    yield from file.require("the header", 0, PREFIX_BYTES - 20, ahead=HEAD_BYTES - PREFIX_BYTES)
    version, length = header_length(_cursor(file, 0, min(PREFIX_BYTES, file.size or PREFIX_BYTES)))
    first = yield from file.read("the header", 0, length)
    bare = yield from final_header(file, first)
    head = header(Cursor(bare), version)
    limits.check("the number of images", len(head.images), limits.images)
    more = yield from _overflowed(file, head, version, head.overflows)
    head = replace(head, tres=(*head.tres, *more)) if more else head
    found, refusals = yield from _images(file, head, version, limits)
    return head, found, refusals


def _overflowed(
    file: FileBuffer, head: NitfHeader, version: str, numbers: Sequence[int]
) -> Generator[Step, Any, tuple[Tre, ...]]:
    """Extensions that did not fit into the header they belong to; other segments have none."""
    found: list[Tre] = []
    for number in numbers:
        if number > len(head.extensions):
            continue
        segment = head.extensions[number - 1]
        yield from file.require("an extension", segment.start, segment.head + segment.data)
        file.count_parsed("an extension", segment.start, segment.head + segment.data)
        if overflow(_cursor(file, segment.start, segment.head), version):
            found += listed(file.take(segment.start + segment.head, segment.data))
    return tuple(found)


def _images(
    file: FileBuffer, head: NitfHeader, version: str, limits: Limits
) -> Generator[Step, Any, tuple[list[Found], list[str]]]:
    """Arrays of the supported segments, and why the others are not supported."""
    yield from file.require_all([("a subheader", s.start, s.head) for s in head.images], gap=GAP_BYTES)
    found: list[Found] = []
    refused: list[PeriplusError] = []
    for number, segment in enumerate(head.images):
        try:
            facts = subheader(_cursor(file, segment.start, segment.head), version, limits)
            more = yield from _overflowed(file, head, version, facts.overflows)
            facts = replace(facts, tres=(*facts.tres, *more), file_tres=head.tres)
            coding = facts.fields["IC"]
            if coding not in CODINGS:
                why = f"image {number}: compression {coding} is not supported"
                refused.append(FormatError(why, offset=segment.start))
                continue
            prefix = f"images/{number}/" if number else ""
            lone, listed_blocks = len(head.images) == 1, coding in LISTED
            place = yield from _place(file, segment, lone=lone, listed_blocks=listed_blocks)
            try:
                found += yield from CODINGS[coding](file, prefix, place, facts, limits)
            except (FormatError, LimitError) as error:
                # Other images can be read without this one.
                error.message = f"image {number}: {error.message}"
                refused.append(error.at(offset=segment.start))
        except PeriplusError as error:
            error.message = f"image {number}: {error.message}"
            raise error.at(offset=segment.start) from None
    if refused and not found:
        raise refused[0]
    return found, [error.message for error in refused]


def _place(
    file: FileBuffer, segment: NitfSegment, *, lone: bool, listed_blocks: bool
) -> Generator[Step, Any, DataRange]:
    """Start and end of a segment's data, which must be inside the file.

    If a mask lists the stored blocks the data may be cut off, because every block is checked.
    """
    start = segment.start + segment.head
    if listed_blocks and file.size is not None and start < file.size < start + segment.data:
        return start, file.size
    if segment.data == UNKNOWN and lone and file.size is not None:
        return start, file.size
    if segment.data < 1:
        raise FormatError("the image has no data")
    if file.size is None:
        yield from file.require("the image", start + segment.data - 1, 1)
    file.check("the image", start, segment.data)
    return start, start + segment.data


def _about(head: NitfHeader, found: Sequence[Found], others: list[dict[str, Any]], refusals: list[str]) -> About:
    attributes: dict[str, Any] = {"nitf": head.fields}
    if others:
        attributes["segments"] = others
    if head.tres:
        attributes["tres"] = described(head.tres)
    if refusals:
        attributes["refused"] = refusals
    # When the first dated image was taken; the date of the file is only when it was written.
    fields = (one.array.attributes["nitf"] for one in found if "nitf" in one.array.attributes)
    dates = [*(each["IDATIM"] for each in fields), head.fields["FDT"]]
    moments = (_moment(text, head.fields["FVER"]) for text in dates)
    return About(datetime=next(filter(None, moments), None), attributes=attributes)


def _moment(text: str, version: str) -> datetime | None:
    """CCYYMMDDhhmmss, or DDhhmmssZMONYY in NITF 2.0, with 0 for an hour that is not known; None where it is neither."""
    found = (OLD_TIME if version == "02.00" else TIME).fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    month = MONTHS.index(parts["month"]) + 1 if parts["month"] in MONTHS else int(parts["month"])
    # Two digits of a year are of the century in which NITF 2.0 was written, or of the one after.
    year = int(parts["year"]) + (0 if len(parts["year"]) == 4 else 1900 if int(parts["year"]) >= 70 else 2000)
    names = ("day", "hour", "minute", "second")
    day, hour, minute, second = (int(parts[name].replace("--", "0")) for name in names)
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _cursor(file: FileBuffer, offset: int, length: int) -> Cursor:
    return Cursor(file.take(offset, length), base=offset)
