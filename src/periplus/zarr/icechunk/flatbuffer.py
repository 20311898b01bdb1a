"""Flatbuffers read by columns: the fields of many tables at once, every position verified before it is followed.

What the verifier of the flatbuffers library checks is checked here too: offsets and sizes against the buffer,
alignment, required fields. A field must also be inside its own table. A schema has a fixed depth: nothing recurses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError

Positions = NDArray[np.int64]
OFFSET = 4
"""Bytes of an offset, and of the number of items before a vector."""


def root(data: bytes | memoryview) -> Tables:
    """The one table at the root of a buffer."""
    octets = np.frombuffer(data, np.uint8)
    return Tables.at_offsets(octets, np.zeros(1, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Tables of one kind, verified; an empty set is fine."""

    octets: NDArray[np.uint8]
    at: Positions
    size: NDArray[np.int64]
    """Bytes of each table."""
    layout: Positions
    """Where the vtable of each table begins."""
    layout_size: NDArray[np.int64]
    """Bytes of each vtable."""

    @classmethod
    def at_offsets(cls, octets: NDArray[np.uint8], places: Positions) -> Self:
        """The tables that the offsets at these places point to."""
        at = _followed(octets, places)
        layout = at - _numbers(octets, at, "<i4")
        _aligned(layout, 2)
        layout_size = _numbers(octets, layout, "<u2")
        size = _numbers(octets, layout + 2, "<u2")
        if ((layout_size < 4) | (layout_size % 2 != 0) | (layout + layout_size > len(octets))).any():
            raise FormatError("a table of the flatbuffer has a damaged vtable")
        if ((size < OFFSET) | (at + size > len(octets))).any():
            raise FormatError("a table of the flatbuffer ends outside the buffer")
        return cls(octets, at, size, layout, layout_size)

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Self:
        columns = (self.at, self.size, self.layout, self.layout_size)
        return type(self)(self.octets, *(column[rows] for column in columns))

    def field(self, slot: int, size: int, align: int, *, required: bool = False) -> Positions:
        """Where a field of so many bytes is in each table; -1 where the table lacks it."""
        entry = 4 + 2 * slot
        known = self.layout_size >= entry + 2
        offset = np.zeros(len(self), np.int64)
        offset[known] = _numbers(self.octets, self.layout[known] + entry, "<u2")
        there = offset > 0
        if required and not there.all():
            raise FormatError("a table of the flatbuffer lacks a required field")
        if (there & ((offset < OFFSET) | (offset + size > self.size))).any():
            raise FormatError("a field of the flatbuffer is outside its table")
        places = np.where(there, self.at + offset, -1)
        _aligned(places[there], align)
        return places

    def has(self, slot: int) -> NDArray[np.bool_]:
        """Which tables have a field."""
        return self.field(slot, 1, 1) >= 0

    def scalars(self, slot: int, dtype: str) -> NDArray[np.int64]:
        """A number of each table, 0 for a table that lacks it; numbers past 2**63 are refused."""
        size = np.dtype(dtype).itemsize
        places = self.field(slot, size, size)
        values = np.zeros(len(self), np.int64)
        there = places >= 0
        found = _numbers(self.octets, places[there], dtype)
        if len(found) and found.min() < 0:
            raise FormatError("a number in the flatbuffer is too large")
        values[there] = found
        return values

    def identities(self, slot: int, size: int) -> list[bytes]:
        """A required struct of bytes of each table."""
        return [row.tobytes() for row in _block(self.octets, self.field(slot, size, 1, required=True), size)]

    def optional_identities(self, slot: int, size: int) -> list[bytes | None]:
        """A struct of bytes of each table; None for a table that lacks it."""
        found: list[bytes | None] = [None] * len(self)
        there = self.has(slot)
        for row, identity in zip(np.flatnonzero(there).tolist(), self[there].identities(slot, size), strict=True):
            found[row] = identity
        return found

    def vectors(
        self, slot: int, size: int, align: int, *, required: bool = False
    ) -> tuple[Positions, NDArray[np.int64]]:
        """Where the items of a vector of each table begin, and how many there are; -1 and 0 for none."""
        places = self.field(slot, OFFSET, OFFSET, required=required)
        there = places >= 0
        start = np.full(len(self), -1, np.int64)
        count = np.zeros(len(self), np.int64)
        head = _followed(self.octets, places[there])
        count[there] = _numbers(self.octets, head, "<u4")
        start[there] = head + OFFSET
        _aligned(start[there], align)
        if (start + count * size).max(initial=0) > len(self.octets):
            raise FormatError("a vector of the flatbuffer ends outside the buffer")
        return start, count

    def octet_vectors(self, slot: int, *, required: bool = False) -> list[bytes | None]:
        """The bytes of a string or a vector of bytes, for each table; None for a table that has none."""
        start, count = self.vectors(slot, 1, 1, required=required)
        seen: dict[tuple[int, int], bytes] = {}
        out: list[bytes | None] = []
        for first, length in zip(start.tolist(), count.tolist(), strict=True):
            if first < 0:
                out.append(None)
                continue
            key = (first, length)
            if key not in seen:
                seen[key] = self.octets[first : first + length].tobytes()
            out.append(seen[key])
        return out

    def records(self, slot: int, dtype: np.dtype[Any], align: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The structs that a required vector of each table lists, all in one, and how many are of each."""
        positions, count = self._item_positions(slot, dtype.itemsize, align)
        return _block(self.octets, positions, dtype.itemsize).view(dtype).reshape(len(positions)), count

    def children(self, slot: int) -> tuple[Tables, NDArray[np.int64]]:
        """The tables that a required vector of each table lists, all in one, and how many are of each."""
        positions, count = self._item_positions(slot, OFFSET, OFFSET)
        return Tables.at_offsets(self.octets, positions), count

    def child(self, slot: int) -> Tables:
        """The one table that a required field of each table points to."""
        return Tables.at_offsets(self.octets, self.field(slot, OFFSET, OFFSET, required=True))

    def numbers(self, slot: int, dtype: str, width: int) -> NDArray[np.int64]:
        """(n, width): the numbers of a required vector that has as many in every table."""
        size = np.dtype(dtype).itemsize
        start, count = self.vectors(slot, size, size, required=True)
        if (count != width).any():
            raise FormatError(f"a flatbuffer lists {int(count[count != width][0])} numbers where {width} are expected")
        positions = (start[:, None] + size * np.arange(width)).reshape(-1)
        return _numbers(self.octets, positions, dtype).reshape(len(self), width)

    def _item_positions(self, slot: int, size: int, align: int) -> tuple[Positions, NDArray[np.int64]]:
        """The position of every item of a required vector of each table."""
        start, count = self.vectors(slot, size, align, required=True)
        # Vectors that share their bytes would let a small buffer list any number of items.
        if int(count.sum()) * size > len(self.octets):
            raise FormatError("vectors of the flatbuffer overlap")
        ends = np.cumsum(count)
        within = np.arange(int(count.sum())) - np.repeat(ends - count, count)
        return np.repeat(start, count) + size * within, count


def _followed(octets: NDArray[np.uint8], places: Positions) -> Positions:
    """Where the offsets at these places point."""
    _aligned(places, OFFSET)
    targets = places + _numbers(octets, places, "<u4")
    _aligned(targets, OFFSET)  # at a table or at the length of a vector
    return targets


def _aligned(places: Positions, align: int) -> None:
    if align > 1 and (places % align != 0).any():
        raise FormatError("a value of the flatbuffer is not aligned")


def _numbers(octets: NDArray[np.uint8], at: Positions, dtype: str) -> NDArray[np.int64]:
    """Numbers at the given positions."""
    kind = np.dtype(dtype)
    return _block(octets, at, kind.itemsize).view(kind).reshape(len(at)).astype(np.int64)


def _block(octets: NDArray[np.uint8], at: Positions, size: int) -> NDArray[np.uint8]:
    """(n, size): bytes at the given positions."""
    if len(at) and (int(at.min()) < 0 or int(at.max()) + size > len(octets)):
        raise FormatError("a flatbuffer points outside the buffer")
    return np.ascontiguousarray(octets[at[:, None] + np.arange(size)])
