"""All files that were scanned so far: entries in memory, references in parts that need not be."""

from __future__ import annotations

import marshal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange import FileEntry
from periplus.harvest.growth.recall import RecalledPart
from periplus.harvest.parts.part import FileFacts, HarvestPart, PartBuilder, grid_of
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.sidecars import sidecar_ids
from periplus.model import Array, Georeference, Refs, Source
from periplus.table.collection.build import likeness
from periplus.table.collection.groups import moved

PART_FILES = 4096
PART_ROWS = 1 << 20
PART_SECONDS = 5.0
PART_SHARE = 0.05
"""A part is complete after so many files or rows; or, so that an interrupted run loses little, after so many seconds or
this share of the time since the start, whichever is longer."""
READ_ROWS = 1 << 22
"""Rows read from mapped parts before their pages are released."""


@dataclass(slots=True, eq=False)
class ArrayPool:
    """Makes equal descriptions the same object, so that a million similar files need little memory."""

    _arrays: dict[Any, Array] = field(default_factory=dict)
    _kinds: dict[tuple[str, bytes], Array] = field(default_factory=dict)
    """Arrays that differ in their corner only."""
    _tuples: dict[tuple[int, ...], tuple[Array, ...]] = field(default_factory=dict)
    _attributes: dict[bytes, Mapping[str, Any]] = field(default_factory=dict)

    def arrays(self, founds: tuple[Array, ...]) -> tuple[Array, ...]:
        """The arrays of a file, shared with files that have the same."""
        shared = tuple(self._array(array) for array in founds)
        return self._tuples.setdefault(tuple(map(id, shared)), shared)

    def attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        key = _key(attributes)
        return attributes if key is None else self._attributes.setdefault(key, attributes)

    def _array(self, array: Array) -> Array:
        like = likeness(array)
        if like is None:  # georeferenced by points or polynomials, or with attributes that are not plain values
            return self._arrays.setdefault(id(array), array)
        kind = self._kinds.setdefault((array.name, like), array)
        place = array.georeference
        if place is None or place.transform is None:
            return kind
        key = id(kind), place.transform[2], place.transform[5]
        found = self._arrays.get(key)
        if found is None:
            # Arrays of one kind share everything except their corner.
            found = self._arrays[key] = array if kind is array else _at(kind, place)
        return found


def _at(kind: Array, place: Georeference) -> Array:
    """An array of a kind with another corner."""
    assert kind.georeference is not None
    assert place.transform is not None
    if place.crs is kind.georeference.crs:
        return replace(kind, georeference=place)
    return moved(kind, place.transform[2], place.transform[5])


def _key(value: Any) -> bytes | None:
    """Bytes that are equal for equal plain values, including NaN; None for other values."""
    try:
        return marshal.dumps(value, 2)  # version 2 has no back references, so equal values have equal bytes
    except ValueError:
        return None


