"""arrange: lay files into global arrays. Pure: descriptions and references in, a catalog and references out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange.collect.collect import collect
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.mosaic.mosaic import mosaic
from periplus.arrange.pattern import parse, suggested
from periplus.arrange.stack.coordinate import Axis, read_axis
from periplus.arrange.stack.stack import first_misfit, stack
from periplus.errors import ConflictError, FormatError

KINDS = ("auto", "collect", "stack", "mosaic")

__all__ = ["KINDS", "Arrangement", "Entry", "Lookup", "arrange", "collect", "files_of", "stack"]


def arrange(entries: Sequence[Entry], refs: Lookup, *, kind: str = "auto", **options: Any) -> Arrangement:
    """Lay files into arrays: `collect`, `stack`, `mosaic` (options are those of `stack` and `mosaic`), or `auto`.

    `auto` stacks when there are several files of one grid and each has a coordinate of its own (from `pattern`, from a
    catalogue, or from the file's own DateTime); otherwise it collects. With `skip_misfits` one grid is not asked for:
    most files decide. One file is always collected, under plain names.
    """
    if kind not in KINDS:
        raise FormatError(f"arrange is one of {', '.join(KINDS)}, not {kind!r}")
    if kind != "mosaic" and options.pop("order", None) is not None:
        raise FormatError("order= is of arrange='mosaic'")
    if kind == "stack":
        return stack(entries, refs, **options)
    if kind == "mosaic":
        return _noting_times(mosaic(entries, refs, **options), options.get("pattern"))
    if kind == "collect":
        return collect(entries, refs)
    axis, why = _shared_axis(entries, **options)
    if axis is not None:
        try:
            return stack(entries, refs, axis=axis, **options)
        except ConflictError as error:
            # What no cheap look could tell (equal coordinates, holes that would be lost): these files are no stack.
            why = error.message
    laid = collect(entries, refs)
    notes = [] if why is None else [f"not stacked: {why}"]
    if (pattern := options.get("pattern")) is not None and (parsed := parse(pattern)).time is None:
        notes.append(f"the files are collected, so the field {parsed.fields[0]!r} of the pattern is not used")
    return replace(laid, warnings=(*laid.warnings, *notes))


def _noting_times(laid: Arrangement, pattern: str | None) -> Arrangement:
    """A mosaic has no dimension of time: that its files have several is noted, where a pattern gave them."""
    found = laid.files.datetime[[status == "ok" for status in laid.files.status]] if pattern is not None else ()
    times = np.unique(found)
    if len(times) < 2:
        return laid
    first, last = (np.datetime_as_string(end, "s") for end in (times[0], times[-1]))
    note = f"files have {len(times):,} times, {first} to {last}: they are in files, a mosaic has no time dimension"
    return replace(laid, warnings=(*laid.warnings, note))


def _shared_axis(
    entries: Sequence[Entry],
    *,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    skip_misfits: bool = False,
    **_: Any,
) -> tuple[Axis | None, str | None]:
    """The coordinates of files that look like a stack; where they do not, why, if a user may wonder."""
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    if len(good) < 2:
        return None, None
    axis = read_axis(entries, good, dim=dim, pattern=pattern, way=coordinate)
    known = axis.way != "order" or coordinate == "order"
    if known and skip_misfits:
        return axis, None
    why = first_misfit(entries, axis)
    if axis.misfits:  # a coordinate for them would not help files that differ
        return None, why or next(iter(axis.misfits.values()))
    if not known:
        hint = None if why is not None else suggested([entries[i].source.url for i in good])
        return None, hint and f"no file says its time, but the names seem to: pattern={hint!r}"
    return (axis, None) if why is None else (None, why)
