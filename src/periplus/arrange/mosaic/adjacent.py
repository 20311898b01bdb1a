"""A mosaic whose files share chunk boundaries: every chunk stays as it is stored."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import Lookup, file_column
from periplus.arrange.encodings import EncodingList, mosaic_encodings, unpacked
from periplus.arrange.mosaic.overlap import PixelBox
from periplus.model import Array, Encoding, Refs

ROWS = 1 << 20
"""Rows of a block of many small files; a single file may have more."""
AXES = (-2, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Adjacent:
    """An array and the position of its files in its chunk grid."""

    array: Array
    origins: Mapping[int, tuple[int, int]]
    """(row, column) of the first chunk of each entry."""
    codes: Mapping[int, NDArray[np.uint16]]
    """For each encoding of an entry's array, its number in the mosaic."""
    missing: int
    """Number of chunks that no file has."""

    def blocks(self, lookup: Lookup, numbers: Mapping[int, int]) -> Iterator[tuple[str, Refs]]:
        """References of all files; `numbers` is the number of the array in each entry."""
        found: list[Refs] = []
        count = 0
        for i in sorted(self.origins, key=self.origins.__getitem__):
            refs = self._move(i, lookup(i, numbers[i]))
            if not len(refs):
                continue
            found.append(refs)
            count += len(refs)
            if count >= ROWS:
                yield self.array.name, _join(found, self.array.ndim)
                found, count = [], 0
        if found:
            yield self.array.name, _join(found, self.array.ndim)

    def _move(self, entry: int, refs: Refs) -> Refs:
        """The references of a file at their position in the mosaic."""
        chunk = refs.chunk.copy()
        chunk[-2:] += np.array(self.origins[entry], np.int32)[:, None]
        codes = self.codes[entry]
        return replace(
            refs,
            chunk=chunk,
            file=file_column(refs, entry),
            encoding=np.full(len(refs), codes[0], np.uint16) if refs.encoding is None else codes[refs.encoding],
        )


def adjacent(
    template: Array, members: Mapping[int, Array], boxes: Mapping[int, PixelBox], *, physical: bool
) -> Adjacent | None:
    """The files side by side; None if chunks would have to be split or hidden.

    `template` is the array without its chunks and encodings.
    """
    if len({array.chunks[:-2] for array in members.values()}) > 1:
        return None  # some files store bands together that others store separately
    boundaries = ChunkBoundaries(), ChunkBoundaries()
    for i, array in members.items():
        for each, first, d in zip(boundaries, (boxes[i].top, boxes[i].left), AXES, strict=True):
            edges = array.starts(array.ndim + d)
            if each.conflict(first, edges):
                return None
            each.add(first, edges)
    usual = tuple(max(array.chunks[d] for array in members.values()) for d in AXES)
    sizes = boundaries[0].sizes(usual[0]), boundaries[1].sizes(usual[1])
    irregular = tuple(_is_irregular(sizes[k], usual[k], members, d) for k, d in enumerate(AXES))
    starts = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
    origins = {i: (_chunk_at(starts[0], box.top), _chunk_at(starts[1], box.left)) for i, box in boxes.items()}
    covered = np.zeros((len(sizes[0]), len(sizes[1])), bool)
    for i, (row, column) in origins.items():
        rows, columns = members[i].grid[-2:]
        own = covered[row : row + rows, column : column + columns]
        if own.any():
            return None
        own[...] = True
    numbered = _number_encodings(template.name, members, irregular, physical=physical)
    if numbered is None:
        return None
    encodings, codes = numbered
    listed = tuple(tuple(size.tolist()) if each else None for size, each in zip(sizes, irregular, strict=True))
    largest = tuple(int(size.max()) if each else n for size, each, n in zip(sizes, irregular, usual, strict=True))
    array = replace(
        template,
        chunks=(*template.chunks[:-2], *largest),
        encodings=tuple(encodings.encodings),
        edges=(*(None for _ in template.shape[:-2]), *listed) if any(irregular) else None,
    )
    return Adjacent(array, origins, codes, int((~covered).sum()))


