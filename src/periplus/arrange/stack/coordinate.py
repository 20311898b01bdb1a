"""The coordinate of every file along the new dimension: from its name, its datetime, or its place in the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import Entry, instant
from periplus.arrange.messages import file_name
from periplus.arrange.pattern import Value, reader, values
from periplus.errors import FormatError

WAYS = ("auto", "pattern", "datetime", "order")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """Coordinates of entries by number, before they are put in order."""

    dim: str
    way: str
    """`pattern`, `datetime` or `order`."""
    numbers: tuple[int, ...]
    """Entries that have a coordinate."""
    values: NDArray[Any]
    """Their coordinates, one column."""
    misfits: dict[int, str] = field(default_factory=dict)
    """Entries that have none, and why."""


def read_axis(
    entries: Sequence[Entry], good: Sequence[int], *, dim: str | None, pattern: str | None, way: str = "auto"
) -> Axis:
    """Coordinates of the good entries, in the way asked for.

    `auto` takes the pattern when there is one, else the datetimes when any file has one, else the order of the list.
    """
    if way not in WAYS:
        raise FormatError(f"coordinate is one of {', '.join(WAYS)}, not {way!r}")
    if way == "pattern" and pattern is None:
        raise FormatError("coordinate='pattern' needs a pattern")
    if way == "pattern" or (way == "auto" and pattern is not None):
        return _by_pattern(entries, good, dim, pattern or "")
    if way == "datetime" or (way == "auto" and any(entries[i].datetime is not None for i in good)):
        return _by_datetime(entries, good, dim)
    return Axis(dim=dim or "time", way="order", numbers=tuple(good), values=_places(entries, good))


def _by_pattern(entries: Sequence[Entry], good: Sequence[int], dim: str | None, pattern: str) -> Axis:
    read = reader(pattern, dim=dim)
    found: dict[int, Value] = {}
    misfits: dict[int, str] = {}
    for i in good:
        url = entries[i].source.url
        try:
            value = read.read(url)
        except FormatError as error:
            misfits[i] = error.message
            continue
        if value is None:
            misfits[i] = f"{file_name(entries[i])} does not match the pattern {pattern!r}"
        else:
            found[i] = value
    return Axis(dim=read.dim, way="pattern", numbers=tuple(found), values=values(list(found.values())), misfits=misfits)


def _by_datetime(entries: Sequence[Entry], good: Sequence[int], dim: str | None) -> Axis:
    known = [i for i in good if entries[i].datetime is not None]
    misfits = {
        i: f"{file_name(entries[i])} has no datetime; give a pattern= for its name, or coordinate='order'"
        for i in good
        if entries[i].datetime is None
    }
    moments = np.array([instant(entries[i].datetime) for i in known], dtype="datetime64[us]")
    return Axis(dim=dim or "time", way="datetime", numbers=tuple(known), values=moments, misfits=misfits)


def _places(entries: Sequence[Entry], good: Sequence[int]) -> NDArray[np.int64]:
    """The place of each file in the list of its series."""
    counts: dict[str | None, int] = {}
    places = []
    for i in good:
        series = entries[i].series
        places.append(counts.get(series, 0))
        counts[series] = places[-1] + 1
    return np.array(places, dtype=np.int64)
