"""IndexStore: an index as a read-only Zarr v3 store, for zarr-python and everything built on it."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from periplus.errors import DecodeError, redact
from periplus.limits import Limits
from periplus.zarr.codecs.v3 import register
from periplus.zarr.description.metadata import Codecs, Leaf, layout, source_of
from periplus.zarr.store.chunks import Bytes, ChunkReader, Range
from periplus.zarr.store.keys import chunk_named, group_named, keys_under, names_in

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

T = TypeVar("T")
PAGE = 1024
"""Keys that a thread lists at once."""


class IndexStore(Store):
    """The arrays of an index as Zarr v3: `zarr.open_group(index.store())`.

    `codecs` are those that chunks may be returned with: those of stock Zarr (`standard`; all other chunks are
    decoded here and presented as plain values), also the five of imagery tools (`imagery`), also ours (`all`), or none.
    Our errors pass through zarr as they are; a chunk without a row in the index is None, and reads as the fill value.

    Nothing can be written, whatever the mode. `read_only` only states whether the store was opened with mode "r":
    zarr-python refuses its default mode, "a", for stores where it is True.
    """

    supports_writes = False
    supports_deletes = False
    supports_partial_writes = False
    supports_listing = True

    def __init__(
        self,
        table: Table,
        fetch: Fetch,
        *,
        limits: Limits | None = None,
        codecs: Codecs = "standard",
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        self.table, self.fetch, self.limits, self.codecs = table, fetch, limits or Limits(), codecs
        self.layout = layout(table.catalog, codecs=codecs, source=partial(source_of, table))
        if codecs in ("imagery", "all"):
            register()  # osml-imagery-io offers codecs of the same names
        self._chunks = ChunkReader(table, fetch, self.limits)
        self._documents: dict[str, bytes] = {}
        self._token = uuid.uuid4().hex

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.table, self.fetch, self.limits, self.codecs, self.read_only))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexStore) or self.codecs != other.codecs:
            return False
        if self.table is other.table:
            return True
        if self.table.url is not None:
            return self.table.url == other.table.url
        mine, theirs = self.table, other.table
        return theirs.url is None and mine.rows == theirs.rows and _facts(self) == _facts(other)

    def __hash__(self) -> int:
        return hash((self.table.url, self.codecs))

    def __dask_tokenize__(self) -> tuple[str, str, str]:
        """A name for dask's chunks that costs nothing: without it, dask would pickle all rows held in memory."""
        return ("periplus.zarr.IndexStore", self._token, self.codecs)

    def __str__(self) -> str:
        return f"periplus://{redact(self.table.url or 'memory')}"

    def __repr__(self) -> str:
        return f"IndexStore({str(self)!r})"

    def with_read_only(self, read_only: bool = False) -> IndexStore:
        """The same store, opened with mode "r"; there is no other."""
        if not read_only:
            return super().with_read_only(read_only)  # type: ignore[return-value]  # which raises
        twin = object.__new__(IndexStore)
        twin.__dict__.update(self.__dict__, _read_only=True, _is_open=False)  # what is known of the rows is shared
        return twin

    # --- reading ---------------------------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Metadata, or the bytes of a chunk; None where there is no such key."""
        buffer = (prototype or default_buffer_prototype()).buffer
        if byte_range is not None and not isinstance(
            byte_range, RangeByteRequest | OffsetByteRequest | SuffixByteRequest
        ):
            raise ValueError(f"Unexpected byte_range, got {byte_range!r}.")
        named = chunk_named(self.layout, key)
        data = self._document(key) if named is None else await self._chunk(*named, byte_range)
        if data is None:
            return None
        if byte_range is not None and (named is None or not named[0].raw):
            start, stop = _range(byte_range, len(data))
            data = data[start:stop]
        return buffer.from_array_like(data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8))

    async def _chunk(self, leaf: Leaf, position: tuple[int, ...], byte_range: ByteRequest | None) -> Bytes | None:
        if leaf.array is None:
            return None if leaf.compute is None else leaf.compute(position)
        if not leaf.raw:
            return await self._chunks.decoded(leaf, position)
        chunk = await self._chunks.find(leaf.array, position)
        if chunk is None:
            return None
        if leaf.exact is not None and chunk.length != leaf.exact:
            error = f"chunk {position} of {leaf.path} has {chunk.length} bytes where its shape takes {leaf.exact}"
            raise self._chunks.located(DecodeError(error), chunk)
        await self._chunks.inline_checked(leaf.array, position, chunk)
        return await self._chunks.stored(chunk, None if byte_range is None else _range(byte_range, chunk.length))

    def _document(self, key: str) -> bytes | None:
        path = group_named(self.layout, key)
        if path is None:
            return None
        if key not in self._documents:
            leaf = self.layout.leaves.get(path)
            document = leaf.document if leaf is not None else self.layout.consolidated(path)
            self._documents[key] = json.dumps(document, allow_nan=False).encode()
        return self._documents[key]

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of several values at once."""
        return list(await asyncio.gather(*(self.get(key, prototype, asked) for key, asked in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether there is metadata, or a row of the index, for a key."""
        named = chunk_named(self.layout, key)
        if named is None:
            return group_named(self.layout, key) is not None
        leaf, position = named
        if leaf.array is None or leaf.array.edges is not None:
            return True
        return await self._chunks.find(leaf.array, position) is not None

    async def getsize(self, key: str) -> int:
        """Bytes of a value; nothing is fetched."""
        if not await self.exists(key):
            raise FileNotFoundError(key)
        named = chunk_named(self.layout, key)
        if named is None:
            return len(self._document(key) or b"")
        leaf, position = named
        if leaf.array is None:
            return len(await self._chunk(leaf, position, None) or b"")
        if not leaf.raw:
            return math.prod(leaf.array.chunks) * leaf.array.dtype.itemsize
        chunk = await self._chunks.find(leaf.array, position)
        return 0 if chunk is None else chunk.length

    # --- listing ---------------------------------------------------------------------------------------------------

    def list(self) -> AsyncIterator[str]:
        """Every key."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key that begins so; chunks are listed from the index, and no source is touched."""
        return _paged(lambda: keys_under(self.layout, self._chunks.lookup, prefix))

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly in a folder."""
        return _paged(lambda: names_in(self.layout, self._chunks.lookup, prefix))

    # --- what a read-only store refuses ----------------------------------------------------------------------------

    def _check_writable(self) -> None:
        raise ValueError("store was opened in read-only mode and does not support writing: an index is read only")

    async def set(self, key: str, value: Buffer) -> None:  # noqa: ARG002
        """Refused."""
        self._check_writable()

    async def delete(self, key: str) -> None:  # noqa: ARG002
        """Refused."""
        self._check_writable()

    async def delete_dir(self, prefix: str) -> None:  # noqa: ARG002
        """Refused; `mode="w"` of zarr begins with it."""
        self._check_writable()


def _facts(store: IndexStore) -> list[Any]:
    return [(a.name, a.dims, a.shape, a.chunks, a.dtype) for a in store.table.catalog.arrays.values()]


def _rebuilt(table: Table, fetch: Fetch, limits: Limits, codecs: Codecs, read_only: bool) -> IndexStore:
    return IndexStore(table, fetch, limits=limits, codecs=codecs, read_only=read_only)


def _range(asked: ByteRequest, size: int) -> Range:
    """The requested bytes, cut at the end of the value as in HTTP."""
    if isinstance(asked, RangeByteRequest):
        return min(asked.start, size), min(asked.end, size)
    if isinstance(asked, OffsetByteRequest):
        return min(asked.offset, size), size
    return max(0, size - asked.suffix), size


async def _paged(make: Callable[[], Iterator[str]]) -> AsyncIterator[str]:
    """The items of a generator that may read the index, listed page by page in a thread."""
    items = make()

    def page() -> list[str]:
        return list(islice(items, PAGE))

    while found := await asyncio.to_thread(page):
        for item in found:
            yield item
