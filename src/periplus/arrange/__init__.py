"""arrange: lay files into global arrays. Pure: descriptions and references in, a catalog and references out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from periplus.arrange.axis import Axis, read_axis
from periplus.arrange.collect import collect
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.extend import extend
from periplus.arrange.stack import misfit, stack
from periplus.errors import ConflictError, FormatError

KINDS = ("auto", "collect", "stack")

__all__ = ["KINDS", "Arrangement", "Entry", "Lookup", "arrange", "collect", "extend", "files_of", "stack"]


def arrange(entries: Sequence[Entry], refs: Lookup, *, kind: str = "auto", **options: Any) -> Arrangement:
    """Lay files into arrays: `collect`, `stack` (its options are those of `stack`), or `auto`.

    `auto` stacks when there are several files of one grid and each has a coordinate of its own (from `pattern`, from a
    catalogue, or from the file's own DateTime); otherwise it collects. With `skip_misfits` one grid is not asked for:
    most files decide. One file is always collected, under plain names.
    """
    if kind not in KINDS:
        raise FormatError(f"arrange is one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "stack":
        return stack(entries, refs, **options)
    axis = _shared_axis(entries, **options) if kind == "auto" else None
    if axis is not None:
        try:
            return stack(entries, refs, axis=axis, **options)
        except ConflictError as error:
            # What no cheap look could tell (equal coordinates, holes that would be lost): these files are no stack.
            return replace(collect(entries, refs), warnings=(f"not stacked: {error.message}",))
    return collect(entries, refs)


def _shared_axis(
    entries: Sequence[Entry],
    *,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    skip_misfits: bool = False,
    **_: Any,
) -> Axis | None:
    """The coordinates of files that look like a stack; None where they do not."""
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    if len(good) < 2:
        return None
    axis = read_axis(entries, good, dim=dim, pattern=pattern, way=coordinate)
    if axis.way == "order" and coordinate != "order":
        return None
    if skip_misfits:
        return axis
    if axis.misfits:
        return None
    first: dict[str | None, Entry] = {}
    judged: set[tuple[str | None, int]] = set()
    for i in good:
        entry = entries[i]
        reference = first.setdefault(entry.series, entry)
        key = entry.series, id(entry.arrays)
        if key not in judged and misfit(entry.arrays, reference.arrays) is not None:
            return None
        judged.add(key)
    return axis
