"""Object stores (S3, GCS, Azure, memory) through obstore: conditional ranges in, whole objects out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from periplus import forks
from periplus.errors import ConflictError, DeniedError, FetchError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch.errors import mapped, translate
from periplus.fetch.glob import Glob
from periplus.fetch.http.retry import Gate, Patience
from periplus.fetch.objects.options import PROVIDER, nobody, store_config, wants_region
from periplus.fetch.objects.profile import with_profile
from periplus.fetch.stale import check_same, strong
from periplus.model import Source
from periplus.policy import scheme_of

if TYPE_CHECKING:
    from obstore import Bytes
    from obstore.store import ObjectStore

Buffer: TypeAlias = "Bytes | bytes"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # the value of the library if the store reports no time
_MARK = "periplus-write"
PART = 8 << 20
"""Bytes of one part of a large upload."""
PAUSES = (0.1, 0.4, 1.6)
"""Seconds between attempts at what the library does not repeat."""
T = TypeVar("T")


@cache
def memory() -> ObjectStore:
    """The one memory store of this process, so that whoever writes memory:// is read by everyone."""
    from obstore.store import MemoryStore

    return MemoryStore()


def split(url: str) -> tuple[str, str, str]:
    """(scheme, bucket, key) of a canonical URL; memory has no bucket."""
    scheme = scheme_of(url)
    rest = url.partition("://")[2]
    if scheme == "memory":
        return scheme, "", rest
    bucket, _, key = rest.partition("/")
    return scheme, bucket, key


_STARTED: dict[str, object] = {}
"""The process in which the library started its threads: a forked child has none of them, and would wait forever."""


