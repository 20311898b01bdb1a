"""The nouns of this room: Entry, one file as arranging sees it, and Arrangement, what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array, Catalog, Files, Refs, Source

REPLACED = "replaced: "
"""How the error of a file begins that was left out because other files take its place, as `duplicates` asks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One file: what is known of it apart from its references, light enough that a million fit in memory."""

    source: Source
    format: str = ""
    datetime: datetime | None = None
    """When the data were taken, aware: as its catalogue says, else as the file itself says."""
    group: str | None = None
    """Where `collect` puts it, when the input named it; else the path decides."""
    series: str | None = None
    """Which of several stacks the file belongs to, for example the name of its STAC asset."""
    arrays: tuple[Array, ...] = ()
    """As scanned; files alike should share one tuple."""
    companions: tuple[Source, ...] = ()
    """Files beside it that hold or tell of some of its arrays."""
    homes: tuple[int, ...] = ()
    """For every array the companion that holds its bytes, counted from 1, or 0 for the file itself; empty if all 0."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """`kind: message`; such a file is in the files table and in no array."""
    held: bool = False
    """Whether the index that is added to has the file: new files must fit it, and it is never skipped."""


Lookup: TypeAlias = Callable[[int, int], Refs]
"""References of an entry's array, by the number of the entry and the number of the array in it; `Refs.file` is set, to
the id of that file, only where they are not of the entry's own file."""


@runtime_checkable
class Together(Protocol):
    """A lookup that can give the references of many entries at once."""

    def __call__(self, entry: int, which: int) -> Refs: ...

    def together(self, entries: Sequence[int], which: int) -> Iterator[tuple[NDArray[np.intp], Refs]]:
        """References of an array that has as many dimensions in all of these entries, and each row's place in them."""


Blocks: TypeAlias = Iterator[tuple[str, Refs]]


class Placed(NamedTuple):
    """One array of an entry at its place in a target array."""

    entry: int
    which: int
    """Number of the array in the entry."""
    array: str
    """Name of the target."""
    origin: tuple[int, ...]
    """First element in the target, along each of its dimensions."""
    order: int
    """Where placements overlap, higher numbers cover lower ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangement:
    """Files laid into global arrays: what a table is written from."""

    catalog: Catalog
    files: Files
    blocks: Blocks
    """(array name, Refs) with `Refs.file` filled; to be drawn once."""
    kind: str
    warnings: tuple[str, ...] = ()
    misfits: Mapping[int, str] = field(default_factory=dict)
    """Entries left out because they do not fit, by number, and why."""
    placed: Sequence[Placed] = ()
    """Where each array of each entry went; empty for a collection, whose groups say it."""
    order: Sequence[int] | None = None
    """Entries in the order of the files table; None where it is their own."""


def instant(moment: datetime | None) -> np.datetime64:
    """datetime64[us] in UTC; NaT for None."""
    if moment is None:
        return np.datetime64("NaT", "us")
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(moment, "us")


def instants(moments: Iterable[datetime | None]) -> NDArray[np.datetime64]:
    """datetime64[us] of many."""
    return np.array([instant(moment) for moment in moments], dtype="datetime64[us]")


def files_of(
    entries: Sequence[Entry],
    order: Sequence[int] | None = None,
    *,
    errors: Mapping[int, str] | None = None,
    times: Mapping[int, np.datetime64] | None = None,
) -> Files:
    """The files table of entries, in the given order; `errors` and `times` override what an entry says of itself."""
    errors, times = errors or {}, times or {}
    numbers = range(len(entries)) if order is None else order
    chosen = [entries[i] for i in numbers]
    faults = [errors.get(i, entries[i].error) for i in numbers]
    taken = [times[i] if i in times else instant(entries[i].datetime) for i in numbers]
    return Files(
        path=[e.source.url for e in chosen],
        size=np.array([-1 if e.source.size is None else e.source.size for e in chosen], dtype=np.int64),
        etag=[e.source.etag for e in chosen],
        last_modified=instants(e.source.last_modified for e in chosen),
        datetime=np.array(taken, dtype="datetime64[us]"),
        format=[e.format for e in chosen],
        status=["ok" if fault is None else "error" for fault in faults],
        error=faults,
    )
