"""Which step along the new dimension each file takes; files that claim the same step are told apart or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import REPLACED, Entry
from periplus.arrange.messages import distinguished, two_files
from periplus.arrange.pattern import values
from periplus.arrange.stack.coordinate import Axis
from periplus.errors import ConflictError, FormatError

DUPLICATES = ("error", "last", "keep")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The new dimension: its coordinate and the files along it."""

    values: NDArray[Any]
    """Coordinate of each step."""
    of: dict[int, int]
    """Step of each entry that has one."""
    replaced: dict[int, str] = field(default_factory=dict)
    """Entries that gave way to a later one of the same coordinate, and why."""


def place(entries: Sequence[Entry], axis: Axis, members: Sequence[int], *, duplicates: str = "error") -> Steps:
    """Steps of the members, ordered by coordinate; several series share the steps they have in common."""
    if duplicates not in DUPLICATES:
        raise FormatError(f"duplicates is one of {', '.join(DUPLICATES)}, not {duplicates!r}")
    coordinate = dict(zip(axis.numbers, axis.values.tolist(), strict=True))
    taken: dict[tuple[str | None, Any, int], int] = {}
    replaced: dict[int, str] = {}
    for i in members:
        series, value = entries[i].series, coordinate[i]
        key = (series, value, 0)
        before = taken.get(key)
        if before is not None:
            ours, theirs = two_files(entries[i], entries[before])
            if duplicates == "error":
                raise ConflictError(
                    f"{ours} and {theirs} have the same {axis.dim} {_shown(value)} and "
                    f"{distinguished(entries[i], entries[before])}: index the files of each on their own, collect all "
                    "with arrange='collect', or make each a step of its own with duplicates='keep'",
                    url=entries[i].source.url,
                )
            if duplicates == "last":
                replaced[before] = f"{REPLACED}{ours} has the same {axis.dim} {_shown(value)} and comes later"
            else:
                count = 1
                while (series, value, count) in taken:
                    count += 1
                key = (series, value, count)
        taken[key] = i
    keys = sorted({(value, count) for _, value, count in taken})
    step = {key: n for n, key in enumerate(keys)}
    return Steps(
        values=_column(axis, [value for value, _ in keys]),
        of={i: step[value, count] for (_, value, count), i in taken.items()},
        replaced=replaced,
    )


def _column(axis: Axis, ordered: list[Any]) -> NDArray[Any]:
    if axis.values.dtype.kind == "M":
        return np.array(ordered, dtype="datetime64[us]")
    return values(ordered)


def _shown(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
