"""The bytes of chunks for a Zarr reader: as stored, or decoded to plain values; all of them or a range."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import prepare
from periplus.errors import FormatError, PeriplusError
from periplus.fetch.checksum import check_crc32c
from periplus.limits import Limits
from periplus.model import Array, Files, Refs, Shape, Source
from periplus.read import read_array
from periplus.read.place import fill_of
from periplus.zarr.store.batch import Batches
from periplus.zarr.store.lookup import ChunkLookup, ChunkPart, StoredChunk

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table
    from periplus.zarr.description.metadata import Leaf

Bytes = bytes | memoryview | NDArray[np.uint8]
Range = tuple[int, int]
"""Half-open, in bytes of the whole chunk."""
MOST_SOURCES = 1 << 16


class ChunkReader:
    """Chunks of a table's arrays by position."""

    def __init__(self, table: Table, fetch: Fetch, limits: Limits) -> None:
        self.table, self.fetch, self.limits = table, fetch, limits
        self.lookup = ChunkLookup(table)
        self._batches = Batches(fetch, self._source)
        self._sources: dict[int, Source] = {}

    def _source(self, file: int) -> Source:
        found = self._sources.get(file)
        if found is None:
            if len(self._sources) >= MOST_SOURCES:
                self._sources.clear()
            found = self._sources[file] = self.table.files.source(file)
        return found

    async def find(self, array: Array, position: Shape) -> StoredChunk | None:
        """The byte ranges of a chunk; None where it has no row."""
        known, chunk = self.lookup.known(array, position)
        return chunk if known else await asyncio.to_thread(self.lookup.find, array, position)

    async def stored(self, chunk: StoredChunk, wanted: Range | None = None) -> Bytes:
        """The stored bytes of a chunk, all or those of a range; only these are fetched."""
        parts = chunk.parts if wanted is None else _within(chunk.parts, *wanted)
        self.limits.check("the stored size of a chunk", sum(p.length for p in parts), self.limits.chunk_bytes)
        if len(parts) == 1:
            return await self._part(parts[0])
        return b"".join(await asyncio.gather(*map(self._part, parts)))

    async def inline_checked(self, array: Array, position: Shape, chunk: StoredChunk) -> None:
        """DecodeError where inline bytes decode to more or less than a chunk, which other codecs do not check.

        Bytes of sources are not decoded for this, which would double the cost of every read.
        """
        if any(part.data is not None for part in chunk.parts):
            await asyncio.to_thread(self._decode, array, position, chunk, await self.stored(chunk))

    async def _part(self, part: ChunkPart) -> bytes | memoryview:
        if part.data is not None:
            return part.data
        data: bytes | memoryview
        if part.object is not None and part.length:
            data = (await self.fetch.read(part.object.url, part.offset, part.length, expect=part.object))[0]
        else:
            data = b"" if not part.length else await self._batches.read(part.file, part.offset, part.length)
        if part.crc32c >= 0:
            url = (part.object or self._source(part.file)).url
            check_crc32c(data, part.crc32c, url=url, offset=part.offset)
        return data

    async def decoded(self, leaf: Leaf, position: Shape) -> Bytes | None:
        """The values of a chunk of the presented grid: little-endian, in C order, padded with fill; None for none."""
        array = leaf.array
        assert array is not None
        if array.edges is not None or any(each.region is not None for each in array.encodings):
            return await asyncio.to_thread(self._assembled, array, position)
        chunk = await self.find(array, position)
        if chunk is None:
            return None
        data = await self.stored(chunk)
        return await asyncio.to_thread(self._decode, array, position, chunk, data)

    def _decode(self, array: Array, position: Shape, chunk: StoredChunk, data: Any) -> NDArray[np.uint8]:
        if chunk.encoding >= len(array.encodings):
            raise FormatError(f"a row of {array.name} has encoding {chunk.encoding} of {len(array.encodings)}")
        valid = tuple(min(c, n - p * c) for p, c, n in zip(position, array.chunks, array.shape))
        try:
            decode = prepare(
                array.encodings[chunk.encoding], chunks=array.chunks, dtype=array.dtype, limits=self.limits
            )
            values = decode(data if isinstance(data, bytes) else memoryview(data), valid=valid)
        except PeriplusError as error:
            error.message = f"chunk {position} of {array.name}: {error.message}"
            raise self.located(error, chunk) from None
        return _padded(array, values, valid)

    def located(self, error: PeriplusError, chunk: StoredChunk) -> PeriplusError:
        """The error with the file and the offset of a chunk, if it is in a file."""
        part = next((part for part in chunk.parts if part.data is None), None)
        if part is None:
            return error
        return error.at(url=(part.object or self._source(part.file)).url, offset=part.offset)

    def _assembled(self, array: Array, position: Shape) -> NDArray[np.uint8]:
        """The chunk, read as a window of the array, whose stored chunks are others."""
        window = tuple(slice(p * c, min((p + 1) * c, n)) for p, c, n in zip(position, array.chunks, array.shape))
        rows: Any = _LoadedRows(self.table, self.lookup) if array.edges is None else self.table
        values = read_array(rows, self.fetch, array, window, limits=self.limits, workers=1)
        return _padded(array, values, np.shape(values))


class _LoadedRows:
    """The table for the reader of arrays, with rows of single chunks from loaded blocks."""

    def __init__(self, table: Table, lookup: ChunkLookup) -> None:
        self._table, self._lookup = table, lookup
        self._objects: Mapping[int, Source] | None = None

    @property
    def files(self) -> Files:
        return self._table.files

    def refs(self, name: str, window: list[tuple[int, int]]) -> Refs:
        position = tuple(low for low, _ in window)
        if any(high - low != 1 for low, high in window):
            return self._table.refs(name, window)
        refs, self._objects = self._lookup.rows(self._table.array(name), position)
        return refs

    def objects(self, array: Array, refs: Refs) -> tuple[Refs, Mapping[int, Source]]:
        return self._table.objects(array, refs) if self._objects is None else (refs, self._objects)


def _padded(array: Array, values: NDArray[Any], valid: Shape) -> NDArray[np.uint8]:
    """Values as the bytes of a whole chunk of the grid, with the fill value beyond the array."""
    little = array.dtype.newbyteorder("<")
    inside = tuple(slice(n) for n in valid)
    if valid == array.chunks:
        out = np.array(values[inside], little, order="C")  # always a copy: the decoder's memory is used again
    else:
        out = np.full(array.chunks, fill_of(array), little)
        out[inside] = values[inside]
    return out.reshape(-1).view(np.uint8)


def _within(parts: tuple[ChunkPart, ...], start: int, stop: int) -> tuple[ChunkPart, ...]:
    """The pieces of consecutive parts that are in a range of the chunk."""
    found, begin = [], 0
    for part in parts:
        low, high = max(start - begin, 0), min(stop - begin, part.length)
        if low < high:
            data = None if part.data is None else part.data[low:high]
            whole = high - low == part.length
            found.append(part if whole else ChunkPart(part.file, part.offset + low, high - low, data, part.object))
        begin += part.length
    return tuple(found)
