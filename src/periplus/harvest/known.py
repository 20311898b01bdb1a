"""What an index already holds of the files asked for: their facts, and on demand their references, by undoing it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.invert import Origin, is_stack, origins, undo, unstacked
from periplus.arrange.pattern import Pattern, parse
from periplus.errors import FormatError, MissingError
from periplus.fetch import Fetch
from periplus.harvest.companions import SIDECAR, listed
from periplus.harvest.members import Members, members_of
from periplus.harvest.part import Fact, Part, Piece, places
from periplus.harvest.spill import Spill
from periplus.harvest.unlay import moment, undo_mosaic
from periplus.limits import Limits
from periplus.model import Array, Files, Source
from periplus.policy import Policy
from periplus.table import Table

OWN_TIMES = "own_times"
"""In an arrangement whose files have the times in their names: whether some have other times of their own."""


@dataclass(slots=True, eq=False)
class Index:
    """An index at the target of a run."""

    table: Table
    files: Files
    origins: dict[str, Origin] | None
    by_url: dict[str, int]
    """File ids of the files that were indexed well; companions of others are not among them."""
    companions: dict[int, list[int]] = field(default_factory=dict)
    """File ids of the companions of a file."""
    members: Members | None = None
    """What a mosaic remembers of its files."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run that wrote it."""
    pattern: Pattern | None = None
    """The pattern of that run."""

    @property
    def groups(self) -> list[str | None] | None:
        """The group of every file of a collection."""
        column = self.files.columns.get("group")
        collected = self.table.catalog.arrangement.get("kind") == "collect" and column is not None
        return column.tolist() if collected and column is not None else None

    def source(self, url: str) -> Source | None:
        """Facts of a file when it was indexed."""
        number = self.by_url.get(url)
        return None if number is None else self.files.source(number)

    @property
    def lost_times(self) -> bool:
        """Whether files have times of their own that the index does not hold, as it has those in their names."""
        named = self.pattern is not None and self.pattern.time is not None
        return named and self.table.catalog.arrangement.get(OWN_TIMES) is not False

    def moment(self, number: int) -> datetime | None:
        """A file's own time; None where the index has the time in its name, by a pattern that a run need not give."""
        named = self.pattern is not None and self.pattern.time is not None
        return None if named else moment(self.files.datetime[number])

    def beside(self, url: str) -> list[Source]:
        """Facts of a file's companions when it was indexed."""
        return [self.files.source(number) for number in self.companions.get(self.by_url.get(url, -1), ())]


def open_index(target: str, fetch: Fetch, *, limits: Limits) -> Index | None:
    """The index at a target, if there is one. What is there and is no index is an error: it is not ours to replace."""
    from periplus.table import open_table  # Arrow is heavy, and an index in memory needs none

    try:
        table = open_table(target, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())
        files = table.files
    except MissingError:
        return None
    members = members_of(table.catalog, len(files), limits=limits)
    names = origins(table.catalog, table.files) if members is None else {}
    good = {} if names is None else {url: i for i, url in enumerate(files.path) if files.status[i] == "ok"}
    companions = listed(table.catalog.arrangement, len(files))
    for number in {number for each in companions.values() for number in each}:
        good.pop(files.path[number], None)
    asked = table.catalog.arrangement.get("asked")
    asked = asked if isinstance(asked, Mapping) else {}
    return Index(
        table=table,
        files=files,
        origins=names,
        by_url=good,
        companions=companions,
        members=members,
        asked=asked,
        pattern=_pattern(asked.get("pattern")),
    )


def _pattern(text: Any) -> Pattern | None:
    """A pattern that an index holds, if it is one."""
    try:
        return parse(text) if isinstance(text, str) else None
    except FormatError:
        return None


@dataclass(slots=True, eq=False)
class Rows:
    """Where the rows of every file and array lie in a spill, and the pipelines they use."""

    pieces: dict[tuple[int, str], list[Piece]] = field(default_factory=dict)
    codes: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    prefixes: dict[int, set[str]] = field(default_factory=dict)
    """Group or series of each file."""
    homes: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    """Files that hold rows of each file and array, where some are companions."""


