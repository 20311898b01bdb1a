"""One run: harvest what is not known, lay it with what is, write the table; or only what must change of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from periplus.arrange import Arrangement
from periplus.arrange import arrange as arrange_entries
from periplus.arrange.compatibility import MISFIT
from periplus.errors import ConflictError, FetchError, StaleError, redact
from periplus.fetch import Fetch
from periplus.harvest.growth.append import Appended, Request, appended, is_unchanged
from periplus.harvest.growth.inherit import inherited
from periplus.harvest.growth.stored import ASSET, StoredIndex, access_rule, check_access, earlier_table, open_stored
from periplus.harvest.inputs import Input, Notes, expand, is_literal
from periplus.harvest.names import named
from periplus.harvest.options import check_options
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.parts.journal import Journal
from periplus.harvest.parts.part import Fact, Part
from periplus.harvest.placements import placements_of
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.scanning.stream import each_of, harvest_inputs
from periplus.harvest.scanning.values import ValueReader
from periplus.harvest.sidecars import KnownSidecars, with_sidecars
from periplus.harvest.stac import Assets
from periplus.harvest.summary import Summary, count_files, nothing_readable, nothing_to_index
from periplus.limits import Limits
from periplus.model import Catalog, Files, Refs, Source
from periplus.policy import WEB, Policy, scheme_of
from periplus.table import Table, memory_table

SHOWN_ERRORS = 8
Progress = Callable[[int, int | None, int], None]


class Run:
    """One run of `index_into`."""

    def __init__(
        self,
        *,
        given: list[str],
        fetch: Fetch,
        limits: Limits,
        kind: str,
        options: dict[str, Any],
        assets: Assets,
        concurrency: int,
        siblings: bool,
        progress: Progress | None,
    ) -> None:
        self.given, self.fetch, self.limits = given, fetch, limits
        self.kind, self.options, self.assets = kind, options, assets
        self.concurrency, self.siblings, self.progress = concurrency, siblings, progress
        self.notes = Notes()
        self.failures: list[Harvested] = []
        self.reused, self.nameless, self.refused, self.arrangement, self.appends = 0, 0, 0, "", False
        self.files: Files | None = None
        """The whole files table, when this run made it."""
        self.gathered = Gathered()
        self.values = ValueReader(fetch, limits)
        """Reads small arrays that an arrangement needs the values of."""
        self.before: Sequence[str] = ()
        """Files that the index had."""
        self.names = named(kind, options)
        self.asked = kind, options
        """What the index records as asked for; not all of `kind` and `options` where files are added to an index."""
        self.earlier: Table | None = None
        self.doubtful: list[Harvested] = []
        """Files that the index left out, and that may be in an array now."""
        self.rule: Policy | None = None  # what an index that files are added to may access

    def in_memory(self) -> Table:
        """An index that is not written anywhere."""
        for batch in self._harvest(self._inputs()):
            for file in batch:
                self._take(file)
        self.gathered.finish()
        self._must_have_something()
        self._take_times()
        laid = self._arranged()
        refs: dict[str, list[Refs]] = {}
        for name, block in laid.blocks:
            refs.setdefault(name, []).append(block)
        return memory_table(
            laid.catalog,
            {name: Refs.joined(pieces, pieces[0].chunk.shape[0]) for name, pieces in refs.items()},
            laid.files,
            placements=partial(placements_of, laid, self.gathered.entries),
            limits=self.limits,
        )

    def into(self, to: str, *, form: str | None, refresh: str, append: bool) -> Table:
        """An index at a target, with what is known there already."""
        from periplus.table import sweep  # Arrow is heavy, and an index in memory needs none

        if scheme_of(to) in WEB:
            raise FetchError("HTTP is read only here; write the index to a file or an object store", url=to)
        sweep(to, fetch=self.fetch, limits=self.limits)
        anew = refresh == "always"
        # An index of which nothing is wanted may be damaged; one that is added to may not.
        index = None if anew and not append else open_stored(to, self.fetch, limits=self.limits)
        journal = Journal(to, self.fetch, limits=self.limits, kind="" if self.siblings else "no siblings")
        self.gathered.keep = journal.add
        try:
            self.earlier = index.table if index else earlier_table(to, self.fetch, limits=self.limits) if anew else None
            parts = [] if anew else journal.load()
            if journal.damaged:
                self.notes.warnings.append(f"{journal.damaged} parts of the journal could not be used")
            self.before = () if index is None else index.files.path
            kept = self._harvest_again(parts, index, check=refresh == "check", anew=anew, append=append)
            self._must_have_something(len(kept), others=0 if index is None or not append else index.count)
            others: list[int] = []
            if append and index is not None:
                if not index.kind:
                    raise ConflictError("an index arranged in this way does not grow: name all files of it", url=to)
                self._inherit(index, to)
                self.rule = access_rule(to, index, self.gathered.entries, kept)
                others = self._others(index, kept)
            try:
                table = self._written(to, form, index, kept, others, append)
            except StaleError:  # the files are read by now: it is the index that changed
                raise ConflictError("another writer changed the index meanwhile", url=to) from None
            journal.clear()
        finally:
            journal.close()
        return table if self.rule is None else table.under(self.rule)

    def _inputs(self) -> AsyncIterator[Input]:
        return expand(self.given, self.fetch, assets=self.assets, notes=self.notes)

    def _harvest(
        self,
        inputs: AsyncIterator[Input],
        known: Callable[[str], Source | None] = lambda _: None,
        beside: KnownSidecars = lambda _: (),
        check: bool = True,
    ) -> Iterator[list[Harvested]]:
        return harvest_inputs(
            inputs,
            self.fetch,
            limits=self.limits,
            known=known,
            beside=beside,
            check=check,
            concurrency=self.concurrency,
            siblings=self.siblings,
            progress=self.progress,
        )

    def _harvest_again(
        self, parts: list[tuple[Part, list[Fact]]], index: StoredIndex | None, *, check: bool, anew: bool, append: bool
    ) -> dict[int, Harvested]:
        """Harvest what neither the journal nor the index knows; the files kept from the index, by their ids there."""
        written: dict[str, tuple[Fact, int, int]] = {}
        for part, facts in parts:
            number = self.gathered.adopt(part)
            written.update({fact.source.url: (fact, number, slot) for slot, fact in enumerate(facts)})

        asked = {} if index is None else index.table.catalog.arrangement.get("asked")
        # What was found without looking at siblings says nothing of what would be found with them.
        alike = not anew and isinstance(asked, Mapping) and asked.get("siblings", True) == self.siblings

        def known(url: str) -> Source | None:
            if url in written:
                return written[url][0].source
            return None if index is None or not alike else index.source(url)

        def beside(url: str) -> Sequence[Source]:
            if url in written:
                return written[url][0].sidecars
            return () if index is None else index.beside(url)

        kept: dict[int, Harvested] = {}
        try:
            for batch in self._harvest(self._inputs(), known, beside, check):
                for file in batch:
                    url = file.source.url
                    place = index.place(url) if append and index is not None else None
                    if place is not None:
                        file = replace(file, number=place)  # only new files follow those of the index
                    if not file.reused:
                        self._take(file)
                    elif url in written:
                        self.reused += 1
                        self.gathered.reuse(file, *written[url])
                    elif index is not None:
                        self.reused += 1
                        kept[index.by_url[url]] = file
        except BaseException:
            self.gathered.flush()  # what was read is not lost
            raise
        return kept

    def _others(self, index: StoredIndex, kept: Mapping[int, Harvested]) -> list[int]:
        """Files of the index that were not asked for, when it is added to."""
        here = {entry.source.url for entry in self.gathered.entries}
        renewed = {index.by_url[url] for url in here if url in index.by_url}
        for file in index.unplaced(here):
            if index.may_return(file, renewed=bool(renewed), asked=self._asked()):
                self.doubtful.append(file)
            else:
                self.gathered.add(file)
        return [n for n in np.flatnonzero(index.good).tolist() if n not in kept and n not in renewed]

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
        """Say what of a file that is indexed is left out."""
        refused = file.attributes.get("refused")
        if isinstance(refused, list) and refused:
            self.refused += 1
            if self.refused <= SHOWN_ERRORS:
                self.notes.warnings.append(f"{redact(file.source.url)}: left out: {'; '.join(map(str, refused))}")

    def _must_have_something(self, kept: int = 0, others: int = 0) -> None:
        """Raise where there is nothing to index; files that cannot be read are, beside `others` of the index."""
        entries = self.gathered.entries
        if kept or any(entry.error is None for entry in entries):
            return
        if not entries and not self.nameless:
            raise nothing_to_index(self.given, self.notes.skipped)
        if others:
            return
        first = self.failures[0]
        if len(self.given) == 1 and is_literal(self.given[0]) and first.raised is not None:
            raise first.raised
        raise nothing_readable(self.failures, len(entries) + self.nameless)

    def _written(
        self,
        to: str,
        form: str | None,
        index: StoredIndex | None,
        kept: dict[int, Harvested],
        others: list[int],
        append: bool,
    ) -> Table:
        from periplus.table import append_table, write_table

        gathered = self.gathered
        gathered.finish([] if index is None else index.sidecar_urls((*kept, *others)))
        self._take_times(kept=len(kept) + len(others))
        if index is not None:
            request = Request(kept, others, self._asked(), form)
            if is_unchanged(index, request, gathered.entries):
                self.arrangement = index.kind
                return index.table
            more = appended(index, request, gathered, self.names.timed, self.options)
            if more is not None:
                self.arrangement = more.laid.kind
                self.files, self.before = Files.joined(index.files, more.laid.files), ()  # none is gone
                return append_table(
                    to,
                    self._recorded(more, index),
                    more.laid.blocks,
                    more.laid.files,
                    placements=more.placements,
                    fetch=self.fetch,
                    limits=self.limits,
                    before=index.table,
                )
            self._recall(index, kept, others)
        laid = self._arranged()
        return write_table(
            to,
            laid.catalog,
            laid.blocks,
            laid.files if self.earlier is None else self.earlier.with_columns(laid.files),
            placements=placements_of(laid, gathered.entries),
            fetch=self.fetch,
            form=form,
            limits=self.limits,
            # What exactly the named files make is the same whoever was there before; what adds to an index is not.
            continues=index.table if append and index is not None else None,
            create=append and index is None,
        )

    def _recorded(self, more: Appended, index: StoredIndex) -> Catalog:
        """The catalog of an index that grew, with what its arrangement records."""
        self.names.own = self.names.own or index.lost_times
        asked = {"asked": index.arrangement.get("asked"), **self.names.recorded()}
        return replace(more.laid.catalog, arrangement={**more.laid.catalog.arrangement, **asked})

    def _recall(self, index: StoredIndex, kept: dict[int, Harvested], others: Sequence[int]) -> None:
        """Files of the index as if scanned: their references come from its rows; what it lacks is read again."""
        if others and not index.recalls and index.arrangement.get("series"):
            raise ConflictError(
                "this index is of an older version, which does not say to which series a file belongs: name all files"
            )
        files = kept | {number: index.unasked(number) for number in others}
        again = list(files.values())
        if self.names.give_times or not index.lost_times:
            # Arrays that the arrangement has no room for are needed where it may have room now.
            whole = self._asked() != index.arrangement.get("asked") or len(files) < index.count
            again = index.recall_into(self.gathered, files, asked=kept, whole=whole)
            self.names.own = self.names.own or index.lost_times
        self._read_again(again, index, {index.files.path[number] for number in others})
        self.gathered.finish()
        if self.appends:
            held = {file.source.url for file in files.values()}
            self.gathered.entries = [replace(e, indexed=e.source.url in held) for e in self.gathered.entries]
        self._take_times()

    def _read_again(self, files: Sequence[Harvested], index: StoredIndex, unasked: Container[str]) -> None:
        """Read files that the index cannot give back; one that was not asked for and cannot be read ends the run."""
        self.reused -= sum(file.source.url not in unasked for file in files)
        if files and not index.recalls:
            self.notes.warnings.append(
                "this index is of an older version without placements: its files were read again"
            )
        check_access(self.rule, (*files, *self.doubtful))
        places = {file.source.url: file.number for file in (*files, *self.doubtful)}
        for batch in self._harvest(each_of([file.input for file in (*files, *self.doubtful)])):
            for file in batch:
                if file.source.url in unasked and file.error is not None:
                    raise ConflictError(
                        f"this file of the index must be read again to add to it, and cannot be: {file.error}",
                        url=file.source.url,
                    )
                self._take(replace(file, number=places.get(file.source.url, file.number)))

    def _arranged(self) -> Arrangement:
        gathered = self.gathered
        laid = arrange_entries(gathered.entries, gathered.refs, kind=self.kind, **self.options)
        self.arrangement = laid.kind
        self.notes.warnings += laid.warnings
        self._note_misfits(laid.misfits)
        arrangement = {**laid.catalog.arrangement, "asked": self._asked(), **self.names.recorded()}
        asset = next((entry.series for entry in gathered.entries if entry.series is not None), None)
        if laid.kind == "mosaic" and asset is not None:
            arrangement[ASSET] = asset
        laid = replace(laid, catalog=replace(laid.catalog, arrangement=arrangement))
        laid = with_sidecars(laid, gathered.entries)
        self.files = laid.files
        return laid

    def _inherit(self, index: StoredIndex, to: str) -> None:
        """Arrange added files, and read their names, as those of the index were."""
        plan = inherited(index, self.kind, self.options, to)
        if self.kind == "auto" and plan.kind != "auto":
            check_options(plan.kind, append=True, **{"order": "given", **self.options})
        self.kind, self.options, self.asked = plan.kind, plan.options, (plan.asked_kind, plan.asked)
        self.names = plan.names
        self.notes.warnings += plan.notes
        self.appends = True

    def _take_times(self, kept: int = 0) -> None:
        skip = bool(self.options["skip_misfits"])
        self._note_misfits(self.names.apply(self.gathered, skip_misfits=skip, kept=kept))

    def _note_misfits(self, misfits: Mapping[int, str]) -> None:
        for number, why in misfits.items():
            if len(self.failures) < SHOWN_ERRORS:
                source = self.gathered.entries[number].source
                self.failures.append(Harvested(input=Input(url=source.url), source=source, error=f"{MISFIT}{why}"))

    def _asked(self) -> dict[str, Any]:
        """What was asked for, so that a later run can tell whether the same is meant."""
        kind, options = self.asked
        told = {name: value for name, value in options.items() if value is not None}
        return {"arrange": kind, **told, **({} if self.siblings else {"siblings": False})}

    def summary(self, table: Table) -> Summary:
        """What was done, when all is done."""
        files = table.files if self.files is None else self.files
        counted = count_files(files, shown=SHOWN_ERRORS)
        return replace(
            counted,
            failed=counted.failed + self.nameless,
            skipped=self.notes.skipped,
            reused=self.reused,
            gone=len(set(self.before).difference(files.path)),
            rows=table.rows,
            arrays_read=self.values.arrays,
            bytes_read=self.values.bytes,
            arrangement=self.arrangement,
            errors=tuple((file.source.url, file.error or "") for file in self.failures),
            warnings=tuple(self.notes.warnings),
        )
