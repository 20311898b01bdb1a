"""RegistryFetch: the same reading, through object stores that others have set up and hand over in a registry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from os import fspath
from typing import Any, Protocol

from periplus.errors import FetchError, FormatError, MissingError, PeriplusError, StaleError, redact
from periplus.fetch.client import Fetch, Url
from periplus.fetch.stale import check_same
from periplus.model import Source
from periplus.policy import is_local


class Registry(Protocol):
    """Stores by URL, such as obspec-utils' ObjectStoreRegistry."""

    def resolve(self, url: str) -> tuple[Any, Any]:
        """The store of a URL, and the path in it."""


class RegistryFetch(Fetch):
    """Reads what the stores of a registry hold; local files are read as ever, if the registry has them."""

    def __init__(self, registry: Registry, **settings: Any) -> None:
        super().__init__(**settings)
        self._registry = registry
        self._known: dict[str, Source] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"registry": self._registry, **super().__getstate__()}

    def _checked(self, url: Url) -> str:
        plain = super()._checked(url)
        self._store(plain)
        return plain

    def _store(self, plain: str) -> tuple[Any, str]:
        # What has no host is spelt with three slashes there.
        spelt = f"file://{plain}" if is_local(plain) else plain.replace("memory://", "memory:///", 1)
        try:
            store, path = self._registry.resolve(spelt)
        except ValueError:
            raise FetchError("the registry has no store for this URL", url=plain) from None
        return store, str(path)

    async def _read(
        self, plain: str, given: Url, offset: int, length: int, expect: Source | None
    ) -> tuple[Any, Source]:
        if is_local(plain):
            return await super()._read(plain, given, offset, length, expect)
        if offset < 0 or length < 0 or offset + length >= 1 << 63:
            raise FormatError(f"no such range: {length} bytes", url=plain, offset=offset)
        source = self._known.get(plain) or await self.head(plain)
        if expect is not None:
            check_same(expect, source)
        size = source.size or 0
        stop = min(offset + length, size)
        if expect is not None and stop != offset + length:
            raise StaleError(f"expected {length} bytes, but the object ends after {size}", url=plain, offset=offset)
        if stop <= offset:
            return b"", source
        store, path = self._store(plain)
        try:
            data = await _ranged(store, path, offset, stop, source.etag)
        except Exception as error:  # any library may stand behind the registry
            raise _said(error, plain) from error
        if len(memoryview(data)) != stop - offset:
            raise FetchError(f"{stop - offset} bytes were asked for, {len(memoryview(data))} came", url=plain)
        return data, source

    async def head(self, url: Url) -> Source:
        """Size, entity tag and modification time; MissingError where there is nothing."""
        plain = self._checked(url)
        if is_local(plain):
            return await super().head(url)
        store, path = self._store(plain)
        try:
            facts = await store.head_async(path)
        except Exception as error:  # any library may stand behind the registry
            raise _said(error, plain) from error
        modified = facts.get("last_modified")
        found = Source(
            url=plain,
            size=facts.get("size"),
            etag=facts.get("e_tag"),
            last_modified=modified if isinstance(modified, datetime) else None,
        )
        self._known[plain] = found
        return found

    async def find(self, pattern: Url) -> AsyncIterator[Source]:
        """The one object of that name: a registry is asked for objects, not for lists."""
        yield await self.head(fspath(pattern))


async def _ranged(store: Any, path: str, start: int, stop: int, etag: str | None) -> Any:
    """A range, of the object with that tag where the store takes conditions; others know nothing but ranges."""
    if etag is None or not type(store).__module__.startswith("obstore"):
        return await store.get_range_async(path, start=start, end=stop)
    answer = await store.get_async(path, options={"range": (start, stop), "if_match": etag})
    return await answer.bytes_async()


def _said(error: Exception, url: str) -> PeriplusError:
    if isinstance(error, PeriplusError):
        return error
    text = " ".join(redact(str(error)).split())
    if type(error).__name__ == "PreconditionError":
        return StaleError("the object is no longer the one that was indexed", url=url)
    if isinstance(error, FileNotFoundError) or type(error).__name__ == "NotFoundError":
        return MissingError("there is no such object", url=url)
    return FetchError(f"the registry's store failed: {text}", url=url)