@dataclass(slots=True, eq=False)
class Gathered:
    """Entries in the order they were added, and the positions of their references."""

    keep: Callable[[HarvestPart, list[FileFacts]], HarvestPart] = lambda part, _: part
    """Called with each complete part; a journal writes it and returns it mapped from its file."""
    entries: list[FileEntry] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Position of each entry in the order of the inputs."""
    _where: list[tuple[int, int]] = field(default_factory=list)
    _parts: list[HarvestPart | RecalledPart] = field(default_factory=list)
    _builder: PartBuilder = field(default_factory=PartBuilder)
    _pool: ArrayPool = field(default_factory=ArrayPool)
    _began: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)
    _read: int = 0
    _sidecar_ids: dict[str, int] = field(default_factory=dict)
    """File ids of sidecars by URL."""

    def add(self, file: Harvested) -> None:
        """Add a file that was scanned, or could not be."""
        arrays = self._pool.arrays(tuple(found.array for found in file.founds))
        attributes = self._pool.attributes(file.attributes)
        if file.error is None:
            self._where.append((len(self._parts), self._store(file, arrays, attributes)))
        else:
            self._where.append((-1, -1))
        self._entry(file, file.source, file.format, file.datetime, arrays, attributes, (file.sidecars, file.stored_in))
        if self._is_complete():
            self.flush()

    def reuse(self, file: Harvested, fact: FileFacts, part: int, slot: int) -> None:
        """Add a file whose references are in a part that was adopted."""
        self._where.append((part, slot))
        source = Source(
            url=file.source.url,
            size=fact.source.size,
            etag=fact.source.etag,
            last_modified=fact.source.last_modified,
        )
        arrays = self._pool.arrays(self._parts[part].arrays[slot])
        moment = file.input.datetime or fact.datetime
        attributes = self._pool.attributes(fact.attributes)
        self._entry(file, source, fact.format, moment, arrays, attributes, (fact.sidecars, fact.stored_in))

    def adopt(self, part: HarvestPart | RecalledPart) -> int:
        """Add a part of an earlier run; returns its number."""
        self.flush()
        self._parts.append(part)
        return len(self._parts) - 1

    def flush(self) -> None:
        """Complete the part in memory."""
        builder, self._builder = self._builder, PartBuilder()
        self._since = time.monotonic()
        if builder.facts:
            self._parts.append(self.keep(builder.build(), builder.facts))

    def finish(self, sidecars: Iterable[str] = ()) -> None:
        """Put entries into the order of the inputs; the part in memory stays there.

        An input that turned out to be the sidecar of another is removed; `sidecars` are further sidecars.
        """
        builder, self._builder = self._builder, PartBuilder()
        if builder.facts:
            self._parts.append(builder.build())
        used = {source.url for entry in self.entries for source in entry.sidecars}
        others = used.union(sidecars)
        chosen = [i for i, entry in enumerate(self.entries) if entry.source.url not in others]
        order = sorted(chosen, key=self.numbers.__getitem__)
        self.entries = [self.entries[i] for i in order]
        self._where = [self._where[i] for i in order]
        self.numbers = [self.numbers[i] for i in order]
        self._sidecar_ids = sidecar_ids(self.entries) if used else {}

    @property
    def refs(self) -> GatheredLookup:
        """References of the arrays of entries."""
        return GatheredLookup(self)

    def _refs(self, entry: int, which: int) -> Refs:
        number, slot = self._where[entry]
        found = self._parts[number].refs(slot, which)
        one = self.entries[entry]
        if one.stored_in and one.stored_in[which]:
            sidecar = self._sidecar_ids[one.sidecars[one.stored_in[which] - 1].url]
            found = replace(found, file=np.full(len(found), sidecar, np.int32))
        self._count(len(found))
        return found

    def _batch(self, entries: Sequence[int], which: int) -> Iterator[tuple[NDArray[np.intp], Refs]]:
        where = np.array([self._where[entry] for entry in entries], np.intp).reshape(-1, 2)
        own = np.array([not (e.stored_in and e.stored_in[which]) for e in (self.entries[i] for i in entries)], bool)
        left = np.ones(len(entries), bool)
        for number in sorted(set(where[own, 0].tolist())):
            part = self._parts[number]
            if isinstance(part, HarvestPart) or part.several is not None:
                members = np.flatnonzero((where[:, 0] == number) & own)
                owner, found = part.batch(where[members, 1], which)
                self._count(len(found))
                yield members[owner], found
                left[members] = False
        for place in np.flatnonzero(left).tolist():
            found = self._refs(entries[place], which)
            yield np.full(len(found), place, np.intp), found

    def _count(self, rows: int) -> None:
        self._read += rows
        if self._read > READ_ROWS:
            self._read = 0
            for part in self._parts:
                part.release()

    def _entry(
        self,
        file: Harvested,
        source: Source,
        form: str,
        moment: Any,
        arrays: Any,
        attributes: Any,
        stored: tuple[tuple[Source, ...], tuple[int, ...]],
    ) -> None:
        self.entries.append(
            FileEntry(
                source=source,
                format=form,
                datetime=moment,
                group=file.input.group,
                series=file.input.series,
                arrays=arrays,
                sidecars=stored[0],
                stored_in=stored[1],
                attributes=attributes,
                error=file.error,
            )
        )
        self.numbers.append(file.number)

    def _store(self, file: Harvested, arrays: tuple[Array, ...], attributes: Mapping[str, Any]) -> int:
        grids = [grid_of(array) for array in arrays]
        fact = FileFacts(
            source=file.source,
            format=file.format,
            datetime=file.datetime,
            attributes=attributes,
            sidecars=file.sidecars,
            stored_in=file.stored_in,
        )
        return self._builder.add(fact, arrays, grids, [found.refs for found in file.founds])

    def _is_complete(self) -> bool:
        builder, now = self._builder, time.monotonic()
        patience = max(PART_SECONDS, PART_SHARE * (now - self._began))
        return (
            builder.rows >= PART_ROWS
            or len(builder.facts) >= PART_FILES
            or (now - self._since > patience and bool(builder.facts))
        )


@dataclass(frozen=True, slots=True, eq=False)
class GatheredLookup:
    """The lookup of references for arranging: of an array of one entry, or of many entries at once."""

    _gathered: Gathered

    def __call__(self, entry: int, which: int) -> Refs:
        """References of an array of an entry."""
        return self._gathered._refs(entry, which)

    def batch(self, entries: Sequence[int], which: int) -> Iterator[tuple[NDArray[np.intp], Refs]]:
        """References of an array of entries, with the position of the entry of each row in `entries`."""
        return self._gathered._batch(entries, which)
