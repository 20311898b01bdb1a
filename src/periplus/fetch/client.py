"""Fetch: reads, writes and lists local files and remote objects by URL."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from periplus.errors import FetchError, FormatError, StaleError
from periplus.fetch.file import RangeFile
from periplus.fetch.glob import Glob
from periplus.fetch.http.retry import Patience
from periplus.fetch.local import atomic
from periplus.fetch.local import files as local
from periplus.fetch.local.files import LocalFile, OpenFiles
from periplus.fetch.merge import Spans
from periplus.fetch.objects.options import PROVIDER, check_options, options_for, store_config
from periplus.fetch.objects.profile import with_profile
from periplus.fetch.remote import Remote
from periplus.fetch.stale import check_same
from periplus.fetch.stream import stream_remote
from periplus.forks import nothing, renewed
from periplus.model import Source
from periplus.policy import WEB, Policy, canonical, is_local, scheme_of, without_secrets
from periplus.redaction import is_secret

T = TypeVar("T")
Url = str | os.PathLike[str]
DOWNLOAD_PART = 16 << 20
DOWNLOAD_PARTS = 4


FILES = OpenFiles()


class Fetch:
    """Reads ranges, whole files and listings; writes atomically. Cheap to make, connects on first use, picklable.

    The async methods may be awaited on any event loop; remote requests run on one loop that all objects share.

    `storage_options` hold what a store wants: region, endpoint, access_key_id, skip_signature (or anon), account_name …
    under obstore's names or those of fsspec, or a credential_provider of obstore; for HTTP `headers`, `query`,
    `bearer_token`, `netrc` (true or a path) and `signer` (a function from URL to signed URL, or a name). A key that is
    a URL prefix holds options for that place only: {"s3://bucket/": {"region": "eu-central-1"}}. They are never shown
    or stored.
    `keep_query` are names of URL parameters that are no secrets and may be stored in an index.
    At most `concurrency` requests run at once, `per_host` to one host or bucket. A read is retried up to `retries`
    times in a row, given up on after `stall` seconds without a byte, and ends after `deadline` seconds in all.
    """

    _lock: threading.Lock
    _remote: Remote | None

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        storage_options: Mapping[str, Any] | None = None,
        keep_query: Iterable[str] = (),
        concurrency: int = 256,
        per_host: int = 128,
        retries: int = 10,
        stall: float = 30.0,
        deadline: float = 180.0,
    ) -> None:
        self.policy = Policy.everything() if policy is None else policy
        self._options = check_options(storage_options)
        self.keep_query = _names(keep_query)
        self.concurrency, self.per_host = concurrency, per_host
        self.patience = Patience(retries=retries, stall=stall, deadline=deadline)
        renewed(self, _lock=threading.Lock, _remote=nothing)
        self._user = object()
        weakref.finalize(self, FILES.drop, self._user).atexit = False

    def __repr__(self) -> str:
        return f"<Fetch {'everything' if self.policy.prefixes is None else f'{len(self.policy.prefixes)} prefixes'}>"

    def __getstate__(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "storage_options": self._options,
            "keep_query": self.keep_query,
            "concurrency": self.concurrency,
            "per_host": self.per_host,
            "retries": self.patience.retries,
            "stall": self.patience.stall,
            "deadline": self.patience.deadline,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> Fetch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the loop, its connections and open files. The object may be used again and then reconnects."""
        with self._lock:
            remote, self._remote = self._remote, None
        FILES.drop(self._user)
        if remote is not None:
            remote.bridge.stop()

    def under(self, policy: Policy) -> Fetch:
        """Another Fetch with the same settings, restricted to `policy`."""
        return Fetch(**{**self.__getstate__(), "policy": policy})

    def settings(self, url: Url) -> dict[str, Any]:
        """The storage options that hold for a URL in a bucket, for another library that goes there itself."""
        plain = canonical(url)
        scheme, options = scheme_of(plain), options_for(plain, self._options)
        config, client = store_config(scheme, with_profile(options) if scheme == "s3" else options)
        if PROVIDER in config:
            raise FormatError(f"another library reads this URL and cannot use a {PROVIDER}; pass keys", url=plain)
        return {**client, **config}

    # --- reading ---------------------------------------------------------------------------------------------------

    async def read(self, url: Url, offset: int, length: int, *, expect: Source | None = None) -> tuple[bytes, Source]:
        """Bytes [offset, offset + length) cut at the object's end, and the object's facts from the same response.

        With `expect` the object must still be that one (StaleError), and fewer bytes than `length` are StaleError too.
        """
        data, source = await self._read(self._checked(url), url, offset, length, expect)
        return (data if isinstance(data, bytes) else bytes(data)), source

    async def _read(
        self, plain: str, given: Url, offset: int, length: int, expect: Source | None
    ) -> tuple[Any, Source]:
        if offset < 0 or length < 0 or offset + length >= 1 << 63:
            raise FormatError(f"no such range: {length} bytes", url=plain, offset=offset)
        data: Any
        if is_local(plain):
            file = FILES.get(plain, expect, user=self._user)
            data, source = file.read_until_end(offset, length), file.source
        elif length == 0:
            data, source = b"", expect or await self.head(given)
        else:
            data, source = await self._connected().ask(
                plain, os.fspath(given), lambda reader, url: reader.read(url, offset, length, expect=expect)
            )
        if expect is not None and len(data) != length:
            raise StaleError(
                f"expected {length} bytes, but the object ends after {source.size}", url=plain, offset=offset
            )
        return data, source

    async def tail(self, url: Url, length: int, *, expect: Source | None = None) -> tuple[bytes, Source]:
        """The last `length` bytes (or all there are) and the object's facts; one request where the server can."""
        plain = self._checked(url)
        if not is_local(plain) and length > 0:
            found = await self._connected().ask(plain, os.fspath(url), lambda reader, url: reader.tail(url, length))
            if found is not None:
                if expect is not None:
                    check_same(expect, found[1])
                return bytes(found[0]), found[1]
        source = await self.head(url)
        if expect is not None:
            check_same(expect, source)
        start = max(0, local.require_size(source) - length)
        return await self.read(url, start, local.require_size(source) - start, expect=source)

    async def head(self, url: Url) -> Source:
        """Size, entity tag and modification time; MissingError where there is nothing."""
        plain = self._checked(url)
        if is_local(plain):
            return local.head(plain)
        return await self._connected().ask(plain, os.fspath(url), lambda reader, url: reader.head(url))

    def local(self, source: Source) -> LocalFile | None:
        """The open file of a local source that is still what was indexed; None for remote sources."""
        if not is_local(source.url):
            return None
        return FILES.get(self._checked(source.url), source, user=self._user)

    def stream(self, spans: Spans, *, in_flight_bytes: int) -> Generator[tuple[int, memoryview]]:
        """(span number, its bytes) as they arrive; at most `in_flight_bytes` fetched or under way, or one span.

        Every span is read with its source's facts as a condition. The first error ends all.
        """
        remote: list[int] = []
        files: dict[int, tuple[str, bool]] = {}
        for number, file in enumerate(spans.file.tolist()):
            if file not in files:
                plain = self._checked(spans.sources[file].url)
                files[file] = plain, is_local(plain)
            if not files[file][1]:
                remote.append(number)
        for number, file in enumerate(spans.file.tolist()):
            plain, here = files[file]
            if here:
                start = int(spans.start[number])
                opened = FILES.get(plain, spans.sources[file], user=self._user)
                yield number, memoryview(opened.read(start, int(spans.stop[number]) - start))
        if remote:
            connected = self._connected()

            async def ranged(source: Source, start: int, stop: int) -> Any:
                data, _ = await self._read(self._checked(source.url), source.url, start, stop - start, source)
                return data

            yield from stream_remote(connected.bridge, ranged, spans, remote, in_flight_bytes=in_flight_bytes)

    def open_file(self, url: Url, *, expect: Source | None = None, block: int = 64 << 10) -> RangeFile:
        """A seekable read-only file over the object as it is now (or as in `expect`), with a cache of blocks."""
        plain = self._checked(url)
        tail = b""
        if expect is not None and expect.size is not None:
            source = expect
        else:
            # Two blocks: whoever asks for the last 64 KiB, as readers of Parquet do, finds them all.
            tail, source = self.run(self.tail(url, 2 * block, expect=expect))
        size = local.require_size(source)

        def read_range(offset: int, length: int) -> bytes:
            if is_local(plain):
                return FILES.get(plain, source, user=self._user).read(offset, length)
            return self.run(self.read(url, offset, length, expect=source))[0]

        file = RangeFile(read_range, size, name=plain, block=block)
        file.seed(size - len(tail), tail)
        return file

    # --- writing ---------------------------------------------------------------------------------------------------

    async def write(
        self, url: Url, data: bytes | memoryview | Path, *, create: bool = False, expect: Source | None = None
    ) -> Source:
        """Write the whole object at once, from memory or a local file.

        ConflictError where it exists (`create`), or is no longer the object to be replaced (`expect`).
        """
        plain = self._checked(url)
        if is_local(plain):
            return await asyncio.to_thread(atomic.write_file, plain, data, create=create, expect=expect)
        if scheme_of(plain) in WEB:
            raise FetchError("HTTP is read only here; write to a file or an object store", url=plain)
        return await self._connected().run(
            lambda remote: remote.stores.write(plain, data, create=create, expect=expect)
        )

    async def delete(self, url: Url) -> None:
        """Remove one object; MissingError if the store reports that there is none."""
        plain = self._checked(url)
        if is_local(plain):
            return await asyncio.to_thread(atomic.delete_file, plain)
        if scheme_of(plain) in WEB:
            raise FetchError("HTTP is read only here", url=plain)
        return await self._connected().run(lambda remote: remote.stores.delete(plain))

    async def copy_out(self, url: Url, path: Path | str) -> Source:
        """Download an object to a local file, atomically; StaleError where it changes meanwhile."""
        source = await self.head(url)
        size = local.require_size(source)
        target = canonical(path)

        def part(offset: int) -> asyncio.Task[tuple[bytes, Source]]:
            length = min(DOWNLOAD_PART, size - offset)
            return asyncio.create_task(self.read(url, offset, length, expect=source))

        offsets = iter(range(0, size, DOWNLOAD_PART))
        under_way = deque(part(offset) for offset in islice(offsets, DOWNLOAD_PARTS))
        try:
            with atomic.replacing(target) as file:
                while under_way:
                    data, _ = await under_way[0]
                    under_way.popleft()
                    under_way.extend(part(offset) for offset in islice(offsets, 1))
                    await asyncio.to_thread(file.write, data)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return source

    # --- listing ---------------------------------------------------------------------------------------------------

    async def find(self, pattern: Url) -> AsyncIterator[Source]:
        """One object, everything under a prefix that ends in a slash, or a glob (`s3://b/2021/**/*.tif`).

        Sorted within a page of the listing; local ones sorted throughout. MissingError where a plain name is absent.
        """
        plain = self._checked(pattern)
        if is_local(plain):
            for source in local.find(plain):
                yield source
            return
        if scheme_of(plain) in WEB:
            path = plain.partition("?")[0]
            if path.endswith("/") or Glob.is_glob(path):
                raise FormatError("HTTP has no listing; give the URLs one by one or in a text file", url=plain)
            yield await self.head(pattern)
            return
        async for source in self._connected().each(lambda remote: remote.stores.find(plain)):
            yield source

    async def below(self, url: Url, *, deep: bool = True) -> AsyncIterator[Source]:
        """Everything below a folder, hidden names too, nothing of its name being a pattern; nothing where it is absent.

        Unless `deep`, only what is directly in it: objects, and folders by a Source whose URL ends in a slash.
        """
        plain = self._checked(url).rstrip("/") + "/"
        if is_local(plain):
            for source in local.below(plain, deep=deep):
                yield source
            return
        if scheme_of(plain) in WEB:
            raise FormatError("HTTP has no listing", url=plain)
        async for source in self._connected().each(lambda remote: remote.stores.below(plain, deep=deep)):
            yield source

    async def folders(self, url: Url) -> list[str]:
        """Names of the folders directly inside one; one request, however many objects are below them."""
        plain = self._checked(url).rstrip("/") + "/"
        if is_local(plain):
            return local.folders(plain)
        if scheme_of(plain) in WEB:
            raise FormatError("HTTP has no listing", url=plain)
        return await self._connected().run(lambda remote: remote.stores.folders(plain))

    # --- where it runs ---------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, from sync code; an interrupt cancels it."""
        return self._connected().bridge.run(coroutine)

    def _checked(self, url: Url) -> str:
        """The canonical URL, allowed by policy and without secrets."""
        if self.policy.prefixes is not None:
            self.policy.check(url)
        return without_secrets(url)

    def _connected(self) -> Remote:
        with self._lock:
            if self._remote is None:
                self._remote = Remote(self.policy, self._options, self.concurrency, self.per_host, self.patience)
                # Closes at the latest when this object goes; the end of the program waits for all.
                weakref.finalize(self, self._remote.bridge.release).atexit = False
            return self._remote


def _names(keep_query: Iterable[str]) -> frozenset[str]:
    if not isinstance(keep_query, Iterable):
        raise TypeError(f"keep_query is the names of URL parameters, not {keep_query!r}")
    names = frozenset((keep_query,) if isinstance(keep_query, str) else keep_query)
    for name in sorted(names):
        if is_secret(name):
            raise ValueError(f"keep_query: {name!r} is the name of a credential; pass it by storage_options")
    return names