class ObjectStores:
    """Stores by bucket, opened on first use."""

    def __init__(
        self,
        *,
        options: Callable[[str], Mapping[str, Any]],
        gate: Gate,
        patience: Patience,
        region: Callable[[str], Awaitable[str | None]],
    ) -> None:
        self._options, self._gate, self._patience, self._region = options, gate, patience, region
        self._open: dict[str, tuple[Mapping[str, Any], ObjectStore]] = {}
        self._opening = asyncio.Lock()

    async def _store(self, url: str) -> ObjectStore:
        if _STARTED.setdefault("process", forks.process()) is not forks.process():
            raise FetchError(
                "object stores cannot be used in a process that was forked after its parent used them; start workers "
                "by 'spawn' or 'forkserver'",
                url=url,
            )
        scheme, bucket, _ = split(url)
        if scheme == "memory":
            return memory()
        options = self._options(url)
        place = f"{scheme}://{bucket}"
        known = self._open.get(place)
        if known is not None and known[0] == options:
            return known[1]
        async with self._opening:
            known = self._open.get(place)
            if known is None or known[0] != options:
                config, client = store_config(scheme, with_profile(options) if scheme == "s3" else options)
                if nobody(scheme, config):
                    config["skip_signature"] = True
                if config.get("skip_signature") and config.get("request_payer"):
                    raise DeniedError("requester pays needs credentials: anonymous requests cannot be billed", url=url)
                if scheme == "s3" and wants_region(config):
                    region = await self._region(bucket)
                    config.update({} if region is None else {"region": region})
                known = (options, open_store(scheme, bucket, config, client, self._patience, url))
                self._open[place] = known
        return known[1]

    async def read(self, url: str, offset: int, length: int, *, expect: Source | None = None) -> tuple[Buffer, Source]:
        """Bytes of a range cut at the object's end, and the facts of the object from the response."""
        choice: dict[str, Any] = {"range": (offset, offset + length)}
        tag = None if expect is None else strong(expect.etag)
        if tag is not None:
            choice["if_match"] = tag
        try:
            async with self._guarded(url, offset):
                result = await _get(await self._store(url), split(url)[2], choice)
                data = await result.bytes_async()
                source, (first, last) = _source(url, result.meta), result.range
        except FetchError as error:
            # The library reports a range past the end only in its message; the size confirms it.
            if "range" not in error.message.lower():
                raise
            source = await self.head(url)
            if source.size is None or offset < source.size:
                raise
            data, first, last = b"", offset, offset
        if expect is not None:
            check_same(expect, source, offset=offset)
        wanted = max(0, min(length, (source.size or 0) - offset))
        if first != offset or last - first != wanted or len(data) != wanted:
            raise FetchError(f"expected {wanted} bytes, but the store sent {len(data)}", url=url, offset=offset)
        return data, source

    async def head(self, url: str) -> Source:
        """Size, entity tag and time of the object."""
        import obstore

        async with self._guarded(url):
            return _source(url, await obstore.head_async(await self._store(url), split(url)[2]))

    async def tail(self, url: str, length: int) -> tuple[Buffer, Source] | None:
        """The last bytes of an object in one request; None where the store does not know how."""
        try:
            async with self._guarded(url):
                result = await _get(await self._store(url), split(url)[2], {"range": {"suffix": length}})
                data = await result.bytes_async()
                source, (first, last) = _source(url, result.meta), result.range
        except FetchError:
            return None
        size = source.size or 0
        return (data, source) if first == size - len(data) == max(0, size - length) and last == size else None

    async def write(
        self, url: str, data: bytes | memoryview | Path, *, create: bool = False, expect: Source | None = None
    ) -> Source:
        """Put the whole object at once; large files in parts, which become visible together."""
        import obstore

        mode: Any = "create" if create else "overwrite"
        attributes: dict[str, str] = {}
        if create or expect is not None:
            attributes[_MARK] = secrets.token_hex(16)
        if expect is not None:
            mode = await self._version(url, expect)
        content: Any
        if isinstance(data, Path):
            with mapped(str(data)):
                size = data.stat().st_size
                content = data.read_bytes() if attributes else data  # parts cannot be conditional
        else:
            content = memoryview(data).cast("B")
            size = len(content)

        async def put() -> Source:
            try:
                async with self._guarded(url):
                    result = await obstore.put_async(
                        await self._store(url),
                        split(url)[2],
                        content,
                        mode=mode,
                        chunk_size=PART,
                        attributes=attributes,
                    )
            except (StaleError, ConflictError, FetchError) as error:
                ours = await self._ours(url, attributes[_MARK]) if attributes else None
                if ours is not None:
                    return ours
                if isinstance(error, StaleError):
                    raise ConflictError("another writer replaced the object meanwhile", url=url) from None
                raise
            return Source(url=url, size=size, etag=result["e_tag"])

        return await _repeated(put)

    async def _version(self, url: str, expect: Source) -> dict[str, Any]:
        """How a store identifies the object to be replaced: its tag, which may need a request, or its version."""
        import obstore

        if expect.etag is not None and scheme_of(url) != "gs":  # there, tags are no condition of a write
            return {"e_tag": expect.etag}
        try:
            async with self._guarded(url):
                meta = await obstore.head_async(await self._store(url), split(url)[2])
            check_same(expect, _source(url, meta))
        except (StaleError, MissingError):
            raise ConflictError("another writer replaced the object meanwhile", url=url) from None
        return {"e_tag": meta["e_tag"], "version": meta["version"]}

    async def _ours(self, url: str, mark: str) -> Source | None:
        """The object where it is the one we wrote: a lost answer makes our own success look like another's."""
        try:
            async with self._guarded(url):
                result = await _get(await self._store(url), split(url)[2], {"head": True})
                return _source(url, result.meta) if result.attributes.get(_MARK) == mark else None
        except PeriplusError:
            return None

    async def delete(self, url: str) -> None:
        """Remove the object; most stores do not report whether there was one."""
        import obstore

        async def delete() -> None:
            async with self._guarded(url):
                await obstore.delete_async(await self._store(url), split(url)[2])

        await _repeated(delete)

    async def find(self, url: str) -> AsyncIterator[Source]:
        """One object, those under a prefix that ends in a slash, or those that match a glob."""
        if Glob.is_glob(url):
            pattern = Glob(url)
            async for source in self._expand(pattern.folder, pattern):
                yield source
            return
        if url.endswith("/"):
            async for source in self._list(url):
                yield source
            return
        yield await self.head(url)

    async def _expand(self, folder: str, pattern: Glob) -> AsyncIterator[Source]:
        """List folder by folder while the pattern allows, so that folders that cannot match are never listed."""
        if pattern.deep:
            async for source in self._list(folder):
                if pattern.matches(source.url):
                    yield source
            return
        for entry in await self._entries(folder):
            if not entry.url.endswith("/"):
                if pattern.matches(entry.url):
                    yield entry
            elif pattern.may_enter(entry.url):
                async for source in self._expand(entry.url, pattern):
                    yield source

    async def _entries(self, folder: str) -> list[Source]:
        """What is directly in a folder, sorted: objects, and folders by a Source whose URL ends in a slash."""
        import obstore

        async with self._guarded(folder):
            listing = await obstore.list_with_delimiter_async(await self._store(folder), split(folder)[2])
        root = folder[: len(folder) - len(split(folder)[2])]
        found = [_source(root + meta["path"], meta) for meta in listing["objects"]]
        found += [Source(url=root + inner.rstrip("/") + "/") for inner in listing["common_prefixes"]]
        return sorted(found, key=_url)

    async def below(self, folder: str, *, deep: bool) -> AsyncIterator[Source]:
        """Objects below a folder that ends in a slash; unless `deep`, those in it, and its folders."""
        if deep:
            async for source in self._list(folder):
                yield source
            return
        for source in await self._entries(folder):
            if source.url.startswith(folder) and source.url != folder:
                yield source

    async def folders(self, folder: str) -> list[str]:
        """Names of the folders directly inside one that ends in a slash."""
        entries = await self._entries(folder)
        return [entry.url.rstrip("/").rpartition("/")[2] for entry in entries if entry.url.endswith("/")]

    async def _list(self, folder: str) -> AsyncIterator[Source]:
        import obstore

        root = folder[: len(folder) - len(split(folder)[2])]
        begun: set[str] = set()
        with mapped(folder):
            pages = obstore.list(await self._store(folder), split(folder)[2], chunk_size=1000)
        while True:
            async with self._guarded(folder):
                try:
                    page = await pages.__anext__()
                except StopAsyncIteration:
                    return
            if not begun.isdisjoint(meta["path"] for meta in page):
                raise FetchError("the store's listing comes back to where it was", url=folder)
            begun.update(meta["path"] for meta in page[:1])  # of each page one name is enough to know it again
            for source in sorted((_source(root + meta["path"], meta) for meta in page), key=_url):
                if source.url.startswith(folder):  # not the folder's own marker, `folder/`, which loses its slash here
                    yield source

    @asynccontextmanager
    async def _guarded(self, url: str, offset: int | None = None) -> AsyncIterator[None]:
        """A place in the gate, the mapping of errors and a deadline, around one request."""
        scheme, bucket, _ = split(url)
        async with self._gate.pass_to(f"{scheme}://{bucket}"):
            with mapped(url, offset):
                async with asyncio.timeout(self._patience.deadline):
                    yield


