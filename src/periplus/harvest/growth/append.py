"""Must an index be arranged again, or does it stay as it is, or do the new files only follow those it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange import Arrangement, FileEntry, arrange, collect
from periplus.arrange.arrangement import instant
from periplus.arrange.collect.names import names_below, safe_path
from periplus.arrange.pattern import NamePattern
from periplus.errors import ConflictError
from periplus.harvest.growth.stored import StoredIndex
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.placements import placements_of
from periplus.harvest.scanning.drive import Harvested
from periplus.model import Array, Placements, Refs
from periplus.table.collection.build import extended
from periplus.table.collection.groups import GroupAttributes, GroupedArrays

GROWING = ("dataset", "flat")
"""Forms to which rows can be added."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a run wants of the index at its target."""

    kept: Mapping[int, Harvested]
    """Files of the index that were asked for again and have not changed, by id."""
    others: Sequence[int]
    """Files of the index that were not asked for and stay."""
    asked: Mapping[str, Any]
    """Options, as an index records them."""
    form: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Appended:
    """New files after those of an index: the whole catalog, and the rest of the new files alone."""

    laid: Arrangement
    placements: Placements | None = None


def is_unchanged(index: StoredIndex, request: Request, entries: Sequence[FileEntry]) -> bool:
    """Whether the index is already what was asked for: the same files, none changed, arranged in the same way."""
    if not _same_request(index, request) or any(entry.error is None for entry in entries):
        return False
    return {entry.source.url: entry.error for entry in entries} == index.bad


def appended(
    index: StoredIndex,
    request: Request,
    gathered: Gathered,
    timed: Callable[[Sequence[FileEntry]], Sequence[FileEntry]],
    options: Mapping[str, Any],
) -> Appended | None:
    """The index with new files at its end; None where it must be arranged again.

    The files of the result are the new ones alone, and its blocks count them from 0. `timed` gives entries the times in
    their names.
    """
    bad = index.bad
    new = [i for i, entry in enumerate(gathered.entries) if entry.error is None or entry.source.url not in bad]
    entries = [gathered.entries[i] for i in new]
    if index.sidecars or any(entry.sidecars for entry in entries) or not index.recalls:
        return None
    if index.table.form not in GROWING or not _same_request(index, request):
        return None
    if not bad.items() <= {e.source.url: e.error for e in gathered.entries}.items():
        return None  # a file that failed before is gone, is well now, or fails in another way: its row must change

    def refs(entry: int, which: int) -> Refs:
        return gathered.refs(new[entry], which)

    last = max((file.number for file in request.kept.values()), default=-1)
    if index.arrangement.get("coordinate") == "order" and any(gathered.numbers[i] < last for i in new):
        return None  # where only the order counts, what is named in between belongs in between
    if index.kind == "collect":
        return _longer_collection(index, request, entries, refs)
    if index.kind == "stack":
        return _longer_stack(index, request, entries, refs, timed, options)
    return None


def _same_request(index: StoredIndex, request: Request) -> bool:
    """Whether all files of the index stay, and mean the same as before."""
    arrangement, kept = index.arrangement, request.kept
    if arrangement.get("asked") != dict(request.asked) or len(kept) + len(request.others) != index.count:
        return False
    if request.form is not None and request.form != index.table.form:
        return False
    # Where files overlap, the order they are given in may say which of them is seen.
    ordered = arrangement.get("coordinate") == "order" or index.kind == "mosaic"
    if ordered and not _ascending([kept[number].number for number in sorted(kept)]):
        return False
    series = _series(index, kept) if index.kind == "stack" else None
    groups = index.groups if any(file.input.group is not None for file in kept.values()) else None
    named = index.pattern is not None and index.pattern.time is not None
    for number, file in kept.items():
        item = file.input
        if named and index.pattern is not None and not _is_named(index, number, index.pattern):
            return False  # written before a pattern gave times to every arrangement
        if not named and item.datetime is not None and instant(item.datetime) != index.files.datetime[number]:
            return False
        if series is not None and series.get(number) != ("" if item.series is None else safe_path(item.series)):
            return False
        if groups is not None and item.group is not None and groups[number] != safe_path(item.group):
            return False
    return True


def _is_named(index: StoredIndex, number: int, pattern: NamePattern) -> bool:
    """Whether a file has the time that is in its name."""
    url = index.files.path[number]
    found = pattern.match(url)
    value = None if found is None else pattern.value(found, pattern.time or "", url)
    return value is not None and bool(value == index.files.datetime[number])


