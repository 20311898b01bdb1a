"""From blocks of references in any order and size to sorted row groups, with a bounded number of rows in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Bundle, Catalog, Refs
from periplus.table.collection.bundles import Bundled, Kinds, bundled, distinct, verify_bundle, widened
from periplus.table.parquet.order import GROUP_ROWS, blocked, c_order
from periplus.table.parquet.schema import extras_of
from periplus.table.verify import verify

FLUSH_ROWS = 1 << 20
"""Rows of one array that are sorted and written together: about 40 MB and as much again while sorting."""
HELD_ROWS = 1 << 21
"""Rows of all arrays together that may wait."""
MOST_BOUNDS = 1024
"""Arrays of a table whose bounds are kept: of more, the list would be longer than what it saves."""

Blocks = Iterable[tuple[str, Refs]]


@dataclass(slots=True)
class RowTally:
    """Counts of the rows written, which the document declares."""

    rows: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """By array: most byte ranges of one chunk, where that is more than one."""
    bounds: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """By array and dimension: half-open range of chunk positions; none at all where there are too many arrays."""
    crowded: bool = False
    extras: frozenset[str] = frozenset()

    def add(self, group: Bundle) -> None:
        """Count a row group, whose rows are sorted by array."""
        if not len(group):
            return
        self.rows += len(group)
        self.extras |= extras_of(group.refs)
        starts = np.flatnonzero(np.diff(group.owner, prepend=-1))
        owners = group.owner[starts].tolist()
        if group.refs.part is not None:
            most = np.maximum.reduceat(group.refs.part, starts).astype(np.int64) + 1
            for place in np.flatnonzero(most > 1).tolist():
                name = group.names[owners[place]]
                self.parts[name] = max(self.parts.get(name, 1), int(most[place]))
        self.crowded = self.crowded or len(owners) > MOST_BOUNDS
        if not self.crowded:
            low = np.minimum.reduceat(group.refs.chunk, starts, axis=1).T.tolist()
            high = np.maximum.reduceat(group.refs.chunk, starts, axis=1).T.tolist()
            for owner, least, last in zip(owners, low, high, strict=True):
                box = self.bounds.setdefault(group.names[owner], {})
                for dim, a, b in zip(group.dims, least, last, strict=True):
                    if b >= 0:
                        c, d = box.get(dim, (a, b + 1))
                        box[dim] = min(a, c), max(b + 1, d)
            self.crowded = len(self.bounds) > MOST_BOUNDS
        if self.crowded:
            self.bounds = {}


def row_groups(blocks: Blocks, catalog: Catalog, sizes: NDArray[np.int64]) -> Iterator[Bundle]:
    """Row groups in blocked order; small arrays share one. Every row is verified first; twins are a FormatError."""
    kinds = Kinds(catalog.arrays)
    held = _WaitingRows()
    for piece in _pieces(blocks, kinds, sizes):
        held.add(piece)
        if len(piece.names) == 1 and held.count[piece.names[0]] >= FLUSH_ROWS:
            yield from _sorted_groups(held.pop(piece.names[0]), kinds)
        elif held.rows >= HELD_ROWS:
            yield from _sorted_groups(held.clear(), kinds)
    yield from _sorted_groups(held.clear(), kinds)


def _pieces(blocks: Blocks, kinds: Kinds, sizes: NDArray[np.int64]) -> Iterator[Bundle]:
    """Verified rows, a bounded number at a time."""
    if isinstance(blocks, Bundled):
        for bundle in blocks.bundles:
            verify_bundle(bundle, kinds, kinds.of(bundle.names), sizes=sizes)
            yield bundle
        return
    for name, block in blocks:
        array = kinds.listed[int(kinds.of([name])[0])]
        verify(array if array.name == name else kinds.arrays[name], block, sizes=sizes)
        for start in range(0, len(block), FLUSH_ROWS * 4):
            piece = block if len(block) <= FLUSH_ROWS * 4 else block.take(slice(start, start + FLUSH_ROWS * 4))
            yield Bundle(names=[name], owner=np.zeros(len(piece), np.int32), dims=array.dims, refs=piece)


@dataclass(slots=True)
class _WaitingRows:
    """Rows to be written: those of one array by its name, the others together."""

    single: dict[str, list[Bundle]] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    mixed: list[Bundle] = field(default_factory=list)
    rows: int = 0

    def add(self, piece: Bundle) -> None:
        self.rows += len(piece)
        if len(piece.names) == 1:
            name = piece.names[0]
            self.single.setdefault(name, []).append(piece)
            self.count[name] = self.count.get(name, 0) + len(piece)
        else:
            self.mixed.append(piece)

    def pop(self, name: str) -> list[Bundle]:
        self.rows -= self.count.pop(name)
        return self.single.pop(name)

    def clear(self) -> list[Bundle]:
        """All that waits, in few pieces however many arrays it is of."""
        pieces = self.mixed
        alike: dict[tuple[str, ...], list[Bundle]] = {}
        for name, found in self.single.items():
            if self.count[name] >= GROUP_ROWS // 4:
                pieces += found
            else:
                alike.setdefault(found[0].dims, []).extend(found)
        pieces += [_joined(found, dims) for dims, found in alike.items()]
        self.single, self.count, self.mixed, self.rows = {}, {}, [], 0
        return pieces


def _joined(pieces: list[Bundle], dims: tuple[str, ...]) -> Bundle:
    """Pieces of one array each, all of the same dimensions."""
    return Bundle(
        names=[piece.names[0] for piece in pieces],
        owner=np.repeat(np.arange(len(pieces), dtype=np.int32), [len(piece) for piece in pieces]),
        dims=dims,
        refs=Refs.joined([piece.refs for piece in pieces], len(dims)),
    )


def _sorted_groups(pieces: list[Bundle], kinds: Kinds) -> Iterator[Bundle]:
    """Rows in order of their arrays' names; an array of many rows has its own row groups."""
    names = sorted({name for piece in pieces for name in piece.names})
    numbers = {name: number for number, name in enumerate(names)}
    owners = [np.array([numbers[name] for name in piece.names], np.int32)[piece.owner] for piece in pieces]
    counts = np.zeros(len(names), np.int64)
    for owner in owners:
        counts += np.bincount(owner, minlength=len(names))
    alone = counts >= GROUP_ROWS // 4 if len(kinds.arrays) > 1 else counts > 0
    for number in np.flatnonzero(alone).tolist():
        yield from _large(names[number], number, pieces, owners, kinds)
    if alone.any():
        chosen = [~alone[owner] for owner in owners]
        pieces = [piece if keep.all() else _taken(piece, keep) for piece, keep in zip(pieces, chosen, strict=True)]
        owners = [owner[keep] for owner, keep in zip(owners, chosen, strict=True)]
        counts[alone] = 0
    yield from _small(names, counts, pieces, owners, kinds)


