"""A mosaic whose files fit side by side: every chunk stays as it is stored, where its pixels lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.collect.collect import owners
from periplus.arrange.encodings import Book, mosaic_book
from periplus.arrange.entry import Lookup
from periplus.arrange.mosaic.overlap import Box
from periplus.arrange.mosaic.seams import Cuts
from periplus.arrange.packing import unpacked
from periplus.model import Array, Encoding, Refs

ROWS = 1 << 20
"""Rows of a block of many small files; a single file may have more."""
AXES = (-2, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Aligned:
    """An array and where the chunks of its files go."""

    array: Array
    spots: Mapping[int, tuple[int, int]]
    """(row, column) of the first chunk of each entry."""
    codes: Mapping[int, NDArray[np.uint16]]
    """For each encoding of an entry's array, its number here."""
    missing: int
    """Chunks of the array that no file holds."""

    def blocks(self, lookup: Lookup, which: Mapping[int, int]) -> Iterator[tuple[str, Refs]]:
        """References of all files; `which` is the number of the array in each entry."""
        pieces: list[Refs] = []
        count = 0
        for i in sorted(self.spots, key=self.spots.__getitem__):
            piece = self._moved(i, lookup(i, which[i]))
            if not len(piece):
                continue
            pieces.append(piece)
            count += len(piece)
            if count >= ROWS:
                yield self.array.name, _joined(pieces, self.array.ndim)
                pieces, count = [], 0
        if pieces:
            yield self.array.name, _joined(pieces, self.array.ndim)

    def _moved(self, entry: int, refs: Refs) -> Refs:
        """The references of a file at their places in the mosaic."""
        chunk = refs.chunk.copy()
        chunk[-2:] += np.array(self.spots[entry], np.int32)[:, None]
        codes = self.codes[entry]
        return Refs(
            chunk=chunk,
            offset=refs.offset,
            length=refs.length,
            file=owners(refs, entry),
            part=refs.part,
            encoding=np.full(len(refs), codes[0], np.uint16) if refs.encoding is None else codes[refs.encoding],
            inline=refs.inline,
        )


def aligned(plain: Array, members: Mapping[int, Array], boxes: Mapping[int, Box], *, packed: bool) -> Aligned | None:
    """The files side by side, `plain` being the array but for its chunks; None where chunks must be cut or hidden."""
    if len({array.chunks[:-2] for array in members.values()}) > 1:
        return None  # some files keep bands together that others keep apart
    cuts = Cuts(), Cuts()
    for i, array in members.items():
        corner = boxes[i].top, boxes[i].left
        for cut, first, d in zip(cuts, corner, AXES, strict=True):
            chunks = array.starts(array.ndim + d)
            if cut.clash(first, chunks):
                return None
            cut.add(first, chunks)
    usual = tuple(max(array.chunks[d] for array in members.values()) for d in AXES)
    sizes = cuts[0].sizes(usual[0]), cuts[1].sizes(usual[1])
    free = tuple(_irregular(sizes[k], usual[k], members, d) for k, d in enumerate(AXES))
    starts = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
    spots = {i: (_at(starts[0], box.top), _at(starts[1], box.left)) for i, box in boxes.items()}
    held = np.zeros((len(sizes[0]), len(sizes[1])), bool)
    for i, (row, column) in spots.items():
        rows, columns = members[i].grid[-2:]
        place = held[row : row + rows, column : column + columns]
        if place.any():
            return None
        place[...] = True
    codes = _numbered(plain.name, members, free, packed=packed)
    if codes is None:
        return None
    book, numbers = codes
    edges = tuple(tuple(size.tolist()) if each else None for size, each in zip(sizes, free, strict=True))
    largest = tuple(int(size.max()) if each else n for size, each, n in zip(sizes, free, usual, strict=True))
    array = replace(
        plain,
        chunks=(*plain.chunks[:-2], *largest),
        encodings=tuple(book.encodings),
        edges=(*(None for _ in plain.shape[:-2]), *edges) if any(free) else None,
    )
    return Aligned(array, spots, numbers, int((~held).sum()))


def _irregular(sizes: NDArray[np.int64], usual: int, members: Mapping[int, Array], dim: int) -> bool:
    """Whether chunks along a dimension must be told one by one: only the last may be cut short by the array's end."""
    if bool((sizes[:-1] != usual).any()) or int(sizes[-1]) > usual:
        return True
    return any(a.chunks[dim] != usual or (a.edges is not None and a.edges[dim] is not None) for a in members.values())


def _numbered(
    name: str, members: Mapping[int, Array], free: Sequence[bool], *, packed: bool
) -> tuple[Book, dict[int, NDArray[np.uint16]]] | None:
    """Encodings of all files, numbered; None where a file is cut unevenly along one dimension and padded along one."""
    book = mosaic_book(name)
    known: dict[int, NDArray[np.uint16]] = {}
    for array in {id(a): a for a in members.values()}.values():
        cropped = _cropped(array, free)
        if cropped and array.edges is not None and any(edges is not None for edges in array.edges):
            return None

        def here(encoding: Encoding, array: Array = array, cropped: bool = cropped) -> Encoding:
            if cropped and encoding.extent is None:
                encoding = replace(encoding, extent=array.chunks)
            return unpacked(encoding, array) if packed else encoding

        known[id(array)] = np.array([book.number(here(encoding)) for encoding in array.encodings], np.uint16)
    return book, {i: known[id(array)] for i, array in members.items()}


def _cropped(array: Array, free: Sequence[bool]) -> bool:
    """Whether the file stores more than the mosaic shows of a chunk at its edge, such as the padding of a tile."""
    return any(
        array.shape[d] % array.chunks[d] != 0
        for each, d in zip(free, AXES, strict=True)
        if each and (array.edges is None or array.edges[d] is None)
    )


def _at(starts: NDArray[np.int64], pixel: int) -> int:
    return int(np.searchsorted(starts, pixel))


def _joined(pieces: Sequence[Refs], ndim: int) -> Refs:
    refs = Refs.joined(pieces, ndim)
    return refs if refs.encoding is None or refs.encoding.any() else replace(refs, encoding=None)
