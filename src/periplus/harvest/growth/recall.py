"""Files of an index as if they had just been scanned: arrays from placements or groups, references from its rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.harvest.growth.target import TargetArray
from periplus.harvest.parts.part import FileFacts
from periplus.model import Array, Placements, Refs
from periplus.table import Table
from periplus.table.collection.groups import moved
from periplus.table.query.footprint import chunk_range
from periplus.table.table import clipped

STEPS = 512
"""Steps of a stack whose rows are read together, as many as a row group has."""
HELD_ROWS = 1 << 22
"""Rows that are cached for the next files."""


@dataclass(slots=True, eq=False)
class RecalledPart:
    """Arrays and references of files, by slot."""

    arrays: Sequence[tuple[Array, ...]]
    rows: Callable[[int, int], Refs]
    several: Callable[[Sequence[int], int], Sequence[Refs]] | None = None
    """Like `rows`, for many files at once, if that is faster."""

    def refs(self, slot: int, which: int) -> Refs:
        """References of an array of a file."""
        return self.rows(slot, which)

    def batch(self, slots: NDArray[np.intp], which: int) -> tuple[NDArray[np.intp], Refs]:
        """References of an array of many files, and the position of the file of each row in `slots`."""
        assert self.several is not None
        found = self.several(slots.tolist(), which)
        owner = np.repeat(np.arange(len(slots)), [len(refs) for refs in found])
        return owner, Refs.joined(found, self.arrays[int(slots[0])][which].ndim)

    def release(self) -> None:
        """Nothing is mapped."""


class RecalledFiles(NamedTuple):
    """Recalled files of an index."""

    part: RecalledPart
    facts: list[FileFacts]
    slots: dict[int, int]
    """Slot of each file; a file without one must be read again."""


# --- collections ------------------------------------------------------------------------------------------------------


def recall_groups(
    table: Table,
    groups: Sequence[str | None],
    wanted: Sequence[int],
    sidecars: Mapping[int, Sequence[int]],
    fact: Callable[[int, tuple[int, ...]], FileFacts],
) -> RecalledFiles:
    """Files of a collection: each has the arrays in its group."""
    catalog = table.catalog
    inside = arrays_by_group({group for group in groups if group is not None}, catalog.arrays) or {}
    facts: list[FileFacts] = []
    slots: dict[int, int] = {}
    arrays: list[tuple[Array, ...]] = []
    names: list[list[str]] = []
    for number in wanted:
        group = groups[number]
        held = inside.get(group or "", []) if group is not None else []
        stored_in = _stored_in(table, held, number, sidecars.get(number, ()))
        if group is None or not held or stored_in is None:
            continue
        slots[number] = len(facts)
        facts.append(fact(number, stored_in))
        skip = len(group) + 1 if group else 0
        arrays.append(tuple(catalog.arrays[name].renamed(name[skip:]) for name in held))
        names.append(held)

    def rows(slot: int, which: int) -> Refs:
        return replace(table.refs(names[slot][which]), file=None)

    def several(chosen: Sequence[int], which: int) -> list[Refs]:
        targets = [table.array(names[slot][which]) for slot in chosen]
        found = table.listed_all([(array, clipped(array, None)) for array in targets])
        return [replace(refs, file=None) for refs in found]

    return RecalledFiles(RecalledPart(arrays, rows, several), facts, slots)


def arrays_by_group(groups: set[str], arrays: Mapping[str, Array]) -> dict[str, list[str]] | None:
    """Names of arrays by the innermost group that contains them; None if one is in no group."""
    found: dict[str, list[str]] = {}
    for name in arrays:
        at = len(name)
        while (at := name.rfind("/", 0, at)) > 0 and name[:at] not in groups:
            pass
        group = name[: max(at, 0)]
        if group not in groups:
            return None
        found.setdefault(group, []).append(name)
    return found


def _stored_in(table: Table, names: Sequence[str], owner: int, sidecars: Sequence[int]) -> tuple[int, ...] | None:
    """For each array the sidecar with its bytes, counted from 1; None if several files have them."""
    if not sidecars:
        return ()
    number = {owner: 0} | {each: n for n, each in enumerate(sidecars, 1)}
    stored_in = []
    for name in names:
        file = table.refs(name).file
        held = {owner} if file is None else set(np.unique(file[file >= 0]).tolist()) or {owner}
        if len(held) > 1 or not held <= set(number):
            return None
        stored_in.append(number[held.pop()])
    return tuple(stored_in) if any(stored_in) else ()


# --- stacks and mosaics -----------------------------------------------------------------------------------------------


def recall_placed(
    table: Table,
    placements: Placements,
    wanted: Sequence[int],
    sidecars: Mapping[int, Sequence[int]],
    fact: Callable[[int, tuple[int, ...]], FileFacts],
) -> RecalledFiles:
    """Files of a stack or mosaic, from their placements."""
    owners = np.arange(len(table.stored_files), dtype=np.int64)
    shared = set()
    for owner, each in sidecars.items():
        for number in each:
            if owners[number] != number:
                shared |= {owner, int(owners[number])}  # two files share a sidecar
            owners[number] = owner
    keep = np.zeros(len(owners), bool)
    keep[[number for number in wanted if number not in shared]] = True
    chosen = np.flatnonzero(keep[owners[placements.file]])
    chosen = chosen[np.argsort(owners[placements.file[chosen]], kind="stable")]
    mine = owners[placements.file[chosen]]
    starts = np.flatnonzero(np.diff(mine, prepend=-1)).tolist()
    rows = _PlacedRows(table, placements)
    facts: list[FileFacts] = []
    slots: dict[int, int] = {}
    arrays: list[tuple[Array, ...]] = []
    lists: list[list[int]] = []
    known: dict[Any, tuple[Array, ...]] = {}
    for start, stop in pairwise([*starts, len(chosen)]):
        numbers = chosen[start:stop].tolist()
        owner = int(mine[start])
        sidecar_numbers = {owner: 0} | {each: n for n, each in enumerate(sidecars.get(owner, ()), 1)}
        stored_in = tuple(sidecar_numbers[int(placements.file[p])] for p in numbers)
        alike = (*placements.description[numbers].tolist(), *placements.corner[numbers].ravel().tolist())
        key = (*alike, *placements.array[numbers].tolist())
        if key not in known:
            known[key] = tuple(rows.scanned_array(p) for p in numbers)
        slots[owner] = len(facts)
        facts.append(fact(owner, stored_in if any(stored_in) else ()))
        arrays.append(known[key])
        lists.append(numbers)
    return RecalledFiles(RecalledPart(arrays, lambda slot, which: rows.scanned(lists[slot][which])), facts, slots)


@dataclass(slots=True, eq=False)
class _RowBatch:
    """Rows of a part of an array, sorted by file."""

    refs: Refs
    files: NDArray[np.int32]
    starts: NDArray[np.int64]

    def of(self, file: int) -> Refs:
        place = int(np.searchsorted(self.files, file))
        if place == len(self.files) or self.files[place] != file:
            return Refs.empty(self.refs.chunk.shape[0])
        return self.refs.take(slice(int(self.starts[place]), int(self.starts[place + 1])))


@dataclass(slots=True, eq=False)
class _PlacedRows:
    """Converts rows of target arrays to references of the arrays of files."""

    table: Table
    placements: Placements
    _batches: OrderedDict[Any, _RowBatch] = field(default_factory=OrderedDict)
    _targets: dict[int, TargetArray] = field(default_factory=dict)

    def scanned_array(self, row: int) -> Array:
        """The array as it is in the file."""
        p = self.placements
        array = p.descriptions[p.description[row]]
        x, y = p.corner[row].tolist()
        if p.array[row] < 0:
            return moved(array, x, y)
        found = moved(self._target(row).source_array(array), x, y)
        self._target(row).check_origin(found, p.origin[row])
        return found

    def scanned(self, row: int) -> Refs:
        """The references of a placement, in chunks of the file."""
        p = self.placements
        if p.array[row] < 0:
            raise FormatError(f"the index has no rows for {p.descriptions[p.description[row]].name!r} of a file")
        target = self._target(row)
        rows = self._batch(row, target).of(int(p.file[row]))
        return target.source_refs(rows, p.descriptions[p.description[row]], p.origin[row])

    def _target(self, row: int) -> TargetArray:
        number = int(self.placements.array[row])
        if number not in self._targets:
            self._targets[number] = TargetArray.of(self.table.array(self.placements.arrays[number]))
        return self._targets[number]

    def _batch(self, row: int, target: TargetArray) -> _RowBatch:
        p, array = self.placements, target.array
        low, high = p.origin[row], p.origin[row] + p.extent[row]
        window = [chunk_range(array, d, int(low[d]), int(high[d])) for d in range(array.ndim)]
        stacked = array.ndim > p.descriptions[p.description[row]].ndim
        if stacked:
            first = window[0][0] - window[0][0] % STEPS
            window[0] = (first, first + STEPS)
        key = (array.name, *window)
        found = self._batches.get(key)
        if found is None:
            found = self._read(array.name, window, int(p.array[row]) if stacked else None)
            self._batches[key] = found
            held = sum(len(batch.refs) for batch in self._batches.values())
            while held > HELD_ROWS and len(self._batches) > 1:
                held -= len(self._batches.popitem(last=False)[1].refs)
        return found

    def _read(self, name: str, window: list[tuple[int, int]], stacked: int | None) -> _RowBatch:
        refs = self.table.refs(name, window)
        file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
        if (file < 0).any():
            if stacked is None:
                raise FormatError(f"inline bytes of {name!r} belong to no file, so its files must be read again")
            file = np.where(file < 0, self._files_of_steps(stacked)[refs.chunk[0]], file)
        order = np.argsort(file, kind="stable")
        ordered = file[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-2))
        return _RowBatch(refs.take(order), ordered[starts], np.append(starts, len(ordered)))

    def _files_of_steps(self, array: int) -> NDArray[np.int32]:
        """The file at each step of a stacked array."""
        p = self.placements
        rows = np.flatnonzero(p.array == array)
        found = np.full(self.table.array(p.arrays[array]).shape[0], -1, np.int32)
        found[p.origin[rows, 0]] = p.file[rows]
        return found
