"""MultiReferenceFileSystem: fsspec's reference file system for chunks of several byte ranges too, and within policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias

try:
    import fsspec.core
    from fsspec import filesystem
    from fsspec.asyn import sync
    from fsspec.core import split_protocol
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.reference import ReferenceFileSystem, ReferenceNotReachable
except ImportError as error:
    raise ImportError('the multireference file system needs fsspec: pip install "periplus[kerchunk]"') from error

from periplus.errors import DeniedError, FormatError, PeriplusError, StaleError
from periplus.fetch import merge
from periplus.fetch.local.folders import restore_folder
from periplus.policy import Policy, canonical, resolve
from periplus.zarr.fsspec.listing import ReferenceListing
from periplus.zarr.fsspec.mapping import RecordMapping
from periplus.zarr.kerchunk.references import Reference, expand, filler, inline, parse, ranges

Piece: TypeAlias = tuple[str, int | None, int | None]
"""(url, start, stop); a whole file has neither."""


class MultiReferenceFileSystem(ReferenceListing, ReferenceFileSystem):  # type: ignore[misc]
    """Reads the four forms of reference from JSON or Parquet, of Zarr v2 or v3, through any fsspec file systems.

    The constructor is that of fsspec's ReferenceFileSystem. In addition, `allow` names prefixes outside the index's
    folder that it may access; those given by `template_overrides` or `target` are allowed too. References given as a
    dict are the caller's own, and may access everything unless `allow` is given. Templates are literal.
    """

    protocol = "multireference"
    cachable = False

    def __init__(
        self,
        fo: Any,
        target: str | None = None,
        ref_storage_args: Mapping[str, Any] | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        remote_protocol: str | None = None,
        remote_options: Mapping[str, Any] | None = None,
        fs: Any = None,
        template_overrides: Mapping[str, str] | None = None,
        simple_templates: bool = True,
        max_gap: int = 64_000,
        max_block: int = 256_000_000,
        cache_size: int = 128,
        allow: str | Iterable[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Arguments are those of fsspec's class, and `allow`."""
        super().__init__(
            {},
            target=target,
            remote_protocol=remote_protocol,
            remote_options=remote_options,
            fs=fs,
            template_overrides=dict(template_overrides or {}),
            simple_templates=simple_templates,
            max_gap=max_gap,
            max_block=max_block,
            **kwargs,
        )
        given = (allow,) if isinstance(allow, str) else tuple(allow or ())
        self._base_url: str | None = None
        self._policy = Policy.everything()
        if isinstance(fo, str | os.PathLike):
            where = os.fspath(fo)
            options = {**(ref_storage_args or target_options or {}), "protocol": target_protocol}
            named = [value for value in (*(template_overrides or {}).values(), target) if value]
            self._base_url, self._policy = _allowed(where, (*given, *named))
            self.references = _load(where, options, self.template_overrides, cache_size)
        else:
            if given:
                self._policy = Policy.beside("memory://none/", given)
            self.references = fo if isinstance(fo, RecordMapping) else expand(fo, overrides=self.template_overrides)
        default = self.fss[None].protocol if fs is not None or remote_protocol else "file"
        self._default = default if isinstance(default, str) else default[0]
        self.fss = _Systems(self.fss, dict(remote_options or {}), self.asynchronous)
        self._resolved: dict[str, str] = {}
        if find_spec("zarr") is not None:
            from periplus.zarr.codecs.v3 import register

            register()  # osml-imagery-io offers codecs of the same names

    # --- where a key leads ------------------------------------------------------------------------------------------

    def _reference(self, path: str) -> Reference:
        try:
            found = self.references[path]
        except KeyError:
            raise FileNotFoundError(path) from None
        if hasattr(found, "to_bytes") and not isinstance(found, int):
            found = found.to_bytes()
        return inline(path, found) if isinstance(found, str) else found

    def _url(self, url: str | None) -> str:
        """The URL of a target, within policy; relative ones start at the folder of the index."""
        url = self.target if url is None else url
        if url is None:
            raise FormatError("a reference has no URL, and no target was given")
        if url not in self._resolved:
            whole = url
            if "://" not in url and self._default not in ("file", "local"):
                whole = f"{self._default}://{url.lstrip('/')}"
            elif "://" not in url and self._base_url is not None:
                whole = resolve(self._base_url, url)
            if self._policy.prefixes is not None:
                self._policy.check(whole)
            self._resolved[url] = whole
        return self._resolved[url]

    def _cut(self, found: Reference, path: str, start: int | None, end: int | None) -> bytes | list[Piece]:
        """The inline bytes, or what must be read, of the reference of a key or of a range of it."""
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found[start:end])
        try:
            url = self._url(found[0])
        except PeriplusError as error:
            error.message = f"{path}: {error.message}"
            raise
        if len(found) == 1:
            return [(url, start, end)]
        held = list(ranges(found))
        low, high, _ = slice(start, end).indices(sum(length for _, length in held))
        pieces: list[Piece] = []
        before = 0
        for offset, length in held:
            first, last = max(low - before, 0), min(high - before, length)
            if first < last:
                pieces.append((url, offset + first, offset + last))
            before += length
        return pieces if pieces else b""

    def _cat_common(self, path: str, start: int | None = None, end: int | None = None) -> tuple[Any, Any, Any]:
        """What fsspec's own methods use: a URL and its range, or bytes."""
        key = self._strip_protocol(path)
        pieces = self._cut(self._reference(key), key, start, end)
        if isinstance(pieces, bytes):
            return pieces, None, None
        if len(pieces) == 1:
            return pieces[0]
        return self.cat_file(path, start, end), None, None

    async def _found(self, path: str) -> Reference:
        """The reference of a key; a record file is read in a thread, so that the event loop is not blocked."""
        if isinstance(self.references, RecordMapping) and not self.references.at_hand(path):
            return await asyncio.to_thread(self._reference, path)
        return self._reference(path)

    # --- bytes ------------------------------------------------------------------------------------------------------

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:  # noqa: ARG002
        """All byte ranges of a key at once, joined in order."""
        path = self._strip_protocol(path)
        pieces = self._cut(await self._found(path), path, start, end)
        if isinstance(pieces, bytes):
            return pieces
        whole: bytes = _answer(path, pieces, await asyncio.gather(*map(self._read, pieces)), strict=True)
        return whole

    async def _read(self, piece: Piece) -> Any:
        """The bytes, or the error."""
        url, start, end = piece
        try:
            return await self.fss[_scheme(url)]._cat_file(url, start=start, end=end)
        except Exception as error:  # noqa: BLE001 - reported for each key
            return error

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:  # noqa: ARG002
        """The same, for callers without an event loop."""
        return sync(self.loop, self._cat_file, path, start, end)  # type: ignore[no-any-return]

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:  # noqa: ARG002
        """The bytes of one key, or of several by key; all are fetched at once."""
        if recursive or (isinstance(path, list) and any("*" in one for one in path)):
            raise NotImplementedError("recursive reads and patterns are unsupported")
        if isinstance(path, str):
            return self.cat_file(path)
        keys = [self._strip_protocol(one) for one in path]

        found = dict(zip(path, sync(self.loop, self._cat_many, keys, on_error == "raise")))
        return {key: data for key, data in found.items() if on_error != "omit" or not isinstance(data, Exception)}

    async def _cat_many(self, keys: list[str], strict: bool) -> list[Any]:
        """Bytes, or the error, of each key; neighbouring ranges of one file are read together."""
        found: list[Any] = []
        for key in keys:
            try:
                found.append(self._cut(await self._found(key), key, None, None))
            except (OSError, PeriplusError) as error:
                if strict:
                    raise
                found.append(error)
        wanted = [(i, piece) for i, pieces in enumerate(found) if isinstance(pieces, list) for piece in pieces]
        parts = await self._read_together([piece for _, piece in wanted])
        answers: dict[int, list[Any]] = {}
        for (i, _), part in zip(wanted, parts, strict=True):
            answers.setdefault(i, []).append(part)
        for i, held in answers.items():
            found[i] = _answer(keys[i], found[i], held, strict)
        return found

    async def _read_together(self, pieces: list[Piece]) -> list[Any]:
        """Bytes, or the error, of each piece; ranges of a file with small gaps are read by one request."""
        ranged = {n: (url, a, b) for n, (url, a, b) in enumerate(pieces) if a is not None and b is not None}
        whole = [number for number in range(len(pieces)) if number not in ranged]
        files = {url: number for number, url in enumerate(dict.fromkeys(url for url, _, _ in ranged.values()))}
        urls, lengths = list(files), [stop - start for _, start, stop in ranged.values()]
        spans = merge(
            [files[url] for url, _, _ in ranged.values()],
            [start for _, start, _ in ranged.values()],
            lengths,
            gap=self.max_gap,
            largest=self.max_block,
        )
        ranges = zip(spans.file.tolist(), spans.start.tolist(), spans.stop.tolist(), strict=True)
        wanted = [*((urls[file], start, stop) for file, start, stop in ranges), *(pieces[number] for number in whole)]
        found = await asyncio.gather(*map(self._read, wanted))
        parts: dict[int, Any] = dict(zip(whole, found[len(spans) :], strict=True))
        for number, span, at, length in zip(
            ranged, spans.row_span.tolist(), spans.row_start.tolist(), lengths, strict=True
        ):
            data = found[span]
            parts[number] = data if isinstance(data, Exception) else data[at : at + length]
        return [parts[number] for number in range(len(pieces))]


