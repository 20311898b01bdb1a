"""The index at the target of a run: its files, their arrangement, and the files as if they had just been scanned."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange import KINDS, FileEntry
from periplus.arrange.arrangement import REPLACED
from periplus.arrange.compatibility import MISFIT
from periplus.arrange.pattern import NamePattern, parse
from periplus.errors import ConflictError, DeniedError, FormatError, MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.harvest.growth.recall import RecalledFiles, RecalledPart, arrays_by_group, recall_groups, recall_placed
from periplus.harvest.inputs import Input
from periplus.harvest.options import OWN_TIMES
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.parts.part import FileFacts
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.sidecars import stored_sidecars
from periplus.limits import Limits
from periplus.model import Files, Source
from periplus.policy import Policy, folder_of
from periplus.table import Table, home_of
from periplus.table.collection.groups import GroupedArrays

LISTED_FILES = 256
"""Files that are allowed one by one when they are appended; for more files, their folders are allowed."""
ASSET = "asset"
"""In the arrangement of a mosaic: the STAC asset of its files."""


@dataclass(eq=False)
class StoredIndex:
    """An index at the target of a run."""

    table: Table
    files: Files
    sidecars: dict[int, list[int]]
    """File ids of the sidecars of each file."""
    good: NDArray[np.bool_]
    """Files without an error that are not sidecars of others."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run that wrote it."""
    pattern: NamePattern | None = None
    """The pattern of that run."""

    @property
    def arrangement(self) -> Mapping[str, Any]:
        return self.table.catalog.arrangement

    @property
    def kind(self) -> str:
        """`collect`, `stack` or `mosaic`; empty for an arrangement that `index` does not make."""
        kind = self.arrangement.get("kind")
        return str(kind) if kind in KINDS[1:] and (kind != "collect" or self._is_collection) else ""

    @cached_property
    def _is_collection(self) -> bool:
        """Whether each array is in the group of one file, and each file without an error has a group."""
        arrays = self.table.catalog.arrays
        if (
            isinstance(arrays, GroupedArrays)
            and not arrays.plain
            and np.array_equal(np.flatnonzero(self.good), arrays.file)
        ):
            return True
        column = self.files.columns.get("group")
        if column is None:
            return False
        held = column[self.good].tolist()
        groups = {group for group in held if isinstance(group, str)}
        return (
            len(groups) == len(held)
            and arrays_by_group(groups, arrays.plain if isinstance(arrays, GroupedArrays) else arrays) is not None
        )

    @property
    def count(self) -> int:
        """Number of files without an error that are not sidecars."""
        return int(self.good.sum())

    @cached_property
    def by_url(self) -> dict[str, int]:
        """Ids of the files without an error that are not sidecars."""
        numbers = np.flatnonzero(self.good).tolist()
        paths = self.files.path
        if len(numbers) < len(paths):
            paths = [paths[number] for number in numbers]
        return dict(zip(paths, numbers, strict=True))

    @cached_property
    def failed_ids(self) -> list[int]:
        """Ids of files with an error."""
        return [number for number, status in enumerate(self.files.status) if status != "ok"]

    @cached_property
    def _bad_by_url(self) -> dict[str, int]:
        return {self.files.path[number]: number for number in self.failed_ids}

    @property
    def errors(self) -> dict[str, str]:
        """Errors of files, by URL."""
        return {url: self.files.error[number] or "error" for url, number in self._bad_by_url.items()}

    def position(self, url: str) -> int | None:
        """Position of a file in the order of an append, in which new files count from 0; None for a new file."""
        number = self._number(url)
        return None if number is None else self._position(number)

    def _position(self, number: int) -> int:
        count = len(self.files)
        if self.kind == "stack" and not self.recalls and self._is_replaced(number):
            return number - 2 * count  # older versions list it after the file that replaced it
        return number - count

    def _is_replaced(self, number: int) -> bool:
        return (self.files.error[number] or "").startswith(REPLACED)

    def listed(self, urls: Iterable[str]) -> list[str]:
        """Those of the URLs that are files of the index, in its order."""
        known = {url: number for url in urls if (number := self._number(url)) is not None}
        return sorted(known, key=known.__getitem__)

    def _number(self, url: str) -> int | None:
        number = self.by_url.get(url)
        return self._bad_by_url.get(url) if number is None else number

    @property
    def order_matters(self) -> bool:
        """Whether the order of the files decides where their arrays are or which of them is shown."""
        if self.kind == "stack":
            return self.arrangement.get("coordinate") == "order" or self.asked.get("duplicates") in ("last", "keep")
        return self.kind == "mosaic"

    def source(self, url: str) -> Source | None:
        """A file when it was indexed; None if the index does not contain what is needed to arrange it again."""
        number = self.by_url.get(url) if self.recalls else None
        return None if number is None else self.files.source(number)

    def sidecars_of(self, url: str) -> list[Source]:
        """The sidecars of a file when it was indexed."""
        if not self.sidecars:
            return []
        return [self.files.source(number) for number in self.sidecars.get(self.by_url.get(url, -1), ())]

    @property
    def lost_times(self) -> bool:
        """Whether files contain times that the index does not have, because it has those in their names."""
        return self._has_name_times and self.arrangement.get(OWN_TIMES) is not False

    @property
    def has_only_name_times(self) -> bool:
        """Whether the times of files are those in their names, and files contain no others."""
        return self._has_name_times and not self.lost_times

    @property
    def _has_name_times(self) -> bool:
        return self.pattern is not None and self.pattern.time is not None

    @cached_property
    def recalls(self) -> bool:
        """Whether the index has the groups or placements of its files; one of an older version may not."""
        if self.kind == "collect":
            return True
        if self.arrangement.get("series") and self.groups is None:
            return False
        return bool(self.kind) and self.table.placements is not None

    @cached_property
    def groups(self) -> list[str | None] | None:
        """The group of each file of a collection, or of a stack of several series; None if the index has no groups."""
        column = self.files.columns.get("group") if self.kind in ("collect", "stack") else None
        return None if column is None else column.tolist()

    def group_of(self, number: int) -> str:
        """The group of the arrays of a file; the root is the empty string."""
        return "" if self.groups is None else self.groups[number] or ""

    def _series_of(self, number: int) -> str | None:
        asset = self.arrangement.get(ASSET)
        if self.kind == "mosaic":
            return asset if isinstance(asset, str) else None
        return (self.group_of(number) or None) if self.kind == "stack" else None

    @property
    def group_names(self) -> list[str]:
        """The groups of a collection."""
        arrays = self.table.catalog.arrays
        if isinstance(arrays, GroupedArrays) and not arrays.plain:
            return arrays.group_list
        return [group for group in self.groups or () if group is not None]

    def recall(self, wanted: Sequence[int], *, complete: bool) -> RecalledFiles:
        """Files as if they had just been scanned; those that must be read again have no slot.

        With `complete`, all arrays of files are needed, also those that the arrangement omits.
        """
        if not self.recalls or (complete and self.arrangement.get("left_out")):
            return RecalledFiles(RecalledPart((), _nothing), [], {})
        if self.kind == "collect":
            return recall_groups(self.table, self.groups or (), wanted, self.sidecars, self._fact)
        placements = self.table.placements
        assert placements is not None
        return recall_placed(self.table, placements, wanted, self.sidecars, self._fact)

    def recall_into(self, gathered: Gathered, files: Mapping[int, Harvested], *, complete: bool) -> list[Harvested]:
        """Add files of the index to `gathered`; returns those to read again."""
        recalled = self.recall(sorted(files), complete=complete)
        part = gathered.adopt(recalled.part)
        again = []
        for number, file in files.items():
            if number not in recalled.slots:
                again.append(file)
                continue
            slot = recalled.slots[number]
            gathered.reuse(file, recalled.facts[slot], part, slot)
        return again

    def unchanged_file(self, number: int) -> Harvested:
        """A file that is not an input of the run and stays; it is ordered before new files."""
        source = self.files.source(number)
        has_own_group = self.kind == "collect" and "depth" not in self.arrangement  # groups from paths may change
        item = Input(
            url=source.url,
            datetime=None if self._has_name_times else moment(self.files.datetime[number]),
            group=(self.group_of(number) or None) if has_own_group else None,
            series=self._series_of(number),
        )
        return Harvested(input=item, source=source, reused=True, number=self._position(number))

    def failed(self, others: Container[str]) -> Iterator[Harvested]:
        """Files with an error, as they are, except `others`."""
        for number in self.failed_ids:
            if self.files.path[number] not in others:
                yield replace(
                    self.unchanged_file(number),
                    format=self.files.format[number],
                    datetime=moment(self.files.datetime[number]),
                    reused=False,
                    error=self.files.error[number] or "error",
                )

    def may_return(self, file: Harvested, *, changed: bool, request: Mapping[str, Any]) -> bool:
        """Whether a file with an error may be in an array after an append, and must be read again.

        `changed` if files of the index changed: otherwise a replaced file stays replaced. `request` are the options of
        the run, as an index records them.
        """
        names = (self.asked.keys() | request.keys()) - {"skip_misfits"}
        if not changed and all(self.asked.get(name) == request.get(name) for name in names):
            return False
        error = file.error or ""
        return error.startswith(REPLACED) or (bool(request.get("skip_misfits")) and error.startswith(MISFIT))

    def sidecar_urls(self, files: Iterable[int]) -> list[str]:
        """URLs of the sidecars of these files."""
        if not self.sidecars:
            return []
        return [self.files.path[each] for number in files for each in self.sidecars.get(number, ())]

    def _fact(self, number: int, stored_in: tuple[int, ...]) -> FileFacts:
        group = self.group_of(number)
        return FileFacts(
            source=self.files.source(number),
            format=self.files.format[number],
            datetime=None if self._has_name_times else moment(self.files.datetime[number]),
            attributes=self.table.catalog.attributes.get(group, {}),
            sidecars=tuple(self.files.source(each) for each in self.sidecars.get(number, ())),
            stored_in=stored_in,
            prefix=self._series_of(number) or group,
        )


