"""Arrange files as a collection: a group for each file; a single file keeps the names of its arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange.arrangement import (
    Arrangement,
    BatchLookup,
    Blocks,
    FileEntry,
    Lookup,
    array_path,
    file_column,
    files_table,
    readable,
)
from periplus.arrange.collect.names import group_names, shared_depth
from periplus.model import Bundle, Catalog, Refs
from periplus.table.collection.build import FEWEST, grouped
from periplus.table.collection.bundles import Bundled
from periplus.table.collection.groups import GroupAttributes

BATCH_FILES = 4096
BATCH_ROWS = 1 << 19
"""Files, and chunks of their arrays, whose references are looked up together."""


def collect(entries: Sequence[FileEntry], refs: Lookup) -> Arrangement:
    """Arrange each file as a group."""
    good = readable(entries)
    groups = dict(zip(good, group_names([entries[i] for i in good]), strict=True))
    depth = shared_depth([entries[i] for i in groups])
    column = np.array([groups.get(i) for i in range(len(entries))], object)
    files = replace(files_table(entries), columns={"group": column})
    arrangement: dict[str, Any] = {"kind": "collect"} | ({} if depth is None else {"depth": depth})
    catalog = replace(_catalog(entries, groups), arrangement=arrangement)
    blocks: Blocks = _blocks(entries, groups, refs)
    if isinstance(refs, BatchLookup):
        blocks = Bundled(_bundles(entries, groups, refs), catalog.arrays)
    return Arrangement(catalog=catalog, files=files, blocks=blocks, kind="collect")


def _catalog(entries: Sequence[FileEntry], groups: Mapping[int, str]) -> Catalog:
    attributes = {group: entries[i].attributes for i, group in groups.items() if entries[i].attributes}
    if len(entries) >= FEWEST:
        found = [entries[i] for i in groups]
        arrays = grouped(
            list(groups.values()),
            list(groups),
            [entry.arrays for entry in found],
            [entry.attributes for entry in found],
        )
        if arrays.families:
            in_families = set(arrays.group_list)
            others = {group: each for group, each in attributes.items() if group not in in_families}
            return Catalog(arrays=arrays, attributes=GroupAttributes(others, arrays))
    each = ((array_path(group, array.name), array) for i, group in groups.items() for array in entries[i].arrays)
    return Catalog(arrays={name: array.renamed(name) for name, array in each}, attributes=attributes)


def _blocks(entries: Sequence[FileEntry], groups: Mapping[int, str], lookup: Lookup) -> Iterator[tuple[str, Refs]]:
    for i, group in groups.items():
        for k, array in enumerate(entries[i].arrays):
            refs = lookup(i, k)
            if len(refs):
                yield array_path(group, array.name), replace(refs, file=file_column(refs, i))


_Structure = tuple[tuple[str, tuple[str, ...]], ...]
"""Name and dimensions of each array of a file."""


def _bundles(entries: Sequence[FileEntry], groups: Mapping[int, str], lookup: BatchLookup) -> Iterator[Bundle]:
    """Rows of a limited number of files at a time, without a loop over their arrays."""
    by_structure: dict[_Structure, list[int]] = {}
    files = rows = 0
    chunk_counts: dict[int, int] = {}
    for i in groups:
        arrays = entries[i].arrays
        by_structure.setdefault(tuple((array.name, array.dims) for array in arrays), []).append(i)
        if id(arrays) not in chunk_counts:
            chunk_counts[id(arrays)] = sum(math.prod(array.grid) for array in arrays)
        files, rows = files + 1, rows + chunk_counts[id(arrays)]
        if files >= BATCH_FILES or rows >= BATCH_ROWS:
            yield from _batch(by_structure, groups, lookup)
            by_structure, files, rows = {}, 0, 0
    yield from _batch(by_structure, groups, lookup)


def _batch(
    by_structure: Mapping[_Structure, list[int]], groups: Mapping[int, str], lookup: BatchLookup
) -> Iterator[Bundle]:
    for arrays, members in by_structure.items():
        for number, (array, dims) in enumerate(arrays):
            for owner, refs in lookup.batch(members, number):
                if len(refs):
                    file = np.array(members, np.int32)[owner] if refs.file is None else refs.file
                    present, codes = np.unique(owner, return_inverse=True)
                    yield Bundle(
                        names=[array_path(groups[members[k]], array) for k in present.tolist()],
                        owner=codes.astype(np.int32),
                        dims=dims,
                        refs=replace(refs, file=file_column(replace(refs, file=file), -1)),
                    )
