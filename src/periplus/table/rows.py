"""Rows of Parquet files: prune by statistics, read what is left, decode it once, filter it with NumPy."""

from __future__ import annotations

import base64
import binascii
import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError, StaleError
from periplus.fetch.stale import check_same
from periplus.forks import cached_property, renewed
from periplus.limits import Allowance, Limits
from periplus.model import Array, Bundle, Catalog, Files, Placements, Refs, Source
from periplus.table.buffers import strings, to_inline, to_numpy, to_strings
from periplus.table.bundles import Bundled, Kinds, bundled
from periplus.table.columns import Columns
from periplus.table.decoded import KEPT_BYTES, Group, Kept, Owners
from periplus.table.document import Document, Piece
from periplus.table.families import GROUP_COLUMNS, Groups, Members, kinds
from periplus.table.files import FILES, files_from_arrow, members_from_arrow
from periplus.table.ranges import ParquetBytes, arrow_errors, read_tails
from periplus.table.schema import check_columns, integers, is_text
from periplus.table.verify import MORE, NARROW, check_count

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.sql import Database
    from periplus.table.table import Table, Window


ROW_BYTES = 28
"""Of a reference in memory, beside its chunk position."""
TEXT_BYTES = 49
"""Of a Python string, beside its characters."""


class PartRows:
    """The rows of one Parquet file."""

    def __init__(self, source: ParquetBytes, document: Document, piece: Piece | None) -> None:
        self.source = source
        self.piece = piece
        with arrow_errors("the columns of the table", source.url):
            self.columns: Columns = document.columns.within(source.schema.names)
            check_columns(source.schema, self.columns)
        arrays = document.catalog.arrays
        for array in kinds(arrays) if piece is None else [arrays[name] for name in piece.bounds]:
            for dim in array.dims:
                if dim not in self.columns.chunk:
                    raise FormatError(f"the table has no column {document.columns.chunk[dim]!r}", url=source.url)
        self.count = int(source.metadata.num_rows)
        if piece is not None and piece.rows != self.count:
            raise FormatError(f"a part has {self.count} rows where the index says {piece.rows}", url=source.url)
        self._arrays = document.catalog.arrays
        if self.columns.array is None and self.columns.level is None and len(self._arrays) > 1:
            raise FormatError("rows of several arrays need a column that names the array", url=source.url)

    def candidates(self, array: Array, window: Window) -> list[int]:
        """Row groups that may hold rows of the window."""
        keep = list(range(self.source.groups))
        tests: list[tuple[str | None, Any, Any]] = []
        if len(self._arrays) > 1:
            tests.append((self.columns.array, array.name, array.name))
        for dim, (low, high), count in zip(array.dims, window, array.grid, strict=True):
            if (low, high) != (0, count):
                tests.append((self.columns.chunk.get(dim), low, high - 1))
        for name, first, last in tests:
            if name is not None:
                keep = [number for number in keep if _overlaps(self.source.bounds(number, name), first, last)]
        return keep

    def bounds_of_arrays(self, number: int) -> tuple[str | None, str | None]:
        """First and last name of an array that has rows in a row group, where that is known."""
        name = self.columns.array
        low, high, _ = (None, None, False) if name is None else self.source.bounds(number, name)
        return (low, high) if isinstance(low, str) and isinstance(high, str) else (None, None)

    def decode(self, groups: Sequence[int], ids: dict[str, int] | None) -> Iterator[tuple[int, Group]]:
        """Decoded row groups; columns that statistics show to be constant are not read."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for number in groups:
            alike.setdefault(self._wanted(number), []).append(number)
        for names, members in alike.items():
            for number, table in self.source.read(members, names):
                with arrow_errors("a row group does not decode", self.source.url):
                    group = self.group(number, table, ids)
                self._check_owners(group)
                yield number, group

    def _constant(self, number: int, name: str) -> Any:
        low, high, full = self.source.bounds(number, name)
        return low if full and low == high else None

    def _wanted(self, number: int) -> tuple[str, ...]:
        roles = self.columns
        names = [name for name in roles.chunk.values() if self._constant(number, name) is None]
        if roles.array is not None and not self._single(number):
            names.append(roles.array)
        if roles.array is None and roles.level is not None:
            names.append(roles.level)
        sources = [roles.file_id] if roles.file_id is not None else [roles.path]
        extra = [*sources, roles.offset, roles.length, roles.part, roles.encoding, roles.data, roles.present]
        return (*names, *(name for name in extra if name is not None))

    def _single(self, number: int) -> bool:
        """Whether the index has one array and the row group says that it holds only that."""
        assert self.columns.array is not None
        return len(self._arrays) == 1 and self._constant(number, self.columns.array) in self._arrays

    @property
    def all_columns(self) -> list[str]:
        """Every column that has a role."""
        roles = self.columns
        extra = [roles.array, roles.level, roles.part, roles.file_id, roles.encoding, roles.data, roles.present]
        path = roles.path if roles.file_id is None else None
        named = [name for name in (*extra, path) if name is not None]
        return [*roles.chunk.values(), roles.offset, roles.length, *named]

    def group(self, number: int, table: pa.Table, ids: dict[str, int] | None) -> Group:
        """A row group decoded; columns that the table lacks are as statistics tell."""
        roles, count = self.columns, table.num_rows
        held = set(table.column_names)
        place: dict[str, NDArray[np.int32] | int] = {}
        for dim, name in roles.chunk.items():
            # A dimension that an array lacks is null there; -1 never lies in a window.
            place[dim] = (
                integers(table[name], np.int32, name, null=-1) if name in held else int(self._constant(number, name))
            )
        columns = {
            "offset": integers(table[roles.offset], np.int64, roles.offset, null=0 if roles.data else None),
            "length": integers(table[roles.length], np.int64, roles.length),
        }
        columns["file"], known = self._files(table, ids)
        for role, dtype in (("level", np.uint8), ("part", np.uint16), ("encoding", np.uint16)):
            name = getattr(roles, role)
            if name is not None and name in held:
                columns[role] = integers(table[name], dtype, name, null=0)
        array = None
        if roles.array is not None and roles.array in held:
            column = table[roles.array].unify_dictionaries().combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            codes = integers(pa.chunked_array([column.indices]), np.int32, roles.array, null=-1)
            array = Owners(to_strings(column.dictionary), codes)
        present = None if roles.present is None else to_numpy(table[roles.present], null=0)
        inline, sizes = (None, None) if roles.data is None else to_inline(table[roles.data])
        return Group(count, array, place, columns, known, inline, sizes, present)

    def _check_owners(self, group: Group) -> None:
        """FormatError for rows of no array: they would be missing from the one that they are meant for."""
        if group.array is None:
            return
        arrays, names = self._arrays, group.array.names
        if isinstance(arrays, Groups):
            name = arrays.unknown(names)
        else:
            name = next((name for name in names if name not in arrays), None)
        if name is not None or group.array.nameless:
            raise FormatError(f"a row belongs to {name!r}, which is no array of the index", url=self.source.url)

    def _files(self, table: pa.Table, ids: dict[str, int] | None) -> tuple[NDArray[np.int32], NDArray[np.int32] | None]:
        roles = self.columns
        if roles.file_id is not None:
            return integers(table[roles.file_id], np.int32, roles.file_id, null=-1), None
        if roles.path is None:
            return np.full(table.num_rows, -1, np.int32), None
        assert ids is not None
        column = table[roles.path].unify_dictionaries()
        names = to_strings(column.chunk(0).dictionary) if column.num_chunks else []
        codes = pa.chunked_array([piece.indices for piece in column.chunks], pa.int32())
        known = np.array([*(-2 if name is None else ids.get(name, -2) for name in names), -1], np.int32)
        return integers(codes, np.int32, roles.path, null=len(names)), known


def read_embedded(raw: bytes, limits: Limits, url: str) -> tuple[Files, dict[bytes, bytes]]:
    """A files table that an index carries as the bytes of a Parquet file, and the keys of its footer."""
    with arrow_errors("the files table", url):
        source = ParquetBytes(url, fetch=None, limits=limits, tail=(raw, Source(url=url, size=len(raw))))
        return read_files(source, limits), source.keys


def read_files(source: ParquetBytes, limits: Limits) -> Files:
    """A files table with every column that is not nested."""
    return files_from_arrow(read_files_table(source, limits))


def read_files_table(source: ParquetBytes, limits: Limits) -> pa.Table:
    """A files table as it is stored, row group by row group, so that no more is decoded than may be held."""
    names = [name for name in source.schema.names if not pa.types.is_nested(source.schema.field(name).type)]
    held = file_bytes(limits, source.url)
    known = [name for name in names if name in FILES.names]
    held.take(int(source.metadata.num_rows) * 8 * max(1, len(known)))
    tables = []
    for _, table in source.read(range(source.groups), names, as_stored=True):
        held.take(sum(_text_bytes(table[name]) for name in known))
        held.take(sum(int(table[name].nbytes) for name in names if name not in FILES.names))
        tables.append(table)
    return pa.concat_tables(tables) if tables else source.schema.empty_table()


def read_members(source: ParquetBytes, limits: Limits) -> Members:
    """The group columns of a files table; no other is read."""
    held = file_bytes(limits, source.url)
    held.take(int(source.metadata.num_rows) * 8 * len(GROUP_COLUMNS))
    names = [name for name in GROUP_COLUMNS if name in source.schema.names]
    with arrow_errors("the files table", source.url):
        tables = [table for _, table in source.read(range(source.groups), names, as_stored=True)]
        table = pa.concat_tables(tables) if tables else source.schema.empty_table().select(names)
        return members_from_arrow(table, held)


def embedded(raw: bytes, limits: Limits, url: str) -> ParquetBytes:
    """A files table that an index carries in its footer, as Parquet in base64."""
    try:
        table = base64.b64decode(raw, validate=True)
    except binascii.Error as error:
        raise FormatError(f"the embedded files table is not base64: {error}", url=url) from None
    return ParquetBytes(url, fetch=None, limits=limits, tail=(table, Source(url=url, size=len(table))))


def file_bytes(limits: Limits, url: str) -> Allowance:
    """What a files table may take in memory."""
    return Allowance("the files table", limits.memory_bytes // 4, advice=MORE, url=url)


class ParquetRows:
    """The rows of a flat table or of a dataset's parts; parts are opened when a query reaches them."""

    _lock: threading.RLock

    def __init__(self, document: Document, base: ParquetBytes, *, folder: str, fetch: Fetch, limits: Limits) -> None:
        self.document = document
        self.base = base
        self.folder = folder
        self.fetch = fetch
        self.limits = limits
        renewed(self, _lock=threading.RLock)
        self._parts: dict[str, PartRows] = {}
        self._kept = Kept(KEPT_BYTES)
        if document.pieces is None:
            self._parts[""] = PartRows(base, document, None)
            self.count = self._parts[""].count
        else:
            self.count = sum(piece.rows for piece in document.pieces)
        limits.check("the number of rows", self.count, limits.index_rows, url=base.url)
        if self.count > document.most_rows:
            raise FormatError(
                f"the index has {self.count} rows where the declared grids have room for {document.most_rows}",
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

    def file_count(self) -> int | None:
        """How many files the files table has; None where there is none."""
        with self._lock, arrow_errors("the files table", self.base.url):
            source = self._files_source()
            return None if source is None else int(source.metadata.num_rows)

    def _files_source(self) -> ParquetBytes | None:
        from periplus.table.document import FILES_KEY

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
        from periplus.table.document import PLACEMENTS_KEY
        from periplus.table.placements import read_placements

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

    def opened(self, wanted: Sequence[Piece]) -> list[PartRows]:
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
            raise StaleError("the index was written anew after it was opened", url=self.base.url) from None
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
        from periplus.table.sql import parquet_database

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


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes that the distinct strings of a column take as Python has them."""
    if is_text(column.type) and not pa.types.is_dictionary(column.type):
        return int(column.nbytes) + TEXT_BYTES * len(column)
    words = [piece.dictionary for piece in column.chunks if pa.types.is_dictionary(piece.type)]
    return sum(piece.nbytes + TEXT_BYTES * len(piece) for piece in words)


def _overlaps(bounds: tuple[Any, Any, bool], first: Any, last: Any) -> bool:
    low, high, _ = bounds
    return low is None or type(low) is not type(first) or (low <= last and high >= first)


def _meets(piece: Piece, array: Array, window: Window) -> bool:
    if array.name not in piece.bounds:
        return not piece.bounds
    return all(low < b and a < high for (low, high), (a, b) in zip(piece.bounds[array.name], window, strict=True))