def _answer(key: str, pieces: list[Piece], parts: Sequence[Any], strict: bool) -> Any:
    """The bytes of a key from those of its pieces; where one failed, its error is raised if strict, else returned."""
    broken = next((part for part in parts if isinstance(part, Exception)), None)
    try:
        if broken is not None:
            raise broken if isinstance(broken, PeriplusError) else ReferenceNotReachable(key, pieces[0][0])
        return joined(key, pieces, parts)
    except (RuntimeError, OSError, PeriplusError) as error:
        if strict:
            raise error from broken
        return error


def joined(path: str, pieces: Sequence[Piece], parts: Sequence[bytes]) -> bytes:
    """The parts of a key in order; StaleError where one is shorter than it should be."""
    for (url, start, stop), part in zip(pieces, parts, strict=True):
        if start is not None and stop is not None and 0 <= start <= stop and len(part) != stop - start:
            raise StaleError(f"{path}: {len(part)} of {stop - start} bytes are there", url=url, offset=start)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _scheme(url: str) -> str | None:
    return split_protocol(url)[0]  # type: ignore[no-any-return]


class _Systems(dict[str | None, Any]):
    """File systems by protocol, made when a reference first needs them."""

    def __init__(self, made: Mapping[str | None, Any], options: dict[str, Any], asynchronous: bool) -> None:
        super().__init__(made)
        self._options = {key: value for key, value in options.items() if key != "asynchronous"}
        self._asynchronous = asynchronous

    def __missing__(self, protocol: str | None) -> Any:
        cls = fsspec.get_filesystem_class(protocol or "file")
        options = {} if protocol in (None, "file", "local") else self._options
        if cls.async_impl:
            system = filesystem(protocol, asynchronous=self._asynchronous, **options)
        else:
            system = AsyncFileSystemWrapper(filesystem(protocol or "file", **options), asynchronous=self._asynchronous)
        self[protocol] = system
        return system


