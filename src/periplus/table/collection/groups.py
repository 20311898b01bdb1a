"""Collections as columns: the arrays of each kind of file once, and what differs between the files as one row each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array

if TYPE_CHECKING:
    import pyarrow as pa

SCANNED = 64
"""Lookups by name that scan the names, at some 0.5 ms for 100,000; after these an index of all names is built."""
AT_ONCE = 4096
"""Names that are made at a time by who goes through all."""
GROUP_COLUMNS = ("group", "family", "x", "y", "note")
"""The columns of the files table that make it a collection. `group` is in `Files.columns` too, the others are not."""

Family = Mapping[str, Array]
"""Arrays by their names within a group; transforms begin at (0, 0)."""


class GroupColumns(NamedTuple):
    """The group columns of a files table, one row for each file."""

    group: pa.Array
    """Strings; null for a file in no group."""
    family: NDArray[np.int32]
    """-1 where the arrays of the file are not those of a family."""
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    """c and f of the transforms; NaN where there is none."""
    note: NDArray[np.int32]
    """-1 for a group without attributes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedArrays(Mapping[str, Array]):
    """Arrays by path, for many groups of the same kind: columns with one row for each group, not one object each."""

    plain: Mapping[str, Array] = field(default_factory=dict)
    """Arrays that are in no group."""
    families: Sequence[Family] = ()
    names: pa.Array
    """Paths of the groups: strings, none of them null or twice."""
    family: NDArray[np.int32]
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    """The corner that the transforms of a group share."""
    file: NDArray[np.int32]
    """Row of the files table; -1 where an index of version 2 does not list the groups of its files."""
    note: NDArray[np.int32]
    """Attributes of the group: an index into `notes`, or -1."""
    notes: Sequence[Mapping[str, Any]] = ()
    parts: Sequence[Mapping[str, int]] = ()
    """For each family: most byte ranges of a chunk, by name of the array, where that is not one. Empty: nowhere."""

    def __getitem__(self, name: str) -> Array:
        if name in self.plain:
            return self.plain[name]
        place = self.place(name)
        if place is None:
            raise KeyError(name)
        return self.array(*place)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.plain or self.place(name) is not None)

    def __iter__(self) -> Iterator[str]:
        from periplus.table.parquet.buffers import to_strings

        yield from self.plain
        for start in range(0, len(self.names), AT_ONCE):  # those who want the first few do not wait for all
            some = to_strings(self.names[start : start + AT_ONCE])
            for group, family in zip(some, self.family[start : start + AT_ONCE].tolist(), strict=True):
                for rest in self.families[family]:
                    yield f"{group}/{rest}"

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return len(self.plain) + sum(len(f) * n for f, n in zip(self.families, self.sizes, strict=True))

    @cached_property
    def sizes(self) -> list[int]:
        """How many groups each family has."""
        counts: list[int] = np.bincount(self.family, minlength=len(self.families)).tolist()
        return counts

    @property
    def group_list(self) -> list[str]:
        """The paths of the groups as Python has them: for those who go through all."""
        from periplus.table.parquet.buffers import to_strings

        return to_strings(self.names)  # type: ignore[return-value]

    def array(self, row: int, rest: str) -> Array:
        """An array of the group in that row."""
        name = f"{self.names[row].as_py()}/{rest}"
        found = self.families[self.family[row]][rest].renamed(name)
        return moved(found, float(self.x[row]), float(self.y[row]))

    def row(self, group: str) -> int | None:
        """The row of a group."""
        if self._many():
            return self._rows.get(group)
        text = group.encode(errors="surrogatepass")  # no name in the table has a lone surrogate
        held, starts, stops = self._text
        rows = np.flatnonzero(stops - starts == len(text))
        for back in range(1, len(text) + 1):  # names differ at their end
            if not rows.size:
                break
            rows = rows[held[stops[rows] - back] == text[-back]]
        return int(rows[0]) if rows.size else None

    def _many(self) -> bool:
        """Count a lookup; whether there are enough of them for an index of all names."""
        scans = self.__dict__["_scans"] = self.__dict__.get("_scans", 0) + 1
        return "_rows" in self.__dict__ or scans > SCANNED

    @cached_property
    def _text(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """The characters of all names in UTF-8, and where each begins and ends."""
        _, ends, data = self.names.buffers()
        count = len(self.names)
        stops = np.frombuffer(ends, np.int32, count=count + 1, offset=self.names.offset * 4)
        return np.frombuffer(data or b"", np.uint8), stops[:-1], stops[1:]

    def unknown(self, names: Sequence[str | None]) -> str | None:
        """One of many names that no array has; None where all are those of arrays."""
        others = [name for name in names if name is not None and name not in self.plain]
        if len(self.rests) > SCANNED or "_rows" in self.__dict__:
            return next((name for name in others if self.place(name) is None), None)
        rows, _ = self._located(others)
        return None if (rows >= 0).all() else others[int(np.argmin(rows))]

    def look_up(self, names: Iterable[str]) -> None:
        """Find where some names belong and keep it: together they cost what one alone does."""
        others = [name for name in dict.fromkeys(names) if name not in self.plain and name not in self._places]
        others = [name for name in others if _is_text(name)]
        if not others or len(self.rests) > SCANNED or "_rows" in self.__dict__:
            return
        rests = list(self.rests)
        for name, row, rest in zip(others, *(found.tolist() for found in self._located(others)), strict=True):
            self._places[name] = (row, rests[rest]) if row >= 0 else None

    def _located(self, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of the groups that arrays are in, and the numbers of their names in `rests`; -1 for no array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from periplus.table.parquet.buffers import numbers, strings, to_numpy

        texts = strings(names)
        rows, rests = np.full((2, len(names)), -1, np.int64)
        endings = [np.flatnonzero(to_numpy(pc.ends_with(texts, "/" + rest))) for rest in self.rests]
        heads = [
            pc.utf8_slice_codeunits(texts.take(numbers(ending)), 0, -len(rest) - 1)
            for rest, ending in zip(self.rests, endings, strict=True)
        ]
        groups = pa.concat_arrays(heads) if heads else strings([])
        wanted = groups.unique()
        hits = to_numpy(pc.index_in(self.names, value_set=wanted), null=-1)
        row_of = np.full(len(wanted), -1, np.int64)
        row_of[hits[hits >= 0]] = np.flatnonzero(hits >= 0)
        found = row_of[to_numpy(pc.index_in(groups, value_set=wanted))]
        start = 0
        for number, (families, ending) in enumerate(zip(self.rests.values(), endings, strict=True)):
            those = found[start : start + len(ending)]
            fits = (those >= 0) & np.isin(self.family[those], list(families))
            rows[ending[fits]], rests[ending[fits]] = those[fits], number
            start += len(ending)
        return rows, rests

    @cached_property
    def _places(self) -> dict[str, tuple[int, str] | None]:
        """Where names belong that were looked up together."""
        return {}

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.group_list)}

    @cached_property
    def rests(self) -> dict[str, set[int]]:
        """Names that arrays have within their groups, each with the families that have it."""
        found: dict[str, set[int]] = {}
        for number, family in enumerate(self.families):
            for rest in family:
                found.setdefault(rest, set()).add(number)
        return found

    def place(self, name: str) -> tuple[int, str] | None:
        """The row of the group that an array is in, and its name there."""
        if name in self._places:
            return self._places[name]
        at = name.rfind("/")
        while at > 0:
            families = self.rests.get(name[at + 1 :])
            row = None if families is None else self.row(name[:at])
            if row is not None and families is not None and int(self.family[row]) in families:
                return row, name[at + 1 :]
            at = name.rfind("/", 0, at)
        return None

    def of_family(self, number: int) -> NDArray[np.intp]:
        """The rows of a family."""
        order, starts = self._sorted
        return order[starts[number] : starts[number + 1]]

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        order = np.argsort(self.family, kind="stable")
        return order, np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def most_parts(self, name: str) -> int:
        """Most byte ranges that a chunk of an array of a group has."""
        place = self.place(name) if self.parts else None
        return 1 if place is None else self.parts[self.family[place[0]]].get(place[1], 1)

    def clash(self) -> str | None:
        """A name that two arrays would have; None where there is none."""
        for name in self.plain:
            if self.place(name) is not None:
                return name
        for whole in self.rests:  # an array of a group `a`, and of a group `a/<tail>`
            at = whole.find("/")
            while at > 0:
                tail, inner = whole[:at], self.rests.get(whole[at + 1 :], ())
                for row in self._ending("/" + tail) if inner else ():
                    outer = self.names[row].as_py()[: -len(tail) - 1]
                    holder = self.row(outer) if int(self.family[row]) in inner else None
                    if holder is not None and int(self.family[holder]) in self.rests[whole]:
                        return f"{outer}/{whole}"
                at = whole.find("/", at + 1)
        return None

    def _ending(self, tail: str) -> list[int]:
        import pyarrow.compute as pc

        from periplus.table.parquet.buffers import to_numpy

        rows: list[int] = np.flatnonzero(to_numpy(pc.ends_with(self.names, tail))).tolist()
        return rows

    def taken(self, rows: NDArray[Any]) -> GroupedArrays:
        """The groups of some rows, in their order."""
        from periplus.table.parquet.buffers import numbers

        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("family", "x", "y", "file", "note")}
        return replace(self, names=self.names.take(numbers(rows)), **columns)


