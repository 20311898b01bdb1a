"""The rows of a kerchunk Parquet index: record files read when a window asks for them, the last ones kept."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, LimitError, MissingError, PeriplusError, StaleError
from periplus.fetch.stale import check_same
from periplus.forks import cached_property, renewed
from periplus.limits import Limits
from periplus.model import Array, Catalog, Files, Placements, Refs, Source
from periplus.parse.zarr.documents import ZMETADATA
from periplus.policy import WEB, resolve, scheme_of
from periplus.table.memory import inside
from periplus.table.verify import check_count
from periplus.zarr.kerchunk.columns import Urls, part_numbers
from periplus.zarr.kerchunk.extension import FILES, REPLACED, DeclaredFiles, read_declaration, unpack_files
from periplus.zarr.kerchunk.records import MOST_ROWS, Record, paths_in, read_record
from periplus.zarr.kerchunk.references import INT64, MOST_PARTS, parse

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.duckdb.sql import Database
    from periplus.table.table import Table, Window

KEPT_ROWS = 1 << 23
"""Rows of decoded records that are kept: some 200 MB."""
MOST_RECORDS = 1 << 16
RECORD = re.compile(r"refs\.(0|[1-9][0-9]{0,9})\.parq")


class RecordRows:
    """Rows at rest in `<array>/refs.<n>.parq`; a chunk's place in its grid, in C order, is its row."""

    _lock: threading.RLock

    def __init__(
        self,
        arrays: Mapping[str, str],
        *,
        folder: str,
        record_size: int,
        fill: Callable[[str, str], str],
        fetch: Fetch,
        limits: Limits,
        declared: DeclaredFiles,
        metadata: Source,
    ) -> None:
        """`arrays` are paths in the folder, by the names that the arrays have in the catalog.

        `declared` and `metadata` are what `.zmetadata` declares, and its size, entity tag and time.
        """
        if not 0 < record_size <= MOST_ROWS:
            raise FormatError(f".zmetadata: record_size is {record_size}")
        self.parts: dict[str, int] = {}
        """By array: the largest number of byte ranges of one chunk, if above one; set once `files` was called."""
        self._arrays, self._folder, self._size = arrays, folder, record_size
        self._fill, self._fetch, self._limits = fill, fetch, limits
        self._declared, self._metadata = declared, metadata
        self._seen: dict[str, Source] = {}
        """Record files as they were when they were first read, where they do not carry the id of a write."""
        renewed(self, _lock=threading.RLock)
        self._files: Files | None = None
        self._count = 0
        self._records: dict[str, list[int]] = {}
        self._kept: OrderedDict[tuple[str, int], Refs] = OrderedDict()
        self._whole: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Chunks that are referenced; those of several byte ranges count once."""
        self.files()
        return self._count

    def files(self) -> Files:
        with self._lock:
            if self._files is None:
                self._survey()
                self._files = self._urls.files(self._whole)
            return self._files

    def placements(self, catalog: Catalog, files: int) -> Placements | None:  # noqa: ARG002 - kerchunk stores none
        return None

    def find(self, array: Array, window: Window, *, most: int | None = None) -> Refs:
        self.files()
        low, high = _linear(array, window)
        wanted = math.prod(stop - start for start, stop in window)
        found: list[Refs] = []
        for record in self._records.get(array.name, []):
            first = record * self._size
            if wanted and first < high and first + self._size > low:
                refs = self._record(array, record)
                keep = inside(refs, window)
                found.append(refs if keep.all() else refs.take(keep))
                check_count(sum(map(len, found)), most)
        return Refs.joined(found, array.ndim)

    def blocks(self) -> Iterator[tuple[str, Refs]]:
        self.files()
        for name, array in self._known.items():
            for record in self._records.get(name, []):
                yield name, self._record(array, record)

    def close(self) -> None:
        """Nothing is kept open."""

    def database(self, table: Table) -> Database:
        from periplus.table.duckdb.sql import memory_database

        names = table.catalog.arrays
        return memory_database(table, {name: self.find(a, [(0, n) for n in a.grid]) for name, a in names.items()})

    def find_inline(self, array: Array) -> Refs | None:
        """All rows of a short array, where its one record file has them inline; no other file is read."""
        if math.prod(array.grid) > self._size:
            return None
        try:
            refs = self._record(array, 0)
        except MissingError:
            return None
        return refs if refs.inline is not None else None

    def first_bytes(self, path: str) -> tuple[str, bytes | None]:
        """The inline bytes of an array's first chunk, of any type, and the key of their record file."""
        key = self._key(path, 0)
        try:
            record = read_record(self._bytes(key), key=key, limits=self._limits, declared=self._declared)
        except MissingError:
            return key, None
        return key, record.raw_bytes(0)

    def describe(self, arrays: Mapping[str, Array]) -> None:
        """Set the arrays, before any rows are read."""
        self._known = dict(arrays)

    # --- what is there ----------------------------------------------------------------------------------------------

    def _survey(self) -> None:
        """Which record files there are, the URLs they name, and how many chunks."""
        self._count = 0  # an attempt that failed, or that a fork cut off, may have counted some
        for name, path in self._arrays.items():
            if name not in self._known:
                continue
            self._records[name] = self._listed(self._known[name], path)
            for record in self._records[name]:
                key = self._key(path, record)
                data = self._bytes(key)
                paths, present, most = paths_in(data, key=key, limits=self._limits, declared=self._declared)
                self._count += present
                if most > 1:
                    self.parts[name] = max(most, self.parts.get(name, 1))
                for url in paths:
                    self._urls.row(self._fill(url, key))
        self._limits.check("the number of references", self._count, self._limits.index_rows)
        if self._declared.write is None:
            self._check_metadata()

    def _check_metadata(self) -> None:
        """StaleError where `.zmetadata`, by which the records are understood, is another one now."""
        try:
            check_same(self._metadata, self._fetch.run(self._fetch.head(self._metadata.url)))
        except (StaleError, MissingError):
            raise StaleError(REPLACED, url=self._folder) from None

    @cached_property
    def _urls(self) -> Urls:
        if self._declared.write is None:
            return Urls()
        raw, url = self._bytes(FILES), self._folder.removesuffix("/")
        return Urls(unpack_files(raw, self._fill, url=url, limits=self._limits, written=self._declared))

    def _key(self, path: str, record: int) -> str:
        return f"{path}/refs.{record}.parq" if path else f"refs.{record}.parq"

    def _listed(self, array: Array, path: str) -> list[int]:
        most = -(-math.prod(array.grid) // self._size)
        known = self._declared.numbers(path, most)
        if known is not None:
            return known
        folder = f"{self._folder}{path}/" if path else self._folder
        if scheme_of(folder) in WEB:  # cannot be listed: try all that may exist
            if most > MOST_RECORDS:
                raise LimitError(f"{array.name} may have {most} record files, over the limit of {MOST_RECORDS}")
            return [record for record in range(most) if self._exists(self._key(path, record))]

        async def names() -> list[str]:
            return [source.url.rpartition("/")[2] async for source in self._fetch.find(folder)]

        try:
            numbers = [int(match[1]) for name in self._fetch.run(names()) if (match := RECORD.fullmatch(name))]
        except MissingError:
            return []
        return sorted({number for number in numbers if number < most})

    def _exists(self, key: str) -> bool:
        try:
            self._fetch.run(self._fetch.head(self._folder + key))
        except MissingError:
            return False
        return True

    def _bytes(self, key: str) -> bytes:
        """A file of the index; StaleError where it was replaced or removed."""
        url = self._folder + key

        async def whole() -> bytes:
            source = await self._fetch.head(url)
            size = self._limits.check(f"the size of {key}", source.size or 0, self._limits.memory_bytes)
            if self._declared.write is None:
                check_same(self._seen.setdefault(key, source), source)
            return (await self._fetch.read(url, 0, size, expect=source))[0]

        try:
            return self._fetch.run(whole())
        except StaleError:
            raise StaleError(f"{key}: {REPLACED}", url=self._folder) from None
        except MissingError:
            if key in self._seen:
                raise StaleError(f"{key}: {REPLACED}", url=self._folder) from None
            path, _, name = key.rpartition("/")
            number = RECORD.fullmatch(name)
            if key != FILES and (number is None or not self._declared.has(path, int(number[1]))):
                raise
            raise self._declared.lost(key, self._now()).at(url=self._folder) from None

    def _now(self) -> DeclaredFiles | None:
        """What the directory declares now."""
        try:
            return read_metadata(self._folder, self._fetch, self._limits)[2]
        except PeriplusError:
            return None

    # --- one record -------------------------------------------------------------------------------------------------

    def _record(self, array: Array, number: int) -> Refs:
        place = array.name, number
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        key = self._key(self._arrays[array.name], number)
        record = read_record(self._bytes(key), key=key, limits=self._limits, declared=self._declared)
        refs = self._refs(array, number, record, key)
        with self._lock:
            self._kept[place] = refs
            while sum(map(len, self._kept.values())) > KEPT_ROWS and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return refs

    def _refs(self, array: Array, number: int, record: Record, key: str) -> Refs:
        first, total = number * self._size, math.prod(array.grid)
        if len(record) > self._size:
            raise FormatError(f"{key}: {len(record)} rows, more than the record_size {self._size}")
        files = np.array([self._urls.row(self._fill(url, key)) for url in record.paths] + [-1], np.int32)
        file, length = files[record.path], record.size
        inline = np.zeros(len(record), bool) if record.raw is None else record.raw.held
        file = np.where(inline, np.int32(-1), file)
        rows = np.flatnonzero((file >= 0) | inline)
        if rows.size and first + int(rows[-1]) >= total:
            raise FormatError(f"{key}: row {int(rows[-1])} is outside the grid of {array.name!r}, {array.grid}")
        if ((length > INT64 - record.offset)[rows]).any():
            raise FormatError(f"{key}: offset plus size overflows")
        places = np.unravel_index(first + rows, array.grid) if array.grid else ()
        chunk = np.array(places, np.int32).reshape(array.ndim, len(rows))
        length = self._lengths(record, file, length, inline)
        plain = Refs(
            chunk=chunk,
            offset=np.where(inline, 0, record.offset)[rows],
            length=length[rows],
            file=file[rows],
            inline=None if record.raw is None else record.raw.take(rows).trimmed(length[rows]),
        )
        return plain if record.counts is None else _spread(plain, record, rows, key)

    def _lengths(
        self, record: Record, file: NDArray[np.int32], length: NDArray[np.int64], inline: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Lengths, with those of files that are referenced whole: offset and size are 0 then."""
        whole = (file >= 0) & ~inline & (record.offset == 0) & (record.size == 0)
        if record.counts is not None:
            whole &= record.counts == 0
        if not whole.any():
            return length
        urls = list(self._urls.rows)
        wanted = [urls[row] for row in np.unique(file[whole]).tolist()]
        sizes = dict(zip(wanted, sizes_of(wanted, self._fetch, self._resolve), strict=True))
        known = np.zeros(len(urls), np.int64)
        for url, size in sizes.items():
            known[self._urls.rows[url]] = size
        return np.where(whole, known[file], length)

    def _resolve(self, url: str) -> str:
        return resolve(self._folder.removesuffix("/"), url)


def read_metadata(folder: str, fetch: Fetch, limits: Limits) -> tuple[dict[str, Any], Source, DeclaredFiles]:
    """The `.zmetadata` of a directory, the file as a Source, and its declaration."""

    async def read() -> tuple[bytes, Source]:
        source = await fetch.head(folder + ZMETADATA)
        size = limits.check("the size of the index", source.size or 0, limits.memory_bytes)
        return await fetch.read(source.url, 0, size, expect=source)

    data, source = fetch.run(read())
    document = parse(data, limits=limits)
    return document, source, read_declaration(document)


def sizes_of(urls: Sequence[str], fetch: Fetch, resolve: Callable[[str], str]) -> list[int]:
    """Sizes of files, requested concurrently."""

    async def ask() -> list[int]:
        found = await asyncio.gather(*(fetch.head(resolve(url)) for url in urls))
        return [source.size or 0 for source in found]

    return fetch.run(ask())


def _linear(array: Array, window: Window) -> tuple[int, int]:
    """The range of chunk numbers in C order that covers a window."""
    low = high = 0
    for (start, stop), count in zip(window, array.grid, strict=True):
        low, high = low * count + start, high * count + stop - 1
    return low, high + 1


def _spread(plain: Refs, record: Record, rows: NDArray[np.intp], key: str) -> Refs:
    """One row for each byte range."""
    assert record.counts is not None
    assert record.offsets is not None
    assert record.sizes is not None
    assert record.starts is not None
    held = record.counts[rows]
    if held.size and int(held.max()) > MOST_PARTS:
        raise LimitError(f"{key}: {int(held.max())} byte ranges of one chunk, over the limit of {MOST_PARTS}")
    starts = record.starts[rows]
    counts = np.maximum(held, 1)
    part = part_numbers(counts)
    source = np.repeat(np.arange(len(rows)), counts)
    several = held[source] > 0
    places = np.where(several, starts[source] + part, 0)
    if (record.sizes > INT64 - record.offsets).any():
        raise FormatError(f"{key}: offset plus size overflows")
    spread = plain.take(source)
    return Refs(
        chunk=spread.chunk,
        offset=np.where(several, record.offsets[places] if len(record.offsets) else 0, spread.offset),
        length=np.where(several, record.sizes[places] if len(record.sizes) else 0, spread.length),
        file=spread.file,
        part=part,
        inline=spread.inline,
    )
