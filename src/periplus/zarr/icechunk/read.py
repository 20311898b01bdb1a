"""Opens a snapshot of an Icechunk repository as an index, with the entity tags and times of its sources."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from periplus.errors import FormatError, MissingError, PeriplusError, StaleError
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
from periplus.zarr.kerchunk.labels import MOST_BYTES

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.table import Table


@dataclass(slots=True)
class _Sources:
    """Objects that contain chunks, each once, with the entity tag or time that the repository has for it."""

    rows: dict[tuple[str, str | None, int], int] = field(default_factory=dict)

    def row(self, url: str, etag: str | None = None, modified: int = 0) -> int:
        return self.rows.setdefault((url, etag, modified), len(self.rows))


def read_icechunk(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits,
    branch: str = "main",
    tag: str | None = None,
    snapshot: str | None = None,
    skip_unsupported: bool | Collection[str] = (),
) -> Table:
    """The index that a snapshot of a repository is: the newest of a branch, or the one a tag or an id names.

    Objects with an entity tag in the repository are compared when they are read. Those with a time only are requested
    now, and must not be newer. `skip_unsupported` names arrays to skip, or is True for all that cannot be read.
    """
    repository = canonical(url).rstrip("/")
    try:
        return fetch.run(_opened(repository, fetch, limits, branch, tag, snapshot, skip_unsupported))
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
            "(its first write was interrupted, or nothing was written to it)",
            url=repository,
        )
    documents = nodes_of({key_of(node.path, ZARR_JSON): node.document for node in tree})
    nodes = parse_nodes(documents, limits=limits, skip_unsupported=skip_unsupported)
    arrays = nodes.arrays
    texts = nodes.texts
    wanted = {node.id: node for node in tree if node.path in arrays or node.path in texts}
    sources = _Sources()
    columns = await _columns(repository, version.manifests, wanted, sources, fetch, limits)
    files = await _files(sources, fetch, exact=version.exact)
    columns = {
        path: await _fetched_labels(refs, files, repository, fetch) if _may_label(path, nodes) else refs
        for path, refs in columns.items()
    }

    def first_chunk(path: str) -> tuple[str, bytes | None]:
        refs = columns.get(path)
        data = refs.inline_bytes(0) if refs is not None and len(refs) == 1 else None
        return path, None if data is None else bytes(data)

    catalog, used = catalog_of(nodes, columns.get, first_chunk, limits)
    kept = {arrays[p].array.name: r for p, r in columns.items() if p in arrays and p not in used}
    return memory_table(catalog, {name: refs for name, refs in kept.items() if name in catalog.arrays}, files)


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


async def _files(sources: _Sources, fetch: Fetch, *, exact: bool) -> Files:
    """The files table; objects with a time only are requested for their entity tag, and must not be newer.

    Nor older, where the times are `exact`: rounded up to seconds.
    """

    async def known(url: str, etag: str | None, modified: int) -> Source:
        if etag is not None or not modified:
            return Source(url=url, etag=etag)
        source = await fetch.head(url)
        latest = datetime.fromtimestamp(modified, UTC)
        changed = source.last_modified
        if changed is not None and (
            changed.replace(microsecond=0) > latest or (exact and rounded_up(changed) != latest)
        ):
            raise StaleError(f"the object is not the one of {latest:%Y-%m-%d %H:%M:%S} UTC that was indexed", url=url)
        return replace(source, url=url)

    return Files.of(await asyncio.gather(*(known(*row) for row in sources.rows)), format="icechunk")


def _may_label(path: str, nodes: ParsedNodes) -> bool:
    if path not in nodes.arrays:
        return True
    array = nodes.arrays[path].array
    return array.dims == (path.rpartition("/")[2],) and array.nbytes <= MOST_BYTES


async def _fetched_labels(refs: Refs, files: Files, repository: str, fetch: Fetch) -> Refs:
    """Labels in chunk files of the repository, fetched: they are small, and every reader needs them."""
    if refs.file is None or len(refs) > 1024 or int(refs.length.sum()) > MOST_BYTES:
        return refs
    own = f"{repository}/chunks/"
    if not all(number < 0 or files.path[number].startswith(own) for number in refs.file.tolist()):
        return refs

    async def bytes_of(row: int) -> bytes:
        version = refs.inline_bytes(row)
        if version is not None:
            return bytes(version)
        assert refs.file is not None
        data, _ = await fetch.read(files.path[refs.file[row]], int(refs.offset[row]), int(refs.length[row]))
        return data

    data = list(await asyncio.gather(*(bytes_of(row) for row in range(len(refs)))))
    return Refs(
        chunk=refs.chunk,
        offset=np.zeros(len(refs), np.int64),
        length=np.array([len(item) for item in data], np.int64),
        file=np.full(len(refs), -1, np.int32),
        inline=Inline.of(data),
    )
