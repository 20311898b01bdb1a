"""collect: every file its own group; a single file keeps its names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange.collect.names import group_names, shared_depth
from periplus.arrange.entry import Arrangement, Blocks, Entry, Lookup, Together, files_of
from periplus.model import Bundle, Catalog, Refs
from periplus.table.collection.build import FEWEST, grouped
from periplus.table.collection.bundles import Bundled
from periplus.table.collection.groups import GroupAttributes

BATCH_FILES = 4096
BATCH_ROWS = 1 << 19
"""Files, and chunks of their arrays, whose references are looked up together."""


def collect(entries: Sequence[Entry], refs: Lookup) -> Arrangement:
    """Put every file into a group of its own."""
    groups = groups_of(entries)
    depth = shared_depth([entries[i] for i in groups])
    column = np.array([groups.get(i) for i in range(len(entries))], object)
    files = replace(files_of(entries), columns={"group": column})
    arrangement: dict[str, Any] = {"kind": "collect"} | ({} if depth is None else {"depth": depth})
    catalog = replace(_catalog(entries, groups), arrangement=arrangement)
    blocks: Blocks = _blocks(entries, groups, refs)
    if isinstance(refs, Together):
        blocks = Bundled(_bundles(entries, groups, refs), catalog.arrays)
    return Arrangement(catalog=catalog, files=files, blocks=blocks, kind="collect")


def _catalog(entries: Sequence[Entry], groups: dict[int, str]) -> Catalog:
    said = {group: entries[i].attributes for i, group in groups.items() if entries[i].attributes}
    if len(entries) >= FEWEST:
        found = [entries[i] for i in groups]
        arrays = grouped(
            list(groups.values()),
            list(groups),
            [entry.arrays for entry in found],
            [entry.attributes for entry in found],
        )
        if arrays.families:
            held = set(arrays.group_list)
            others = {group: attributes for group, attributes in said.items() if group not in held}
            return Catalog(arrays=arrays, attributes=GroupAttributes(others, arrays))
    each = ((placed(group, array.name), array) for i, group in groups.items() for array in entries[i].arrays)
    return Catalog(arrays={name: array.renamed(name) for name, array in each}, attributes=said)


def groups_of(entries: Sequence[Entry]) -> dict[int, str]:
    """The group of each entry that is sound, by its number."""
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    return dict(zip(good, group_names([entries[i] for i in good]), strict=True))


def placed(group: str, name: str) -> str:
    """The array's name inside a group; the root group is the empty string."""
    return f"{group}/{name}" if group else name


def _blocks(entries: Sequence[Entry], groups: dict[int, str], lookup: Lookup) -> Iterator[tuple[str, Refs]]:
    for i, group in groups.items():
        for k, array in enumerate(entries[i].arrays):
            refs = lookup(i, k)
            if len(refs):
                yield placed(group, array.name), replace(refs, file=owners(refs, i))


def _bundles(entries: Sequence[Entry], groups: dict[int, str], lookup: Together) -> Iterator[Bundle]:
    """Rows of a bounded number of files at a time, without a loop for each array."""
    alike: dict[tuple[tuple[str, tuple[str, ...]], ...], list[int]] = {}
    files = rows = 0
    known: dict[int, int] = {}
    for i in groups:
        arrays = entries[i].arrays
        alike.setdefault(tuple((array.name, array.dims) for array in arrays), []).append(i)
        if id(arrays) not in known:
            known[id(arrays)] = sum(math.prod(array.grid) for array in arrays)
        files, rows = files + 1, rows + known[id(arrays)]
        if files >= BATCH_FILES or rows >= BATCH_ROWS:
            yield from _together(alike, groups, lookup)
            alike, files, rows = {}, 0, 0
    yield from _together(alike, groups, lookup)


def _together(
    alike: Mapping[tuple[tuple[str, tuple[str, ...]], ...], list[int]], groups: dict[int, str], lookup: Together
) -> Iterator[Bundle]:
    for arrays, members in alike.items():
        for which, (array, dims) in enumerate(arrays):
            for owner, refs in lookup.together(members, which):
                if len(refs):
                    whose = np.array(members, np.int32)[owner] if refs.file is None else refs.file
                    present, codes = np.unique(owner, return_inverse=True)
                    yield Bundle(
                        names=[placed(groups[members[k]], array) for k in present.tolist()],
                        owner=codes.astype(np.int32),
                        dims=dims,
                        refs=replace(refs, file=owners(replace(refs, file=whose), -1)),
                    )


def owners(refs: Refs, file: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The file column of references that all lie in one file, or in those they name; -1 where the bytes are inline."""
    column = np.full(len(refs), file, dtype=np.int32) if refs.file is None else refs.file.copy()
    if refs.inline is not None:
        column[refs.inline.held] = -1
    return column