@dataclass(slots=True, eq=False)
class ChunkBoundaries:
    """The chunks of files along one dimension, each once; positions are in pixels."""

    _starts: list[int] = field(default_factory=list)
    _ends: dict[int, int] = field(default_factory=dict)
    """End of each chunk, by its start."""
    _known: set[tuple[int, bytes]] = field(default_factory=set)

    def conflict(self, first: int, edges: NDArray[np.int64]) -> bool:
        """Whether a chunk of a file that begins at `first` overlaps a chunk with other boundaries."""
        if (first, edges.tobytes()) in self._known:
            return False
        for start, stop in pairwise((first + edges).tolist()):
            at = bisect_left(self._starts, start)
            # The chunk before may end in this one, one with the same start may end elsewhere, the next may begin in it.
            for other in self._starts[max(at - 1, 0) : at + 2]:
                end = self._ends[other]
                if other < stop and start < end and (other, end) != (start, stop):
                    return True
        return False

    def add(self, first: int, edges: NDArray[np.int64]) -> None:
        """Add the chunks of a file that does not conflict."""
        key = (first, edges.tobytes())
        if key in self._known:
            return
        self._known.add(key)
        for start, stop in pairwise((first + edges).tolist()):
            if start not in self._ends:
                insort(self._starts, start)
                self._ends[start] = stop

    def sizes(self, usual: int) -> NDArray[np.int64]:
        """Sizes of all chunks in order; gaps between files have chunks of the usual size and a remainder."""
        found: list[int] = []
        at = self._starts[0]
        for start in self._starts:
            if start > at:
                count, rest = divmod(start - at, usual)
                found += [usual] * count + [rest] * (rest > 0)
            at = self._ends[start]
            found.append(at - start)
        return np.array(found, np.int64)


def _is_irregular(sizes: NDArray[np.int64], usual: int, members: Mapping[int, Array], dim: int) -> bool:
    """Whether chunk sizes along a dimension must be listed; only the last chunk of a regular grid may be shorter."""
    if bool((sizes[:-1] != usual).any()) or int(sizes[-1]) > usual:
        return True
    return any(a.chunks[dim] != usual or (a.edges is not None and a.edges[dim] is not None) for a in members.values())


def _number_encodings(
    name: str, members: Mapping[int, Array], irregular: Sequence[bool], *, physical: bool
) -> tuple[EncodingList, dict[int, NDArray[np.uint16]]] | None:
    """The encodings of all files; None if a file has irregular chunks along one dimension and padded ones along one."""
    encodings = mosaic_encodings(name)
    known: dict[int, NDArray[np.uint16]] = {}
    for array in {id(a): a for a in members.values()}.values():
        padded = _is_padded(array, irregular)
        if padded and array.edges is not None and any(edges is not None for edges in array.edges):
            return None

        def encoding_here(encoding: Encoding, array: Array = array, padded: bool = padded) -> Encoding:
            if padded and encoding.extent is None:
                encoding = replace(encoding, extent=array.chunks)
            return unpacked(encoding, array) if physical else encoding

        known[id(array)] = np.array([encodings.number(encoding_here(each)) for each in array.encodings], np.uint16)
    return encodings, {i: known[id(array)] for i, array in members.items()}


def _is_padded(array: Array, irregular: Sequence[bool]) -> bool:
    """Whether chunks at the edge of the file are stored with padding that the mosaic does not show."""
    return any(
        array.shape[d] % array.chunks[d] != 0
        for each, d in zip(irregular, AXES, strict=True)
        if each and (array.edges is None or array.edges[d] is None)
    )


def _chunk_at(starts: NDArray[np.int64], pixel: int) -> int:
    return int(np.searchsorted(starts, pixel))


def _join(found: Sequence[Refs], ndim: int) -> Refs:
    refs = Refs.joined(found, ndim)
    return refs if refs.encoding is None or refs.encoding.any() else replace(refs, encoding=None)
