"""Reads the files of a run: all inputs, or those that neither a journal nor the index at the target contains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from periplus.arrange.compatibility import MISFIT
from periplus.errors import ConflictError, redact
from periplus.fetch import Fetch
from periplus.harvest.growth.stored import StoredIndex
from periplus.harvest.inputs import Input, InputNotes, expand, is_literal
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.parts.part import FileFacts, HarvestPart
from periplus.harvest.scanning.checksums import with_checksums
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.scanning.stream import each_of, harvest_inputs
from periplus.harvest.sidecars import KnownSidecars
from periplus.harvest.stac import Assets
from periplus.harvest.summary import nothing_readable, nothing_to_index
from periplus.limits import Limits
from periplus.model import Source

SHOWN_ERRORS = 8
Progress = Callable[[int, int | None, int], None]


class InputReader:
    """Reads inputs into `gathered`, and counts what was reused, skipped or could not be read."""

    def __init__(
        self,
        given: list[str],
        fetch: Fetch,
        limits: Limits,
        *,
        assets: Assets,
        concurrency: int,
        look_for_sidecars: bool,
        checksums: bool,
        progress: Progress | None,
    ) -> None:
        self.look_for_sidecars, self.checksums = look_for_sidecars, checksums
        self._given, self._fetch, self._limits, self._assets = given, fetch, limits, assets
        self._concurrency, self._progress = concurrency, progress
        self.gathered = Gathered()
        self.notes = InputNotes()
        self.failures: list[Harvested] = []
        """The first few files that could not be read."""
        self.reused = 0
        """Files that were not read again."""
        self.nameless = 0
        """Files whose URLs cannot be stored in an index."""
        self._partly_refused = 0

    def read_all(self) -> None:
        """Read all inputs."""
        for batch in self._harvest(self._inputs()):
            for file in batch:
                self._take(file)

    def read_new(
        self,
        parts: list[tuple[HarvestPart, list[FileFacts]]],
        index: StoredIndex | None,
        *,
        check: bool,
        refresh_all: bool,
        append: bool,
    ) -> dict[int, Harvested]:
        """Read the inputs that are neither in the journal nor in the index; returns those in the index, by file id.

        With `check`, files that changed are read again. With `append`, only new files follow those of the index.
        """
        journal: dict[str, tuple[FileFacts, int, int]] = {}
        for part, facts in parts:
            number = self.gathered.adopt(part)
            journal.update({fact.source.url: (fact, number, slot) for slot, fact in enumerate(facts)})
        asked = {} if index is None else index.table.catalog.arrangement.get("asked")
        # Files that were indexed without looking for sidecars, or without checksums, are read again with them.
        asked = asked if isinstance(asked, Mapping) else {"siblings": None}
        same = asked.get("siblings", True) == self.look_for_sidecars
        same = same and (asked.get("checksums") is True or not self.checksums)
        reusable = index if same and not refresh_all else None

        def known(url: str) -> Source | None:
            if url in journal:
                return journal[url][0].source
            return None if reusable is None else reusable.source(url)

        def sidecars(url: str) -> Sequence[Source]:
            if url in journal:
                return journal[url][0].sidecars
            return () if index is None else index.sidecars_of(url)

        kept: dict[int, Harvested] = {}
        try:
            for batch in self._harvest(self._inputs(), known, sidecars, check):
                for file in batch:
                    url = file.source.url
                    position = index.position(url) if append and index is not None else None
                    if position is not None:
                        file = replace(file, number=position)
                    if not file.reused:
                        self._take(file)
                    elif url in journal:
                        self.reused += 1
                        self.gathered.reuse(file, *journal[url])
                    elif index is not None:
                        self.reused += 1
                        kept[index.by_url[url]] = file
        except BaseException:
            self.gathered.flush()  # the next run continues from what was read
            raise
        return kept

    def read_again(
        self, files: Sequence[Harvested], returning: Sequence[Harvested], index: StoredIndex, *, needed: Container[str]
    ) -> None:
        """Read files that the index cannot provide, and those with an error that may be in an array now (`returning`).

        One of the URLs `needed` that cannot be read is an error.
        """
        self.reused -= sum(file.source.url not in needed for file in files)
        if files and not index.recalls:
            self.notes.warnings.append(
                "this index is of an older version, which does not store the placements of files: its files were read "
                "again"
            )
        every = [*files, *returning]
        numbers = {file.source.url: file.number for file in every}
        for batch in self._harvest(each_of([file.input for file in every])):
            for file in batch:
                if file.source.url in needed and file.error is not None:
                    raise ConflictError(
                        f"to append to the index, this file of it must be read again, which failed: {file.error}",
                        url=file.source.url,
                    )
                self._take(replace(file, number=numbers.get(file.source.url, file.number)))

    def require_files(self, kept: int = 0, others: int = 0) -> None:
        """Raise if there is nothing to index; errors of all inputs are rows if the index has `others`."""
        entries = self.gathered.entries
        if kept or any(entry.error is None for entry in entries):
            return
        if not entries and not self.nameless:
            raise nothing_to_index(self._given, self.notes.skipped)
        if others:
            return
        first = self.failures[0]
        if len(self._given) == 1 and is_literal(self._given[0]) and first.raised is not None:
            raise first.raised
        raise nothing_readable(self.failures, len(entries) + self.nameless)

    def add_misfits(self, misfits: Mapping[int, str]) -> None:
        """Add entries that do not fit to the failures that are shown."""
        for number, reason in misfits.items():
            if len(self.failures) < SHOWN_ERRORS:
                source = self.gathered.entries[number].source
                self.failures.append(Harvested(input=Input(url=source.url), source=source, error=f"{MISFIT}{reason}"))

    def _inputs(self) -> AsyncIterator[Input]:
        return expand(self._given, self._fetch, assets=self._assets, notes=self.notes)

    def _harvest(
        self,
        inputs: AsyncIterator[Input],
        known: Callable[[str], Source | None] = lambda _: None,
        sidecars: KnownSidecars = lambda _: (),
        check: bool = True,
    ) -> Iterator[list[Harvested]]:
        batches = harvest_inputs(
            inputs,
            self._fetch,
            limits=self._limits,
            known=known,
            sidecars=sidecars,
            check=check,
            concurrency=self._concurrency,
            look_for_sidecars=self.look_for_sidecars,
            progress=self._progress,
        )
        if not self.checksums:
            return batches
        return (group for batch in batches for group in with_checksums(batch, self._fetch, self._limits))

    def _take(self, file: Harvested) -> None:
        if file.skipped:
            self.notes.skipped += 1
            return
        if file.error is not None and len(self.failures) < SHOWN_ERRORS:
            self.failures.append(file)
        self._note_refused(file)
        if file.nameless:
            self.nameless += 1
        else:
            self.gathered.add(file)

    def _note_refused(self, file: Harvested) -> None:
        """Warn about parts of a file that could not be indexed."""
        refused = file.attributes.get("refused")
        if isinstance(refused, list) and refused:
            self._partly_refused += 1
            if self._partly_refused <= SHOWN_ERRORS:
                self.notes.warnings.append(f"{redact(file.source.url)}: omitted: {'; '.join(map(str, refused))}")
