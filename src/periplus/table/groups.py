"""From blocks of references in any order and size to sorted row groups, with a bounded number of rows in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Catalog, Refs
from periplus.table.order import GROUP_ROWS, blocked
from periplus.table.schema import extras_of
from periplus.table.verify import verify

FLUSH_ROWS = 1 << 20
"""Rows of one array that are sorted and written together: about 40 MB and as much again while sorting."""
HELD_ROWS = 1 << 21
"""Rows of all arrays together that may wait."""

RowGroup = list[tuple[Array, Refs]]


@dataclass(slots=True)
class Tally:
    """What went into a table: counted while it is written, told in its document."""

    rows: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    extras: frozenset[str] = frozenset()

    def add(self, group: RowGroup) -> None:
        for array, refs in group:
            self.rows += len(refs)
            self.extras |= extras_of(refs)
            if refs.part is not None and len(refs):
                self.parts[array.name] = max(self.parts.get(array.name, 1), int(refs.part.max()) + 1)
            box = [(int(p.min()), int(p.max()) + 1) for p in refs.chunk] if len(refs) else []
            old = self.bounds.get(array.name, box)
            if len(refs):
                self.bounds[array.name] = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True)]


def row_groups(blocks: Iterable[tuple[str, Refs]], catalog: Catalog, sizes: NDArray[np.int64]) -> Iterator[RowGroup]:
    """Row groups in blocked order; small arrays share one. Every row is verified first; twins are a FormatError."""
    held: dict[str, list[Refs]] = {}
    count: dict[str, int] = {}
    waiting = 0
    for name, block in blocks:
        array = catalog.arrays.get(name)
        if array is None:
            raise FormatError(f"there are references for {name!r}, which is no array of the catalog")
        verify(array, block, sizes=sizes)
        for start in range(0, len(block), FLUSH_ROWS * 4):
            piece = block if len(block) <= FLUSH_ROWS * 4 else block.take(slice(start, start + FLUSH_ROWS * 4))
            held.setdefault(name, []).append(piece)
            count[name] = count.get(name, 0) + len(piece)
            waiting += len(piece)
            if count[name] >= FLUSH_ROWS:
                yield from _sorted_groups({name: held.pop(name)}, catalog)
                waiting -= count.pop(name)
            elif waiting >= HELD_ROWS:
                yield from _sorted_groups(held, catalog)
                held, count, waiting = {}, {}, 0
    yield from _sorted_groups(held, catalog)


def _sorted_groups(held: dict[str, list[Refs]], catalog: Catalog) -> Iterator[RowGroup]:
    shared: RowGroup = []
    waiting = 0
    for name in sorted(held):
        array = catalog.arrays[name]
        refs = Refs.joined(held[name], array.ndim)
        try:
            rows, ends = blocked(refs.chunk, refs.part)
        except FormatError as error:
            raise FormatError(f"array {name!r}: {error.message}") from None
        refs = refs.take(rows)
        if len(refs) < GROUP_ROWS // 4 and len(catalog.arrays) > 1:
            shared.append((array, refs))
            waiting += len(refs)
            if waiting >= GROUP_ROWS // 2:
                yield shared
                shared, waiting = [], 0
            continue
        for start, stop in zip([0, *ends], ends, strict=False):
            yield [(array, refs.take(slice(start, stop)))]
    if waiting:
        yield shared
