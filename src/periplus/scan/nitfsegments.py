"""Segments of NITF without an image: graphics, labels, texts and extensions, listed; one may hold the header anew."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from periplus.errors import FormatError
from periplus.model import Need
from periplus.scan.blocks import Blocks
from periplus.scan.cursor import Cursor
from periplus.scan.nitffields import Header, Segment, Table, classified, texts
from periplus.scan.nitfmask import held

HEAD_BYTES = 360
"""Enough of a subheader for what is told of it."""
GAP_BYTES = 262_144
"""Between two subheaders that are asked for at once: less than another request would cost."""
MOST_ASKED = 2
"""Requests for subheaders; segments beyond are listed by their size alone."""
UNKNOWN = b"9" * 12
"""The length of a file that is not known when its header is written."""
MARKS = (bytes.fromhex("0a6e1d97"), bytes.fromhex("0eca14bf"))
"""What stands before and after a header at the end of a file, each with the length of the header."""
MARK_BYTES = 11
_TAGGED: tuple[Table, Table] = ((("type", 25), ("version", 2)), ())
_DRAWN: tuple[Table, Table] = ((("id", 10), ("name", 20)), (("", 1), ("type", 1)))
SHAPES: dict[tuple[str, str], tuple[bytes, tuple[Table, Table]]] = {
    ("2.1", "graphic"): (b"SY", _DRAWN),
    ("2.0", "graphic"): (b"SY", _DRAWN),
    ("2.0", "label"): (b"LA", ((("id", 10),), ())),
    ("2.1", "text"): (b"TE", ((("id", 7), ("", 17), ("name", 80)), (("", 1), ("type", 3)))),
    ("2.0", "text"): (b"TE", ((("id", 10), ("", 14), ("name", 80)), (("", 1), ("type", 3)))),
    **{(version, "data extension"): (b"DE", _TAGGED) for version in ("2.1", "2.0")},
    **{(version, "reserved extension"): (b"RE", _TAGGED) for version in ("2.1", "2.0")},
}
"""How a subheader begins, and its fields before and after those of security; those without a name are not told."""


def final_header(blocks: Blocks, first: bytes) -> Generator[Need, Any, bytes]:
    """The header of a file that was written before its length was known: the last extension has it anew, if any."""
    length = len(first)
    last = (blocks.size or 0) - MARK_BYTES
    start = last - length
    told = f"{length:07}".encode()
    # The length of the file stands before that of the header.
    if first.find(UNKNOWN + told[1:]) < 0 or start - MARK_BYTES < length:
        return first
    yield from blocks.hold("the header at the end", last, MARK_BYTES, sparse=True)
    if held(blocks, last, MARK_BYTES) != MARKS[1] + told:
        return first
    yield from blocks.hold("the header at the end", start - MARK_BYTES, length + MARK_BYTES, sparse=True)
    found = held(blocks, start - MARK_BYTES, length + MARK_BYTES)
    whole = found.startswith(told + MARKS[0] + first[:9])
    return found[MARK_BYTES:] if whole else first


def segments(blocks: Blocks, head: Header) -> Generator[Need, Any, list[dict[str, Any]]]:
    """What every segment without an image is, where its data lie, and how many bytes they have."""
    inside, asked, reach = [], 0, -GAP_BYTES - 1
    for _, segment in head.others:
        stop = segment.start + min(segment.head, HEAD_BYTES)
        asked += segment.start > reach + GAP_BYTES
        if asked > MOST_ASKED or blocks.size is None or stop > blocks.size:
            break
        inside.append(("a subheader", segment.start, stop - segment.start))
        reach = stop
    yield from blocks.hold_all(inside, gap=GAP_BYTES)
    return [_described(blocks, kind, segment, head.version) for kind, segment in head.others]


def _described(blocks: Blocks, kind: str, segment: Segment, version: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind, "offset": segment.start + segment.head, "length": segment.data}
    length = min(segment.head, HEAD_BYTES)
    shape = SHAPES.get((version, kind))
    if shape is None or blocks.locate(segment.start, length) is None:
        return found
    magic, (before, after) = shape
    cursor = Cursor(held(blocks, segment.start, length), base=segment.start, url=blocks.url)
    try:
        if cursor.take(2) != magic:
            return found
        fields = texts(cursor, before)
        fields["classification"] = classified(cursor, version)
        fields |= texts(cursor, after)
    except FormatError:
        # A subheader that is cut off is nobody's business but its own; the images are not less for it.
        return found
    return {**{name: text for name, text in fields.items() if text}, **found}
