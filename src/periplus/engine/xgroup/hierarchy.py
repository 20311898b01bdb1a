"""A Zarr hierarchy as nodes and lazy variables: metadata are read when needed, once; values are not read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import xarray as xr
import zarr
from xarray.backends import ZarrStore
from xarray.core.indexing import LazilyIndexedArray
from zarr.core.group import GroupMetadata
from zarr.core.sync import sync
from zarr.storage import StorePath

from periplus.conventions.node import DIMENSIONS, ROOT, Node, join, parent
from periplus.engine.assemble.source import UNREADABLE
from periplus.engine.index.array import LazyArray
from periplus.engine.index.source import chunk_encoding
from periplus.engine.xgroup.label_cache import LabelBatch, cached, is_small
from periplus.parse.json import check_depth
from periplus.parse.zarr.arrays import v2_dimension_names
from periplus.zarr.store.store import IndexStore

Metadata: TypeAlias = Any
"""Of an array or a group, version 2 or 3, as zarr-python represents it."""
_DOCUMENTS = ("zarr.json", ".zattrs", ".zgroup", ".zarray", ".zmetadata")


class _GivenArrays(ZarrStore):
    """xarray's own reader of a group, given its arrays one by one, so that it does not list them."""

    __slots__ = ("_given",)

    def __init__(self, group: zarr.Group, fill_as_mask: bool) -> None:
        self._given: dict[str, Any] = {}
        super().__init__(group, mode="r", cache_members=False, use_zarr_fill_value_as_mask=fill_as_mask)

    @property
    def members(self) -> dict[str, Any]:
        return self._given


class _LazyNames(Sequence[str]):
    """Names in a group, which are listed when they are needed: usually only its attributes are."""

    def __init__(self, names: Callable[[], tuple[str, ...]]) -> None:
        self._names = cache(names)

    def __getitem__(self, n: Any) -> Any:
        return self._names()[n]

    def __len__(self) -> int:
        return len(self._names())


async def _listed(place: StorePath) -> list[str]:
    return [name async for name in place.store.list_dir(place.path)]


