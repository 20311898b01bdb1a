"""The index at the target of a run: its files, how they were arranged, and the files again as if just scanned."""

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
from periplus.harvest.growth.recall import Kept, Recalled, below, recall_groups, recall_placed
from periplus.harvest.inputs import Input
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.parts.part import Fact
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.sidecars import listed
from periplus.limits import Limits
from periplus.model import Files, Source
from periplus.policy import Policy, folder_of
from periplus.table import Table, home_of
from periplus.table.collection.groups import GroupedArrays

OWN_TIMES = "own_times"
"""In an arrangement whose files have the times in their names: whether some have other times of their own."""
EXACT = 256
"""Files that are allowed one by one when they are added; of more than these, their folders."""
ASSET = "asset"
"""In the arrangement of a mosaic: the asset of STAC items that its files are."""


@dataclass(eq=False)
class StoredIndex:
    """An index at the target of a run."""

    table: Table
    files: Files
    sidecars: dict[int, list[int]]
    """File ids of the sidecars of a file."""
    good: NDArray[np.bool_]
    """Files that were indexed well; sidecars of others are not among them."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run that wrote it."""
    pattern: NamePattern | None = None
    """The pattern of that run."""

    @property
    def arrangement(self) -> Mapping[str, Any]:
        return self.table.catalog.arrangement

    @property
    def kind(self) -> str:
        """`collect`, `stack` or `mosaic`; empty where the arrangement is none of ours."""
        kind = self.arrangement.get("kind")
        return str(kind) if kind in KINDS[1:] and (kind != "collect" or self._collected) else ""

    @cached_property
    def _collected(self) -> bool:
        """Whether every array is in the group of one file, and every file that was indexed well has one."""
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
            and below(groups, arrays.plain if isinstance(arrays, GroupedArrays) else arrays) is not None
        )

    @property
    def count(self) -> int:
        """How many files were indexed well."""
        return int(self.good.sum())

    @cached_property
    def by_url(self) -> dict[str, int]:
        """Ids of the files that were indexed well."""
        numbers = np.flatnonzero(self.good).tolist()
        paths = self.files.path
        if len(numbers) < len(paths):
            paths = [paths[number] for number in numbers]
        return dict(zip(paths, numbers, strict=True))

    @cached_property
    def _bad(self) -> list[int]:
        """Ids of files that are in no array."""
        return [number for number, status in enumerate(self.files.status) if status != "ok"]

    @cached_property
    def _bad_by_url(self) -> dict[str, int]:
        return {self.files.path[number]: number for number in self._bad}

    @property
    def bad(self) -> dict[str, str]:
        """Files that are in no array, by URL, and why."""
        return {url: self.files.error[number] or "error" for url, number in self._bad_by_url.items()}

    def place(self, url: str) -> int | None:
        """Place of a file in the order of an append, where new files count from 0; None for a new file."""
        number = self.by_url.get(url)
        if number is None:
            number = self._bad_by_url.get(url)
        return None if number is None else self._place(number)

    def _place(self, number: int) -> int:
        count = len(self.files)
        # A stack lists replaced files last, although they came before those that replaced them.
        before = 2 * count if self.kind == "stack" and self._is_replaced(number) else count
        return number - before

    def _is_replaced(self, number: int) -> bool:
        return (self.files.error[number] or "").startswith(REPLACED)

    def source(self, url: str) -> Source | None:
        """Facts of a file when it was indexed; None where the index does not say what it contributed."""
        number = self.by_url.get(url) if self.recalls else None
        return None if number is None else self.files.source(number)

    def beside(self, url: str) -> list[Source]:
        """Facts of a file's sidecars when it was indexed."""
        if not self.sidecars:
            return []
        return [self.files.source(number) for number in self.sidecars.get(self.by_url.get(url, -1), ())]

    @property
    def lost_times(self) -> bool:
        """Whether files have times of their own that the index does not hold, as it has those in their names."""
        return self._named and self.arrangement.get(OWN_TIMES) is not False

    @property
    def _named(self) -> bool:
        return self.pattern is not None and self.pattern.time is not None

    @cached_property
    def recalls(self) -> bool:
        """Whether the index says what each of its files contributed; one of an older version may not."""
        if self.kind == "collect":
            return True
        return bool(self.kind) and self.table.placements is not None

    @property
    def groups(self) -> list[str | None] | None:
        """The group of each file of a collection; None where the index does not say."""
        column = self.files.columns.get("group") if self.kind == "collect" else None
        return None if column is None else column.tolist()

    @property
    def group_names(self) -> list[str]:
        """The groups of a collection."""
        arrays = self.table.catalog.arrays
        if isinstance(arrays, GroupedArrays) and not arrays.plain:
            return arrays.group_list
        return [group for group in self.groups or () if group is not None]

    def recall(self, wanted: Sequence[int], *, whole: bool) -> Kept:
        """Files as if they had just been scanned; those of which the index lacks something have no slot.

        `whole` says that all arrays of files are needed, also those that the arrangement had no room for.
        """
        if not self.recalls or (whole and self.arrangement.get("left_out")):
            return Kept(Recalled((), _nothing), [], {})
        if self.kind == "collect":
            return recall_groups(self.table, self.groups or (), wanted, self.sidecars, self._fact)
        placements = self.table.placements
        assert placements is not None
        asset = self.arrangement.get(ASSET)
        series = asset if isinstance(asset, str) else ""
        return recall_placed(self.table, placements, wanted, self.sidecars, self._fact, series)

    def recall_into(
        self, gathered: Gathered, files: Mapping[int, Harvested], *, asked: Container[int], whole: bool
    ) -> list[Harvested]:
        """Take files of the index as entries; those that must be read again. `asked` are those that were asked for."""
        recalled = self.recall(sorted(files), whole=whole)
        part = gathered.adopt(recalled.part)
        again = []
        for number, file in files.items():
            if number not in recalled.slots:
                again.append(file)
                continue
            slot = recalled.slots[number]
            fact, item = recalled.facts[slot], file.input
            if number not in asked and (self.kind != "collect" or "depth" not in self.arrangement):
                # Not asked for, so the index alone knows where it belongs. Names that come from paths are made anew.
                place = fact.prefix or None
                item = replace(item, group=place) if self.kind == "collect" else replace(item, series=place)
            gathered.reuse(replace(file, input=item), fact, part, slot)
        return again

    def unasked(self, number: int) -> Harvested:
        """A file that was not asked for and stays; it comes before new ones."""
        source, asset = self.files.source(number), self.arrangement.get(ASSET)
        item = Input(
            url=source.url,
            datetime=None if self._named else moment(self.files.datetime[number]),
            series=asset if isinstance(asset, str) else None,
        )
        return Harvested(input=item, source=source, reused=True, number=self._place(number))

    def unplaced(self, others: Container[str]) -> Iterator[Harvested]:
        """Files that are in no array, apart from `others`, as the index has them."""
        for number in self._bad:
            if self.files.path[number] not in others:
                yield replace(
                    self.unasked(number),
                    format=self.files.format[number],
                    datetime=moment(self.files.datetime[number]),
                    reused=False,
                    error=self.files.error[number] or "error",
                )

    def may_return(self, file: Harvested, *, renewed: bool, asked: Mapping[str, Any]) -> bool:
        """Whether a file that is in no array may be in one after a run that adds files, and must be read again.

        `renewed` says that files of the index changed; as long as none does, others still take its place. `asked` are
        the options of the run.
        """
        names = (self.asked.keys() | asked.keys()) - {"skip_misfits"}
        if not renewed and all(self.asked.get(name) == asked.get(name) for name in names):
            return False
        error = file.error or ""
        found = error.startswith(REPLACED) or (bool(asked.get("skip_misfits")) and error.startswith(MISFIT))
        if found and self.arrangement.get("series"):
            raise ConflictError(
                "files of this index changed, so this one, which others had replaced, may be needed again; the index "
                "does not hold its series: name all files",
                url=file.source.url,
            )
        return found

    def sidecar_urls(self, files: Iterable[int]) -> list[str]:
        """URLs of the sidecars of files."""
        if not self.sidecars:
            return []
        return [self.files.path[each] for number in files for each in self.sidecars.get(number, ())]

    def _fact(self, number: int, *, prefix: str, attributes: Mapping[str, Any], stored_in: tuple[int, ...]) -> Fact:
        return Fact(
            source=self.files.source(number),
            format=self.files.format[number],
            datetime=None if self._named else moment(self.files.datetime[number]),
            attributes=attributes,
            sidecars=tuple(self.files.source(each) for each in self.sidecars.get(number, ())),
            stored_in=stored_in,
            prefix=prefix,
        )


