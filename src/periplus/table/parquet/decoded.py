"""Decoded row groups: their columns in NumPy, which rows of them an array owns, and a few kept for the next query."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Bundle, Inline, Refs

if TYPE_CHECKING:
    from periplus.table.collection.bundles import Kinds
    from periplus.table.table import Window

Owned = slice | NDArray[np.intp]
"""Rows, one after another or listed."""
KEPT_BYTES = 128 << 20
"""Decoded row groups kept for the next query: a time series of one tile through 22 M rows is 75 MB of them."""


class Owners:
    """Which array each row of a group belongs to."""

    def __init__(self, names: list[str | None], codes: NDArray[np.int32]) -> None:
        self._codes = codes
        self._numbers = {name: code for code, name in enumerate(names)}
        begins = np.flatnonzero(np.diff(codes, prepend=-2)) if codes.size else np.empty(0, np.intp)
        self._held: dict[int, tuple[int, int] | None] = dict.fromkeys(codes[begins].tolist())
        self.names = [names[code] for code in sorted(self._held) if code >= 0]
        """Of the arrays that have rows here."""
        self.nameless = -1 in self._held
        """Whether rows name no array."""
        if len(self._held) == len(begins):  # written array by array, as we do
            self._held = dict(zip(self._held, pairwise([*begins.tolist(), len(codes)]), strict=True))

    def rows(self, name: str) -> Owned:
        """The rows of an array."""
        code = self._numbers.get(name)
        if code is None or code not in self._held:
            return slice(0, 0)
        run = self._held[code]
        return np.flatnonzero(self._codes == code) if run is None else slice(*run)

    def columns(self, rows: NDArray[np.intp]) -> tuple[list[str], NDArray[np.int32]]:
        """The names of arrays that have rows here, and for each of some rows the number of its name."""
        held = np.array(sorted(code for code in self._held if code >= 0), np.int32)
        return [str(name) for name in self.names], np.searchsorted(held, self._codes[rows]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Group:
    """One decoded row group; a column that is the same everywhere is one number."""

    count: int
    array: Owners | None
    """None where all rows belong to the array that was asked for."""
    place: dict[str, NDArray[np.int32] | int]
    columns: dict[str, NDArray[Any]]
    """By role: level, part, file, offset, length, encoding, crc32c."""
    known: NDArray[np.int32] | None
    """File of each distinct path, where `file` holds codes of paths; -2 for a path that the files table lacks."""
    inline: Inline | None
    sizes: NDArray[np.int64] | None
    """Inline bytes of each row."""
    present: NDArray[np.bool_] | None

    @property
    def nbytes(self) -> int:
        arrays = [*self.place.values(), *self.columns.values()]
        if self.inline is not None and self.sizes is not None:
            arrays += [self.inline.at, self.inline.buffer, self.sizes]
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))

    def rows(self, array: Array, window: Window | None) -> NDArray[np.intp]:
        """Which rows belong to an array and are in a window."""
        owned = slice(0, self.count) if self.array is None else self.array.rows(array.name)
        keep = np.ones(self.count, bool)[owned] if self.present is None else self.present[owned].copy()
        if self.array is None and "level" in self.columns:
            keep &= self.columns["level"] == array.level
        grid = dict(zip(array.dims, array.grid, strict=True))
        for dim in self.place.keys() | grid.keys():
            self._check_inside(array, dim, grid.get(dim), owned, keep)
        if window is not None:
            for dim, (low, high) in zip(array.dims, window, strict=True):
                positions = self._along(dim, owned, lacking=-1)  # a part written before the array existed
                keep &= (positions >= low) & (positions < high)
        hits = np.flatnonzero(keep)
        return hits + owned.start if isinstance(owned, slice) else owned[hits]

    def _along(self, dim: str, owned: Owned, *, lacking: int) -> NDArray[np.int32] | int:
        positions = self.place.get(dim, lacking)
        return positions[owned] if isinstance(positions, np.ndarray) else positions

    def _check_inside(self, array: Array, dim: str, count: int | None, owned: Owned, keep: NDArray[np.bool_]) -> None:
        """FormatError if any row of the array is outside its grid, even if it is not selected.

        `count` is None for a dimension that the array lacks: its rows have no position there.
        """
        low, high = (-1, 0) if count is None else (0, count)
        positions = np.atleast_1d(self._along(dim, owned, lacking=low))
        if positions.size == 0 or (positions.min() >= low and positions.max() < high):
            return
        if (keep & ((positions < low) | (positions >= high))).any():
            wrong = "is not null, and it lacks that dimension" if count is None else "is null or outside the grid"
            raise FormatError(f"array {array.name!r}: a chunk position along {dim!r} {wrong}")

    def refs(self, array: Array, rows: NDArray[np.intp]) -> Refs:
        chunk = np.empty((array.ndim, len(rows)), np.int32)
        for d, dim in enumerate(array.dims):
            positions = self.place[dim]
            chunk[d] = positions[rows] if isinstance(positions, np.ndarray) else positions
        return self._refs(chunk, rows)

    def _refs(self, chunk: NDArray[np.int32], rows: NDArray[np.intp]) -> Refs:
        part, encoding, crc32c = map(self.columns.get, ("part", "encoding", "crc32c"))
        length, file, inline = self.columns["length"][rows], self._files(rows), None
        if self.inline is not None and self.sizes is not None:
            inline, file = inline_rows(self.inline.take(rows), self.sizes[rows], length, file)
        return Refs(
            chunk=chunk,
            offset=self.columns["offset"][rows],
            length=length,
            file=file,
            part=None if part is None else part[rows],
            encoding=None if encoding is None else encoding[rows],
            inline=inline,
            crc32c=None if crc32c is None else crc32c[rows],
        )

    def bundle(self, kinds: Kinds) -> Bundle:
        """All rows that are there, of whatever array."""
        assert self.array is not None
        rows = np.arange(self.count) if self.present is None else np.flatnonzero(self.present)
        names, owner = self.array.columns(rows)
        kind = kinds.of(names)
        used = {dim for k in set(kind.tolist()) for dim in kinds.listed[k].dims}
        dims = tuple(dim for dim in self.place if dim in used)
        chunk = np.empty((len(dims), len(rows)), np.int32)
        grids = kinds.grids(tuple(self.place))
        for (dim, positions), grid in zip(self.place.items(), grids.T, strict=True):
            along = positions[rows] if isinstance(positions, np.ndarray) else np.full(len(rows), positions, np.int32)
            odd = np.flatnonzero((grid[kind] < 0)[owner] & (along >= 0))
            if odd.size:
                name = names[owner[odd[0]]]
                raise FormatError(
                    f"array {name!r}: a chunk position along {dim!r} is not null, and it lacks that dimension"
                )
            if dim in used:
                chunk[dims.index(dim)] = along
        return Bundle(names=names, owner=owner, dims=dims, refs=self._refs(chunk, rows))

    def misfits(self, rows: NDArray[np.intp]) -> str | None:
        """What is wrong with the number of inline bytes of rows; None where nothing is."""
        if self.inline is None or self.sizes is None:
            return None
        return misfit(self.inline.take(rows), self.sizes[rows], self.columns["length"][rows])

    def _files(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        file: NDArray[np.int32] = self.columns["file"][rows]
        if self.known is not None:
            file = self.known[file]
            if (file == -2).any():
                raise FormatError("a row names a path that the files table does not list")
        return file


def inline_rows(
    inline: Inline, sizes: NDArray[np.int64], length: NDArray[np.int64], file: NDArray[np.int32]
) -> tuple[Inline | None, NDArray[np.int32]]:
    """Inline bytes and file column of rows; FormatError where the bytes are not as many as the length declares."""
    held = inline.held
    if not held.any():
        return None, file
    wrong = misfit(inline, sizes, length)
    if wrong is not None:
        raise FormatError(wrong)
    return inline.trimmed(length), np.where(held, np.int32(-1), file)


def misfit(inline: Inline, sizes: NDArray[np.int64], length: NDArray[np.int64]) -> str | None:
    """A message where inline bytes are not as many as the length declares."""
    wrong = np.flatnonzero(inline.held & (sizes != length))
    if not wrong.size:
        return None
    found, declared = int(sizes[wrong[0]]), int(length[wrong[0]])
    return f"a row has {found} inline bytes, but its length is {declared}"


class DecodedCache:
    """The decoded row groups used last, as many as a number of bytes holds.

    A group is kept when it is decoded for the second time: a single long query then reuses one group's memory for all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._groups: OrderedDict[tuple[str, int], Group] = OrderedDict()
        self._seen: set[tuple[str, int]] = set()

    def get(self, key: tuple[str, int]) -> Group | None:
        if key in self._groups:
            self._groups.move_to_end(key)
        return self._groups.get(key)

    def put(self, key: tuple[str, int], group: Group) -> None:
        if key not in self._seen:
            self._seen.add(key)
            return
        if group.nbytes > self._most // 4:
            return
        self._groups[key] = group
        self._bytes += group.nbytes
        while self._bytes > self._most:
            self._bytes -= self._groups.popitem(last=False)[1].nbytes
