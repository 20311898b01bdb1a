"""An index as an Icechunk repository: virtual references with checksums in one transaction; the rest is copied."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import icechunk
import numpy as np
from zarr.core.buffer import Buffer, default_buffer_prototype

from periplus.errors import ConflictError, DecodeError, FetchError, FormatError, LimitError, PeriplusError, redact
from periplus.fetch.errors import system_error, translate
from periplus.model import Files, Refs, Source
from periplus.parse.json import parse_json
from periplus.policy import Policy, canonical, storable
from periplus.table.templates import COLUMN, Template, flags_of
from periplus.zarr.description.codecs import single_ranges
from periplus.zarr.description.metadata import Codecs, Leaf, ZarrLayout
from periplus.zarr.icechunk.files import EXACT, FILES, rounded_up
from periplus.zarr.icechunk.locations import located, prefixes_of
from periplus.zarr.icechunk.repository import on_branch, open_repository, remove_repository
from periplus.zarr.kerchunk.extension import pack_files
from periplus.zarr.store.store import IndexStore

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.table import Table

Old: TypeAlias = Mapping[str, Mapping[str, Any]]
AT_ONCE = 16
ROWS = 1 << 20
"""References that are passed to Icechunk at once."""
MANIFEST_CHUNKS = 1 << 20
"""References in one manifest at most: it is downloaded whole, and its format ends at 2 GB."""

BRANCH_NAME = re.compile(r"[A-Za-z0-9._ +=@-]{1,200}")
"""Other characters are encoded in the names of local files, and not in those of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcechunkCommit:
    """A summary of what was written."""

    url: str
    branch: str
    snapshot: str
    virtual: int
    """Chunks that are references to bytes in other files."""
    native: int
    """Chunks whose bytes were copied into the repository; labels not counted."""
    native_bytes: int
    copied: Mapping[str, str] = field(default_factory=dict)
    """Arrays with copied chunks, and why."""
    unchecked: int = 0
    """References without a checksum, as nothing is known of their source's age."""
    prefixes: tuple[str, ...] = ()
    """What a reader of the repository must authorise."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Arrays that had to be copied and cannot be read, and why."""

    def __str__(self) -> str:
        lines = [
            f"{self.virtual} virtual and {self.native} copied chunks ({self.native_bytes} bytes) in {self.snapshot}"
        ]
        lines += [f"copied: {name}: {why}" for name, why in self.copied.items()]
        lines += [f"readers authorise {prefix}" for prefix in self.prefixes]
        return "\n".join(lines)


def write_icechunk(
    table: Table,
    fetch: Fetch,
    target: str,
    *,
    limits: Limits | None = None,
    branch: str = "main",
    append: bool = False,
    message: str | None = None,
    codecs: Codecs = "all",
    skip_unsupported: bool = False,
) -> IcechunkCommit:
    """Commit an index to a repository, made if there is none; all of it in one transaction.

    A branch that is missing begins at the head of main. What was in the branch before is replaced, and stays in its
    history. With `append` it stays in place: the index must be what is there, longer along one dimension, and only what
    is new is written. `codecs` says which may be asked of readers, as in `layout`; chunks that need others are copied,
    decoded. With `skip_unsupported` an array whose chunks would have to be copied, but cannot be read, is skipped;
    otherwise it is an error.
    """
    if not isinstance(branch, str):
        raise TypeError(f"branch is the name of a branch, not {branch!r}")
    if not BRANCH_NAME.fullmatch(branch):
        raise ValueError(f"the name of a branch has up to 200 letters (a-z), digits and '._ +=@-', not {branch[:80]!r}")
    source = IndexStore(table, fetch, limits=limits, codecs=codecs)
    plan = source.layout
    prefixes = prefixes_of(_used(table.files))
    # The policy of the index is for its sources; the repository may be anywhere.
    with fetch.under(Policy.everything()) as fetch, _icechunk_errors(target):
        repository, created = open_repository(target, prefixes, _splitting(plan), fetch)
        try:
            with on_branch(repository, branch) as session:
                writer = _Writer(source, fetch, session.store, target, skip_unsupported)
                old = writer.documents() if append and not created else {}
                if not old:
                    session.store.sync_clear()
                writer.write(old)
                notes: dict[str, Any] = {FILES: _listed(table.files, fetch.keep_query)}
                if not old or _is_exact(repository, branch):
                    notes[EXACT] = True
                snapshot = session.commit(message or f"{table.rows} references by periplus", metadata=notes)
        except BaseException:
            if created:
                with suppress(icechunk.IcechunkError, PeriplusError):  # what failed before is what to report
                    remove_repository(repository, target, fetch)
            raise
    return IcechunkCommit(
        url=target,
        branch=branch,
        snapshot=snapshot,
        virtual=writer.virtual,
        native=writer.native,
        native_bytes=writer.native_bytes,
        copied=writer.copied,
        unchecked=writer.unchecked,
        prefixes=tuple(prefixes),
        skipped=writer.skipped,
    )