def open_stored(target: str, fetch: Fetch, *, limits: Limits) -> StoredIndex | None:
    """The index at a target, if there is one. What is there and is no index is an error: it is not ours to replace."""
    from periplus.table import open_table  # Arrow is heavy, and an index in memory needs none

    try:
        table = open_table(target, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())
        files = table.files
    except MissingError:
        return None
    sidecars = listed(table.catalog.arrangement, len(files))
    good = np.array([status == "ok" for status in files.status], bool)
    good[[number for each in sidecars.values() for number in each]] = False
    asked = table.catalog.arrangement.get("asked")
    asked = asked if isinstance(asked, Mapping) else {}
    pattern = _pattern(asked.get("pattern"))
    index = StoredIndex(table=table, files=files, sidecars=sidecars, good=good, asked=asked, pattern=pattern)
    _ = index.recalls  # what it needs is read here, where waiting is possible
    return index


def access_rule(target: str, index: StoredIndex, entries: Iterable[FileEntry], kept: Mapping[int, Harvested]) -> Policy:
    """What an index may access after files were added to it: its own folder, and the files that the run named.

    Whoever wrote the index chose its other files, which may be outside of its folder.
    """
    named = {source.url for entry in entries for source in (entry.source, *entry.sidecars)}
    named.update(file.source.url for file in kept.values())
    named.update(index.sidecar_urls(kept))
    few = named if len(named) <= EXACT else {folder_of(url) for url in named}
    return Policy.beside(home_of(target), allow=few)


def check_access(rule: Policy | None, files: Iterable[Harvested]) -> None:
    """DeniedError where a file that nobody named may not be read again."""
    if rule is not None:
        for file in files:
            try:
                rule.check(file.source.url)
            except DeniedError:
                raise DeniedError(
                    "this file of the index must be read again to add to it: name it as well, or allow its folder with "
                    "PERIPLUS_ALLOW",
                    url=file.source.url,
                ) from None


def earlier_table(target: str, fetch: Fetch, *, limits: Limits) -> Table | None:
    """The index at a target whose files are all read anew, for the columns that users gave them; it may be damaged."""
    from periplus.table import open_table

    try:
        table = open_table(target, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())
        _ = table.files
    except PeriplusError:
        return None
    return table


def _pattern(text: Any) -> NamePattern | None:
    """A pattern that an index holds, if it is one."""
    try:
        return parse(text) if isinstance(text, str) else None
    except FormatError:
        return None


def _nothing(slot: int, which: int) -> Any:
    raise AssertionError(f"nothing was recalled, and array {which} of slot {slot} is asked for")


def moment(value: np.datetime64) -> datetime | None:
    """An instant of the files table, aware."""
    if np.isnat(value):
        return None
    found: datetime = value.astype("datetime64[us]").item()
    return found.replace(tzinfo=UTC)
