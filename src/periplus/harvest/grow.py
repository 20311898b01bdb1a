"""Must the whole index be laid again, or does it stay as it is, or only grow at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from periplus.arrange import Arrangement, Entry, collect, extend
from periplus.arrange.collect import groups_of
from periplus.arrange.entry import instant
from periplus.arrange.invert import Origin
from periplus.arrange.names import safe_path
from periplus.arrange.pattern import Pattern
from periplus.harvest.drive import Harvested
from periplus.harvest.gather import Gathered
from periplus.harvest.known import Index
from periplus.model import Array, Refs, Source
from periplus.table.families import GroupAttributes, Groups, extended


def unchanged_index(
    index: Index, kept: Mapping[int, Harvested], entries: Sequence[Entry], asked: Mapping[str, Any], form: str | None
) -> bool:
    """Whether the index is already what was asked for: the same files, none changed, laid in the same way."""
    if not _same_request(index, kept, asked, form) or any(entry.error is None for entry in entries):
        return False
    return {entry.source.url for entry in entries} == _bad(index)


def grown(
    index: Index, kept: Mapping[int, Harvested], gathered: Gathered, asked: Mapping[str, Any], form: str | None
) -> Arrangement | None:
    """The index with new files at its end, to be appended to a dataset; None where it must be laid again.

    The files of the result are the new ones alone, and its blocks count them from 0.
    """
    bad = _bad(index)
    new = [i for i, entry in enumerate(gathered.entries) if entry.error is None or entry.source.url not in bad]
    entries = [gathered.entries[i] for i in new]
    if index.companions or any(entry.companions for entry in entries):
        return None
    if index.table.document.pieces is None or not _same_request(index, kept, asked, form):
        return None
    if not bad <= {entry.source.url for entry in gathered.entries} or any(e.source.url in bad for e in entries):
        return None  # a file that failed before is gone, or is well now: its row must go

    def refs(entry: int, which: int) -> Refs:
        return gathered.refs(new[entry], which)

    catalog = index.table.catalog
    last = max((file.number for file in kept.values()), default=-1)
    if catalog.arrangement.get("coordinate") == "order" and any(gathered.numbers[i] < last for i in new):
        return None  # where only the order counts, what is named in between belongs in between
    if catalog.arrangement.get("kind") == "stack":
        return extend(catalog, entries, refs, first_file=0)
    return _longer_collection(index, kept, entries, refs)


def _same_request(index: Index, kept: Mapping[int, Harvested], asked: Mapping[str, Any], form: str | None) -> bool:
    """Whether all files of the index stay, and mean the same as before."""
    arrangement = index.table.catalog.arrangement
    if arrangement.get("asked") != dict(asked) or len(kept) != len(index.by_url):
        return False
    if form is not None and form != ("flat" if index.table.document.pieces is None else "dataset"):
        return False
    # Where files overlap, the order they are given in may say which of them is seen.
    ordered = arrangement.get("coordinate") == "order" or arrangement.get("kind") == "mosaic"
    if ordered and not _ascending([kept[number].number for number in sorted(kept)]):
        return False
    series = _series_of_files(index) if arrangement.get("kind") == "stack" else None
    groups = index.groups
    named = index.pattern is not None and index.pattern.time is not None
    for number, file in kept.items():
        item = file.input
        if named and index.pattern is not None and not _is_named(index, number, index.pattern):
            return False  # written before a pattern gave times to every arrangement
        if file.number < 0:
            continue  # kept as it is
        if not named and item.datetime is not None and instant(item.datetime) != index.files.datetime[number]:
            return False
        if series is not None and series.get(number) != ("" if item.series is None else safe_path(item.series)):
            return False
        if groups is not None and item.group is not None and groups[number] != safe_path(item.group):
            return False
    return True


def _is_named(index: Index, number: int, pattern: Pattern) -> bool:
    """Whether a file has the time that is in its name."""
    url = index.files.path[number]
    found = pattern.match(url)
    value = None if found is None else pattern.value(found, pattern.time or "", url)
    return value is not None and bool(value == index.files.datetime[number])


def _ascending(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _bad(index: Index) -> set[str]:
    return {url for url, status in zip(index.files.path, index.files.status, strict=True) if status != "ok"}


def _series_of_files(index: Index) -> dict[int, str]:
    """The series of every file, from the rows of its smallest array."""
    arrays, names = index.table.catalog.arrays, index.origins or {}
    smallest: dict[str, str] = {}
    for name, origin in names.items():
        best = smallest.get(origin.prefix)
        if best is None or math.prod(arrays[name].grid[1:]) < math.prod(arrays[best].grid[1:]):
            smallest[origin.prefix] = name
    if list(smallest) == [""]:
        return dict.fromkeys(index.by_url.values(), "")
    found: dict[int, str] = {}
    for prefix, name in smallest.items():
        owners = index.table.refs(name).file
        found.update(dict.fromkeys([] if owners is None else np.unique(owners).tolist(), prefix))
    return found


def _given(file: Harvested | None, group: str | None) -> str | None:
    """The name that a file's group was given; one that was not asked for keeps the name it has."""
    return group if file is None or file.number < 0 else file.input.group


