"""VirtualiZarr: a parser that makes a ManifestStore of any file we index; chunks in several pieces are read whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.metadata.v3 import ArrayV3Metadata

from periplus.errors import MissingError, some
from periplus.fetch.objects.registry import RegistryFetch
from periplus.harvest import index_into
from periplus.limits import Limits
from periplus.model import Codec, Refs, Source
from periplus.model.codecnames import OURS
from periplus.policy import is_local
from periplus.zarr.codecs.v3 import register
from periplus.zarr.description.codecs import ARRAY_CODECS, one_codec, single_ranges, zarr_list
from periplus.zarr.description.metadata import Codecs, Leaf, ZarrLayout
from periplus.zarr.store.store import IndexStore

if TYPE_CHECKING:
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry

    from periplus.facade import Index

__all__ = ["Parser", "manifest_store"]

HERE = "periplus://"
"""The path of chunks that are not one byte range of one file. The store itself reads them; writers that support byte
ranges only, and readers of their output, refuse them instead of taking a part for the chunk."""
FINEST = "0"
"""The group of full resolution."""


class Parser:
    """Makes a ManifestStore of one file: `open_virtual_dataset(url, registry=registry, parser=Parser())`.

    `group` is the group that becomes the root, for example the level `1` of a pyramid; without it the store has all
    groups, and `open_virtual_dataset` takes the one of full resolution. `codecs` says which codecs may be asked of
    readers: those of stock Zarr (`standard`), also those of imagery tools (`imagery`), also ours (`all`). Further
    options are those of `periplus.index`: `Parser(arrange="stack", pattern="{time:%Y%m%d}")` gives every file a time
    of length one, along which `open_virtual_mfdataset` concatenates.
    """

    def __init__(
        self,
        *,
        group: str | None = None,
        codecs: Codecs = "all",
        arrange: str = "collect",
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        if options.get("pattern") is not None and arrange != "stack":
            raise ValueError("pattern= has no effect on a ManifestStore of one file unless arrange='stack'")
        known = set(signature(index_into).parameters) - {"urls", "to", "fetch", "form", "refresh", "append"}
        if unknown := sorted(set(options) - known):
            raise TypeError(f"Parser has no option {', '.join(unknown)}; those of periplus.index are {some(known)}")
        self.group, self.codecs, self.arrange, self.options = group, codecs, arrange, options
        self.limits = limits or Limits()

    def __call__(self, url: str, registry: ObjectStoreRegistry[Any]) -> ManifestStore:
        fetch = RegistryFetch(registry)
        table, _ = index_into([url], fetch=fetch, arrange=self.arrange, limits=self.limits, **self.options)
        store = IndexStore(table, fetch, limits=self.limits, codecs=self.codecs)
        return _rooted(store, (self.group or "").strip("/"), registry)

    def __repr__(self) -> str:
        return f"periplus.zarr.virtualizarr.Parser(group={self.group!r}, codecs={self.codecs!r})"


def manifest_store(
    index: Index, *, group: str | None = None, codecs: Codecs = "all", registry: ObjectStoreRegistry[Any] | None = None
) -> ManifestStore:
    """An index as a ManifestStore; `registry` is only for callers that use its stores; reading does not need it."""
    store = IndexStore(index.table, index.fetch, limits=index.limits, codecs=codecs)
    return _rooted(store, (group or "").strip("/"), registry)


class IndexManifestStore(ManifestStore):
    """A ManifestStore whose chunks are read through the index behind it."""

    def __init__(
        self, group: ManifestGroup, store: IndexStore, root: str, registry: ObjectStoreRegistry[Any] | None
    ) -> None:
        super().__init__(group, registry=registry)
        self._index, self._root, self._given = store, root, registry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexManifestStore) and (self._index, self._root) == (other._index, other._root)

    def __hash__(self) -> int:
        return hash((self._index, self._root))

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Metadata, or a chunk, all of its pieces."""
        path, _, name = key.rpartition("/")
        if name == "zarr.json":
            document = _document(self._group, path)
            return None if document is None else prototype.buffer.from_bytes(document)
        whole = f"{self._root}/{path}".strip("/")
        return await self._index.get(f"{whole}/{name.replace('.', '/')}", prototype, byte_range)

    async def exists(self, key: str) -> bool:
        """Whether there is such a document or chunk."""
        path, _, name = key.rpartition("/")
        if name == "zarr.json":
            return _document(self._group, path) is not None
        return await self._index.exists(f"{self._root}/{path}".strip("/") + f"/{name.replace('.', '/')}")

    def to_virtual_dataset(
        self,
        group: str = "",
        loadable_variables: Iterable[str] | None = None,
        decode_times: bool | None = None,
    ) -> xr.Dataset:
        """One group as a virtual dataset: the one named, else the root, else the level of full resolution."""
        if not group and not self._group.arrays and FINEST in self._group.groups:
            group = FINEST
        if group:
            inner = _rooted(self._index, f"{self._root}/{group}".strip("/"), self._given)
            return inner.to_virtual_dataset(loadable_variables=loadable_variables, decode_times=decode_times)
        loaded = _with_labels(loadable_variables, self._index.layout.leaves_in(self._root))
        return super().to_virtual_dataset(loadable_variables=loaded, decode_times=decode_times)

    def to_virtual_datatree(
        self,
        group: str = "",
        *,
        loadable_variables: Iterable[str] | None = None,
        decode_times: bool | None = None,
    ) -> xr.DataTree:
        """All groups, or those in one, as a virtual tree."""
        loaded = _with_labels(loadable_variables, self._index.layout.leaves)
        return super().to_virtual_datatree(group, loadable_variables=loaded, decode_times=decode_times)


