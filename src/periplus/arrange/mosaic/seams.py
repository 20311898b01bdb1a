"""One dimension of a mosaic, cut where the chunks of its files begin and end."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Cuts:
    """Chunks along a dimension, each once however many files have it; pixels are counted from the first file's."""

    _starts: list[int] = field(default_factory=list)
    _ends: dict[int, int] = field(default_factory=dict)
    """End of each chunk, by its start."""
    _known: set[tuple[int, bytes]] = field(default_factory=set)

    def clash(self, first: int, edges: NDArray[np.int64]) -> bool:
        """Whether a chunk of a file at `first` is not one of ours and yet lies across one of them."""
        if (first, edges.tobytes()) in self._known:
            return False
        for start, stop in pairwise((first + edges).tolist()):
            at = bisect_left(self._starts, start)
            # The chunk before may reach into this one, that at the same place may end elsewhere, and the next may
            # begin inside it.
            for other in self._starts[max(at - 1, 0) : at + 2]:
                end = self._ends[other]
                if other < stop and start < end and (other, end) != (start, stop):
                    return True
        return False

    def add(self, first: int, edges: NDArray[np.int64]) -> None:
        """Take the chunks of a file that does not clash."""
        key = (first, edges.tobytes())
        if key in self._known:
            return
        self._known.add(key)
        for start, stop in pairwise((first + edges).tolist()):
            if start not in self._ends:
                insort(self._starts, start)
                self._ends[start] = stop

    def sizes(self, usual: int) -> NDArray[np.int64]:
        """Sizes of all chunks in order; where no file lies, chunks of the usual size and a rest."""
        found: list[int] = []
        at = self._starts[0]
        for start in self._starts:
            if start > at:
                whole, rest = divmod(start - at, usual)
                found += [usual] * whole + [rest] * (rest > 0)
            at = self._ends[start]
            found.append(at - start)
        return np.array(found, np.int64)
