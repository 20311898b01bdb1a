"""Append to an index: whether it stays as it is, whether new files can follow those it has, or neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange import Arrangement, FileEntry, arrange, collect
from periplus.arrange.collect.names import names_below, safe_path
from periplus.arrange.pattern import NamePattern
from periplus.errors import ConflictError
from periplus.harvest.growth.stored import StoredIndex
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.placements import placements_of
from periplus.harvest.scanning.drive import Harvested
from periplus.model import Array, Placements, Refs
from periplus.model.files import instant
from periplus.table.collection.build import extended
from periplus.table.collection.groups import GroupAttributes, GroupedArrays

GROWING = ("dataset", "flat")
"""Forms to which rows can be added."""


@dataclass(frozen=True, slots=True, eq=False)
class AppendRequest:
    """What a run requests of the index at its target."""

    kept: Mapping[int, Harvested]
    """Files of the index that are inputs of the run and have not changed, by id."""
    others: Sequence[int]
    """Files of the index that are not inputs of the run and stay."""
    asked: Mapping[str, Any]
    """Options, as an index records them."""
    form: str | None


@dataclass(frozen=True, slots=True, eq=False)
class AppendedFiles:
    """Files appended to an index: the catalog of all files, and everything else of the new files only."""

    arrangement: Arrangement
    placements: Placements | None = None


def is_unchanged(index: StoredIndex, request: AppendRequest, gathered: Gathered) -> bool:
    """Whether the index already is what was requested: the same unchanged files in the same arrangement."""
    entries = gathered.entries
    if any(entry.error is None for entry in entries) or not _same_request(index, request, gathered):
        return False
    return {entry.source.url: entry.error for entry in entries} == index.errors


def append_files(
    index: StoredIndex,
    request: AppendRequest,
    gathered: Gathered,
    timed: Callable[[Sequence[FileEntry]], Sequence[FileEntry]],
    options: Mapping[str, Any],
) -> AppendedFiles | None:
    """The index with new files at its end; None if all files must be arranged again.

    The files of the result are the new ones only, counted from 0 in its blocks. `timed` gives entries the times in
    their names.
    """
    errors = index.errors
    new = [i for i, entry in enumerate(gathered.entries) if entry.error is None or entry.source.url not in errors]
    entries = [gathered.entries[i] for i in new]
    if index.sidecars or any(entry.sidecars for entry in entries) or not index.recalls:
        return None
    if index.table.form not in GROWING or not _same_request(index, request, gathered):
        return None
    if not errors.items() <= {e.source.url: e.error for e in gathered.entries}.items():
        return None  # a file with an error is gone, has no error now, or another one: its row must change

    def refs(entry: int, which: int) -> Refs:
        return gathered.refs(new[entry], which)

    if index.kind == "collect":
        return _append_to_collection(index, request, entries, refs)
    if index.kind == "stack":
        return _append_to_stack(index, request, entries, refs, timed, options)
    return None


def _same_request(index: StoredIndex, request: AppendRequest, gathered: Gathered) -> bool:
    """Whether all files of the index stay, with the same times, groups and series, and new ones follow them."""
    arrangement, kept = index.arrangement, request.kept
    if arrangement.get("asked") != dict(request.asked) or len(kept) + len(request.others) != index.count:
        return False
    if request.form is not None and request.form != index.table.form:
        return False
    if index.order_matters and not _same_order(index, request, gathered):
        return False
    has_name_times = index.pattern is not None and index.pattern.time is not None
    for number, file in kept.items():
        item = file.input
        if has_name_times and index.pattern is not None and not _has_name_time(index, number, index.pattern):
            return False  # written by a version that used the pattern for the times of stacks only
        if not has_name_times and item.datetime is not None and instant(item.datetime) != index.files.datetime[number]:
            return False
        if index.kind == "stack" and index.group_of(number) != ("" if item.series is None else safe_path(item.series)):
            return False
        if index.kind == "collect" and item.group is not None and index.group_of(number) != safe_path(item.group):
            return False
    return True


def _has_name_time(index: StoredIndex, number: int, pattern: NamePattern) -> bool:
    """Whether the time of a file is the one in its name."""
    url = index.files.path[number]
    found = pattern.match(url)
    value = None if found is None else pattern.value(found, pattern.time or "", url)
    return value is not None and bool(value == index.files.datetime[number])


def _same_order(index: StoredIndex, request: AppendRequest, gathered: Gathered) -> bool:
    """Whether the files of the index are in the order in which it lists them, and new files follow."""
    places = {file.source.url: file.number for file in request.kept.values()}
    places |= {entry.source.url: place for entry, place in zip(gathered.entries, gathered.numbers, strict=True)}
    known = index.listed(places)
    order = sorted(places, key=places.__getitem__)
    return order[: len(known)] == known


# --- a collection -----------------------------------------------------------------------------------------------------


def _append_to_collection(
    index: StoredIndex, request: AppendRequest, entries: Sequence[FileEntry], refs: Any
) -> AppendedFiles | None:
    """A collection with more groups; None if its groups might change. The files it has are not compared."""
    depth, first = index.arrangement.get("depth"), next(iter(index.by_url), None)
    if type(depth) is not int or first is None or any(file.input.group is not None for file in request.kept.values()):
        return None
    catalog = index.table.catalog
    groups = index.group_names
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    names = names_below([entries[i] for i in good], first, depth, groups, _inner_names(catalog.arrays))
    if names is None:
        return None
    fixed = list(entries)
    for i, name in zip(good, names, strict=True):
        fixed[i] = replace(entries[i], group=name)
    added = collect(fixed, refs)
    new, attributes = added.catalog.arrays, added.catalog.attributes
    arrays: Mapping[str, Array] = {**catalog.arrays, **new} if not isinstance(catalog.arrays, GroupedArrays) else new
    all_attributes: Mapping[str, Mapping[str, Any]] = {**catalog.attributes, **attributes}
    if isinstance(catalog.arrays, GroupedArrays):
        rows = {name: len(index.files) + i for i, name in zip(good, names, strict=True)}
        more = extended(catalog.arrays, new, rows, attributes)
        before = catalog.attributes
        arrays = more
        all_attributes = GroupAttributes(before.plain if isinstance(before, GroupAttributes) else before, more)
    record = {**added.catalog.arrangement, "depth": depth, "asked": index.arrangement.get("asked")}
    whole = replace(added.catalog, arrays=arrays, attributes=all_attributes, arrangement=record)
    return AppendedFiles(replace(added, catalog=whole))


def _inner_names(arrays: Mapping[str, Array]) -> Iterable[str]:
    """Names that arrays may have within their groups."""
    if isinstance(arrays, GroupedArrays):
        return arrays.rests
    return {name.split("/", k)[k] for name in arrays for k in range(1, name.count("/") + 1)}


# --- a stack ----------------------------------------------------------------------------------------------------------


def _append_to_stack(
    index: StoredIndex,
    request: AppendRequest,
    entries: Sequence[FileEntry],
    refs: Any,
    timed: Callable[[Sequence[FileEntry]], Sequence[FileEntry]],
    options: Mapping[str, Any],
) -> AppendedFiles | None:
    """A stack with more steps; None if files that it has would move."""
    numbers = np.flatnonzero(index.good).tolist()
    recalled = index.recall(numbers, complete=False)
    if len(recalled.slots) != len(numbers):
        return None
    old = []
    for number in numbers:
        slot = recalled.slots[number]
        fact = recalled.facts[slot]
        asked = request.kept.get(number)
        old.append(
            FileEntry(
                source=fact.source,
                format=fact.format,
                datetime=(None if asked is None else asked.input.datetime) or fact.datetime,
                series=(fact.prefix or None) if asked is None else asked.input.series,
                arrays=recalled.part.arrays[slot],
                attributes=fact.attributes,
                indexed=True,
            )
        )
    count = len(old)

    def lookup(entry: int, which: int) -> Refs:
        return (
            recalled.part.refs(recalled.slots[numbers[entry]], which) if entry < count else refs(entry - count, which)
        )

    whole = [*timed(old), *entries]
    try:
        stacked = arrange(whole, lookup, kind="stack", start=count, **options)
    except ConflictError:
        return None  # arranging all files again reports it
    if stacked.misfits or not _keeps_rows(index, stacked, numbers):
        return None
    placements = placements_of(stacked, whole)
    assert placements is not None
    fresh = placements.file >= count
    files = stacked.files.take(np.arange(count, len(whole)))
    blocks = ((name, replace(rows, file=_shifted(rows, -count))) for name, rows in stacked.blocks)
    return AppendedFiles(replace(stacked, files=files, blocks=blocks), _taken(placements, fresh, -count))


def _shifted(rows: Refs, shift: int) -> NDArray[np.int32]:
    """The file of each row, shifted; -1 where its bytes are inline."""
    assert rows.file is not None
    return np.where(rows.file < 0, rows.file, rows.file + np.int32(shift)).astype(np.int32)


def _keeps_rows(index: StoredIndex, stacked: Arrangement, numbers: Sequence[int]) -> bool:
    """Whether all rows of the index keep their positions and encodings in the new arrangement."""
    stored = index.table.placements
    assert stored is not None
    if not all(_grows(array, stacked.catalog.arrays.get(name)) for name, array in index.table.catalog.arrays.items()):
        return False
    held = zip(stored.file.tolist(), stored.array.tolist(), stored.origin.tolist(), strict=True)
    before = {(file, stored.arrays[array]): tuple(origin) for file, array, origin in held}
    count = len(numbers)
    after = {(numbers[p.entry], p.target): p.origin for p in stacked.placements if p.entry < count}
    return before.keys() == after.keys() and all(before[key][: len(origin)] == origin for key, origin in after.items())


def _grows(old: Array, new: Array | None) -> bool:
    """Whether an array is the old one with more steps."""
    if new is None or new.encodings[: len(old.encodings)] != old.encodings:
        return False
    same = ("dims", "chunks", "dtype", "level", "edges")
    alike = all(getattr(old, name) == getattr(new, name) for name in same) and old.shape[1:] == new.shape[1:]
    return alike and repr(old.fill) == repr(new.fill)  # NaN equals itself as text


def _taken(placements: Placements, rows: Any, shift: int) -> Placements:
    """Some rows, with shifted file numbers."""
    return replace(
        placements,
        file=placements.file[rows] + np.int32(shift),
        **{
            name: getattr(placements, name)[rows]
            for name in ("description", "array", "origin", "extent", "order", "corner")
        },
    )
