"""One run of `index_into`: read what is new, decide what stays of the index at the target, arrange and write."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from periplus.arrange import Arrangement, arrange
from periplus.arrange.pattern import date_pattern
from periplus.errors import ConflictError, FetchError, StaleError
from periplus.fetch import Fetch
from periplus.harvest.growth.append import AppendedFiles, AppendRequest, append_files, is_unchanged
from periplus.harvest.growth.inherit import inherit_options
from periplus.harvest.growth.stored import ASSET, StoredIndex, access_rule, check_access, open_earlier, open_stored
from periplus.harvest.options import ArrangeOptions, check_options, name_times
from periplus.harvest.parts.journal import Journal
from periplus.harvest.placements import placements_of
from periplus.harvest.reader import SHOWN_ERRORS, InputReader
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.scanning.values import ValueReader
from periplus.harvest.sidecars import with_sidecars
from periplus.harvest.summary import Summary, count_files
from periplus.limits import Limits
from periplus.model import Catalog, Files, Refs
from periplus.policy import WEB, Policy, scheme_of
from periplus.table import Table, memory_table


class IndexRun:
    """One run of `index_into`."""

    def __init__(
        self, reader: InputReader, fetch: Fetch, limits: Limits, *, kind: str, options: dict[str, Any]
    ) -> None:
        self._reader, self._fetch, self._limits = reader, fetch, limits
        self._gathered, self._notes = reader.gathered, reader.notes
        self._options = ArrangeOptions(kind, options, kind, options)
        self._name_times = name_times(kind, options)
        self._values = ValueReader(fetch, limits)
        """Reads small arrays whose values an arrangement needs."""
        self._arrangement = ""
        self._appends = False
        self._files: Files | None = None
        """The whole files table, if this run made it."""
        self._before: Sequence[str] = ()
        """URLs of the files that the index had."""
        self._earlier: Table | None = None
        """The index that is replaced, for the columns that users added to its files table."""
        self._returning: list[Harvested] = []
        """Files with an error in the index that may be in an array now."""
        self._access: Policy | None = None
        """What an index that is appended to may access."""

    def in_memory(self) -> Table:
        """Make an index in memory."""
        self._reader.read_all()
        self._gathered.finish()
        self._reader.require_files()
        self._recognise_dates()
        self._apply_name_times()
        arrangement = self._arrange()
        refs: dict[str, list[Refs]] = {}
        for name, block in arrangement.blocks:
            refs.setdefault(name, []).append(block)
        return memory_table(
            arrangement.catalog,
            {name: Refs.joined(blocks, blocks[0].chunk.shape[0]) for name, blocks in refs.items()},
            arrangement.files,
            placements=partial(placements_of, arrangement, self._gathered.entries),
            limits=self._limits,
        )

    def into(self, to: str, *, form: str | None, refresh: str, append: bool) -> Table:
        """Write an index to a target, reusing the index and the journal there."""
        # These import Arrow, which is slow and not needed for an index in memory.
        from periplus.table import sweep
        from periplus.table.stored_form import check_parent, form_of, target_form
        from periplus.table.target import check_target, form_at

        if scheme_of(to) in WEB:
            raise FetchError("HTTP is read only here; write the index to a file or an object store", url=to)
        if form is None:  # an index keeps its form
            form = (form_of(to) != "duckdb" and form_at(to, self._fetch)) or target_form(to)
        check_parent(to)
        check_target(to, form, fetch=self._fetch)
        sweep(to, fetch=self._fetch, limits=self._limits)
        refresh_all = refresh == "always"
        # An index that is replaced completely may be damaged; one that is appended to may not.
        index = None if refresh_all and not append else open_stored(to, self._fetch, limits=self._limits, form=form)
        if append and index is not None:
            self._inherit_checksums(index, to)
        elif index is not None and index.asked.get("checksums") is True and not self._reader.checksums:
            self._notes.warnings.append("files that are read in this run have no checksums: give checksums=True again")
        kind = "" if self._reader.look_for_sidecars else "no siblings"
        kind += " checksums" if self._reader.checksums else ""
        journal = Journal(to, self._fetch, limits=self._limits, kind=kind)
        self._gathered.keep = journal.add
        try:
            if index is not None:
                self._earlier, self._before = index.table, index.files.path
            elif refresh_all:
                self._earlier = open_earlier(to, self._fetch, limits=self._limits, form=form)
            parts = [] if refresh_all else journal.load()
            if journal.damaged:
                self._notes.warnings.append(f"{journal.damaged} parts of the journal could not be used")
            kept = self._reader.read_new(parts, index, check=refresh == "check", refresh_all=refresh_all, append=append)
            self._reader.require_files(len(kept), others=index.count if append and index is not None else 0)
            others: list[int] = []
            if append and index is not None:
                if not index.kind:
                    raise ConflictError("cannot append to an index of this arrangement: give all its files", url=to)
                self._inherit_options(index, to)
                self._access = access_rule(to, index, self._gathered.entries, kept)
                others = self._add_others(index, kept)
            try:
                table = self._write(to, form, index, kept, others, append)
            except StaleError:  # the files have been read, so it is the index that changed
                raise ConflictError("another writer changed the index during this run", url=to) from None
            journal.clear()
        finally:
            journal.close()
            if self._earlier is not None:
                self._earlier.close()
        return table if self._access is None else table.under(self._access)

    def summary(self, table: Table) -> Summary:
        """What the run did."""
        reader = self._reader
        files = table.files if self._files is None else self._files
        counted = count_files(files, shown=SHOWN_ERRORS)
        return replace(
            counted,
            files=counted.files + reader.nameless,
            failed=counted.failed + reader.nameless,
            skipped=self._notes.skipped,
            reused=reader.reused,
            gone=len(set(self._before).difference(files.path)),
            rows=table.rows,
            arrays_read=self._values.arrays,
            bytes_read=self._values.bytes,
            arrangement=self._arrangement,
            errors=tuple((file.source.url, file.error or "") for file in reader.failures),
            warnings=tuple(self._notes.warnings),
        )

    # --- what stays of the index ---------------------------------------------------------------------------------

    def _inherit_options(self, index: StoredIndex, to: str) -> None:
        """Use the options of the index that were not given, and read names by its pattern."""
        given = self._options
        options = inherit_options(index, given.kind, given.options, to)
        if given.kind == "auto" and options.kind != "auto":
            check_options(options.kind, append=True, **{"order": "given", **given.options})
        self._options = options
        self._name_times = name_times(options.recorded_kind, options.recorded)
        self._notes.warnings += options.notes
        self._appends = True

    def _inherit_checksums(self, index: StoredIndex, to: str) -> None:
        """Compute checksums where the index has them; ConflictError if only files that are appended would have them."""
        recorded = index.asked.get("checksums") is True
        if self._reader.checksums and not recorded and index.count:
            raise ConflictError(
                "this index was made without checksums: to add them, give all its files with checksums=True and "
                "without append=",
                url=to,
            )
        self._reader.checksums = recorded

    def _add_others(self, index: StoredIndex, kept: Mapping[int, Harvested]) -> list[int]:
        """Files of the index that are not inputs of this run; those with an error are added, or may be read again."""
        here = {entry.source.url for entry in self._gathered.entries}
        read = {index.by_url[url] for url in here if url in index.by_url}
        for file in index.failed(here):
            if index.may_return(file, changed=bool(read), request=self._record()):
                self._returning.append(file)
            else:
                self._gathered.add(file)
        return [n for n in np.flatnonzero(index.good).tolist() if n not in kept and n not in read]

    def _recall(self, index: StoredIndex, kept: dict[int, Harvested], others: Sequence[int]) -> None:
        """Add files of the index as if they had been scanned, with references from its rows; read the rest again."""
        if others and not index.recalls and index.arrangement.get("series"):
            raise ConflictError(
                "this index is of an older version, which does not store the series of its files: name all files"
            )
        files = {**kept, **{number: index.unchanged_file(number) for number in others}}
        again = list(files.values())
        times = self._name_times
        if times.give_times or not index.lost_times:
            # Arrays that the index omits are needed if the arrangement changes, or fewer files may fit better.
            complete = self._record() != index.arrangement.get("asked") or len(files) < index.count
            again = index.recall_into(self._gathered, files, complete=complete)
            times.differ = times.differ or index.lost_times
        if self._access is not None:
            check_access(self._access, (*again, *self._returning))
        needed = {index.files.path[number] for number in others}
        self._reader.read_again(again, self._returning, index, needed=needed)
        self._gathered.finish()
        if self._appends:
            urls = {file.source.url for file in files.values()}
            self._gathered.entries = [replace(e, indexed=e.source.url in urls) for e in self._gathered.entries]
        self._apply_name_times()

    # --- arranging and writing -----------------------------------------------------------------------------------

    def _write(
        self,
        to: str,
        form: str,
        index: StoredIndex | None,
        kept: dict[int, Harvested],
        others: list[int],
        append: bool,
    ) -> Table:
        from periplus.table import append_table, write_table

        gathered = self._gathered
        gathered.finish([] if index is None else index.sidecar_urls((*kept, *others)))
        if not append:
            self._recognise_dates(index, kept)
        self._apply_name_times(kept=len(kept) + len(others))
        if index is not None:
            request = AppendRequest(kept, others, self._record(), form)
            if is_unchanged(index, request, gathered):
                self._arrangement = index.kind
                return index.table
            added = append_files(index, request, gathered, self._name_times.timed, self._options.options)
            if added is not None:
                self._arrangement = added.arrangement.kind
                self._files = Files.joined(index.files, added.arrangement.files)
                self._before = ()  # all files of the index stay
                return append_table(
                    to,
                    self._appended_catalog(added, index),
                    added.arrangement.blocks,
                    added.arrangement.files,
                    placements=added.placements,
                    fetch=self._fetch,
                    limits=self._limits,
                    before=index.table,
                )
            self._recall(index, kept, others)
        arrangement = self._arrange()
        return write_table(
            to,
            arrangement.catalog,
            arrangement.blocks,
            arrangement.files if self._earlier is None else self._earlier.with_columns(arrangement.files),
            placements=placements_of(arrangement, gathered.entries),
            fetch=self._fetch,
            form=form,
            limits=self._limits,
            # An index of exactly the inputs does not depend on the one before; one that is appended to does.
            continues=index.table if append and index is not None else None,
            create=append and index is None,
        )

    def _arrange(self) -> Arrangement:
        gathered, options = self._gathered, self._options
        found = arrange(gathered.entries, gathered.refs, kind=options.kind, **options.options)
        self._arrangement = found.kind
        self._notes.warnings += found.warnings
        self._reader.add_misfits(found.misfits)
        record = {**found.catalog.arrangement, "asked": self._record(), **self._name_times.record()}
        asset = next((entry.series for entry in gathered.entries if entry.series is not None), None)
        if found.kind == "mosaic" and asset is not None:
            record[ASSET] = asset
        found = replace(found, catalog=replace(found.catalog, arrangement=record))
        found = with_sidecars(found, gathered.entries)
        self._files = found.files
        return found

    def _appended_catalog(self, added: AppendedFiles, index: StoredIndex) -> Catalog:
        """The catalog of the index with the appended files, and what its arrangement records."""
        times, catalog = self._name_times, added.arrangement.catalog
        times.differ = times.differ or index.lost_times
        record = {**catalog.arrangement, "asked": index.arrangement.get("asked"), **times.record()}
        return replace(catalog, arrangement=record)

    def _recognise_dates(self, index: StoredIndex | None = None, kept: Collection[int] = ()) -> None:
        """Use the dates in names as a pattern would, where files have no times and no other meaning is possible.

        `kept` are files of the index, whose times may be those in their names.
        """
        given = self._options.options
        free = given["pattern"] is None and given["coordinate"] == "auto" and given["dim"] in (None, "time")
        if not free or self._options.kind not in ("auto", "stack"):
            return
        entries = [entry for entry in self._gathered.entries if entry.error is None]
        timeless = all(entry.datetime is None and entry.series is None for entry in entries)
        urls = [entry.source.url for entry in entries]
        if index is not None and kept:
            numbers = list(kept)
            timeless = timeless and (index.has_only_name_times or bool(np.isnat(index.files.datetime[numbers]).all()))
            urls += [index.files.path[number] for number in numbers]
        pattern = date_pattern(urls) if timeless else None
        if pattern is not None:
            options = {**given, "pattern": pattern}
            self._options = ArrangeOptions(self._options.kind, options, self._options.kind, options)
            self._name_times = name_times(self._options.kind, options)
            self._notes.warnings.append(
                "the times of files are the dates in their names; give a pattern= to choose, or coordinate='order' to "
                "ignore them"
            )

    def _apply_name_times(self, kept: int = 0) -> None:
        skip = bool(self._options.options["skip_misfits"])
        entries, misfits = self._name_times.apply(self._gathered.entries, skip_misfits=skip, kept=kept)
        self._gathered.entries = entries
        self._reader.add_misfits(misfits)

    def _record(self) -> dict[str, Any]:
        reader = self._reader
        return self._options.record(look_for_sidecars=reader.look_for_sidecars, checksums=reader.checksums)
