"""Parquet by byte ranges: the footer once, then only the column chunks asked for, all of them at the same time."""

from __future__ import annotations

import asyncio
import bisect
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from periplus.errors import FormatError, PeriplusError, StaleError
from periplus.fetch.cost import gap, largest
from periplus.fetch.errors import translate
from periplus.forks import cached_property
from periplus.limits import Allowance, Limits, out_of_memory
from periplus.table.parquet.buffers import to_inline
from periplus.table.parquet.footer import ColumnChunk, Footer, pages
from periplus.table.parquet.schema import is_bytes
from periplus.table.verify import MORE

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.model import Source

TAIL = 64 << 10
"""Bytes of the first read: holds the whole footer of most indexes."""
MAGIC = b"PAR1"
TEXT_SHARE, BYTES_SHARE, GROUP_SHARE = 16, 8, 4
"""Which parts of `memory_bytes` the strings, the byte strings and all columns of a row group may take: a string is
copied up to six times (measured) on its way to Python."""
NO_PARQUET = "this is no index: not a Parquet file. periplus.index makes an index of imagery"


@contextmanager
def arrow_errors(what: str, url: str | None = None) -> Iterator[None]:
    """What Arrow reports of bad bytes is a FormatError here; our own errors pass through unchanged.

    A lack of memory and errors of the system, which have a number, say nothing of the bytes.
    """
    try:
        yield
    except PeriplusError as error:
        raise error.at(url=url) from error.__cause__
    except MemoryError as error:
        raise out_of_memory(f"the rows of the index ({what})", url=url) from error
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        OverflowError,
        UnicodeError,
    ) as error:
        if isinstance(error, OSError) and error.errno:
            raise translate(error, url or "") or error from error
        raise FormatError(
            f"{what}: {str(error).splitlines()[0] if str(error) else type(error).__name__}", url=url
        ) from error


def read_tail(url: str, fetch: Fetch) -> tuple[bytes, Source]:
    """The last bytes of an object and its facts, in one request where the store can."""
    try:
        return fetch.run(fetch.tail(url, TAIL))
    except StaleError:  # replaced between two requests: what is there now is whole
        return fetch.run(fetch.tail(url, TAIL))


def read_tails(urls: Sequence[str], fetch: Fetch) -> list[tuple[bytes, Source]]:
    """The ends of many Parquet files, asked for at the same time: an index that grew often has hundreds of parts."""

    async def all_tails() -> list[tuple[bytes, Source]]:
        return list(await asyncio.gather(*(fetch.tail(url, TAIL) for url in urls)))

    return fetch.run(all_tails()) if urls else []


