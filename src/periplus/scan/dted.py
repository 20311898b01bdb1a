"""DTED: one elevation cell; every longitude line is one fixed-size record."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import About, Array, Encoding, Found, Georeference, Refs, Source, Steps, chunk_positions, codecnames
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor

NAME = "dted"
LABEL = 80
"""Bytes of a tape label, and of the user header label (UHL)."""
MOST_LABELS = 8
DSI, ACC, HEADER_BYTES = LABEL, LABEL + 648, LABEL + 648 + 2700
NULL = -32767
DATUMS = {"": "EPSG:4326", "WGS84": "EPSG:4326", "WGS72": "EPSG:4322"}
ANGLE = re.compile(r"(\d{1,3})(\d\d)(\d\d(?:\.\d*)?)([NSEW])")
FIELDS: dict[str, tuple[int, int]] = {
    "security_code": (DSI + 3, 1),
    "security_control": (DSI + 4, 2),
    "security_handling": (DSI + 6, 27),
    "series": (DSI + 59, 5),
    "unique_reference": (DSI + 64, 15),
    "data_edition": (DSI + 87, 2),
    "match_merge_version": (DSI + 89, 1),
    "maintenance_date": (DSI + 90, 4),
    "match_merge_date": (DSI + 94, 4),
    "maintenance_description": (DSI + 98, 4),
    "producer": (DSI + 102, 8),
    "product_specification": (DSI + 126, 9),
    "product_specification_date": (DSI + 137, 4),
    "vertical_datum": (DSI + 141, 3),
    "horizontal_datum": (DSI + 144, 5),
    "digitizing_system": (DSI + 149, 10),
    "compilation_date": (DSI + 159, 4),
    "partial_cell": (DSI + 289, 2),
    "absolute_horizontal_accuracy": (ACC + 3, 4),
    "absolute_vertical_accuracy": (ACC + 7, 4),
    "relative_horizontal_accuracy": (ACC + 11, 4),
    "relative_vertical_accuracy": (ACC + 15, 4),
}
"""(first byte, length) of the metadata in the records, as text."""


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a DTED cell, with or without tape labels before it."""
    first, second = bytes(head[:4]), bytes(head[LABEL : LABEL + 4])
    return first == b"UHL1" or (first in (b"VOL1", b"HDR1") and second in (b"HDR1", b"UHL1"))


def scan(source: Source, limits: Limits) -> Steps:
    """The one array of a cell; its posts are nodes of the grid."""
    file = FileBuffer(source, limits)
    start = 0
    yield from file.require("the header", 0, HEADER_BYTES)
    while (label := file.take(start, 4)) != b"UHL1":
        if label not in (b"VOL1", b"HDR1") or start >= MOST_LABELS * LABEL:
            raise FormatError("not a DTED cell: there is no user header label", offset=start)
        start += LABEL
        yield from file.require("the header", start, HEADER_BYTES)
    head = Cursor(file.take(start, HEADER_BYTES), base=start)
    if head.at(DSI).take(3) != b"DSI" or head.at(ACC).take(3) != b"ACC":
        raise head.error("not a DTED cell: its DSI or ACC record is missing")
    lines, posts = head.at(47).digits(4, "the number of lines"), head.at(51).digits(4, "the number of posts")
    if min(lines, posts) < 1:
        raise head.error(f"the cell declares {lines} lines of {posts} posts")
    record = 12 + 2 * posts
    limits.check("the bytes of a chunk", lines * record, limits.chunk_bytes)
    records = _records(file, start + HEADER_BYTES, record, lines)
    found = _cell(head, lines, posts, records)
    refs = Refs(
        chunk=chunk_positions((1, 1, 1)),
        offset=np.array([start + HEADER_BYTES], np.int64),
        length=np.array([records * record], np.int64),
    )
    if found.georeference is None:
        yield About(attributes={"refused": ["the origin or the intervals of the user header label cannot be read"]})
    yield Found(found, refs)


def _records(file: FileBuffer, start: int, record: int, lines: int) -> int:
    """Records stored; a partial cell may lack lines, but never part of one."""
    if file.size is None or file.size >= start + lines * record:
        return lines
    records, rest = divmod(file.size - start, record)
    if rest or records == 0:
        raise FormatError(
            f"the cell declares {lines} records of {record} bytes but {file.size - start} bytes follow",
            offset=file.size,
        )
    return records


def _cell(head: Cursor, lines: int, posts: int, records: int) -> Array:
    fields: dict[str, Any] = {name: head.at(where).text(length) for name, (where, length) in FIELDS.items()}
    fields = {name: text for name, text in fields.items() if text}
    attributes: dict[str, Any] = {"_FillValue": NULL, "units": "m", "standard_name": "height", "dted": fields}
    if records < lines:
        attributes["lines_stored"] = records
    return Array(
        name="0/data",
        dims=("bands", "y", "x"),
        shape=(1, posts, lines),
        chunks=(1, posts, lines),
        dtype=np.dtype(np.int16),
        fill=NULL,
        encodings=(_encoding(lines, posts, records),),
        attributes=attributes,
        georeference=_georeference(head, posts, str(fields.get("horizontal_datum", ""))),
    )


def _encoding(lines: int, posts: int, records: int) -> Encoding:
    trims = dict.fromkeys(("trim_top", "trim_bottom", "trim_left", "trim_right"), 0)
    keys = {"num_lat_points": posts, "num_lon_lines": lines, "record_size": 12 + 2 * posts, **trims}
    if records < lines:
        keys["num_records"] = records
    return Encoding(({"name": codecnames.DTED, "configuration": keys},))


def _georeference(head: Cursor, posts: int, datum: str) -> Georeference | None:
    """Posts are the centres of pixels, so corners are half a post outside; None if the header is invalid."""
    angles = [_angle(head.at(4).text(8)), _angle(head.at(12).text(8))]
    steps = [head.at(20).text(4), head.at(24).text(4)]
    if not all(step.isdecimal() and int(step) > 0 for step in steps):
        return None
    by_axis = {angle[1]: angle[0] for angle in angles if angle is not None}
    # Some producers put latitude first; the hemisphere shows which is which.
    if "x" not in by_axis or "y" not in by_axis:
        return None
    dx, dy = int(steps[0]) / 36_000, int(steps[1]) / 36_000
    west, north = by_axis["x"] - dx / 2, by_axis["y"] + (posts - 0.5) * dy
    if not (-360 <= west <= 360 and by_axis["y"] >= -91 and north <= 91):
        return None
    return Georeference(crs=DATUMS.get(datum), transform=(dx, 0.0, west, 0.0, -dy, north), registration="point")


def _angle(text: str) -> tuple[float, str] | None:
    """Degrees and the axis they run along."""
    found = ANGLE.fullmatch(text.strip())
    if found is None:
        return None
    degrees, minutes, seconds, side = found.groups()
    value = int(degrees) + int(minutes) / 60 + float(seconds) / 3600
    return (-value if side in "SW" else value), ("x" if side in "EW" else "y")