def _longer_collection(
    index: Index, kept: Mapping[int, Harvested], entries: Sequence[Entry], refs: Any
) -> Arrangement | None:
    """A collection with more groups, if those it has keep their names."""
    catalog, files = index.table.catalog, index.files
    groups, names = index.groups, index.origins
    if groups is None or names is None or groups == [""]:
        return None
    if any(group is None and error is None for group, error in zip(groups, files.error, strict=True)):
        return None  # a file that belongs to another
    arrays, inside = catalog.arrays, _inside(catalog.arrays, names)
    old = [
        Entry(
            source=Source(url=files.path[number]),
            group=_given(kept.get(number), group),
            arrays=inside.get(group or "", ()),
            error=files.error[number] if group is None else None,
        )
        for number, group in enumerate(groups)
    ]
    first = len(old)
    told = groups_of([*old, *entries])
    if [told.get(number) for number in range(first)] != groups:
        return None
    laid = collect([*old, *entries], lambda i, k: refs(i - first, k), start=first)
    new, said = laid.catalog.arrays, laid.catalog.attributes
    known = {group: number for number, group in told.items() if number >= first}
    more = extended(arrays, new, known, said) if isinstance(arrays, Groups) else {**arrays, **new}
    arrangement = {**laid.catalog.arrangement, "asked": catalog.arrangement.get("asked")}
    blocks = (
        (name, replace(r, file=None if r.file is None else np.where(r.file < 0, r.file, r.file - first)))
        for name, r in laid.blocks
    )
    attributes: Mapping[str, Mapping[str, Any]] = {**catalog.attributes, **said}
    if isinstance(more, Groups):
        old_ones = catalog.attributes
        attributes = GroupAttributes(old_ones.plain if isinstance(old_ones, GroupAttributes) else old_ones, more)
    whole = replace(laid.catalog, arrays=more, attributes=attributes, arrangement=arrangement)
    return replace(laid, catalog=whole, blocks=blocks)


def _inside(arrays: Mapping[str, Array], names: Mapping[str, Origin]) -> dict[str, tuple[Array, ...]]:
    """Arrays by group, under the names they have in it; where they lie is not told."""
    if isinstance(arrays, Groups) and not arrays.plain:
        kinds = [tuple(family.values()) for family in arrays.families]
        return {group: kinds[number] for group, number in zip(arrays.group_list, arrays.family.tolist(), strict=True)}
    found: dict[str, list[Array]] = {}
    for name, origin in names.items():
        found.setdefault(origin.prefix, []).append(arrays[name].renamed(origin.name))
    return {group: tuple(held) for group, held in found.items()}
