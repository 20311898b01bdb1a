"""Rows of many arrays at once: described by kinds of arrays, verified, joined and taken apart, without a loop of NumPy
calls for each array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Bundle, Refs
from periplus.table.collection.groups import kind_of
from periplus.table.verify import range_faults, verify


@dataclass(slots=True, eq=False)
class Kinds:
    """Descriptions of arrays, each kind once: arrays of a collection differ in name and corner alone."""

    arrays: Mapping[str, Array]
    listed: list[Array] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> NDArray[np.int32]:
        """The number of each array's kind in `listed`; FormatError for a name that no array has."""
        answer = np.empty(len(names), np.int32)
        for place, name in enumerate(names):
            kind = kind_of(self.arrays, name)
            if kind is None:
                raise FormatError(f"there are references for {name!r}, which is no array of the catalog")
            number = self._numbers.get(id(kind))
            if number is None:  # the mapping holds the kind, so its id stays its own
                number = self._numbers[id(kind)] = len(self.listed)
                self.listed.append(kind)
            answer[place] = number
        return answer

    def grids(self, dims: Sequence[str]) -> NDArray[np.int64]:
        """(kinds, dims): chunks of each kind along each dimension; -1 where it lacks the dimension."""
        answer = np.full((len(self.listed), len(dims)), -1, np.int64)
        for row, array in zip(answer, self.listed, strict=True):
            along = dict(zip(array.dims, array.grid, strict=True))
            row[:] = [along.get(dim, -1) for dim in dims]
        return answer

    def levels(self, kind: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Pyramid levels by kind."""
        levels: NDArray[np.uint8] = np.array([array.level for array in self.listed], np.uint8)[kind]
        return levels


def distinct(numbers: NDArray[Any]) -> NDArray[np.intp]:
    """The numbers that occur, from 0 up, sorted; NumPy's own way there imports masked arrays, which takes 50 ms."""
    return np.flatnonzero(np.bincount(numbers))


def bundled(items: Sequence[tuple[Array, Refs]]) -> Bundle:
    """One bundle of the rows of some arrays, in their order."""
    dims = tuple(dict.fromkeys(dim for array, _ in items for dim in array.dims))
    return Bundle(
        names=[array.name for array, _ in items],
        owner=np.repeat(np.arange(len(items), dtype=np.int32), [len(refs) for _, refs in items]),
        dims=dims,
        refs=Refs.joined([widened(refs, array.dims, dims) for array, refs in items], len(dims)),
        levels=np.array([array.level for array, _ in items], np.uint8),
    )


def widened(refs: Refs, dims: Sequence[str], wanted: Sequence[str]) -> Refs:
    """References with chunk positions along other dimensions: -1 along those that they lack."""
    if tuple(dims) == tuple(wanted):
        return refs
    chunk = np.full((len(wanted), len(refs)), -1, np.int32)
    for place, dim in enumerate(wanted):
        if dim in dims:
            chunk[place] = refs.chunk[list(dims).index(dim)]
    return replace(refs, chunk=chunk)


def apart(bundle: Bundle, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Refs]]:
    """The rows array by array; FormatError where a bundle does not fit the arrays."""
    if bundle.owner.shape != (len(bundle),) or bundle.refs.chunk.shape != (len(bundle.dims), len(bundle)):
        raise FormatError("columns of references differ in length")
    if not len(bundle):
        return
    if bundle.owner.min() < 0 or bundle.owner.max() >= len(bundle.names):
        raise FormatError("a reference belongs to no array")
    refs, owner = bundle.refs, bundle.owner
    if (owner[1:] < owner[:-1]).any():
        order = np.argsort(owner, kind="stable")
        refs, owner = refs.take(order), owner[order]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(owner)], strict=True):
        name = bundle.names[owner[start]]
        kind = kind_of(arrays, name)
        if kind is None:
            raise FormatError(f"there are references for {name!r}, which is no array of the catalog")
        if not set(kind.dims) <= set(bundle.dims):
            raise FormatError(f"array {name!r}: its references lack positions along one of its dimensions")
        yield name, widened(refs.take(slice(start, stop)), bundle.dims, kind.dims)


class Bundled:
    """Rows that are drawn once: array by array by whoever iterates over them, in bundles by whoever can take those."""

    def __init__(self, bundles: Iterable[Bundle], arrays: Mapping[str, Array]) -> None:
        self.bundles = bundles
        self.arrays = arrays
        self._apart = (pair for bundle in bundles for pair in apart(bundle, arrays))

    def __iter__(self) -> Iterator[tuple[str, Refs]]:
        return self._apart

    def __next__(self) -> tuple[str, Refs]:
        return next(self._apart)


def bundles_of(blocks: Iterable[tuple[str, Refs]], arrays: Mapping[str, Array]) -> Iterator[Bundle]:
    """Rows in bundles, however they come; FormatError for those of no array."""
    if isinstance(blocks, Bundled):
        yield from blocks.bundles
        return
    for name, refs in blocks:
        kind = kind_of(arrays, name)
        if kind is None:
            raise FormatError(f"there are references for {name!r}, which is no array of the catalog")
        yield Bundle(names=[name], owner=np.zeros(len(refs), np.int32), dims=kind.dims, refs=refs)


def verify_bundle(bundle: Bundle, kinds: Kinds, kind: NDArray[np.int32], *, sizes: NDArray[np.int64]) -> None:
    """FormatError for an invalid row, as in `verify`; `kind` is the kind of each array of the bundle."""
    if _sound(bundle, kinds, kind, sizes):
        return
    for name, refs in apart(bundle, kinds.arrays):
        verify(kinds.arrays[name], refs, sizes=sizes)
    raise FormatError("references have chunk positions along a dimension that their array lacks")


def _sound(bundle: Bundle, kinds: Kinds, kind: NDArray[np.int32], sizes: NDArray[np.int64]) -> bool:
    refs, count = bundle.refs, len(bundle)
    if refs.chunk.shape != (len(bundle.dims), count) or refs.length.shape != (count,):
        return False
    if bundle.owner.shape != (count,) or not count:
        return not count
    if bundle.owner.min() < 0 or bundle.owner.max() >= len(bundle.names):
        return False
    used = distinct(kind)
    if any(not set(kinds.listed[number].dims) <= set(bundle.dims) for number in used.tolist()):
        return False
    rows = kind[bundle.owner]
    for positions, counts in zip(refs.chunk, kinds.grids(bundle.dims).T, strict=True):
        ends = counts[rows] if len(used) > 1 else counts[used[0]]
        lacking = ends < 0
        if not np.where(lacking, positions == -1, (positions >= 0) & (positions < ends)).all():
            return False
    if refs.encoding is not None:
        listed = np.array([max(1, len(array.encodings)) for array in kinds.listed])
        if (refs.encoding >= listed[rows]).any():
            return False
    return next(range_faults("", refs, sizes), None) is None