def _used(files: Files) -> list[str]:
    """Paths of the sources; of a template the part before its placeholders, since its objects share that folder."""
    flags = flags_of(files)
    many = [False] * len(files) if flags is None else flags.tolist()
    return [
        Template.parse(path).literals[0] if several else path
        for path, status, several in zip(files.path, files.status, many, strict=True)
        if status == "ok"
    ]


def _listed(files: Files, keep_query: Collection[str]) -> str:
    """The files table for the metadata of the commit; the objects of templates are only in the references."""
    flags = flags_of(files)
    if flags is not None:
        files = files.take(np.flatnonzero(~flags))
        files = replace(files, columns={name: values for name, values in files.columns.items() if name != COLUMN})
    urls = [canonical(storable(path, keep_query)) for path in files.path]
    return base64.b64encode(pack_files(files, urls, folder=None)).decode()


def _splitting(plan: ZarrLayout) -> dict[Any, Any]:
    """Cuts along the first dimension for arrays with more chunks than one manifest should list."""
    split: dict[Any, Any] = {}
    for leaf in plan.leaves.values():
        grid = leaf.grid
        if grid and int(np.prod(grid, dtype=object)) > MANIFEST_CHUNKS:
            rest = int(np.prod(grid[1:], dtype=object))
            condition = icechunk.ManifestSplitCondition.path_matches(f"^/{leaf.path}$")
            split[condition] = {icechunk.ManifestSplitDimCondition.Axis(0): max(1, MANIFEST_CHUNKS // rest)}
    return split


class _Writer:
    """One transaction: what is written so far is counted."""

    def __init__(self, source: IndexStore, fetch: Fetch, store: Any, target: str, skip_unsupported: bool) -> None:
        self.source, self.table, self.plan = source, source.table, source.layout
        self.fetch, self.store, self.target = fetch, store, target
        self.virtual = self.native = self.native_bytes = self.unchecked = 0
        self.skip_unsupported = skip_unsupported
        self.copied: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self._locations: dict[int, tuple[str, str | None, datetime | None]] = {}

    def documents(self) -> dict[str, dict[str, Any]]:
        """Metadata of the arrays that the branch has, by path."""

        async def found() -> dict[str, dict[str, Any]]:
            keys = [key async for key in self.store.list() if key == "zarr.json" or key.endswith("/zarr.json")]
            texts = [await self.store.get(key, default_buffer_prototype()) for key in keys]
            parsed = [parse_json(text.to_bytes(), what=key) for key, text in zip(keys, texts, strict=True)]
            return {
                key.removesuffix("zarr.json").rstrip("/"): document
                for key, document in zip(keys, parsed, strict=True)
                if document.get("node_type") == "array"
            }

        return self.fetch.run(found())

    def write(self, old: Old) -> None:
        """All metadata, and the chunks that `old` lacks."""
        begin = _beginnings(self.plan, old, self.target) if old else {}
        self._same_labels(old)
        self.fetch.run(self._metadata())
        for leaf in self.plan.leaves.values():
            first = begin.get(leaf.path, (0,) * len(leaf.grid))
            try:
                self._chunks(leaf, first)
            except (DecodeError, FormatError, LimitError) as error:
                if not self.skip_unsupported:
                    error.message += " (skip_unsupported=True skips the array)"
                    raise
                self.skipped[leaf.path] = error.message
                self.copied.pop(leaf.path, None)
                self.fetch.run(self.store.delete_dir(leaf.path))

    def _chunks(self, leaf: Leaf, first: tuple[int, ...]) -> None:
        """The chunks of one array, from the first that is new."""
        if leaf.array is None:
            self.fetch.run(self._copy(leaf, product(*(range(n) for n in leaf.grid)), counted=False))
        elif leaf.raw:
            self._refer(leaf, first)
        else:
            self.copied[leaf.path] = leaf.why or "it needs codecs that were not asked for"
            window = [(low, high) for low, high in zip(first, leaf.grid, strict=True)]
            self.fetch.run(self._copy(leaf, product(*(range(*one) for one in window))))

    async def _metadata(self) -> None:
        for path, document in self.plan.documents.items():
            await self._set(f"{path}/zarr.json" if path else "zarr.json", json.dumps(document).encode())

    async def _set(self, key: str, data: bytes) -> None:
        await self.store.set(key, default_buffer_prototype().buffer.from_bytes(data))

    def _refer(self, leaf: Leaf, first: tuple[int, ...]) -> None:
        """Virtual references for chunks of one byte range in a file; the others are copied."""
        assert leaf.array is not None
        for window in _windows(leaf.array.grid, first):
            refs, objects = self.table.objects(leaf.array, self.table.refs(leaf.array.name, window))
            single = single_ranges(refs)
            specs = self._specs(refs.take(single), objects)
            if specs:
                # The containers are those of all sources. Icechunk would compare them before decoding the locations.
                self.store.set_virtual_refs(leaf.path, specs, validate_containers=False)
                self.virtual += len(specs)
            if not single.all():
                self.copied[leaf.path] = "chunks of several byte ranges, or whose bytes the index itself holds"
                positions = dict.fromkeys(map(tuple, refs.chunk[:, ~single].T.tolist()))
                self.fetch.run(self._copy(leaf, iter(positions)))

    def _specs(self, refs: Refs, objects: Mapping[int, Source]) -> list[Any]:
        files = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
        rows = zip(refs.chunk.T.tolist(), files.tolist(), refs.offset.tolist(), refs.length.tolist(), strict=True)
        specs = []
        for position, file, offset, length in rows:
            location, etag, changed = self._source(file) if file not in objects else self._location(objects[file])
            self.unchecked += etag is None and changed is None
            specs.append(icechunk.VirtualChunkSpec(position, location, offset, length, etag, changed))
        return specs

    def _source(self, file: int) -> tuple[str, str | None, datetime | None]:
        """Location and checksum of a file: its entity tag where a server can compare it, else its time."""
        if file not in self._locations:
            self._locations[file] = self._location(self.table.files.source(file))
        return self._locations[file]

    def _location(self, source: Source) -> tuple[str, str | None, datetime | None]:
        strong = source.etag if source.etag and not source.etag.startswith("W/") else None
        # Icechunk counts seconds, and refuses what is younger: a part of a second would be younger.
        changed = None if source.last_modified is None else rounded_up(source.last_modified)
        return located(storable(source.url, self.fetch.keep_query)), strong, None if strong else changed

    async def _copy(self, leaf: Leaf, positions: Iterator[tuple[int, ...]], *, counted: bool = True) -> None:
        """Chunks as bytes of the repository's own, a few at a time."""

        async def one(position: tuple[int, ...]) -> None:
            key = "/".join((leaf.path, "c", *map(str, position)))
            found = await self.source.get(key, default_buffer_prototype())
            if found is None:
                return
            await self.store.set(key, found)
            if counted:
                self.native += 1
                self.native_bytes += len(found)

        async def worker() -> None:
            for position in positions:
                await one(position)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    def _same_labels(self, old: Old) -> None:
        """ConflictError where the labels in the repository differ from those at the beginning of the index."""
        for path in old:
            leaf = self.plan.leaves.get(path)
            if leaf is None or leaf.compute is None or not old[path]["shape"]:
                continue
            before = self.fetch.run(self._text(f"{path}/c/" + "/".join("0" * len(leaf.grid))))
            now = leaf.compute((0,) * len(leaf.grid))
            count = min(old[path]["shape"][0], leaf.document["shape"][0])
            if before is not None and now is not None and not _agree(before, now, count, leaf):
                raise ConflictError(
                    f"{path} of the repository differs from the beginning of the index: nothing was appended"
                )

    async def _text(self, key: str) -> bytes | None:
        found: Buffer | None = await self.store.get(key, default_buffer_prototype())
        return None if found is None else found.to_bytes()


def _agree(before: bytes, now: bytes, count: int, leaf: Leaf) -> bool:
    """Whether two chunks of labels agree as far as both go; of labels of varying length nothing is known."""
    kind = leaf.document["data_type"]
    if not isinstance(kind, str) or kind == "string":
        return True
    size = np.dtype(kind).itemsize * count
    return before[:size] == now[:size]


def _beginnings(plan: ZarrLayout, old: Old, target: str) -> dict[str, tuple[int, ...]]:
    """Where new chunks begin, for every array; ConflictError where the index does not continue the repository."""
    missing = sorted(set(old) ^ set(plan.leaves))
    if missing:
        raise ConflictError(f"{missing[0]!r} is not in both the repository and the index", url=target)
    return {path: _beginning(leaf, old[path], target) for path, leaf in plan.leaves.items()}


def _beginning(leaf: Leaf, old: Mapping[str, Any], target: str) -> tuple[int, ...]:
    now = leaf.document
    for name in ("data_type", "codecs", "dimension_names", "chunk_grid", "fill_value"):
        if name == "chunk_grid" and leaf.array is None:
            continue  # labels are one chunk, which grows
        if json.dumps(old.get(name), sort_keys=True) != json.dumps(now.get(name), sort_keys=True):
            raise ConflictError(f"{leaf.path} has another {name.replace('_', ' ')} in the repository", url=target)
    before, after = old["shape"], now["shape"]
    grown = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(grown) > 1 or any(before[n] > after[n] for n in grown):
        raise ConflictError(f"{leaf.path} has shape {before} in the repository and {after} here", url=target)
    first = [0] * len(after)
    if grown:
        # The last chunk may have been cut off by the old edge.
        first[grown[0]] = before[grown[0]] // leaf.chunks[grown[0]]
    elif first:
        first[0] = leaf.grid[0]
    return tuple(first)


def _windows(grid: tuple[int, ...], first: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Windows of a grid from the first chunk that is new, of a bounded number of chunks each."""
    if not grid:
        yield []
        return
    step = max(1, ROWS // max(1, math.prod(grid[1:])))
    for low in range(first[0], grid[0], step):
        yield [(low, min(low + step, grid[0])), *zip(first[1:], grid[1:], strict=True)]


@contextmanager
def _icechunk_errors(target: str) -> Iterator[None]:
    """Icechunk's errors as ours."""
    try:
        yield
    except icechunk.ConflictError as error:
        raise ConflictError(f"another writer committed first: {redact(str(error))}", url=target) from error
    except icechunk.IcechunkError as error:
        known = system_error(str(error))
        if known is not None:
            raise translate(known, target) or known from error
        raise FetchError(f"Icechunk: {' '.join(redact(str(error)).split())}", url=target) from error
    except BaseException as error:
        if isinstance(error, Exception) or (panic := translate(error, target)) is None:
            raise
        raise panic from None


def _is_exact(repository: Any, branch: str) -> bool:
    """Whether all references of a branch have the exact times of their sources."""
    return EXACT in next(iter(repository.ancestry(branch=branch))).metadata
