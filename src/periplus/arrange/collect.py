"""collect: every file its own group; a single file keeps its names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.names import group_names, shared_depth
from periplus.model import Array, Catalog, Refs


def collect(entries: Sequence[Entry], refs: Lookup, *, start: int = 0) -> Arrangement:
    """Lay every file into a group of its own.

    Arrays, files and blocks begin with entry `start`: those before are stored already, and only have their names.
    """
    groups = groups_of(entries)
    depth = shared_depth([entries[i] for i in groups])
    later = {i: group for i, group in groups.items() if i >= start}
    arrays: dict[str, Array] = {}
    for i, group in later.items():
        for array in entries[i].arrays:
            name = placed(group, array.name)
            arrays[name] = array.renamed(name)
    catalog = Catalog(
        arrays=arrays,
        attributes={group: entries[i].attributes for i, group in later.items() if entries[i].attributes},
        arrangement={"kind": "collect"} | ({} if depth is None else {"depth": depth}),
    )
    blocks = _blocks(entries, later, refs)
    column = np.array([groups.get(i) for i in range(start, len(entries))], object)
    files = replace(files_of(entries[start:]), columns={"group": column})
    return Arrangement(catalog=catalog, files=files, blocks=blocks, kind="collect")


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


def owners(refs: Refs, file: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The file column of references that all lie in one file, or in those they name; -1 where the bytes are inline."""
    column = np.full(len(refs), file, dtype=np.int32) if refs.file is None else refs.file.copy()
    if refs.inline is not None:
        column[refs.inline.held] = -1
    return column
