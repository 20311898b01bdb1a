"""Rows of an index in Parquet files: choose parts and row groups for a window, cache decoded ones, count the rows."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from periplus.errors import FormatError, MissingError, StaleError
from periplus.fetch.stale import check_same
from periplus.forks import cached_property, renewed
from periplus.limits import Allowance, Limits
from periplus.model import Array, Bundle, Catalog, Files, Placements, Refs, Source
from periplus.table.collection.bundles import Bundled, Kinds, bundled
from periplus.table.document.document import IndexDocument, PartFile
from periplus.table.parquet.buffers import strings, to_strings
from periplus.table.parquet.decoded import KEPT_BYTES, DecodedCache, Group
from periplus.table.parquet.files import files_from_arrow
from periplus.table.parquet.part import (
    TEXT_BYTES,
    PartRows,
    embedded,
    file_bytes,
    nested_columns,
    read_files,
    read_files_table,
)
from periplus.table.parquet.ranges import ParquetBytes, arrow_errors, read_tails
from periplus.table.verify import MORE, NARROW, check_count

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.duckdb.sql import Database
    from periplus.table.table import Table, Window

ROW_BYTES = 28
"""Of a reference in memory, without its chunk position."""


class ParquetRows:
    """The rows of a flat table or of a dataset's parts; parts are opened when a query needs them."""

    _lock: threading.RLock

    def __init__(
        self, document: IndexDocument, base: ParquetBytes, *, folder: str, fetch: Fetch, limits: Limits
    ) -> None:
        self.document = document
        self.base = base
        self.folder = folder
        self.fetch = fetch
        self.limits = limits
        renewed(self, _lock=threading.RLock)
        self._parts: dict[str, PartRows] = {}
        self._kept = DecodedCache(KEPT_BYTES)
        if document.pieces is None:
            self._parts[""] = PartRows(base, document, None)
            self.count = self._parts[""].count
        else:
            self.count = sum(piece.rows for piece in document.pieces)
        limits.check("the number of rows", self.count, limits.index_rows, url=base.url)
        if self.count > document.most_rows:
            raise FormatError(
                f"the index has {self.count} rows, but the declared grids allow only {document.most_rows}",
                url=base.url,
            )

    # --- files ---

    def files(self) -> Files:
        return self._files

    @cached_property
    def _files(self) -> Files:
        with self._lock, arrow_errors("the files table", self.base.url):
            source = self._files_source()
            return self._distinct() if source is None else read_files(source, self.limits)

    def files_table(self) -> pa.Table | None:
        """The files table as it is stored; None where there is none."""
        with self._lock, arrow_errors("the files table", self.base.url):
            source = self._files_source()
            return None if source is None else read_files_table(source, self.limits)

    def nested_columns(self) -> list[str]:
        """Columns of the files table that are not read."""
        with self._lock, arrow_errors("the files table", self.base.url):
            source = self._files_source()
            return [] if source is None else nested_columns(source)

    def file_count(self) -> int | None:
        """How many files the files table has; None where there is none."""
        with self._lock, arrow_errors("the files table", self.base.url):
            source = self._files_source()
            return None if source is None else int(source.metadata.num_rows)

    def _files_source(self) -> ParquetBytes | None:
        from periplus.table.document.document import FILES_KEY

        if self.document.pieces is not None:
            return self.base
        if FILES_KEY in self.base.keys:
            return embedded(self.base.keys[FILES_KEY], self.limits, self.base.url)
        return None

    @property
    def form(self) -> str:
        return "flat" if self.document.pieces is None else "dataset"

    def placements(self, catalog: Catalog, files: int) -> Placements | None:
        """Where the arrays of files went: embedded in a flat table, parts of their own in a dataset."""
        from periplus.table.document.document import PLACEMENTS_KEY
        from periplus.table.parquet.placements import read_placements

        found: list[ParquetBytes] = []
        if self.document.pieces is not None:
            pieces = self.document.placements
            urls = [self.folder + piece.path for piece in pieces]
            for piece, url, tail in zip(pieces, urls, self._tails(urls), strict=True):
                found.append(ParquetBytes(url, fetch=self.fetch, limits=self.limits, size=piece.bytes, tail=tail))
        elif PLACEMENTS_KEY in self.base.keys:
            found.append(embedded(self.base.keys[PLACEMENTS_KEY], self.limits, self.base.url))
        return read_placements(found, catalog, files, self.limits) if found else None

    def _distinct(self) -> Files:
        """Files of a table of another tool, which lists none: its distinct paths, in order of appearance."""
        part = self._parts[""]
        if part.columns.path is None:
            raise FormatError("the index has file ids but no files table", url=self.base.url)
        seen: dict[str, None] = {}
        held = file_bytes(self.limits, self.base.url)
        for _, table in part.source.read(range(part.source.groups), [part.columns.path]):
            for piece in table[part.columns.path].chunks:
                before = len(seen)
                seen |= dict.fromkeys(name for name in to_strings(piece.dictionary) if name is not None)
                held.take(sum(len(name) + TEXT_BYTES for name in islice(seen, before, None)))
        return files_from_arrow(pa.table({"path": strings(list(seen))}))

    @cached_property
    def _ids(self) -> dict[str, int]:
        paths = self._files.path
        ids = {path: number for number, path in enumerate(paths)}
        if len(ids) != len(paths):
            raise FormatError("the files table lists a path twice", url=self.base.url)
        return ids

    # --- rows ---

    def parts(self, array: Array | None = None, window: Window | None = None) -> list[PartRows]:
        """The parts, or those that may hold rows of a window; opened on first use."""
        if self.document.pieces is None:
            return [self._parts[""]]
        return self.opened(
            [piece for piece in self.document.pieces if array is None or window is None or _meets(piece, array, window)]
        )

    def opened(self, wanted: Sequence[PartFile]) -> list[PartRows]:
        """The parts that pieces of the document name."""
        fresh = [piece for piece in wanted if piece.path not in self._parts]
        urls = [self.folder + piece.path for piece in fresh]
        for piece, url, tail in zip(fresh, urls, self._tails(urls), strict=True):
            source = ParquetBytes(url, fetch=self.fetch, limits=self.limits, size=piece.bytes, tail=tail)
            self._parts[piece.path] = PartRows(source, self.document, piece)
        return [self._parts[piece.path] for piece in wanted]

    def _tails(self, urls: Sequence[str]) -> list[tuple[bytes, Source]]:
        try:
            return read_tails(urls, self.fetch)
        except MissingError as error:
            lost = error.url
        try:
            check_same(self.base.source, self.fetch.run(self.fetch.head(self.base.url)))
        except (StaleError, MissingError):
            raise StaleError("the index was rewritten after it was opened", url=self.base.url) from None
        raise MissingError("a part of the index is missing", url=lost)

    def find(self, array: Array, window: Window, *, most: int | None = None) -> Refs:
        if len(self.document.catalog.arrays) == 1 and list(window) == [(0, count) for count in array.grid]:
            check_count(self.count, most)
        search = _Search(self, [(array, window)], most)
        with self._lock:
            for part in self.parts(array, window) if search.names else ():
                for _, group in self._groups(part, part.candidates(array, window)):
                    search.take(group, search.names, part.source.url)
        return search.refs()[0]

    def find_all(self, wanted: Sequence[tuple[Array, Window]], *, most: int | None = None) -> list[Refs]:
        search = _Search(self, wanted, most)
        with self._lock:
            for part in self.parts() if search.names else ():
                self._pass(part, search)
        return search.refs()

    def _pass(self, part: PartRows, search: _Search) -> None:
        """Rows of many arrays, of every row group that may hold some."""
        names: dict[int, Sequence[str]] = {}
        for number in range(part.source.groups):
            inside = search.names
            low, high = part.bounds_of_arrays(number)
            if low is not None and high is not None:
                inside = inside[bisect_left(inside, low) : bisect_right(inside, high)]
            if inside:
                names[number] = inside
        for number, group in self._groups(part, list(names)):
            search.take(group, names[number], part.source.url)

    def _groups(self, part: PartRows, numbers: Sequence[int]) -> Iterator[tuple[int, Group]]:
        url = part.source.url
        fresh = []
        for number in numbers:
            group = self._kept.get((url, number))
            if group is None:
                fresh.append(number)
            else:
                yield number, group
        for number, group in part.decode(fresh, self.names(part)):
            self._kept.put((url, number), group)
            yield number, group

    def names(self, part: PartRows) -> dict[str, int] | None:
        """File ids by path, for a part that names files by their path."""
        return self._ids if part.columns.file_id is None and part.columns.path is not None else None

    def blocks(self) -> Bundled:
        return Bundled(self._bundles(), self.document.catalog.arrays)

    def _bundles(self) -> Iterator[Bundle]:
        kinds = Kinds(self.document.catalog.arrays)
        for part in self.parts():
            for number in range(part.source.groups):
                for _, group in part.decode([number], self.names(part)):
                    yield from _bundles(group, kinds)

    def close(self) -> None:
        """Nothing stays open here."""

    def database(self, table: Table) -> Database:
        from periplus.table.duckdb.sql import parquet_database

        return parquet_database(table, self)