async def _repeated(work: Callable[[], Awaitable[T]]) -> T:
    """Try again what the library does not: conditional writes, which we know again, and deletions.

    It takes both for unsafe to repeat when a connection breaks, and gives up at the first.
    """
    for pause in PAUSES:
        try:
            return await work()
        except FetchError as error:
            if "retries" in error.message:  # the library has tried again
                raise
        await asyncio.sleep(pause)
    return await work()


def _url(source: Source) -> str:
    return source.url


async def _get(store: ObjectStore, key: str, choice: dict[str, Any]) -> Any:
    import obstore

    return await obstore.get_async(store, key, options=choice)  # type: ignore[arg-type]


def _source(url: str, meta: Any) -> Source:
    modified = meta["last_modified"].astimezone(UTC)
    return Source(url=url, size=meta["size"], etag=meta["e_tag"], last_modified=modified if modified > _EPOCH else None)


def open_store(
    scheme: str, bucket: str, config: dict[str, Any], client: dict[str, Any], patience: Patience, url: str
) -> ObjectStore:
    """The library's store for a bucket."""
    from obstore.store import AzureStore, GCSStore, S3Store

    client.setdefault("timeout", timedelta(seconds=patience.deadline))
    client.setdefault("read_timeout", timedelta(seconds=patience.stall))
    client.setdefault("connect_timeout", timedelta(seconds=15))
    retry: Any = {"max_retries": patience.retries, "retry_timeout": timedelta(seconds=patience.deadline)}
    container, _, account = bucket.partition("@")
    if account:
        config.setdefault("account_name", account.partition(".")[0])
    provider = config.pop(PROVIDER, None)
    kind: Any = {"s3": S3Store, "gs": GCSStore}.get(scheme, AzureStore)
    try:
        store: ObjectStore = kind(
            container, config=config, client_options=client, retry_config=retry, credential_provider=provider
        )
    except BaseException as error:
        if translate(error, url) is None:
            raise
        # The library's text may repeat the values it was given, keys among them.
        unknown = [key for key in config if f"'{key}'" in str(error)]
        why = f"it has no {unknown[0]!r}" if unknown else type(error).__name__
        raise FormatError(f"the storage options do not fit a {scheme} store: {why}", url=url) from None
    return store
