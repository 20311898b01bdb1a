"""`arrange`: the arrangement that was requested, or with `auto` the one that suits the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange.arrangement import Arrangement, FileEntry, Lookup, readable
from periplus.arrange.collect import collect
from periplus.arrange.mosaic import mosaic
from periplus.arrange.pattern import parse, suggest_pattern
from periplus.arrange.stack import stack
from periplus.arrange.stack.coordinate import FileCoordinates, read_coordinates
from periplus.arrange.stack.stacking import first_misfit
from periplus.errors import ConflictError

KINDS = ("auto", "collect", "stack", "mosaic")
NO_IMAGE = "format: the file holds no image"
"""Why a file that has only metadata is in no stack or mosaic; in a collection it has a group."""


def arrange(entries: Sequence[FileEntry], refs: Lookup, *, kind: str = "auto", **options: Any) -> Arrangement:
    """Arrange files by `kind`: `collect`, `stack`, `mosaic` or `auto`; the options are those of `stack` and `mosaic`.

    `auto` stacks several files of one grid if each has a coordinate (from `pattern`, a catalogue, or the file itself);
    otherwise it collects them. With `skip_misfits` the files need not be of one grid: the most frequent one is taken.
    A single file is always collected, and keeps the names of its arrays.
    """
    if kind == "collect":
        return collect(entries, refs)
    pictures = [entry if entry.arrays or entry.error else replace(entry, error=NO_IMAGE) for entry in entries]
    if kind == "stack":
        return stack(pictures, refs, **options)
    if kind == "mosaic":
        return _with_note_on_times(mosaic(pictures, refs, **options), options.get("pattern"))
    coordinates, reason = _stack_coordinates(pictures, **options)
    if coordinates is not None:
        try:
            return stack(pictures, refs, coordinates=coordinates, **options)
        except ConflictError as error:
            # Conflicts that only stacking shows: equal coordinates, missing chunks that would be lost.
            reason = error.message
    collection = collect(entries, refs)
    notes = [] if reason is None else [f"not stacked: {reason}"]
    if (pattern := options.get("pattern")) is not None and (parsed := parse(pattern)).time is None:
        notes.append(f"the files are collected, so the field {parsed.fields[0]!r} of the pattern is not used")
    return replace(collection, warnings=(*collection.warnings, *notes))


def _with_note_on_times(arrangement: Arrangement, pattern: str | None) -> Arrangement:
    """Notes that the files of a mosaic, which has no time dimension, have several times, if a pattern gave them."""
    if pattern is None:
        return arrangement
    files = arrangement.files
    times = np.unique(files.datetime[[status == "ok" for status in files.status]])
    if len(times) < 2:
        return arrangement
    first, last = (np.datetime_as_string(end, "s") for end in (times[0], times[-1]))
    note = (
        f"a mosaic has no time dimension: the {len(times):,} times of its files, {first} to {last}, are in the table "
        "of files"
    )
    return replace(arrangement, warnings=(*arrangement.warnings, note))


def _stack_coordinates(
    entries: Sequence[FileEntry],
    *,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    skip_misfits: bool = False,
    **_: Any,
) -> tuple[FileCoordinates | None, str | None]:
    """The coordinates of files that can be stacked; otherwise None and, if a user may wonder, the reason."""
    good = readable(entries)
    if len(good) < 2:
        return None, None
    coordinates = read_coordinates(entries, dim=dim, pattern=pattern, coordinate=coordinate)
    has_labels = coordinates.origin != "order" or coordinate == "order"
    if has_labels and skip_misfits:
        return coordinates, None
    reason = first_misfit(entries, coordinates)
    if coordinates.misfits:  # if the files differ as well, that is the reason: coordinates would not help
        return None, reason or next(iter(coordinates.misfits.values()))
    if not has_labels:
        hint = None if reason is not None else suggest_pattern([entries[i].source.url for i in good])
        return None, hint and f"files have no time, but their names seem to contain one: pattern={hint!r}"
    return (coordinates, None) if reason is None else (None, reason)