class _Search:
    """Rows of some arrays, each inside a window, as row groups give them; counted while they are found."""

    def __init__(self, rows: ParquetRows, wanted: Sequence[tuple[Array, Window]], most: int | None) -> None:
        self._wanted = wanted
        self._most = most
        self._room = [
            math.prod(high - low for low, high in window) * rows.document.parts.get(array.name, 1)
            for array, window in wanted
        ]
        self._places = {array.name: n for n, (array, _) in enumerate(wanted) if self._room[n]}
        self.names = sorted(self._places)
        """Of the arrays that may have rows."""
        self.found: list[list[Refs]] = [[] for _ in wanted]
        self._counts = [0] * len(wanted)
        self._total = 0
        what = repr(wanted[0][0].name) if len(wanted) == 1 else f"{len(wanted):,} arrays"
        self._held = Allowance(
            f"the references of {what} in the window",
            rows.limits.memory_bytes,
            advice=f"{NARROW}, or {MORE}",
            url=rows.base.url,
        )

    def refs(self) -> list[Refs]:
        """The rows of each array."""
        return [Refs.joined(found, array.ndim) for found, (array, _) in zip(self.found, self._wanted, strict=True)]

    def take(self, group: Group, names: Sequence[str], url: str) -> None:
        """The rows of a row group that belong to some of the arrays."""
        for name in names:
            place = self._places[name]
            array, window = self._wanted[place]
            rows = group.rows(array, window)
            if not len(rows):
                continue
            self._counts[place] += len(rows)
            self._total += len(rows)
            if self._counts[place] > self._room[place]:
                raise FormatError(f"array {name!r}: more rows than chunks in the window", url=url)
            check_count(self._total, self._most)
            self._held.take(len(rows) * (ROW_BYTES + 4 * array.ndim))
            self.found[place].append(group.refs(array, rows))
            self._held.take(0 if (inline := self.found[place][-1].inline) is None else 2 * inline.buffer.size)


def _bundles(group: Group, kinds: Kinds) -> Iterator[Bundle]:
    """A row group as it is, or where no column names the array, array by array."""
    if group.array is not None:
        yield group.bundle(kinds)
        return
    for array in kinds.arrays.values():
        rows = group.rows(array, None)
        if len(rows):
            yield bundled([(array, group.refs(array, rows))])


def _meets(piece: PartFile, array: Array, window: Window) -> bool:
    if array.name not in piece.bounds:
        return not piece.bounds
    return all(low < b and a < high for (low, high), (a, b) in zip(piece.bounds[array.name], window, strict=True))