class ParquetBytes:
    """One Parquet file of which only the footer has been read."""

    def __init__(
        self,
        url: str,
        *,
        fetch: Fetch | None,
        limits: Limits,
        size: int | None = None,
        tail: tuple[bytes, Source] | None = None,
    ) -> None:
        """`fetch` may be None where `tail` is the whole file."""
        self.url = url
        self._fetch = fetch
        self._limits = limits
        if tail is None:
            assert fetch is not None
            tail = read_tail(url, fetch)
        self.tail, self.source = tail
        if self.source.size is None:
            raise FormatError("the store does not report the size of the index", url=url)
        if size is not None and size != self.source.size:
            raise StaleError(f"this part has {self.source.size} bytes, but the index declares {size}", url=url)
        self.size = self.source.size
        footer = self._footer()
        with arrow_errors("the Parquet footer is damaged", url):
            # A file of nothing but a footer is enough for Arrow to read the footer.
            self.metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
            self._thrift = footer[:-8]
            self.schema = self.metadata.schema.to_arrow_schema()
            self.keys: dict[bytes, bytes] = dict(self.metadata.metadata or {})
            self._leaves = {self.metadata.schema.column(i).path: i for i in range(self.metadata.num_columns)}
        self._bounds: dict[tuple[int, str], tuple[Any, Any, bool]] = {}
        if len(set(self.schema.names)) != len(self.schema.names):
            raise FormatError("two columns have the same name", url=url)

    def _footer(self) -> bytes:
        tail = self.tail
        if self.size < 12 or tail[-4:] != MAGIC:
            raise FormatError(NO_PARQUET, url=self.url)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length + 4 > self.size:
            raise FormatError("the Parquet footer is longer than its file", url=self.url)
        self._limits.check("the Parquet footer", length, self._limits.header_bytes, url=self.url)
        if length > len(tail):
            (more,) = self._read([(self.size - length, self.size - len(tail))])
            tail = more + tail
        return tail[-length:]

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each half-open range, of the very object whose footer was read; its last ones are at hand."""
        known = self.size - len(self.tail)
        if all(start >= known for start, _ in ranges):
            return [self.tail[start - known : stop - known] for start, stop in ranges]
        fetch = self._fetch
        assert fetch is not None
        file = fetch.local(self.source)
        if file is not None:
            return [file.read(start, stop - start) for start, stop in ranges]

        async def all_ranges() -> list[tuple[bytes, Any]]:
            tasks = (fetch.read(self.url, a, b - a, expect=self.source) for a, b in ranges)
            return list(await asyncio.gather(*tasks))

        return [data for data, _ in fetch.run(all_ranges())]

    @property
    def groups(self) -> int:
        return int(self.metadata.num_row_groups)

    @cached_property
    def _chunks(self) -> Footer:
        """The byte ranges of the column chunks; read by the first query, not on opening."""
        with arrow_errors("the Parquet footer is damaged", self.url):
            return Footer(self._thrift, self.metadata.num_columns)

    def bounds(self, number: int, name: str) -> tuple[Any, Any, bool]:
        """Smallest and largest value of a column in a row group, None where unknown; and whether it has no null."""
        key = number, name
        if key not in self._bounds:
            with arrow_errors("the statistics of a row group are damaged", self.url):
                chunk = self._chunk(number, name)
                kind = self.schema.field(name).type
                low, high = _plain(chunk.low, kind), _plain(chunk.high, kind)
                known = low is not None and high is not None
                self._bounds[key] = (low, high, chunk.nulls == 0) if known else (None, None, False)
        return self._bounds[key]

    def _chunk(self, number: int, name: str) -> ColumnChunk:
        chunk = self._chunks.chunk(number, self._leaves[name])
        if chunk.path != name:
            raise FormatError("the columns of a row group come in another order than those of the schema", url=self.url)
        return chunk

    def read(
        self, groups: Sequence[int], names: Sequence[str], *, as_stored: bool = False
    ) -> Iterator[tuple[int, pa.Table]]:
        """Row groups with only these columns; strings come as dictionaries, so that a repeated one stays small.

        With `as_stored` only those that are stored as dictionaries: others are as large as their pages.
        """
        groups = [number for number in groups if self.metadata.row_group(number).num_rows]
        with arrow_errors("the column chunks are damaged", self.url):
            spans = {number: self._span(number, names) for number in groups}
        homes = _homes(spans, gap(self.url), largest(self.url))
        pending = sorted(groups, key=lambda number: spans[number])
        while pending:
            batch: list[int] = []
            ranges: dict[tuple[int, int], None] = {}
            for number in pending:
                home = homes[number]
                held = sum(stop - start for start, stop in ranges)
                if batch and home not in ranges and held + home[1] - home[0] > self._limits.memory_bytes // 4:
                    break
                ranges[home] = None
                batch.append(number)
            pending = pending[len(batch) :]
            file = SparseFile(
                self.size, list(zip([start for start, _ in ranges], self._read(list(ranges)), strict=True))
            )
            with arrow_errors("the column chunks are damaged", self.url):
                texts = [name for name in names if self._is_stringlike(name)]
                if as_stored:
                    texts = [name for name in texts if self._has_dictionary(name)]
                reader = pq.ParquetFile(
                    pa.PythonFile(file, "r"),
                    metadata=self.metadata,
                    read_dictionary=texts,
                    pre_buffer=False,
                    page_checksum_verification=True,
                )
                for number in batch:
                    self._check_pages(file, number, names)
                    yield number, self._decode(reader, number, names)

    def _decode(self, reader: pq.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
        with arrow_errors("a row group does not decode", self.url):
            table = reader.read_row_group(number, columns=list(names), use_threads=False)
            if table.num_rows != self.metadata.row_group(number).num_rows or len(table.column_names) != len(names):
                raise FormatError("a row group does not hold the rows and columns its footer declares", url=self.url)
            blobs = self._allowance("the inline bytes of a row group", BYTES_SHARE)
            for name in filter(self._is_bytes, names):  # a dictionary has those that many rows share once
                blobs.take(int(to_inline(table[name])[1].sum()))
            return table

    def _check_pages(self, file: SparseFile, number: int, names: Sequence[str]) -> None:
        """LimitError where the pages decompress to more than a row group may take, whatever the footer declares."""
        text = self._allowance("the strings of a row group", TEXT_SHARE)
        blobs = self._allowance("the inline bytes of a row group", BYTES_SHARE)
        whole = self._allowance("a decompressed row group", GROUP_SHARE)
        for name in names:
            if name not in self._leaves:
                raise FormatError(f"the column {name!r} is nested", url=self.url)
            size = self._decoded_bytes(file, number, name)
            whole.take(size)
            if self._is_stringlike(name):
                (blobs if self._is_bytes(name) else text).take(size)

    def _decoded_bytes(self, file: SparseFile, number: int, name: str) -> int:
        """What a column chunk takes in memory, by the headers of its pages."""
        chunk = self._chunk(number, name)
        found = pages(file.view(chunk.start, chunk.start + chunk.compressed))
        return found.decompressed + found.expanded

    def check_strings(self, names: Sequence[str]) -> None:
        """LimitError where the footer declares more strings in a row group than may be decoded, for other readers."""
        with arrow_errors("the Parquet footer is damaged", self.url):
            for number in range(self.groups):
                text = self._allowance("the strings of a row group", TEXT_SHARE)
                for name in names:
                    text.take(max(0, self._chunk(number, name).uncompressed))

    def check_whole(self) -> None:
        """LimitError where a file that is all at hand would take too much memory if it were decoded at once."""
        whole = self._allowance("the decompressed Parquet file", GROUP_SHARE)
        whole.take(int(self.metadata.num_rows) * 8 * max(1, len(self._leaves)))
        file = SparseFile(self.size, [(0, self.tail)])
        with arrow_errors("the column chunks are damaged", self.url):
            for number in range(self.groups):
                for name in self._leaves:
                    whole.take(self._decoded_bytes(file, number, name))

    def _allowance(self, what: str, share: int) -> Allowance:
        return Allowance(what, self._limits.memory_bytes // share, advice=MORE, url=self.url)

    def _has_dictionary(self, name: str) -> bool:
        place = self._leaves[name]
        groups = (self.metadata.row_group(number) for number in range(self.groups))
        return any(group.column(place).has_dictionary_page for group in groups)

    def _is_bytes(self, name: str) -> bool:
        return is_bytes(self.schema.field(name).type)

    def _is_stringlike(self, name: str) -> bool:
        kind = self.schema.field(name).type
        return bool(pa.types.is_dictionary(kind) or not (pa.types.is_primitive(kind) or pa.types.is_nested(kind)))

    def _span(self, number: int, names: Sequence[str]) -> tuple[int, int]:
        """First and last byte of the columns to read in a row group, checked."""
        group = self.metadata.row_group(number)
        rows = int(group.num_rows)
        if rows < 0:
            raise FormatError("a row group has a negative number of rows", url=self.url)
        # Run-length encoding hides how much a column decodes to, so count the rows.
        budget = self._limits.memory_bytes // 4
        self._limits.check("a decoded row group", rows * 8 * max(1, len(names)), budget, url=self.url)
        low, high = self.size, 0
        for name in names:
            if name not in self._leaves:
                continue
            chunk = self._chunk(number, name)
            start, stop = chunk.start, chunk.start + chunk.compressed
            if not 4 <= start <= stop <= self.size - 8:
                raise FormatError("a column chunk is outside the file", url=self.url, offset=start)
            self._limits.check("a column chunk", chunk.uncompressed, budget, url=self.url)
            low, high = min(low, start), max(high, stop)
        if high <= low:
            return (4, 4)
        self._limits.check("a row group", high - low, budget, url=self.url)
        return low, high


def _plain(value: bytes | None, kind: pa.DataType) -> int | str | None:
    """A bound as statistics store it; None for kinds that are not asked about."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if value is None:
        return None
    if pa.types.is_integer(kind):
        return int.from_bytes(value, "little", signed=pa.types.is_signed_integer(kind))
    return value.decode() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def _homes(spans: dict[int, tuple[int, int]], near: int, most: int) -> dict[int, tuple[int, int]]:
    """For each row group the range to fetch: neighbours with small gaps share one request."""
    answer: dict[int, tuple[int, int]] = {}
    start, stop = 0, -1
    members: list[int] = []
    for number, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
        if not members or low - stop > near or max(stop, high) - start > most:
            answer |= dict.fromkeys(members, (start, stop))
            start, stop, members = low, high, []
        members.append(number)
        stop = max(stop, high)
    return answer | dict.fromkeys(members, (start, stop))


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are at hand; what Arrow may read was fetched before, all else is damage."""

    def __init__(self, size: int, parts: list[tuple[int, bytes]]) -> None:
        super().__init__()
        self._size = size
        self._parts = sorted(parts)
        self._starts = [start for start, _ in self._parts]
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def view(self, start: int, stop: int) -> memoryview:
        """The bytes of a range that is at hand as a whole."""
        piece = self._found(start, stop)
        if len(piece) != stop - start:
            raise FormatError("a read outside the column chunks of the footer", offset=start)
        return piece

    def _found(self, start: int, stop: int) -> memoryview:
        """What is at hand of a range, from its start on."""
        number = bisect.bisect_right(self._starts, start) - 1
        first, data = self._parts[number] if number >= 0 else (0, b"")
        return memoryview(data)[start - first : stop - first]

    def read(self, size: int | None = -1) -> Any:
        length = self._size - self._place if size is None or size < 0 else size
        piece = self._found(self._place, self._place + length)
        if length and not piece:
            raise FormatError("a read outside the column chunks of the footer", offset=self._place)
        self._place += len(piece)
        return piece.tobytes()
