"""The index in memory: Refs and Files as they are, for a harvest that is used at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Files, Refs
from periplus.policy import Policy
from periplus.table.document import document_for
from periplus.table.table import Table, Window

if TYPE_CHECKING:
    from periplus.table.sql import Database


def memory_table(catalog: Catalog, refs: Mapping[str, Refs], files: Files, *, limits: Limits | None = None) -> Table:
    """A table over rows that are already in memory; nothing is copied, everything may be reached."""
    unknown = set(refs) - set(catalog.arrays)
    if unknown:
        raise FormatError(f"there are references for {sorted(unknown)[0]!r}, which is no array of the catalog")
    parts = {name: int(r.part.max()) + 1 for name, r in refs.items() if r.part is not None and len(r) and r.part.any()}
    document = document_for(catalog, parts=parts)
    rows = MemoryRows(refs=dict(refs), sources=files, count=sum(len(r) for r in refs.values()))
    return Table(document, rows, url=None, policy=Policy.everything(), limits=limits or Limits())


@dataclass(slots=True)
class MemoryRows:
    """Rows held as Refs."""

    refs: dict[str, Refs]
    sources: Files
    count: int

    def files(self) -> Files:
        return self.sources

    def find(self, array: Array, window: Window) -> Refs:
        held = self.refs.get(array.name)
        if held is None:
            return Refs.empty(array.ndim)
        if all(low == 0 and high == count for (low, high), count in zip(window, array.grid, strict=True)):
            return held
        return held.take(inside(held, window))

    def blocks(self) -> Iterator[tuple[str, Refs]]:
        yield from self.refs.items()

    def database(self, table: Table) -> Database:
        from periplus.table.sql import memory_database

        return memory_database(table, self.refs)


def inside(refs: Refs, window: Window) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows lie in a window of chunk positions."""
    keep = np.ones(len(refs), bool)
    for positions, (low, high) in zip(refs.chunk, window, strict=True):
        keep &= (positions >= low) & (positions < high)
    return keep
