"""One dimension of a mosaic, cut where the chunks of its files begin and end."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Clash(NamedTuple):
    """Two chunks that lie across each other."""

    ours: tuple[int, int]
    theirs: tuple[int, int]
    """First pixel and the one after the last."""
    entry: int
    """Whose chunk it is."""


@dataclass(slots=True, eq=False)
class Cuts:
    """Chunks along a dimension, each once however many files have it; pixels are counted from the first file's."""

    _starts: list[int] = field(default_factory=list)
    _chunks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """End of each chunk and the first entry that has it, by its start."""
    _known: set[tuple[int, bytes]] = field(default_factory=set)

    def clash(self, first: int, edges: NDArray[np.int64]) -> Clash | None:
        """The first chunk of a file at `first` that is not one of ours and yet lies across one of them."""
        if (first, edges.tobytes()) in self._known:
            return None
        for start, stop in pairwise((first + edges).tolist()):
            at = bisect_left(self._starts, start)
            # The chunk before may reach into this one, that at the same place may end elsewhere, and the next may
            # begin inside it.
            for other in self._starts[max(at - 1, 0) : at + 2]:
                end, entry = self._chunks[other]
                if other < stop and start < end and (other, end) != (start, stop):
                    return Clash((start, stop), (other, end), entry)
        return None

    def add(self, first: int, edges: NDArray[np.int64], entry: int) -> None:
        """Take the chunks of a file that does not clash."""
        key = (first, edges.tobytes())
        if key in self._known:
            return
        self._known.add(key)
        for start, stop in pairwise((first + edges).tolist()):
            if start not in self._chunks:
                insort(self._starts, start)
                self._chunks[start] = stop, entry

    @property
    def first(self) -> int:
        return self._starts[0]

    @property
    def extent(self) -> int:
        return self._chunks[self._starts[-1]][0] - self._starts[0]

    def sizes(self, usual: int) -> NDArray[np.int64]:
        """Sizes of all chunks in order; where no file lies, chunks of the usual size and a rest."""
        found: list[int] = []
        at = self.first
        for start in self._starts:
            if start > at:
                whole, rest = divmod(start - at, usual)
                found += [usual] * whole + [rest] * (rest > 0)
            at = self._chunks[start][0]
            found.append(at - start)
        return np.array(found, np.int64)