def _taken(piece: Bundle, rows: NDArray[np.bool_]) -> Bundle:
    return Bundle(names=piece.names, owner=piece.owner[rows], dims=piece.dims, refs=piece.refs.take(rows))


def _large(
    name: str, number: int, pieces: list[Bundle], owners: list[NDArray[np.int32]], kinds: Kinds
) -> Iterator[Bundle]:
    """Row groups of one array."""
    array = kinds.listed[int(kinds.of([name])[0])]
    found = []
    for piece, owner in zip(pieces, owners, strict=True):
        rows = owner == number
        if rows.any():
            refs = piece.refs if rows.all() else piece.refs.take(rows)
            found.append(widened(refs, piece.dims, array.dims))
    refs = Refs.joined(found, array.ndim)
    rows, ends = _blocked(name, refs)
    refs = refs.take(rows)
    for start, stop in zip([0, *ends], ends, strict=False):
        yield bundled([(array.renamed(name), refs.take(slice(start, stop)))])


def _blocked(name: str, refs: Refs) -> tuple[NDArray[np.intp], list[int]]:
    try:
        return blocked(refs.chunk, refs.part)
    except FormatError as error:
        raise FormatError(f"array {name!r}: {error.message}") from None


def _small(
    names: list[str],
    counts: NDArray[np.int64],
    pieces: list[Bundle],
    owners: list[NDArray[np.int32]],
    kinds: Kinds,
) -> Iterator[Bundle]:
    """Row groups of several arrays each, none of which is in two."""
    kind = kinds.of(names)
    levels = kinds.levels(kind)
    # Rows of arrays with the same dimensions are sorted together; sorted by array, they are then put one between the
    # other as their arrays are.
    forms = list(dict.fromkeys(kinds.listed[number].dims for number in distinct(kind).tolist()))
    form = np.array([forms.index(array.dims) if array.dims in forms else -1 for array in kinds.listed])[kind]
    sorted_owners, sorted_refs = [], []
    for number, dims in enumerate(forms):
        owner, refs = _of_form(number, dims, form, pieces, owners)
        order = _in_order(dims, owner, refs, names)
        sorted_owners.append(owner if order is None else owner[order])
        sorted_refs.append(refs if order is None else refs.take(order))
    ends = np.cumsum(counts)
    start, first = 0, 0
    while start < (int(ends[-1]) if len(ends) else 0):
        stop = min(int(np.searchsorted(ends, start + GROUP_ROWS // 2)) + 1, len(names))
        yield _shared(names, (first, stop), forms, sorted_owners, sorted_refs, levels)
        start, first = int(ends[stop - 1]), stop


def _of_form(
    number: int,
    dims: tuple[str, ...],
    form: NDArray[np.int64],
    pieces: list[Bundle],
    owners: list[NDArray[np.int32]],
) -> tuple[NDArray[np.int32], Refs]:
    """The rows of all arrays with these dimensions."""
    found, whose = [], []
    for piece, owner in zip(pieces, owners, strict=True):
        rows = form[owner] == number
        if not rows.any():
            continue
        found.append(widened(piece.refs if rows.all() else piece.refs.take(rows), piece.dims, dims))
        whose.append(owner[rows])
    return np.concatenate([np.empty(0, np.int32), *whose]), Refs.joined(found, len(dims))


def _in_order(dims: tuple[str, ...], owner: NDArray[np.int32], refs: Refs, names: list[str]) -> NDArray[np.intp] | None:
    """Rows by array, then in the order of a block: by every dimension after the first of three or more, then by it."""
    chunk = refs.chunk if len(dims) < 3 else np.concatenate([refs.chunk[1:], refs.chunk[:1]])
    try:
        return c_order(np.concatenate([owner[None], chunk]), refs.part)
    except FormatError:
        for number in distinct(owner).tolist():
            _blocked(names[number], refs.take(owner == number))
        raise


def _shared(
    names: list[str],
    span: tuple[int, int],
    forms: list[tuple[str, ...]],
    owners: list[NDArray[np.int32]],
    refs: list[Refs],
    levels: NDArray[np.uint8],
) -> Bundle:
    """The row group of the arrays `span` of the names."""
    first, last = span
    dims: list[str] = []
    whose, found = [], []
    for form, owner, held in zip(forms, owners, refs, strict=True):
        start, stop = np.searchsorted(owner, [first, last]).tolist()
        if start < stop:
            dims += [dim for dim in form if dim not in dims]
            whose.append(owner[start:stop])
            found.append((form, held.take(slice(start, stop))))
    owner = np.concatenate(whose)
    joined = Refs.joined([widened(held, form, dims) for form, held in found], len(dims))
    if len(found) > 1:
        order = np.argsort(owner, kind="stable")
        owner, joined = owner[order], joined.take(order)
    # Names of arrays that have no row here are of no use to a table.
    used = distinct(owner)
    place = np.zeros(last, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    return Bundle(
        names=[names[number] for number in used.tolist()],
        owner=place[owner],
        dims=tuple(dims),
        refs=joined,
        levels=levels[used],
    )
