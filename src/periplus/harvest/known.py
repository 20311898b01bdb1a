"""What an index already holds of the files asked for: their facts, and on demand their references, by undoing it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.invert import Origin, is_stack, origins, undo, unstacked
from periplus.errors import MissingError
from periplus.fetch import Fetch
from periplus.harvest.part import Part, Piece, Record
from periplus.harvest.spill import Spill
from periplus.limits import Limits
from periplus.model import Array, Files, Source
from periplus.policy import Policy
from periplus.table import Table, open_table


@dataclass(slots=True, eq=False)
class Index:
    """An index at the target of a run."""

    table: Table
    files: Files
    origins: dict[str, Origin] | None
    by_url: dict[str, int]
    """File ids of the files that were indexed well."""

    def source(self, url: str) -> Source | None:
        """Facts of a file when it was indexed."""
        number = self.by_url.get(url)
        return None if number is None else self.files.source(number)


def open_index(target: str, fetch: Fetch, *, limits: Limits) -> Index | None:
    """The index at a target, if there is one. What is there and is no index is an error: it is not ours to replace."""
    try:
        table = open_table(target, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())
        files = table.files
    except MissingError:
        return None
    names = origins(table.catalog)
    good = {} if names is None else {url: i for i, url in enumerate(files.path) if files.status[i] == "ok"}
    return Index(table=table, files=files, origins=names, by_url=good)


@dataclass(slots=True, eq=False)
class Rows:
    """Where the rows of every file and array lie in a spill, and the pipelines they use."""

    pieces: dict[tuple[int, str], list[Piece]] = field(default_factory=dict)
    codes: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    prefixes: dict[int, set[str]] = field(default_factory=dict)
    """Group or series of each file."""


def undo_index(index: Index, wanted: Collection[int], folder: str) -> tuple[Part, dict[int, int]]:
    """The wanted files as if they had just been scanned, and the slot of each in the part.

    The rows of the index stream by once, into files of `folder`, from where they are mapped. A file of which the index
    holds no row, or inline bytes, cannot be told apart this way: it has no slot and must be read again.
    """
    catalog, names = index.table.catalog, index.origins or {}
    stacked = is_stack(catalog)
    keep = np.zeros(len(index.files), bool)
    keep[list(wanted)] = True
    rows = Rows()
    with Spill(Path(folder)) as spill:
        for name, block in index.table.blocks():
            file = np.zeros(len(block), np.int32) if block.file is None else block.file
            if block.data is not None:
                keep[file[file >= 0]] = False  # the other rows of a chunk that is partly inline
            chosen = (file >= 0) & keep[np.maximum(file, 0)]
            found = undo(block if chosen.all() else block.take(chosen), stacked=stacked)
            first = spill.add(found.refs)
            for k, owner in enumerate(found.files.tolist()):
                start, stop = found.starts[k : k + 2].tolist()
                rows.pieces.setdefault((owner, name), []).append(first.within(start, stop))
                rows.codes.setdefault((owner, name), set()).update(found.codes[k])
                rows.prefixes.setdefault(owner, set()).add(names[name].prefix)
        columns, maps = spill.columns()
    records, slots = _records(index, names, rows, keep, stacked=stacked)
    return Part(records=records, columns=columns, maps=maps), slots


def _records(
    index: Index, names: dict[str, Origin], rows: Rows, keep: NDArray[np.bool_], *, stacked: bool
) -> tuple[list[Record], dict[int, int]]:
    catalog, files = index.table.catalog, index.files
    inside: dict[str, list[str]] = {}
    for name, origin in names.items():
        inside.setdefault(origin.prefix, []).append(name)
    variants: dict[tuple[str, tuple[int, ...]], Array] = {}
    # Such a moment came from the file's name, by a pattern that another run may not give.
    by_name = catalog.arrangement.get("coordinate") == "pattern"

    def variant(name: str, codes: tuple[int, ...]) -> Array:
        if (name, codes) not in variants:
            array, local = catalog.arrays[name], names[name].name
            variants[name, codes] = unstacked(array, local, codes) if stacked else array.renamed(local)
        return variants[name, codes]

    records: list[Record] = []
    slots: dict[int, int] = {}
    for owner, prefixes in rows.prefixes.items():
        if not keep[owner] or len(prefixes) != 1:
            continue
        (prefix,) = prefixes
        codes = [tuple(sorted(rows.codes.get((owner, name), {0}))) for name in inside[prefix]]
        slots[owner] = len(records)
        records.append(
            Record(
                source=files.source(owner),
                format=files.format[owner],
                datetime=None if by_name else _moment(files.datetime[owner]),
                attributes=catalog.attributes.get(prefix, {}),
                arrays=tuple(
                    variant(name, used if stacked else ()) for name, used in zip(inside[prefix], codes, strict=True)
                ),
                pieces=tuple(tuple(rows.pieces.get((owner, name), ())) for name in inside[prefix]),
                codes=tuple(codes) if stacked else None,
                prefix=prefix,
            )
        )
    return records, slots


def _moment(value: np.datetime64) -> datetime | None:
    if np.isnat(value):
        return None
    found: datetime = value.astype("datetime64[us]").item()
    return found.replace(tzinfo=UTC)