def open_stored(target: str, fetch: Fetch, *, limits: Limits, form: str) -> StoredIndex | None:
    """The index at a target, or None; anything else at the target is an error and is not replaced."""
    try:
        table = _opened(target, fetch, limits, form)
        files = table.files
    except MissingError:
        return None
    sidecars = stored_sidecars(table.catalog.arrangement, len(files))
    good = np.array([status == "ok" for status in files.status], bool)
    good[[number for each in sidecars.values() for number in each]] = False
    asked = table.catalog.arrangement.get("asked")
    asked = asked if isinstance(asked, Mapping) else {}
    pattern = _pattern(asked.get("pattern"))
    index = StoredIndex(table=table, files=files, sidecars=sidecars, good=good, asked=asked, pattern=pattern)
    try:
        _check_status(index)
    except MissingError:
        raise ConflictError("another writer changed the index during this run", url=target) from None
    return index


def _check_status(index: StoredIndex) -> None:
    """FormatError where a file has an error and is part of an array: without it, the array would lose values."""
    placements = index.table.placements if index.recalls and index.kind != "collect" else None
    placed = set() if placements is None else set(placements.file[placements.array >= 0].tolist())
    groups = index.files.columns.get("group") if index.arrangement.get("kind") == "collect" else None
    for number in index.failed_ids:
        if number in placed or (groups is not None and groups[number] is not None):
            raise FormatError(
                "the index is damaged: it has arrays of this file and gives it the status 'error'; index all files "
                "again with refresh='always'",
                url=index.files.path[number],
            )