def undo_index(index: Index, wanted: Collection[int], folder: str) -> tuple[Part, list[Fact], dict[int, int]]:
    """The wanted files as if they had just been scanned: a part, what is known of them, and the slot of each.

    The rows of the index stream by once, into files of `folder`, from where they are mapped. A file of which the index
    holds no row, or inline bytes, or which shares pixels of a companion, cannot be told apart this way: it has no slot
    and must be read again.
    """
    if index.members is not None:
        return undo_mosaic(index, index.members, wanted)
    catalog, names = index.table.catalog, index.origins or {}
    stacked = is_stack(catalog)
    owners = _owners(index)
    keep = np.zeros(len(index.files), bool)
    keep[[number for number in wanted if all(owners[each] >= 0 for each in index.companions.get(number, ()))]] = True
    rows = Rows()
    with Spill(Path(folder)) as spill:
        for name, block in index.table.blocks():
            stored = np.zeros(len(block), np.int32) if block.file is None else block.file
            file = np.where(stored >= 0, owners[np.maximum(stored, 0)], -1)
            if block.inline is not None:
                keep[file[file >= 0]] = False  # the other rows of a chunk that is partly inline
            chosen = (file >= 0) & keep[np.maximum(file, 0)]
            for home in np.unique(stored[chosen]).tolist() if index.companions else ():
                rows.homes.setdefault((int(owners[home]), name), set()).add(home)
            block = replace(block, file=file) if index.companions else block
            found = undo(block if chosen.all() else block.take(chosen), stacked=stacked)
            first = spill.add(found.refs)
            for k, owner in enumerate(found.files.tolist()):
                start, stop = found.starts[k : k + 2].tolist()
                rows.pieces.setdefault((owner, name), []).append(first.within(start, stop))
                rows.codes.setdefault((owner, name), set()).update(found.codes[k])
                rows.prefixes.setdefault(owner, set()).add(names[name].prefix)
        columns, maps = spill.columns()
    inside: dict[str, list[str]] = {}
    for name, origin in names.items():
        inside.setdefault(origin.prefix, []).append(name)
    facts, slots, arrays, codes = _files(index, inside, rows, keep, stacked=stacked)
    groups = [
        rows.pieces.get((owner, name), []) for owner, slot in slots.items() for name in inside[facts[slot].prefix]
    ]
    part = Part(
        arrays=arrays, columns={**columns, **places(arrays, groups)}, codes=codes if stacked else None, maps=maps
    )
    return part, facts, slots


def _owners(index: Index) -> NDArray[np.int32]:
    """The file that every file's rows belong to; -1 for a companion with pixels that several files share."""
    found = np.arange(len(index.files), dtype=np.int32)
    for owner, companions in index.companions.items():
        for number in companions:
            shared = found[number] != number and index.files.format[number] != SIDECAR
            found[number] = -1 if shared else owner
    return found


def _homes(index: Index, rows: Rows, owner: int, names: Sequence[str]) -> tuple[int, ...] | None:
    """For every array the companion that holds its rows, counted from 1; None where it is not one file that does."""
    number = {owner: 0} | {each: n for n, each in enumerate(index.companions.get(owner, ()), 1)}
    homes = [rows.homes.get((owner, name), {owner}) for name in names]
    if any(len(each) > 1 for each in homes):
        return None
    found = tuple(number[home] for each in homes for home in each)
    return found if any(found) else ()


def _files(
    index: Index, inside: dict[str, list[str]], rows: Rows, keep: NDArray[np.bool_], *, stacked: bool
) -> tuple[list[Fact], dict[int, int], list[tuple[Array, ...]], list[tuple[tuple[int, ...], ...]]]:
    """For every file that has rows: what is known of it, its slot, its arrays, and the pipelines each of them uses."""
    catalog, files, names = index.table.catalog, index.files, index.origins or {}
    variants: dict[tuple[str, tuple[int, ...]], Array] = {}

    def variant(name: str, used: tuple[int, ...]) -> Array:
        if (name, used) not in variants:
            array, local = catalog.arrays[name], names[name].name
            variants[name, used] = unstacked(array, local, used) if stacked else array.renamed(local)
        return variants[name, used]

    facts: list[Fact] = []
    slots: dict[int, int] = {}
    arrays: list[tuple[Array, ...]] = []
    codes: list[tuple[tuple[int, ...], ...]] = []
    for owner, prefixes in rows.prefixes.items():
        if not keep[owner] or len(prefixes) != 1:
            continue
        (prefix,) = prefixes
        homes = _homes(index, rows, owner, inside[prefix])
        if homes is None:
            continue
        used = tuple(tuple(sorted(rows.codes.get((owner, name), {0}))) for name in inside[prefix])
        slots[owner] = len(facts)
        codes.append(used)
        arrays.append(
            tuple(variant(name, each if stacked else ()) for name, each in zip(inside[prefix], used, strict=True))
        )
        facts.append(
            Fact(
                source=files.source(owner),
                format=files.format[owner],
                datetime=index.moment(owner),
                attributes=catalog.attributes.get(prefix, {}),
                companions=tuple(files.source(number) for number in index.companions.get(owner, ())),
                homes=homes,
                prefix=prefix,
            )
        )
    return facts, slots, arrays, codes
