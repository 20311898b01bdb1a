"""The index in memory: Refs and Files as they are, for a harvest that is used at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Files, Placements, Refs
from periplus.policy import Policy
from periplus.table.document.document import document_for
from periplus.table.parquet.order import flat_positions
from periplus.table.table import Table, Window

if TYPE_CHECKING:
    from periplus.table.duckdb.sql import Database

Ranks: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Chunk positions, counted in C order -> how many rows of an array come before each."""


def memory_table(
    catalog: Catalog,
    refs: Mapping[str, Refs],
    files: Files,
    *,
    placements: Callable[[], Placements | None] = lambda: None,
    limits: Limits | None = None,
) -> Table:
    """A table over rows that are already in memory; nothing is copied, everything may be accessed.

    `placements` is called when they are asked for, as they mostly are not.
    """
    unknown = set(refs) - set(catalog.arrays)
    if unknown:
        raise FormatError(f"there are references for {sorted(unknown)[0]!r}, which is no array of the catalog")
    parts = {name: int(r.part.max()) + 1 for name, r in refs.items() if r.part is not None and len(r) and r.part.any()}
    document = document_for(catalog, parts=parts)
    rows = MemoryRows(dict(refs), files, sum(len(r) for r in refs.values()), placements)
    return Table(document, rows, url=None, policy=Policy.everything(), limits=limits or Limits())


@dataclass(slots=True)
class MemoryRows:
    """Rows held as Refs."""

    refs: dict[str, Refs]
    sources: Files
    count: int
    placed: Callable[[], Placements | None] = lambda: None
    _ranks: dict[str, Ranks | None] = field(default_factory=dict, init=False, repr=False)
    """By array; None where its rows are in no order."""

    @property
    def form(self) -> str:
        return "memory"

    def files(self) -> Files:
        return self.sources

    def file_count(self) -> int:
        return len(self.sources)

    def placements(self, catalog: Catalog, files: int) -> Placements | None:  # noqa: ARG002 - they are our own
        return self.placed()

    def find(self, array: Array, window: Window, *, most: int | None = None) -> Refs:  # noqa: ARG002 - all is there
        held = self.refs.get(array.name)
        if held is None:
            return Refs.empty(array.ndim)
        if all(low == 0 and high == count for (low, high), count in zip(window, array.grid, strict=True)):
            return held  # all of it; also of an array without dimensions
        if array.name not in self._ranks:
            self._ranks[array.name] = _ranks(held, array)
        ranks = self._ranks[array.name]
        # A table of millions of rows is asked for a few of them at a time, so they are not all looked at.
        return held.take(inside(held, window) if ranks is None else _between(ranks, array, window))

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryRows, (self.refs, self.sources, self.count)  # placements are for growing, elsewhere

    def blocks(self) -> Iterator[tuple[str, Refs]]:
        yield from self.refs.items()

    def close(self) -> None:
        """Nothing stays open here."""

    def database(self, table: Table) -> Database:
        from periplus.table.duckdb.sql import memory_database

        return memory_database(table, self.refs)


def _ranks(refs: Refs, array: Array) -> Ranks | None:
    """How to find rows that are in C order of chunk position, all of them in the grid; None for others."""
    capacity = math.prod(array.grid)
    low, high = refs.chunk.min(axis=1, initial=0), refs.chunk.max(axis=1, initial=0)
    if capacity >= 1 << 62 or (low < 0).any() or (high >= array.grid).any():
        return None
    key = flat_positions(refs.chunk, array.grid)
    if not (key[1:] >= key[:-1]).all():
        return None
    if len(key) == capacity and (key[1:] > key[:-1]).all():  # every chunk is there, so that its position is its row
        return lambda position: position
    return lambda position: np.searchsorted(key, position)


def _between(ranks: Ranks, array: Array, window: Window) -> Any:
    """The rows inside a window of chunk positions, which along the last dimension are neighbours."""
    first = np.zeros(1, np.int64)
    for (low, high), count in zip(window[:-1], array.grid, strict=False):
        first = (first[:, None] * count + np.arange(low, high)).reshape(-1)
    low, high = window[-1]
    first *= array.grid[-1]
    begin, end = ranks(first + low), ranks(first + high)
    if len(first) == 1:
        return slice(int(begin[0]), int(end[0]))
    held = end - begin
    return np.repeat(end - np.cumsum(held), held) + np.arange(held.sum())


def inside(refs: Refs, window: Window) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are in a window of chunk positions."""
    keep = np.ones(len(refs), bool)
    for positions, (low, high) in zip(refs.chunk, window, strict=True):
        keep &= (positions >= low) & (positions < high)
    return keep