def _with_labels(asked: Iterable[str] | None, leaves: Mapping[str, Leaf]) -> list[str]:
    """The requested variables, and the labels, which are computed and so are not ranges of a file."""
    labels = {path.rpartition("/")[2] for path, leaf in leaves.items() if leaf.array is None}
    return sorted(labels | set(asked or ()))


def _document(root: ManifestGroup, path: str) -> bytes | None:
    """The metadata document of a node; None where there is no such node."""
    node: ManifestGroup | ManifestArray = root
    for name in path.split("/") if path else ():
        members: Any = {**node.groups, **node.arrays} if isinstance(node, ManifestGroup) else {}
        if name not in members:
            return None
        node = members[name]
    return json.dumps(node.metadata.to_dict()).encode()


def _rooted(store: IndexStore, root: str, registry: ObjectStoreRegistry[Any] | None) -> IndexManifestStore:
    register()
    if root not in store.layout.groups:
        shown = ", ".join(name for name in store.layout.groups if name) or "none"
        raise MissingError(f"no group {root!r}; there are {shown}")
    return IndexManifestStore(_group(store, root), store, root, registry)


def _group(store: IndexStore, path: str) -> ManifestGroup:
    plan: ZarrLayout = store.layout
    prefix, leaves = f"{path}/" if path else "", plan.leaves_in(path)
    return ManifestGroup(
        arrays={name[len(prefix) :]: _array(store, leaf) for name, leaf in leaves.items()},
        groups={own: _group(store, prefix + own) for own in sorted(plan.members(path)) if prefix + own not in leaves},
        attributes=dict(plan.groups[path].get("attributes", {})),
    )


def _array(store: IndexStore, leaf: Leaf) -> ManifestArray:
    metadata = ArrayV3Metadata.from_dict({**leaf.dotted, "codecs": _codecs(leaf, store.codecs)})
    grid = leaf.grid or (1,)  # the one chunk of an array without dimensions
    paths = np.full(grid, "", np.dtypes.StringDType())
    offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
    if leaf.array is None:
        _here(leaf, ..., paths, lengths)
    else:
        refs, objects = store.table.objects(leaf.array, store.table.refs(leaf.array.name))
        refs = refs if leaf.grid else replace(refs, chunk=np.zeros((1, len(refs)), np.int32))
        if leaf.raw:
            _ranges(store, leaf, refs, objects, paths, offsets, lengths)
        else:
            # Where chunks vary in size, those of the presented grid are windows of several.
            _here(leaf, ... if leaf.array.edges is not None else tuple(refs.chunk), paths, lengths)
    columns: dict[str, Any] = {"paths": paths, "offsets": offsets, "lengths": lengths}
    shaped = {name: column.reshape(leaf.grid) for name, column in columns.items()}
    manifest = ChunkManifest.from_arrays(**shaped, validate_paths=False)
    return ManifestArray(metadata=metadata, chunkmanifest=manifest)


def _codecs(leaf: Leaf, allowed: Codecs) -> Sequence[Codec]:
    """The codecs of an array, as one where the first one turns, crops or unpacks it and the reader may have others.

    VirtualiZarr has no such codecs in kerchunk references, nor after a new dimension is inserted.
    """
    listed: Sequence[Codec] = leaf.document["codecs"]
    if not leaf.raw or leaf.array is None or allowed == "standard" or leaf.pipeline[0]["name"] not in ARRAY_CODECS:
        return listed
    whole = one_codec(leaf.pipeline, leaf.array)
    if whole is None or (allowed == "imagery" and str(whole["name"]).startswith(OURS)):
        return listed
    return zarr_list((whole,), leaf.array.dtype)


def _ranges(
    store: IndexStore, leaf: Leaf, refs: Refs, objects: Mapping[int, Source], paths: Any, offsets: Any, lengths: Any
) -> None:
    """One byte range a chunk; chunks of several, and those the index itself holds, only the store can read."""
    single = single_ranges(refs)
    place = tuple(refs.chunk[:, single])
    named = [*store.table.files.path, *(source.url for source in objects.values())]
    urls = np.array([f"file://{url}" if is_local(url) else url for url in named], paths.dtype)
    numbers = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
    paths[place] = urls[numbers[single]]
    offsets[place] = refs.offset[single]
    lengths[place] = refs.length[single]
    if not single.all():
        _here(leaf, tuple(refs.chunk[:, ~single]), paths, lengths)


def _here(leaf: Leaf, place: Any, paths: Any, lengths: Any) -> None:
    """Chunks that only the store can read."""
    paths[place] = f"{HERE}{leaf.path}"
    lengths[place] = 1