class ZarrHierarchy:
    """The nodes of one store. `index` is the index behind it, if it is one: its chunks are read by our own reader."""

    def __init__(
        self,
        root: zarr.Group,
        *,
        url: str | None = None,
        fill_as_mask: bool | None = None,
        owned: bool = True,
    ) -> None:
        self.url, self.owned = url, owned
        self._place: StorePath = root.store_path
        self._fill_as_mask = fill_as_mask
        self._root = root
        self._metadata: dict[str, Metadata | None] = {ROOT: root.metadata}
        self._children: dict[str, tuple[str, ...]] = {}
        self._nodes: dict[str, Node | None] = {}
        self._variables: dict[str, xr.Variable] = {}
        self._readers: dict[str, _GivenArrays] = {}
        self._batches = {"times": LabelBatch(), "others": LabelBatch()}
        self._index = root.store if isinstance(root.store, IndexStore) else None
        self.is_index = self._index is not None
        """Whether this is an index, whose labels are computed from its transforms."""
        self.unreadable: dict[str, str] = {}
        """Paths of nodes with invalid metadata, and why."""
        self._complete = root.metadata.consolidated_metadata is not None
        if self._complete:
            self._note(ROOT, dict(_consolidated(root.metadata)))

    # --- metadata ---------------------------------------------------------------------------------------------------

    def metadata(self, path: str) -> Metadata | None:
        """The metadata of a node, None where there is none."""
        if path not in self._metadata:
            self._metadata[path] = None if self._complete else self._asked(path)
        return self._metadata[path]

    def _asked(self, path: str) -> Metadata | None:
        above = parent(path)
        if above is not None and above in self._children and path.rpartition("/")[2] not in self._children[above]:
            return None
        try:
            found = self._root.get(path.strip("/"))
        except UNREADABLE as error:
            self.unreadable[path] = f"{type(error).__name__}: {str(error)[:300]}"
            return None
        return None if found is None else found.metadata

    def children(self, path: str) -> tuple[str, ...]:
        """Names of the members of a group, in order."""
        if path not in self._children:
            found = self.group(path).members()
            self._note(path, {name: member.metadata for name, member in found}, deep=False)
        return self._children[path]

    def walk(self, path: str) -> list[str]:
        """Paths of a group and all groups below it, parents first."""
        if path not in self._children:
            # One concurrent listing: a request for each group would be slow.
            self._note(path, {name: member.metadata for name, member in self.group(path).members(max_depth=None)})
        found, waiting = [], [path]
        while waiting:
            here = waiting.pop()
            found.append(here)
            waiting += [join(here, name) for name in reversed(self.children(here)) if self.is_group(join(here, name))]
        return found

    def _note(self, path: str, found: Mapping[str, Metadata], *, deep: bool = True) -> None:
        """Keep the metadata of all nodes below a group (`deep`), or of its members, by their paths from there."""
        inside: dict[str, list[str]] = {path: []}
        for name, metadata in found.items():
            below = join(path, name)
            self._metadata[below] = metadata
            inside.setdefault(parent(below) or ROOT, []).append(below.rpartition("/")[2])
            if deep and isinstance(metadata, GroupMetadata):
                inside.setdefault(below, [])
        self._children |= {group: tuple(sorted(names)) for group, names in inside.items()}

    def is_group(self, path: str) -> bool:
        return isinstance(self.metadata(path), GroupMetadata)

    def arrays(self, path: str) -> list[str]:
        """Paths of the arrays directly in a group."""
        below = (join(path, name) for name in self.children(path))
        return [one for one in below if self.metadata(one) is not None and not self.is_group(one)]

    # --- nodes ------------------------------------------------------------------------------------------------------

    def lookup(self, path: str) -> Node | None:
        """The node at an absolute path; the callable of `periplus.conventions`."""
        if path not in self._nodes:
            metadata = self.metadata(path)
            self._nodes[path] = None if metadata is None else self._node(path, metadata)
        return self._nodes[path]

    def _node(self, path: str, metadata: Metadata) -> Node:
        check_depth(metadata.attributes, what=f"the metadata of {path}", url=self.url)
        common = {"path": path, "attributes": metadata.attributes, "zarr_format": metadata.zarr_format}
        if isinstance(metadata, GroupMetadata):
            members = self._children.get(path) or _LazyNames(partial(self._names, path))
            return Node(kind="group", members=members, **common)
        try:
            dtype = str(metadata.dtype.to_native_dtype())
        except UNREADABLE:
            dtype = ""  # not a NumPy type; reading values raises
        return Node(kind="array", dims=dims_of(metadata), shape=tuple(metadata.shape), dtype=dtype, **common)

    def _names(self, path: str) -> tuple[str, ...]:
        """Names in a group, without reading what they are; none where the store cannot list."""
        if path in self._children:
            return self._children[path]
        if not self._place.store.supports_listing:
            return ()
        try:
            found = sync(_listed(self._at(path)))
        except UNREADABLE:
            return ()  # a plain web server, for example
        return tuple(sorted(name for name in found if name not in _DOCUMENTS))

    # --- Zarr and xarray objects ------------------------------------------------------------------------------------

    def group(self, path: str) -> zarr.Group:
        """The group as an object of zarr-python."""
        if path == ROOT:
            return self._root
        return zarr.Group(zarr.AsyncGroup(metadata=self._known(path), store_path=self._at(path)))

    def array(self, path: str) -> Any:
        """The array as an object of zarr-python."""
        return zarr.Array(zarr.AsyncArray(metadata=self._known(path), store_path=self._at(path)))

    def _known(self, path: str) -> Metadata:
        metadata = self.metadata(path)
        if metadata is None:
            raise KeyError(f"no node {path}")
        return metadata

    def _at(self, path: str) -> StorePath:
        return self._place / path.strip("/") if path != ROOT else self._place

    def variable(self, path: str) -> xr.Variable:
        """The array as xarray's own engine opens it, before decoding: lazy, with its encoding and all attributes."""
        if path not in self._variables:
            self._variables[path] = self._read(path)
        return self._variables[path].copy(deep=False)

    def prepare(self, paths: Iterable[str]) -> None:
        """Open the labels among these arrays, so that they are read together when the first is needed."""
        for path in paths:
            metadata = self.metadata(path)
            if metadata is not None and len(metadata.shape) == 1:
                with contextlib.suppress(*UNREADABLE):  # opening it for a Dataset reports what is wrong
                    self.variable(path)

    def skip(self, path: str) -> None:
        """Do not read these labels together with others: they are not needed."""
        for batch in self._batches.values():
            batch.waiting.pop(path, None)

    def _read(self, path: str) -> xr.Variable:
        metadata = self._known(path)
        name = path.rpartition("/")[2]
        dims = tuple(dim or f"{name}_dim_{n}" for n, dim in enumerate(dims_of(metadata)))
        if metadata.zarr_format == 2:
            if metadata.attributes.get(DIMENSIONS) != list(dims):
                metadata = replace(metadata, attributes={**metadata.attributes, DIMENSIONS: list(dims)})
        elif metadata.dimension_names != dims and dims:
            metadata = replace(metadata, dimension_names=dims)
        reader = self._reader(parent(path) or ROOT, metadata.zarr_format)
        reader.members[name] = zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=self._at(path)))
        variable: xr.Variable = reader.open_store_variable(name)  # type: ignore[no-untyped-call]
        if self._index is not None:
            variable = _read_by_index(variable, self._index, path)
        if variable.dims != (name,) or not is_small(variable):
            return variable
        # Decoding reads times at once; other labels are read when their indexes are created, if at all.
        is_time = " since " in str(variable.attrs.get("units", ""))
        return cached(variable, self._batches["times" if is_time else "others"], path)

    def _reader(self, group: str, zarr_format: int) -> _GivenArrays:
        if group not in self._readers:
            fill_as_mask = zarr_format == 2 if self._fill_as_mask is None else self._fill_as_mask
            self._readers[group] = _GivenArrays(self.group(group), fill_as_mask)
        return self._readers[group]

    def attributes(self, path: str) -> dict[str, Any]:
        """Attributes of a group, as xarray shows them."""
        metadata = self.metadata(path)
        given = {} if metadata is None else dict(metadata.attributes)
        return {key: value for key, value in given.items() if not key.lower().startswith("_nc")}

    def closers(self) -> list[Callable[[], None]]:
        """The function that closes the store, unless the user passed the store itself."""
        return [self._place.store.close] if self.owned else []