def _allowed(where: str, allow: tuple[str, ...]) -> tuple[str | None, Policy]:
    """The URL of the index, and the policy of what it may access, which includes what the caller names."""
    try:
        home = canonical(where).removesuffix("/")
    except DeniedError:  # a URL scheme that only fsspec supports: it has no folder for our policy
        return None, Policy.beside("memory://none/", allow)
    return home, Policy.beside(home, allow)


def _identity(system: Any, path: str) -> list[Any]:
    """Facts of a file, from any fsspec file system, that change when it is written again."""
    try:
        found = system.info(path)
    except FileNotFoundError:
        return []
    return [found.get(name) for name in ("size", "mtime", "ino", "ETag", "etag", "LastModified", "last_modified")]


def _load(where: str, options: dict[str, Any], overrides: Mapping[str, str], cache_size: int) -> Any:
    """The references of an index: a dict of those in JSON, a mapping of those in Parquet."""
    system, path = fsspec.core.url_to_fs(where, **options)
    if isinstance(system, LocalFileSystem):
        restore_folder(path.rstrip("/"))
    if ".json" not in path and (where.endswith((".parq", ".parquet", "/")) or system.isdir(path)):
        root = path.rstrip("/")
        return RecordMapping(
            lambda name: system.cat_file(f"{root}/{name}"),
            filler({}, overrides),
            cache_size=cache_size,
            identity=lambda: _identity(system, f"{root}/.zmetadata"),
        )
    return expand(parse(system.cat_file(path), url=where), overrides=overrides)
