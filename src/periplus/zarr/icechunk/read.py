"""Opens a snapshot of an Icechunk repository as an index, with the entity tags and times of its sources."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from periplus.errors import DeniedError, FormatError, MissingError, PeriplusError
from periplus.model import Files, Inline, Refs, Source
from periplus.parse.json import parse_json
from periplus.parse.zarr import nodes_of
from periplus.parse.zarr.documents import ZARR_JSON, key_of
from periplus.policy import canonical
from periplus.table import memory_table
from periplus.zarr.icechunk.files import (
    ChunkRefs,
    ManifestFile,
    SnapshotNode,
    read_manifest,
    read_snapshot,
    rounded_up,
    spelled,
)
from periplus.zarr.icechunk.locations import url_of
from periplus.zarr.kerchunk.catalog import ParsedNodes, catalog_of, parse_nodes
from periplus.zarr.kerchunk.extension import unpack_files
from periplus.zarr.kerchunk.labels import MOST_BYTES

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.table import Table


class _Sources:
    """Objects that contain chunks: those of the files table first, then each other, with its entity tag or time."""

    def __init__(self, known: Files | None) -> None:
        self.known = Files.of(()) if known is None else known
        self.others: list[tuple[str, str | None, int]] = []
        self._listed = {canonical(path): row for row, path in enumerate(self.known.path)}
        self._rows: dict[tuple[str, str | None, int], int] = {}

    def row(self, url: str, etag: str | None = None, modified: int = 0) -> int:
        key = (url, etag, modified)
        if key not in self._rows:
            number = self._listed.get(url, -1)
            if number < 0 or not _is_same(self.known.source(number), etag, modified):
                number = len(self.known) + len(self.others)
                self.others.append(key)
            self._rows[key] = number
        return self._rows[key]

    def url(self, row: int) -> str:
        first = len(self.known)
        return self.known.path[row] if row < first else self.others[row - first][0]


def _is_same(source: Source, etag: str | None, modified: int) -> bool:
    """Whether the files table has the object that a reference was made of: an append keeps older references."""
    if etag is not None or not modified:
        return etag in (None, source.etag)
    return source.last_modified is not None and rounded_up(source.last_modified).timestamp() == modified


def read_icechunk(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    skip_unsupported: bool | Collection[str] = (),
) -> Table:
    """The index that a snapshot of a repository is: the newest of a branch (`main`), or that of a tag or an id.

    Sources are compared when they are read, with the files table of a repository that we wrote or with their entity
    tags. Objects of which the repository has just a time are requested now. `skip_unsupported` names arrays to skip,
    or is True for all that cannot be read.
    """
    repository = canonical(url).rstrip("/")
    if len(given := [n for n, v in {"branch": branch, "tag": tag, "snapshot": snapshot}.items() if v is not None]) > 1:
        raise ValueError(f"{'= and '.join(given)}= each choose a snapshot: pass one of them")
    try:
        return fetch.run(_opened(repository, fetch, limits, branch or "main", tag, snapshot, skip_unsupported))
    except PeriplusError as error:
        raise error.at(url=repository) from error.__cause__


async def _opened(
    repository: str,
    fetch: Fetch,
    limits: Limits,
    branch: str,
    tag: str | None,
    snapshot: str | None,
    skip_unsupported: bool | Collection[str],
) -> Table:
    identity = snapshot or await _pointed(repository, f"tag.{tag}" if tag else f"branch.{branch}", fetch)
    version = read_snapshot(await _whole(f"{repository}/snapshots/{identity}", fetch, limits), identity, limits)
    tree = version.nodes
    if not tree:
        raise MissingError(
            f"the repository has no index: its snapshot {identity} has no groups and no arrays "
            "(its first write was interrupted, or nothing was written to this branch)",
            url=repository,
        )
    documents = nodes_of({key_of(node.path, ZARR_JSON): node.document for node in tree})
    nodes = parse_nodes(documents, limits=limits, skip_unsupported=skip_unsupported)
    arrays = nodes.arrays
    texts = nodes.texts
    wanted = {node.id: node for node in tree if node.path in arrays or node.path in texts}
    known = version.files
    sources = _Sources(None if known is None else unpack_files(known, _as_is, url=repository, limits=limits))
    columns = await _columns(repository, version.manifests, wanted, sources, fetch, limits)
    columns = {
        path: await _fetched_labels(refs, sources, repository, fetch) if _may_label(path, nodes) else refs
        for path, refs in columns.items()
    }

    def first_chunk(path: str) -> tuple[str, bytes | None]:
        refs = columns.get(path)
        data = refs.inline_bytes(0) if refs is not None and len(refs) == 1 else None
        return path, None if data is None else bytes(data)

    catalog, used = catalog_of(nodes, columns.get, first_chunk, limits)
    kept = {arrays[p].array.name: r for p, r in columns.items() if p in arrays and p not in used}
    kept = {name: refs for name, refs in kept.items() if name in catalog.arrays}
    kept, others = _renumbered(kept, sources, own=f"{repository}/chunks/")
    files = Files.of(await asyncio.gather(*(_source(*one, fetch, version.exact) for one in others)), format="icechunk")
    return memory_table(catalog, kept, files if known is None else Files.joined(sources.known, files))


def _as_is(path: str, _: str) -> str:
    return path


async def _pointed(repository: str, name: str, fetch: Fetch) -> str:
    """The snapshot that a branch or a tag points to."""
    try:
        text, _ = await fetch.read(f"{repository}/refs/{name}/ref.json", 0, 1 << 16)
    except MissingError:
        if name == "branch.main":
            await _not_format_2(repository, fetch)
        kind, _, plain = name.partition(".")
        raise MissingError(f"there is no Icechunk repository, or it has no {kind} {plain!r}", url=repository) from None
    try:
        identity = parse_json(text, what=f"{name} of the repository")["snapshot"]
    except (KeyError, TypeError):
        raise FormatError(f"{name} of the repository does not point to a snapshot") from None
    if not isinstance(identity, str) or not identity.isalnum():
        raise FormatError(f"{name} of the repository does not point to a snapshot")
    return identity


async def _not_format_2(repository: str, fetch: Fetch) -> None:
    try:
        await fetch.head(f"{repository}/repo")
    except MissingError:
        return
    raise FormatError("the repository has Icechunk's format 2; only format 1 is supported")


async def _whole(url: str, fetch: Fetch, limits: Limits) -> bytes:
    source = await fetch.head(url)
    size = limits.check("the size of an Icechunk file", source.size or 0, limits.memory_bytes, url=url)
    data, _ = await fetch.read(url, 0, size)
    return data


async def _columns(
    repository: str,
    declared: Mapping[bytes, ManifestFile],
    wanted: Mapping[bytes, SnapshotNode],
    sources: _Sources,
    fetch: Fetch,
    limits: Limits,
) -> dict[str, Refs]:
    names = sorted({name for node in wanted.values() for name in node.manifests})
    files = await asyncio.gather(*(_whole(f"{repository}/manifests/{spelled(name)}", fetch, limits) for name in names))
    users: dict[bytes, dict[bytes, SnapshotNode]] = {name: {} for name in names}
    for identity, node in wanted.items():
        for name in node.manifests:
            users[name][identity] = node
    parts: dict[str, list[Refs]] = {}
    for name, data in zip(names, files, strict=True):
        for refs in read_manifest(data, name, declared[name], users[name], limits):
            parts.setdefault(wanted[refs.node].path, []).append(_refs(refs, repository, sources))
    return {path: Refs.joined(version, len(version[0].chunk)) for path, version in parts.items()}


def _refs(found: ChunkRefs, repository: str, sources: _Sources) -> Refs:
    count = len(found.offset)
    file = np.full(count, -1, np.int32)
    for row in range(count):
        location, native = found.location[row], found.native[row]
        if location is not None:
            file[row] = sources.row(url_of(location), found.etag[row], int(found.modified[row]))
        elif native is not None:
            file[row] = sources.row(f"{repository}/chunks/{spelled(native)}")
    chunk = found.chunk.T.astype(np.int32)
    return Refs(chunk=chunk, offset=found.offset, length=found.length, file=file, inline=found.inline)


def _renumbered(
    columns: Mapping[str, Refs], sources: _Sources, *, own: str
) -> tuple[dict[str, Refs], list[tuple[str, str | None, int]]]:
    """References with the numbers of the files table and of the objects that follow it: sources, then our own chunks.

    Objects that only labels were read from are omitted.
    """
    first = len(sources.known)
    used = np.unique(np.concatenate([np.empty(0, np.int32), *(r.file for r in columns.values() if r.file is not None)]))
    order = sorted(used[used >= first].tolist(), key=lambda row: sources.url(row).startswith(own))
    number = np.full(first + len(sources.others) + 1, -1, np.int32)  # the last, for the -1 of inline rows
    number[:first] = np.arange(first)
    number[order] = first + np.arange(len(order))
    kept = {name: r if r.file is None else replace(r, file=number[r.file]) for name, r in columns.items()}
    return kept, [sources.others[row - first] for row in order]


async def _source(url: str, etag: str | None, modified: int, fetch: Fetch, exact: bool) -> Source:
    """An object that is in no files table. One with a time only is requested, and must not be newer than that.

    Nor older, where the times are `exact`: rounded up to seconds. One that is, or that is missing or denied, has the
    time of the repository: to read it is an error.
    """
    if etag is not None or not modified:
        return Source(url=url, etag=etag)
    latest = datetime.fromtimestamp(modified, UTC)
    with suppress(MissingError, DeniedError):
        found = await fetch.head(url)
        changed = found.last_modified
        if changed is None or not (
            changed.replace(microsecond=0) > latest or (exact and rounded_up(changed) != latest)
        ):
            return replace(found, url=url)
    return Source(url=url, last_modified=latest)


def _may_label(path: str, nodes: ParsedNodes) -> bool:
    if path not in nodes.arrays:
        return True
    array = nodes.arrays[path].array
    return array.dims == (path.rpartition("/")[2],) and array.nbytes <= MOST_BYTES


async def _fetched_labels(refs: Refs, sources: _Sources, repository: str, fetch: Fetch) -> Refs:
    """Labels in chunk files of the repository, fetched: they are small, and every reader needs them."""
    if refs.file is None or len(refs) > 1024 or int(refs.length.sum()) > MOST_BYTES:
        return refs
    own = f"{repository}/chunks/"
    if not all(number < 0 or sources.url(number).startswith(own) for number in refs.file.tolist()):
        return refs

    async def bytes_of(row: int) -> bytes:
        version = refs.inline_bytes(row)
        if version is not None:
            return bytes(version)
        assert refs.file is not None
        data, _ = await fetch.read(sources.url(int(refs.file[row])), int(refs.offset[row]), int(refs.length[row]))
        return data

    data = list(await asyncio.gather(*(bytes_of(row) for row in range(len(refs)))))
    return Refs(
        chunk=refs.chunk,
        offset=np.zeros(len(refs), np.int64),
        length=np.array([len(item) for item in data], np.int64),
        file=np.full(len(refs), -1, np.int32),
        inline=Inline.of(data),
    )
