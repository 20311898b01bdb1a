"""The entries of one TIFF directory: which values lie inline and which elsewhere; the same bytes are parsed once."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.scan.tiff.tags import (
    CODES,
    DESCRIPTIVE,
    INTEGERS,
    SIZES,
    STRILES,
    STRUCTURE,
    SUB_IFDS,
    WANTED,
    Field,
    Fields,
)

Integers = NDArray[np.int64]
Remote = tuple[int, int, int, int, int]
"""(tag, type, count, offset, length) of a value that lies outside its directory."""

Kind = tuple[int, int, int]
"""(tag, type, count)."""
Values = tuple[bytes | None, ...]
"""Bytes of values that lie elsewhere; None where they lie outside the file."""

ENDIAN: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big"}
LISTS = STRILES | {SUB_IFDS}
"""Tags whose values are places in the file: they differ between files that are alike otherwise."""
ENTRY = {(order, big): struct.Struct(order + ("HHQ8s" if big else "HHI4s")) for order in "<>" for big in (False, True)}
CACHED_BYTES = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What directories of like images share. Compared by identity: equal ones are one object, from the cache."""

    order: str
    inline: tuple[Field, ...]
    structure: tuple[Kind, ...]
    told: tuple[Kind, ...]
    """Values that lie elsewhere: those that say how pixels are stored, and those that only tell about them."""
    skipped: tuple[int, ...] = ()
    """Tags whose values are too large to be read."""

    def fields(self, structure: Values = (), told: Values = ()) -> Fields:
        """Everything as fields: what lies inline, and the given values."""
        kinds = (*self.structure[: len(structure)], *self.told[: len(told)])
        found = [(*kind, v) for kind, v in zip(kinds, (*structure, *told), strict=True) if v is not None]
        return Fields((*self.inline, *found), self.order)

    def missing(self, told: Values) -> list[int]:
        """Tags without a value: too large, or stored outside the file."""
        return [*self.skipped, *(kind[0] for kind, value in zip(self.told, told, strict=True) if value is None)]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The tags we read of one directory."""

    form: Form
    structure: tuple[Remote, ...]
    told: tuple[Remote, ...]
    """Values elsewhere, in the order of the form."""
    far: tuple[Remote, ...]
    """Lists of places that lie elsewhere."""
    near: tuple[Field, ...]
    """Lists of places that fit into their entry."""
    start: int
    stop: int
    """Of all that lies elsewhere, in the file."""
    weight: int
    """Bytes of the values elsewhere."""


def parse(raw: bytes, order: str, big: bool) -> Entries:
    """The entries in the raw bytes of a directory, without its count and its pointer to the next."""
    return (_parse if len(raw) <= CACHED_BYTES else _parse.__wrapped__)(raw, order, big)


@lru_cache(maxsize=1024)
def _parse(raw: bytes, order: str, big: bool) -> Entries:
    inline: dict[int, Field | None] = {}
    near: list[Field] = []
    far: list[Remote] = []
    structure: list[Remote] = []
    told: list[Remote] = []
    skipped: list[int] = []
    pointer = 8 if big else 4
    for tag, kind, count, value in ENTRY[order, big].iter_unpack(raw):
        cap = WANTED.get(tag)
        length = SIZES.get(kind, 0) * count
        if cap is None or tag in inline or length == 0:
            continue
        if length <= pointer:
            inline[tag] = (tag, kind, count, value[:length])
            if tag in LISTS:
                near.append((tag, kind, count, value[:length]))
                inline[tag] = None
        elif length <= cap or tag in STRILES:
            place = (tag, kind, count, int.from_bytes(value, ENDIAN[order]), length)
            (far if tag in LISTS else structure if tag in STRUCTURE else told).append(place)
            inline[tag] = None
        elif tag not in DESCRIPTIVE:
            raise FormatError(f"tag {tag} takes {length} bytes; at most {cap} make sense")
        else:
            skipped.append(tag)
    elsewhere = [*structure, *told, *far]
    return Entries(
        form=_form(
            order,
            tuple(field for field in inline.values() if field),
            tuple(place[:3] for place in structure),
            tuple(place[:3] for place in told),
            tuple(skipped),
        ),
        structure=tuple(structure),
        told=tuple(told),
        far=tuple(far),
        near=tuple(near),
        start=min((place[3] for place in elsewhere), default=0),
        stop=max((place[3] + place[4] for place in elsewhere), default=0),
        weight=sum(place[4] for place in (*structure, *told)),
    )


@lru_cache(maxsize=1024)
def _form(
    order: str,
    inline: tuple[Field, ...],
    structure: tuple[Kind, ...],
    told: tuple[Kind, ...],
    skipped: tuple[int, ...],
) -> Form:
    return Form(order, inline, structure, told, skipped)


def integers(tag: int, block: bytes, start: int, kind: int, count: int, order: str) -> Integers:
    """A list of places as int64; FormatError where one is negative or over 2^63."""
    if kind not in INTEGERS:
        raise FormatError(f"tag {tag} has type {kind}, not an integer type")
    values = np.frombuffer(block, order + CODES[kind], count, start).astype(np.int64)
    if kind not in (3, 4):
        smallest = int(values.min())
        if smallest < 0:
            raise FormatError(f"tag {tag} holds {smallest}, which is no offset or length")
    return values