def _consolidated(root: Metadata) -> Iterator[tuple[str, Metadata]]:
    """Consolidated metadata of all nodes below the root, by path."""
    waiting = [("", root)]
    while waiting:
        path, group = waiting.pop()
        inside = {} if group.consolidated_metadata is None else group.consolidated_metadata.metadata
        yield from ((path + name, metadata) for name, metadata in inside.items())
        waiting += [(f"{path}{name}/", one) for name, one in inside.items() if isinstance(one, GroupMetadata)]


def _read_by_index(variable: xr.Variable, store: IndexStore, path: str) -> xr.Variable:
    """The variable with data that our own reader reads: all chunks of a selection at once, not one by one."""
    array = store.layout.leaves[path.strip("/")].array
    if array is None:
        return variable  # labels, which the store computes
    data = LazyArray(store, array)
    if data.dtype != variable.dtype or data.shape != variable.shape:
        return variable
    encoding = {**variable.encoding, "preferred_chunks": chunk_encoding(array, variable.dims)["preferred_chunks"]}
    return xr.Variable(variable.dims, LazilyIndexedArray(data), variable.attrs, encoding)


def dims_of(metadata: Metadata) -> tuple[str | None, ...]:
    """Names of dimensions; None for unnamed ones, and for all where their number is wrong."""
    named = metadata.dimension_names if metadata.zarr_format == 3 else v2_dimension_names(metadata.attributes)
    if named is None or len(named) != len(metadata.shape):
        return (None,) * len(metadata.shape)
    return tuple(name or None for name in named)
