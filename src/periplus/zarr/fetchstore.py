"""A Zarr store read through our own fetching: every request, and every redirect, is checked by the policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from periplus.errors import FetchError, MissingError, redact
from periplus.fetch import Fetch

LARGEST = 1 << 31
"""Bytes of one object that are read at once; larger chunks would not fit into memory together with their array."""
READ_ONLY = "stores that references lead to are only read"


class FetchStore(Store):
    """Keys below a URL, read only and without listing: references name their nodes."""

    supports_writes = False
    supports_deletes = False
    supports_partial_writes = False
    supports_listing = False

    def __init__(self, url: str, fetch: Fetch) -> None:
        super().__init__(read_only=True)
        self.url, self.fetch = url.rstrip("/"), fetch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FetchStore) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FetchStore, (self.url, self.fetch))

    def __str__(self) -> str:
        return redact(self.url)

    def with_read_only(self, read_only: bool = False) -> FetchStore:
        """The same store; it cannot be written to."""
        if not read_only:
            raise ValueError(READ_ONLY)
        return FetchStore(self.url, self.fetch)

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a key, None where there is no such object."""
        url = f"{self.url}/{key}"
        try:
            start, length = await self._span(url, byte_range)
            data, _ = await self.fetch.read(url, start, length)
        except MissingError:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def _span(self, url: str, asked: ByteRequest | None) -> tuple[int, int]:
        if isinstance(asked, RangeByteRequest):
            return asked.start, asked.end - asked.start
        if isinstance(asked, OffsetByteRequest):
            return asked.offset, LARGEST
        if isinstance(asked, SuffixByteRequest):
            size = (await self.fetch.head(url)).size
            if size is None:
                raise FetchError("the server does not report its size", url=url)
            return max(0, size - asked.suffix), asked.suffix
        return 0, LARGEST

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of several values."""
        return [await self.get(key, prototype, asked) for key, asked in key_ranges]

    async def exists(self, key: str) -> bool:
        try:
            await self.fetch.head(f"{self.url}/{key}")
        except MissingError:
            return False
        return True

    async def set(self, key: str, value: Buffer) -> None:  # noqa: ARG002
        """Refused."""
        raise ValueError(READ_ONLY)

    async def delete(self, key: str) -> None:  # noqa: ARG002
        """Refused."""
        raise ValueError(READ_ONLY)

    async def _nothing(self) -> AsyncIterator[str]:
        nothing: tuple[str, ...] = ()
        for name in nothing:
            yield name

    def list(self) -> AsyncIterator[str]:
        """Nothing: this store cannot list."""
        return self._nothing()

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:  # noqa: ARG002
        """Nothing."""
        return self._nothing()

    def list_dir(self, prefix: str) -> AsyncIterator[str]:  # noqa: ARG002
        """Nothing."""
        return self._nothing()
