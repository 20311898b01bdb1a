"""NITF segments without an image: a list of graphics, labels, texts and extensions; and a final header."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from periplus.errors import FormatError
from periplus.model import Step
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor
from periplus.scan.nitf.fields import OVERFLOWS, NitfHeader, NitfSegment, Table, security, texts

HEAD_BYTES = 360
"""Enough of a subheader for the fields that are reported."""
GAP_BYTES = 262_144
"""Between two subheaders that are asked for at once: less than another request would cost."""
MOST_REQUESTS = 2
"""Most requests for subheaders; further segments are listed by their size alone."""
UNKNOWN = b"9" * 12
"""The length of a file that is not known when its header is written."""
MARKS = (bytes.fromhex("0a6e1d97"), bytes.fromhex("0eca14bf"))
"""The marks before and after a header at the end of a file, each with the length of the header."""
MARK_BYTES = 11
Shape = tuple[bytes, Table, tuple[str, str], Table]
_OVERFLOW: Table = (("DESOFLW", 6), ("DESITEM", 3))
SHAPES: dict[tuple[str, str], Shape] = {
    ("2.1", "graphic"): (
        b"SY", (("SID", 10), ("SNAME", 20)), ("SSCLAS", "SS"),
        (("ENCRYP", 1), ("SFMT", 1), ("SSTRUCT", 13), ("SDLVL", 3), ("SALVL", 3), ("SLOC", 10), ("SBND1", 10),
         ("SCOLOR", 1), ("SBND2", 10)),
    ),
    ("2.0", "graphic"): (
        b"SY", (("SID", 10), ("SNAME", 20)), ("SSCLAS", "SS"),
        (("ENCRYP", 1), ("STYPE", 1), ("NLIPS", 4), ("NPIXPL", 4), ("NWDTH", 4), ("NBPP", 1), ("SDLVL", 3),
         ("SALVL", 3), ("SLOC", 10), ("SLOC2", 10), ("SCOLOR", 1), ("SNUM", 6), ("SROT", 3), ("NELUT", 3)),
    ),
    ("2.0", "label"): (
        b"LA", (("LID", 10),), ("LSCLAS", "LS"),
        (("ENCRYP", 1), ("LFS", 1), ("LCW", 2), ("LCH", 2), ("LDLVL", 3), ("LALVL", 3), ("LLOC", 10)),
    ),
    ("2.1", "text"): (
        b"TE", (("TEXTID", 7), ("TXTALVL", 3), ("TXTDT", 14), ("TXTITL", 80)), ("TSCLAS", "TS"),
        (("ENCRYP", 1), ("TXTFMT", 3)),
    ),
    ("2.0", "text"): (
        b"TE", (("TEXTID", 10), ("TXTDT", 14), ("TXTITL", 80)), ("TSCLAS", "TS"), (("ENCRYP", 1), ("TXTFMT", 3)),
    ),
    ("2.1", "data extension"): (b"DE", (("DESID", 25), ("DESVER", 2)), ("DECLAS", "DES"), ()),
    ("2.0", "data extension"): (b"DE", (("DESTAG", 25), ("DESVER", 2)), ("DESCLAS", "DES"), ()),
    ("2.1", "reserved extension"): (b"RE", (("RESID", 25), ("RESVER", 2)), ("RECLAS", "RES"), ()),
    ("2.0", "reserved extension"): (b"RE", (("RESTAG", 25), ("RESVER", 2)), ("RESCLAS", "RES"), ()),
}  # fmt: skip
"""How a subheader begins, its classification and what the fields of security begin with, and those before and after."""
ALIKE = {
    "id": ("SID", "LID", "TEXTID"),
    "name": ("SNAME", "TXTITL"),
    "type": ("SFMT", "STYPE", "TXTFMT", "DESID", "DESTAG", "RESID", "RESTAG"),
    "version": ("DESVER", "RESVER"),
    "classification": ("SSCLAS", "LSCLAS", "TSCLAS", "DECLAS", "DESCLAS", "RECLAS", "RESCLAS"),
}
"""What fields of the several kinds have in common."""


def final_header(file: FileBuffer, first: bytes) -> Generator[Step, Any, bytes]:
    """The final header of a file that was written before its length was known, if its last extension holds one."""
    length = len(first)
    last = (file.size or 0) - MARK_BYTES
    start = last - length
    digits = f"{length:07}".encode()
    # The length of the file precedes that of the header.
    if first.find(UNKNOWN + digits[1:]) < 0 or start - MARK_BYTES < length:
        return first
    if (yield from file.read("the header at the end", last, MARK_BYTES, sparse=True)) != MARKS[1] + digits:
        return first
    found = yield from file.read("the header at the end", start - MARK_BYTES, length + MARK_BYTES, sparse=True)
    whole = found.startswith(digits + MARKS[0] + first[:9])
    return found[MARK_BYTES:] if whole else first


def segments(file: FileBuffer, head: NitfHeader) -> Generator[Step, Any, list[dict[str, Any]]]:
    """The kind of every segment without an image, and the offset and length of its data."""
    inside, requests, end = [], 0, -GAP_BYTES - 1
    for _, segment in head.others:
        stop = segment.start + min(segment.head, HEAD_BYTES)
        requests += segment.start > end + GAP_BYTES
        if requests > MOST_REQUESTS or file.size is None or stop > file.size:
            break
        inside.append(("a subheader", segment.start, stop - segment.start))
        end = stop
    yield from file.require_all(inside, gap=GAP_BYTES)
    return [_described(file, kind, segment, head.version) for kind, segment in head.others]


def _described(file: FileBuffer, kind: str, segment: NitfSegment, version: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind, "offset": segment.start + segment.head, "length": segment.data}
    length = min(segment.head, HEAD_BYTES)
    shape = SHAPES.get((version, kind))
    if shape is None or file.locate(segment.start, length) is None:
        return found
    cursor = Cursor(file.take(segment.start, length), base=segment.start)
    fields = _fields(cursor, shape, version)
    short = {name: fields[one] for name, names in ALIKE.items() for one in names if fields.get(one)}
    return {**found, **short, "nitf": fields} if fields else found


def _fields(cursor: Cursor, shape: Shape, version: str) -> dict[str, Any]:
    """Fields of a subheader, as far as it goes."""
    magic, before, (mark, prefix), after = shape
    fields: dict[str, Any] = {}
    try:
        if cursor.take(2) != magic:
            return fields
        fields |= texts(cursor, before)
        fields |= texts(cursor, ((mark, 1),)) | security(cursor, version, prefix)
        overflow = next(iter(fields.values())) in OVERFLOWS[version]
        for name, width in _OVERFLOW if overflow else after:
            fields[name] = cursor.text(width)
    except FormatError:
        # The images can be read without this subheader.
        return fields
    return fields