def _is_text(name: str) -> bool:
    """Whether a name can be that of a group: one with half a surrogate pair is in no table."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


@dataclass(frozen=True, slots=True, eq=False)
class GroupAttributes(Mapping[str, Mapping[str, Any]]):
    """Attributes by path of a group: those of a collection's groups from their notes, others as given."""

    plain: Mapping[str, Mapping[str, Any]]
    groups: GroupedArrays

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        if name in self.plain:
            return self.plain[name]
        row = self.groups.row(name)
        if row is None or self.groups.note[row] < 0:
            raise KeyError(name)
        return self.groups.notes[int(self.groups.note[row])]

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        rows = np.flatnonzero(self.groups.note >= 0)
        if rows.size:
            yield from (name for name in self.groups.taken(rows).group_list if name not in self.plain)

    def __len__(self) -> int:
        if not self.plain.keys() - {""}:
            return len(self.plain) + int((self.groups.note >= 0).sum())
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, eq=False)
class GroupParts(Mapping[str, int]):
    """Most byte ranges of a chunk, by array: those of a collection's arrays by their family, others as given."""

    plain: Mapping[str, int]
    groups: GroupedArrays

    def __getitem__(self, name: str) -> int:
        most = self.plain.get(name) or self.groups.most_parts(name)
        if most == 1:
            raise KeyError(name)
        return most

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        for number, parts in enumerate(self.groups.parts):
            for group in self.groups.taken(self.groups.of_family(number)).group_list if parts else ():
                yield from (f"{group}/{rest}" for rest in parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def kinds(arrays: Mapping[str, Array]) -> Iterable[Array]:
    """Arrays that have every combination of dimensions there is: all, or one of each kind."""
    if not isinstance(arrays, GroupedArrays):
        return arrays.values()
    return [*arrays.plain.values(), *(array for family in arrays.families for array in family.values())]


def kind_of(arrays: Mapping[str, Array], name: str) -> Array | None:
    """The array of that name, or what describes it but for name and corner; None where there is none."""
    if not isinstance(arrays, GroupedArrays) or name in arrays.plain:
        return arrays.get(name)
    place = arrays.place(name)
    return None if place is None else arrays.families[arrays.family[place[0]]][place[1]]


def row_capacity(arrays: Mapping[str, Array], parts: Mapping[str, int]) -> int:
    """How many rows the grids of the arrays admit."""
    if not isinstance(arrays, GroupedArrays):
        return sum(math.prod(array.grid) * parts.get(name, 1) for name, array in arrays.items())
    total = sum(math.prod(array.grid) * parts.get(name, 1) for name, array in arrays.plain.items())
    for number, (family, count) in enumerate(zip(arrays.families, arrays.sizes, strict=True)):
        most = arrays.parts[number] if arrays.parts else {}
        total += count * sum(math.prod(array.grid) * most.get(rest, 1) for rest, array in family.items())
    return total


def unlike(before: Mapping[str, Array], after: Mapping[str, Array]) -> Iterator[str]:
    """Names of arrays of before that are not surely the same after; few where one was made by `extended` the other."""
    if not isinstance(before, GroupedArrays) or not isinstance(after, GroupedArrays):
        yield from before
        return
    yield from (name for name, array in before.plain.items() if after.plain.get(name) is not array)
    count = len(before.names)
    same = np.zeros(count, bool)
    if after.names[:count].equals(before.names):
        kept = [one is other for one, other in zip(before.families, after.families, strict=False)]
        known = np.array([*kept, *[False] * (len(before.families) - len(kept))], bool)
        same = known[before.family] & (before.family == after.family[:count])
        same &= (before.x == after.x[:count]) & (before.y == after.y[:count])
    other = before.taken(np.flatnonzero(~same))
    yield from iter(replace(other, plain={}))


def moved(array: Array, x: float, y: float) -> Array:
    """The array with its corner elsewhere; one without a transform stays as it is."""
    place = array.georeference
    if place is None or place.transform is None:
        return array
    a, b, _, d, e, _ = place.transform
    return replace(array, georeference=replace(place, transform=(a, b, x, d, e, y)))


def placed(family: Family) -> bool:
    """Whether a corner gives the location of the arrays of a family."""
    return any(a.georeference is not None and a.georeference.transform is not None for a in family.values())