def _ascending(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _series(index: StoredIndex, wanted: Mapping[int, Any]) -> dict[int, str]:
    """The series of files of a stack: what the target has before the name of the array in its file."""
    placements = index.table.placements
    if placements is None:
        return {}
    found: dict[int, str] = {}
    for file, array, code in zip(
        placements.file.tolist(), placements.array.tolist(), placements.description.tolist(), strict=True
    ):
        if array >= 0 and file in wanted and file not in found:
            name, inner = placements.arrays[array], placements.descriptions[code].name
            found[file] = name[: -len(inner)].rstrip("/")
    return found


# --- a collection -----------------------------------------------------------------------------------------------------


def _longer_collection(
    index: StoredIndex, request: Request, entries: Sequence[FileEntry], refs: Any
) -> Appended | None:
    """A collection with more groups, if those it has surely keep their names; the files it has are not looked at."""
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
    laid = collect(fixed, refs)
    new, attributes = laid.catalog.arrays, laid.catalog.attributes
    arrays: Mapping[str, Array] = {**catalog.arrays, **new} if not isinstance(catalog.arrays, GroupedArrays) else new
    said: Mapping[str, Mapping[str, Any]] = {**catalog.attributes, **attributes}
    if isinstance(catalog.arrays, GroupedArrays):
        rows = {name: len(index.files) + i for i, name in zip(good, names, strict=True)}
        more = extended(catalog.arrays, new, rows, attributes)
        before = catalog.attributes
        arrays = more
        said = GroupAttributes(before.plain if isinstance(before, GroupAttributes) else before, more)
    arrangement = {**laid.catalog.arrangement, "depth": depth, "asked": index.arrangement.get("asked")}
    whole = replace(laid.catalog, arrays=arrays, attributes=said, arrangement=arrangement)
    return Appended(replace(laid, catalog=whole))


def _inner_names(arrays: Mapping[str, Array]) -> Iterable[str]:
    """Names that arrays may have within their groups."""
    if isinstance(arrays, GroupedArrays):
        return arrays.rests
    return {name.split("/", k)[k] for name in arrays for k in range(1, name.count("/") + 1)}


# --- a stack ----------------------------------------------------------------------------------------------------------


def _longer_stack(
    index: StoredIndex,
    request: Request,
    entries: Sequence[FileEntry],
    refs: Any,
    timed: Callable[[Sequence[FileEntry]], Sequence[FileEntry]],
    options: Mapping[str, Any],
) -> Appended | None:
    """A stack with more steps, if all files it has stay where they are."""
    numbers = np.flatnonzero(index.good).tolist()
    recalled = index.recall(numbers, whole=False)
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
        laid = arrange(whole, lookup, kind="stack", start=count, **options)
    except ConflictError:
        return None  # arranged again, it is reported
    order = list(laid.order or ())
    if laid.misfits or order[:count] != list(range(count)) or not _stays(index, laid, numbers):
        return None
    placements = placements_of(laid, whole)
    assert placements is not None
    fresh = placements.file >= count
    files = laid.files.take(np.arange(count, len(order)))
    blocks = ((name, replace(rows, file=_counted(rows, -count))) for name, rows in laid.blocks)
    return Appended(replace(laid, files=files, blocks=blocks), _taken(placements, fresh, -count))


def _counted(rows: Refs, shift: int) -> NDArray[np.int32]:
    """The file of each row, counted from elsewhere; -1 where its bytes are inline."""
    assert rows.file is not None
    return np.where(rows.file < 0, rows.file, rows.file + np.int32(shift)).astype(np.int32)


def _stays(index: StoredIndex, laid: Arrangement, numbers: Sequence[int]) -> bool:
    """Whether all rows of the index mean the same in the new arrangement, at the places they have."""
    stored = index.table.placements
    assert stored is not None
    if not all(_grows(array, laid.catalog.arrays.get(name)) for name, array in index.table.catalog.arrays.items()):
        return False
    held = zip(stored.file.tolist(), stored.array.tolist(), stored.origin.tolist(), strict=True)
    before = {(file, stored.arrays[array]): tuple(origin) for file, array, origin in held}
    count = len(numbers)
    after = {(numbers[p.entry], p.target): p.origin for p in laid.placements if p.entry < count}
    return before.keys() == after.keys() and all(before[key][: len(origin)] == origin for key, origin in after.items())


def _grows(old: Array, new: Array | None) -> bool:
    """Whether an array is the old one with more steps."""
    if new is None or new.encodings[: len(old.encodings)] != old.encodings:
        return False
    same = ("dims", "chunks", "dtype", "level", "edges")
    alike = all(getattr(old, name) == getattr(new, name) for name in same) and old.shape[1:] == new.shape[1:]
    return alike and repr(old.fill) == repr(new.fill)  # NaN equals itself as text


def _taken(placements: Placements, rows: Any, shift: int) -> Placements:
    """Some rows, their files counted from elsewhere."""
    return replace(
        placements,
        file=placements.file[rows] + np.int32(shift),
        **{
            name: getattr(placements, name)[rows]
            for name in ("description", "array", "origin", "extent", "order", "corner")
        },
    )
