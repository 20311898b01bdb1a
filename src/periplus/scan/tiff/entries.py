"""The entries of one TIFF directory, with values inline or elsewhere; equal bytes are parsed once."""

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
"""(tag, type, count, offset, length) of a value outside its directory."""

Kind = tuple[int, int, int]
"""(tag, type, count)."""
Values = tuple[bytes | None, ...]
"""Bytes of values elsewhere; None for those outside the file."""

ENDIAN: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big"}
LISTS = STRILES | {SUB_IFDS}
"""Tags whose values are offsets or lengths: they differ between otherwise equal files."""
ENTRY = {(order, big): struct.Struct(order + ("HHQ8s" if big else "HHI4s")) for order in "<>" for big in (False, True)}
CACHED_BYTES = 2048


@dataclass(frozen=True, slots=True, eq=False)
class DirectoryForm:
    """What directories of like images share. Compared by identity: equal ones are one object, from the cache."""

    order: str
    inline: tuple[Field, ...]
    structure: tuple[Kind, ...]
    metadata: tuple[Kind, ...]
    """Values elsewhere: those that decide how pixels are stored, and those that only describe them."""
    skipped: tuple[int, ...] = ()
    """Tags whose values are too large to be read."""
    ascending: bool = True
    """Whether the tags are in the order that TIFF requires."""

    def fields(self, structure: Values = (), metadata: Values = ()) -> Fields:
        """All fields: the inline ones, and the given values."""
        kinds = (*self.structure[: len(structure)], *self.metadata[: len(metadata)])
        found = [(*kind, v) for kind, v in zip(kinds, (*structure, *metadata), strict=True) if v is not None]
        return Fields((*self.inline, *found), self.order)

    def missing(self, metadata: Values) -> list[int]:
        """Tags without a value: too large, or stored outside the file."""
        return [*self.skipped, *(kind[0] for kind, value in zip(self.metadata, metadata, strict=True) if value is None)]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The supported tags of one directory."""

    form: DirectoryForm
    structure: tuple[Remote, ...]
    metadata: tuple[Remote, ...]
    """Values elsewhere, in the order of the form."""
    far: tuple[Remote, ...]
    """Lists of offsets stored elsewhere."""
    near: tuple[Field, ...]
    """Lists of offsets that fit into their entry."""
    start: int
    stop: int
    """The range in the file of all values elsewhere."""
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
    metadata: list[Remote] = []
    skipped: list[int] = []
    pointer = 8 if big else 4
    ascending, last = True, 0
    for tag, kind, count, value in ENTRY[order, big].iter_unpack(raw):
        ascending, last = ascending and tag >= last, tag
        cap = WANTED.get(tag)
        length = SIZES.get(kind, 0) * count
        if cap is None or tag in inline:
            continue
        if kind not in SIZES and tag not in DESCRIPTIVE:
            raise FormatError(f"tag {tag} has type {kind}, which TIFF does not have")
        if length == 0:
            continue
        if length <= pointer:
            inline[tag] = (tag, kind, count, value[:length])
            if tag in LISTS:
                near.append((tag, kind, count, value[:length]))
                inline[tag] = None
        elif length <= cap or tag in STRILES:
            place = (tag, kind, count, int.from_bytes(value, ENDIAN[order]), length)
            (far if tag in LISTS else structure if tag in STRUCTURE else metadata).append(place)
            inline[tag] = None
        elif tag not in DESCRIPTIVE:
            raise FormatError(f"tag {tag} takes {length} bytes; at most {cap} are valid")
        else:
            skipped.append(tag)
    elsewhere = [*structure, *metadata, *far]
    return Entries(
        form=_form(
            order,
            tuple(field for field in inline.values() if field),
            tuple(place[:3] for place in structure),
            tuple(place[:3] for place in metadata),
            tuple(skipped),
            ascending,
        ),
        structure=tuple(structure),
        metadata=tuple(metadata),
        far=tuple(far),
        near=tuple(near),
        start=min((place[3] for place in elsewhere), default=0),
        stop=max((place[3] + place[4] for place in elsewhere), default=0),
        weight=sum(place[4] for place in (*structure, *metadata)),
    )


@lru_cache(maxsize=1024)
def _form(
    order: str,
    inline: tuple[Field, ...],
    structure: tuple[Kind, ...],
    metadata: tuple[Kind, ...],
    skipped: tuple[int, ...],
    ascending: bool,
) -> DirectoryForm:
    return DirectoryForm(order, inline, structure, metadata, skipped, ascending)


def integers(tag: int, block: bytes, start: int, kind: int, count: int, order: str) -> Integers:
    """A list of offsets or lengths as int64; FormatError where one is negative or over 2^63."""
    if kind not in INTEGERS:
        raise FormatError(f"tag {tag} has type {kind}, not an integer type")
    values = np.frombuffer(block, order + CODES[kind], count, start).astype(np.int64)
    if kind not in (3, 4):
        smallest = int(values.min())
        if smallest < 0:
            raise FormatError(f"tag {tag} holds {smallest}, which is not an offset or length")
    return values
