"""The new dimension of a stack: the coordinate of each file, and the steps that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import REPLACED, FileEntry, readable
from periplus.arrange.messages import file_name, file_names, name_difference
from periplus.arrange.pattern import Value, label_column, label_reader
from periplus.errors import ConflictError, FormatError
from periplus.model.files import instants

COORDINATES = ("auto", "pattern", "datetime", "order")
"""Where the coordinate of a file can come from."""
STACK_DUPLICATES = ("error", "last", "keep")
"""What can be done with files of the same coordinate."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileCoordinates:
    """Coordinates of files, in the order of the entries."""

    dim: str
    origin: str
    """`pattern`, `datetime` or `order`."""
    numbers: tuple[int, ...]
    """Entries that have a coordinate."""
    values: NDArray[Any]
    """Their coordinates."""
    misfits: dict[int, str] = field(default_factory=dict)
    """Entries that have none, and why."""


def read_coordinates(
    entries: Sequence[FileEntry], *, dim: str | None, pattern: str | None, coordinate: str = "auto"
) -> FileCoordinates:
    """Coordinates of the entries without an error.

    `auto` reads names if there is a pattern, otherwise takes datetimes if any file has one, otherwise the order.
    """
    good = readable(entries)
    if pattern is not None and coordinate in ("auto", "pattern"):
        return _from_names(entries, good, dim, pattern)
    if coordinate == "datetime" or (coordinate == "auto" and any(entries[i].datetime is not None for i in good)):
        return _from_datetimes(entries, good, dim)
    return FileCoordinates(
        dim=dim or "time", origin="order", numbers=tuple(good), values=_positions_in_series(entries, good)
    )


def _from_names(entries: Sequence[FileEntry], good: Sequence[int], dim: str | None, pattern: str) -> FileCoordinates:
    reader = label_reader(pattern, dim=dim)
    found: dict[int, Value] = {}
    misfits: dict[int, str] = {}
    for i in good:
        try:
            value = reader.read(entries[i].source.url)
        except FormatError as error:
            misfits[i] = error.message
            continue
        if value is None:
            misfits[i] = f"{file_name(entries[i])} does not match the pattern {pattern!r}"
        else:
            found[i] = value
    values = label_column(list(found.values()))
    return FileCoordinates(dim=reader.dim, origin="pattern", numbers=tuple(found), values=values, misfits=misfits)


def _from_datetimes(entries: Sequence[FileEntry], good: Sequence[int], dim: str | None) -> FileCoordinates:
    known = [i for i in good if entries[i].datetime is not None]
    misfits = {
        i: f"{file_name(entries[i])} has no datetime; give a pattern= for its name, or coordinate='order'"
        for i in good
        if entries[i].datetime is None
    }
    values = instants(entries[i].datetime for i in known)
    return FileCoordinates(dim=dim or "time", origin="datetime", numbers=tuple(known), values=values, misfits=misfits)


def _positions_in_series(entries: Sequence[FileEntry], good: Sequence[int]) -> NDArray[np.int64]:
    """The position of each file among those of its series."""
    counts: dict[str | None, int] = {}
    positions = []
    for i in good:
        series = entries[i].series
        positions.append(counts.get(series, 0))
        counts[series] = positions[-1] + 1
    return np.array(positions, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackSteps:
    """The steps of a stack, in the order of their coordinates."""

    values: NDArray[Any]
    """Coordinate of each step."""
    of: dict[int, int]
    """Step of each entry that is in the stack."""
    replaced: dict[int, str] = field(default_factory=dict)
    """Entries replaced by a later one of the same coordinate, and why."""


def assign_steps(
    entries: Sequence[FileEntry], coordinates: FileCoordinates, members: Sequence[int], *, duplicates: str = "error"
) -> StackSteps:
    """The step of each member; series share the steps whose coordinates they have in common."""
    coordinate = dict(zip(coordinates.numbers, coordinates.values.tolist(), strict=True))
    taken: dict[tuple[str | None, Any, int], int] = {}
    replaced: dict[int, str] = {}
    for i in members:
        series, value = entries[i].series, coordinate[i]
        key = (series, value, 0)
        before = taken.get(key)
        if before is not None:
            ours, theirs = file_names(entries[i], entries[before])
            same = f"the same {coordinates.dim} {_shown(value)}"
            if duplicates == "error":
                raise ConflictError(
                    f"{ours} and {theirs} have {same} and {name_difference(entries[i], entries[before])}: index the "
                    "files of each separately, collect all with arrange='collect', or make each a separate step with "
                    "duplicates='keep'",
                    url=entries[i].source.url,
                )
            if duplicates == "last":
                replaced[before] = f"{REPLACED}{ours} has {same} and comes later"
            else:
                count = 1
                while (series, value, count) in taken:
                    count += 1
                key = (series, value, count)
        taken[key] = i
    keys = sorted({(value, count) for _, value, count in taken})
    step = {key: n for n, key in enumerate(keys)}
    ordered = [value for value, _ in keys]
    is_time = coordinates.values.dtype.kind == "M"
    return StackSteps(
        values=np.array(ordered, dtype="datetime64[us]") if is_time else label_column(ordered),
        of={i: step[value, count] for (_, value, count), i in taken.items()},
        replaced=replaced,
    )


def _shown(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