def access_rule(target: str, index: StoredIndex, entries: Iterable[FileEntry], kept: Mapping[int, Harvested]) -> Policy:
    """What an index may access after an append: its own folder, and the files given to the run.

    Its other files were chosen by whoever wrote the index, and may be outside its folder.
    """
    given = {source.url for entry in entries for source in (entry.source, *entry.sidecars)}
    given.update(file.source.url for file in kept.values())
    given.update(index.sidecar_urls(kept))
    allowed = given if len(given) <= LISTED_FILES else {folder_of(url) for url in given}
    return Policy.beside(home_of(target), allow=allowed)


def check_access(rule: Policy, files: Iterable[Harvested]) -> None:
    """DeniedError if a file of the index must be read again and may not be."""
    for file in files:
        try:
            rule.check(file.source.url)
        except DeniedError:
            raise DeniedError(
                "to append to the index, this file of it must be read again: give it as well, or allow its folder with "
                "PERIPLUS_ALLOW",
                url=file.source.url,
            ) from None


def open_earlier(target: str, fetch: Fetch, *, limits: Limits, form: str) -> Table | None:
    """The index at a target, to keep the columns that users added to its files; None if it is damaged or missing."""
    try:
        table = _opened(target, fetch, limits, form)
        _ = table.files
    except PeriplusError:
        return None
    return table


def _opened(target: str, fetch: Fetch, limits: Limits, form: str) -> Table:
    from periplus.table import open_table  # imports Arrow, which is slow and not needed for an index in memory

    read_as = "duckdb" if form == "duckdb" else "parquet"
    return open_table(target, fetch=fetch, limits=limits, trust=True, policy=Policy.everything(), form=read_as)


def _pattern(text: Any) -> NamePattern | None:
    """The pattern that an index stores, if it is valid."""
    try:
        return parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _nothing(slot: int, which: int) -> Any:
    raise AssertionError(f"array {which} of slot {slot} was not recalled")


def moment(value: np.datetime64) -> datetime | None:
    """A time of the files table, with a time zone."""
    if np.isnat(value):
        return None
    found: datetime = value.astype("datetime64[us]").item()
    return found.replace(tzinfo=UTC)
