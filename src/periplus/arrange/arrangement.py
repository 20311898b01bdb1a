"""What goes into an arrangement (file entries and a lookup of references) and what comes out of it (placements)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array, Catalog, Coordinate, Files, Refs, Source
from periplus.model.files import instant

REPLACED = "replaced: "
"""Prefix of the error of a file that is in no array because `duplicates` prefers other files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileEntry:
    """One scanned file without its references; small enough to keep a million of them in memory."""

    source: Source
    format: str = ""
    datetime: datetime | None = None
    """Time of the data, with a time zone: from the catalogue if it has one, otherwise from the file."""
    group: str | None = None
    """Group for `collect`, if the input names one; otherwise the group is derived from the path."""
    series: str | None = None
    """The stack that the file belongs to if there are several, for example the name of its STAC asset."""
    arrays: tuple[Array, ...] = ()
    """As scanned; files with equal arrays should share one tuple."""
    sidecars: tuple[Source, ...] = ()
    """Files that hold some of its arrays, or metadata of them."""
    stored_in: tuple[int, ...] = ()
    """For each array the sidecar that holds its bytes, counted from 1, or 0 for the file itself; empty if all are 0."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """`kind: message`; a file with an error is in the files table and in no array."""
    indexed: bool = False
    """Whether the file is already in the index that files are appended to: new files must fit it."""


Lookup: TypeAlias = Callable[[int, int], Refs]
"""References of an array, by the number of its entry and its number in the entry. `Refs.file` is a file id, set only
if the bytes are not in the file of the entry."""


@runtime_checkable
class BatchLookup(Protocol):
    """A lookup that can return the references of many entries at once."""

    def __call__(self, entry: int, array: int) -> Refs: ...

    def batch(self, entries: Sequence[int], array: int) -> Iterator[tuple[NDArray[np.intp], Refs]]:
        """References of an array with the same number of dimensions in all entries, and for each row the position of
        its entry in `entries`.
        """


Blocks: TypeAlias = Iterator[tuple[str, Refs]]
"""(name of the array, references with `Refs.file` set)."""


class Placement(NamedTuple):
    """Where one array of a file is in a global array."""

    entry: int
    array: int
    """Number of the array in the entry."""
    target: str
    """Name of the global array; empty if the array is in none."""
    origin: tuple[int, ...]
    """First element in the target, for each of its dimensions."""
    extent: tuple[int, ...]
    """Number of elements in the target, for each of its dimensions."""
    order: int
    """Where placements overlap, higher numbers cover lower ones."""


class PlacedArray(Protocol):
    """A global array: its description, the placements of files in it, and their references."""

    @property
    def array(self) -> Array: ...

    @property
    def placements(self) -> Sequence[Placement]: ...

    def blocks(self, refs: Lookup) -> Blocks: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangement:
    """Files arranged into global arrays: everything a table is written from."""

    catalog: Catalog
    files: Files
    blocks: Blocks
    """Can be iterated once."""
    kind: str
    """`collect`, `stack` or `mosaic`."""
    warnings: tuple[str, ...] = ()
    misfits: Mapping[int, str] = field(default_factory=dict)
    """Entries that were skipped because they do not fit, and why."""
    placements: Sequence[Placement] = ()
    """Empty for a collection: there, the group of a file determines where its arrays are."""


def assemble(
    arrays: Sequence[PlacedArray],
    refs: Lookup,
    *,
    files: Files,
    record: Mapping[str, Any],
    attributes: Mapping[str, Mapping[str, Any]],
    coordinates: Mapping[str, Coordinate] | None = None,
    warnings: Sequence[str] = (),
    misfits: Mapping[int, str],
) -> Arrangement:
    """The arrangement that placed arrays make; `record` is what the catalog stores about it, with its `kind`."""
    return Arrangement(
        catalog=Catalog(
            arrays={each.array.name: each.array for each in arrays},
            coordinates=coordinates or {},
            attributes=attributes,
            arrangement=record,
        ),
        files=files,
        blocks=chain.from_iterable(each.blocks(refs) for each in arrays),
        kind=record["kind"],
        warnings=tuple(warnings),
        misfits=misfits,
        placements=[placement for each in arrays for placement in each.placements],
    )


def readable(entries: Sequence[FileEntry]) -> list[int]:
    """Numbers of the entries without an error."""
    return [i for i, entry in enumerate(entries) if entry.error is None]


def files_table(
    entries: Sequence[FileEntry],
    *,
    errors: Mapping[int, str] | None = None,
    times: Mapping[int, np.datetime64] | None = None,
) -> Files:
    """The files table of entries; `errors` and `times` override those of the entries."""
    errors, times = errors or {}, times or {}
    found_errors = [errors.get(i, entry.error) for i, entry in enumerate(entries)]
    found_times = [times[i] if i in times else instant(entry.datetime) for i, entry in enumerate(entries)]
    return Files.of(
        (entry.source for entry in entries),
        format=[entry.format for entry in entries],
        datetime=np.array(found_times, dtype="datetime64[us]"),
        error=found_errors,
    )


def file_column(refs: Refs, file: int) -> NDArray[np.int32]:
    """The file id of each reference: `file`, or those that the references name; -1 where the bytes are inline."""
    column = np.full(len(refs), file, dtype=np.int32) if refs.file is None else refs.file.copy()
    if refs.inline is not None:
        column[refs.inline.held] = -1
    return column


def array_path(group: str, name: str) -> str:
    """The name of an array in a group; the root group is the empty string."""
    return f"{group}/{name}" if group else name
