"""Flatbuffers read by columns: the fields of many tables at once, every position checked before it is followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, LimitError

Positions = NDArray[np.int64]
MOST_ITEMS = 1 << 28


def root(data: bytes | memoryview) -> Tables:
    """The one table at the root of a buffer."""
    octets = np.frombuffer(data, np.uint8)
    start = np.zeros(1, np.int64)
    return Tables(octets, start + _numbers(octets, start, "<u4"))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Tables of one kind, by where they begin; an empty set is fine."""

    octets: NDArray[np.uint8]
    at: Positions

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.octets, np.atleast_1d(self.at[rows]))

    def field(self, slot: int) -> Positions:
        """Where a field of each table lies; -1 where the table has none."""
        if not len(self.at):
            return self.at
        layout = self.at - _numbers(self.octets, self.at, "<i4")
        size = _numbers(self.octets, layout, "<u2")
        entry = 4 + 2 * slot
        known = size >= entry + 2
        offset = np.zeros(len(self.at), np.int64)
        offset[known] = _numbers(self.octets, layout[known] + entry, "<u2")
        return np.where(offset > 0, self.at + offset, -1)

    def scalars(self, slot: int, dtype: str, default: int = 0) -> NDArray[np.int64]:
        """A number of each table; numbers past 2**63 are refused."""
        places = self.field(slot)
        values = np.full(len(self.at), default, np.int64)
        there = places >= 0
        found = _numbers(self.octets, places[there], dtype)
        if len(found) and found.min() < 0:
            raise FormatError("a number in the flatbuffer is too large")
        values[there] = found
        return values

    def structs(self, slot: int, size: int) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
        """Which tables have a struct of so many bytes, and those bytes, one row a table that has it."""
        places = self.field(slot)
        there = places >= 0
        return there, _block(self.octets, places[there], size)

    def vectors(self, slot: int) -> tuple[Positions, NDArray[np.int64]]:
        """Where the items of a vector (or the letters of a string) begin, and how many there are; -1 and 0 for none."""
        places = self.field(slot)
        there = places >= 0
        start = np.full(len(self.at), -1, np.int64)
        count = np.zeros(len(self.at), np.int64)
        head = places[there] + _numbers(self.octets, places[there], "<u4")
        start[there] = head + 4
        count[there] = _numbers(self.octets, head, "<u4")
        return start, count

    def octet_vectors(self, slot: int) -> list[bytes | None]:
        """The bytes of a string or a vector of bytes, for each table; None for a table that has none."""
        start, count = self.vectors(slot)
        if (start + count).max(initial=0) > len(self.octets):
            raise FormatError("a flatbuffer points past its end")
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

    def children(self, slot: int) -> tuple[Tables, NDArray[np.int64]]:
        """The tables that a vector of each table lists, all in one, and how many are of each."""
        start, count = self.vectors(slot)
        spots = np.repeat(start, count) + 4 * _counted(count) if _total(count) else np.zeros(0, np.int64)
        return Tables(self.octets, spots + _numbers(self.octets, spots, "<u4")), count

    def child(self, slot: int) -> Tables:
        """The one table that a field of each table points at; every table must have it."""
        places = self.field(slot)
        if (places < 0).any():
            raise FormatError("a flatbuffer lacks a table it must have")
        return Tables(self.octets, places + _numbers(self.octets, places, "<u4"))

    def numbers(self, slot: int, dtype: str, width: int) -> NDArray[np.int64]:
        """(n, width): the numbers of a vector that has as many in every table."""
        start, count = self.vectors(slot)
        if (count != width).any():
            raise FormatError(f"a flatbuffer lists {int(count[count != width][0])} numbers where {width} are due")
        size = np.dtype(dtype).itemsize
        spots = (start[:, None] + size * np.arange(width)).reshape(-1)
        return _numbers(self.octets, spots, dtype).reshape(len(self.at), width)


def _total(count: NDArray[np.int64]) -> int:
    total = int(count.sum())
    if total > MOST_ITEMS:
        raise LimitError(f"a flatbuffer lists {total} items; at most {MOST_ITEMS} are read")
    return total


def _counted(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, 2 … for every run of so many."""
    ends = np.cumsum(count)
    return np.arange(ends[-1]) - np.repeat(ends - count, count)


def _numbers(octets: NDArray[np.uint8], at: Positions, dtype: str) -> NDArray[np.int64]:
    """Numbers at the given positions, which need not be aligned."""
    kind = np.dtype(dtype)
    return _block(octets, at, kind.itemsize).view(kind).reshape(len(at)).astype(np.int64)


def _block(octets: NDArray[np.uint8], at: Positions, size: int) -> NDArray[np.uint8]:
    """(n, size): bytes at the given positions."""
    if len(at) and (int(at.min()) < 0 or int(at.max()) + size > len(octets)):
        raise FormatError("a flatbuffer points past its end")
    return np.ascontiguousarray(octets[at[:, None] + np.arange(size)])
