"""Tagged record extensions of NITF: listed by tag and length, the common ones read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.errors import FormatError
from periplus.scan.cursor import Cursor
from periplus.scan.nitf.tre_layouts import layout_of

MOST_TRES = 4_096
MOST_TOLD = 262_144
"""Bytes of the extensions of one header whose fields are told: more than any real one has."""
_SIZES = (
    ("err_bias", 7), ("err_rand", 7), ("line_off", 6), ("samp_off", 5), ("lat_off", 8), ("long_off", 9),
    ("height_off", 5), ("line_scale", 6), ("samp_scale", 5), ("lat_scale", 8), ("long_scale", 9), ("height_scale", 5),
)  # fmt: skip
ORDERS = {"RPC00B": range(20), "RPC00A": (*range(7), 8, 9, 10, 7, 11, 14, 17, 12, 15, 18, 13, 16, 19)}
"""Where the terms of a polynomial of RPC00B stand in each record: in RPC00A those of second and third order differ."""
_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")


@dataclass(frozen=True, slots=True)
class Tre:
    """One extension, as stored."""

    tag: str
    data: bytes


def extension(cursor: Cursor, name: str) -> tuple[tuple[Tre, ...], int]:
    """The extensions of one area of a header, and the number of the segment that has more of them; 0 for none."""
    length = cursor.digits(5, f"the length of {name}", blank=0)
    if length == 0:
        return (), 0
    if length < 3:
        raise cursor.error(f"the area {name} has {length} bytes, too few for its own fields")
    overflow = cursor.take(3)
    return tuple(listed(cursor.take(length - 3))), int(overflow) if overflow.isdigit() else 0


def listed(area: bytes) -> Iterable[Tre]:
    """Extensions one after another; one that does not fit ends the list, as what follows cannot be told apart."""
    at = 0
    for _ in range(MOST_TRES):
        length = area[at + 6 : at + 11]
        if len(length) < 5 or not length.isdigit() or at + 11 + int(length) > len(area):
            return
        yield Tre(area[at : at + 6].decode("ascii", "replace").strip(), area[at + 11 : at + 11 + int(length)])
        at += 11 + int(length)


def described(tres: Iterable[Tre]) -> list[dict[str, Any]]:
    """Tag and length of each, and the fields of those whose layout is known."""
    found = []
    told = 0
    for tre in tres:
        note: dict[str, Any] = {"tag": tre.tag, "length": len(tre.data)}
        if told + len(tre.data) <= MOST_TOLD and (fields := fields_of(tre)) is not None:
            note["fields"] = fields
            told += len(tre.data)
        found.append(note)
    return found


def fields_of(tre: Tre) -> dict[str, str] | None:
    """The texts of an extension whose layout is plain; None for others, and where it is too short."""
    layout = layout_of(tre.tag, tre.data)
    if layout is None:
        return None
    cursor = Cursor(tre.data)
    texts = [(name, cursor.text(width)) for name, width in layout]
    return {name: text for name, text in texts if name}


def first(tres: Iterable[Tre], tag: str) -> dict[str, str] | None:
    """The fields of the first extension of that tag."""
    return next((fields for tre in tres if tre.tag == tag and (fields := fields_of(tre)) is not None), None)


def rpc(tres: Iterable[Tre]) -> dict[str, Any] | None:
    """Rational polynomial coefficients in the order of RPC00B, from the first record that says it is valid."""
    for tre in tres:
        if tre.tag in ORDERS:
            try:
                return _rpc(Cursor(tre.data), ORDERS[tre.tag])
            except FormatError:
                # A record that is not what its tag says is listed all the same, but tells nothing.
                continue
    return None


def _rpc(cursor: Cursor, order: Sequence[int]) -> dict[str, Any]:
    if cursor.digits(1) != 1:
        raise cursor.error("the record says that it holds no coefficients")
    found: dict[str, Any] = {name: _number(cursor, width) for name, width in _SIZES}
    for name in _COEFFICIENTS:
        terms = [_number(cursor, 12) for _ in range(20)]
        found[name] = [terms[place] for place in order]
    return found


def _number(cursor: Cursor, width: int) -> float:
    text = cursor.text(width)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise cursor.error(f"{text!r} is not a number")
    return value
