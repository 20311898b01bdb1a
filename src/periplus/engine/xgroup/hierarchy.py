"""A Zarr hierarchy as nodes and lazy variables: metadata are read when needed, once; values are not read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from typing import Any

import xarray as xr
import zarr
from xarray.backends import ZarrStore
from xarray.core.indexing import LazilyIndexedArray
from zarr.core.array import parse_array_metadata
from zarr.core.array_spec import ArrayConfig
from zarr.core.group import GroupMetadata
from zarr.core.sync import sync
from zarr.storage import StorePath

from periplus.conventions.node import DIMENSIONS, ROOT, Node, join, node_of, parent
from periplus.engine.assemble.chunks import Axis, chunk_encoding, group_chunks
from periplus.engine.assemble.source import UNREADABLE
from periplus.engine.index.array import LazyArray
from periplus.engine.xgroup.label_cache import LabelBatch, cached, is_small
from periplus.errors import FormatError, PeriplusError
from periplus.limits import GIB, Limits
from periplus.parse.zarr import NodeDocuments, consolidated_in, nodes_of
from periplus.parse.zarr.documents import NAMES, ZARR_JSON, ZGROUP
from periplus.zarr.documents import store_reader
from periplus.zarr.store.store import IndexStore

LIMITS = Limits(memory_bytes=4 * GIB, dims=64)
"""Of metadata: consolidated documents of large stores, and all dimensions that NumPy has."""


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


class ZarrHierarchy:
    """The nodes of one store. `index` is the index behind it, if it is one: its chunks are read by our own reader."""

    def __init__(
        self,
        place: StorePath,
        *,
        group: str = ROOT,
        url: str | None = None,
        zarr_format: int | None = None,
        consolidated: bool | None = None,
        fill_as_mask: bool | None = None,
        owned: bool = True,
    ) -> None:
        self.url, self.owned = url, owned
        self._place, self._fill_as_mask = place, fill_as_mask
        self._documents: dict[str, NodeDocuments | None] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        self._nodes: dict[str, Node | None] = {}
        self._variables: dict[str, xr.Variable] = {}
        self._readers: dict[tuple[str, int], _GivenArrays] = {}
        self._batches = {"times": LabelBatch(), "others": LabelBatch()}
        self._alike: dict[str, Any] = {}
        self._config = ArrayConfig.from_dict({})  # once: each array would read the settings of zarr-python
        self._index = place.store if isinstance(place.store, IndexStore) else None
        self._groups: dict[str, dict[Axis, int]] = {}
        """Chunks that tasks read, by group of an index."""
        self.is_index = self._index is not None
        """Whether this is an index, whose labels are computed from its transforms."""
        self.unreadable: dict[str, str] = {}
        """Paths of nodes with invalid metadata, and why."""
        formats = (3, 2) if zarr_format is None else (zarr_format,)
        self._stored = store_reader(place, self._skip, formats=formats, limits=LIMITS)
        self._use_consolidated = place.store.supports_consolidated_metadata and consolidated is not False
        self._complete = False
        self._open_root(group)
        if consolidated and not self._complete:
            raise ValueError("consolidated=True, but the metadata of this store are not consolidated")

    def _open_root(self, group: str) -> None:
        root, inside = sync(self._stored.root())
        if root is None and ROOT in self.unreadable:
            raise FormatError(f"the metadata of the root cannot be read: {self.unreadable[ROOT]}", url=self.url)
        if root is None:
            # Some writers store no metadata for the root; groups below it may still exist.
            found = sync(self._stored.node(group)) if group != ROOT else None
            if found is None:
                raise FileNotFoundError("there is no Zarr group")
            self._documents[group] = found
            root = NodeDocuments(path="", stored={ZARR_JSON if found.zarr_format == 3 else ZGROUP: {}})
        self._documents[ROOT] = root
        # Nodes of the other version too, though other readers do not see them.
        self._stored.formats = tuple(sorted(self._stored.formats, key=lambda one: one != root.zarr_format))
        self._complete = self._use_consolidated and inside is not None
        if inside is not None and self._complete:
            self._keep_consolidated(ROOT, inside)

    # --- documents --------------------------------------------------------------------------------------------------

    def documents(self, path: str) -> NodeDocuments | None:
        """The documents of a node, None where there is none."""
        if path not in self._documents:
            self._documents[path] = None if self._complete else self._asked(path)
        return self._documents[path]

    def _asked(self, path: str) -> NodeDocuments | None:
        above = parent(path)
        if above is not None and above in self._children and path.rpartition("/")[2] not in self._children[above]:
            return None
        try:
            return sync(self._stored.node(path))
        except UNREADABLE as error:
            self._skip(path, "", f"{type(error).__name__}: {error!s:.300}")
            return None

    def _skip(self, path: str, name: str, reason: str) -> None:  # noqa: ARG002
        self.unreadable[path] = reason

    def children(self, path: str) -> tuple[str, ...]:
        """Names of the members of a group, in order."""
        if path not in self._children:
            self._list(path, deep=False)
        return self._children[path]

    def walk(self, path: str) -> list[str]:
        """Paths of a group and all groups below it, parents first."""
        if path not in self._children:
            self._list(path, deep=True)  # concurrently: a request for each group would be slow
        found, waiting = [], [path]
        while waiting:
            here = waiting.pop()
            found.append(here)
            waiting += [join(here, name) for name in reversed(self.children(here)) if self.is_group(join(here, name))]
        return found

    def _list(self, path: str, *, deep: bool) -> None:
        """Read the documents of the members of a group, or of all nodes below it."""
        inside = consolidated_in(self._known(path).stored) if self._use_consolidated else None
        if inside is not None:
            self._keep_consolidated(path, inside)
            return
        if not self._place.store.supports_listing:
            raise FormatError("this store cannot be listed, and its metadata are not consolidated", url=self.url)
        self._keep(path, sync(self._stored.below(path) if deep else self._stored.members(path)), deep=deep)

    def _keep_consolidated(self, path: str, keys: Mapping[str, Any]) -> None:
        nodes = nodes_of(keys, skip=lambda key, why: self._skip(join(path, key.rpartition("/")[0]), "", why))
        self._keep(path, {join(path, one): documents for one, documents in nodes.items() if one})

    def _keep(self, path: str, found: Mapping[str, NodeDocuments], *, deep: bool = True) -> None:
        """Keep the documents of all nodes below a group (`deep`), or of its members."""
        inside: dict[str, list[str]] = {path: []}
        for below, documents in found.items():
            above, _, name = below.rpartition("/")
            inside.setdefault(above or ROOT, []).append(name)
            if deep and documents.kind == "group":
                inside.setdefault(below, [])
        self._documents |= found
        self._children |= {group: tuple(sorted(names)) for group, names in inside.items()}

    def is_group(self, path: str) -> bool:
        documents = self.documents(path)
        return documents is not None and documents.kind == "group"

    def arrays(self, path: str) -> list[str]:
        """Paths of the arrays directly in a group."""
        below = (join(path, name) for name in self.children(path))
        return [one for one in below if not self.is_group(one) and self.lookup(one) is not None]

    # --- nodes ------------------------------------------------------------------------------------------------------

    def lookup(self, path: str) -> Node | None:
        """The node at an absolute path; the callable of `periplus.conventions`."""
        if path not in self._nodes:
            documents = self.documents(path)
            self._nodes[path] = None if documents is None else self._node(path, documents)
        return self._nodes[path]

    def _node(self, path: str, documents: NodeDocuments) -> Node | None:
        if path in self.unreadable and documents.kind == "array":
            return None  # its attributes, without which values would be wrong
        try:
            metadata = documents.parse(LIMITS)
        except PeriplusError as error:
            self._skip(path, "", error.message)
            return None
        return node_of(path, metadata, self._children.get(path) or _LazyNames(partial(self._names, path)))

    def _names(self, path: str) -> tuple[str, ...]:
        """Names in a group, without reading what they are; none where the store cannot list."""
        if path in self._children:
            return self._children[path]
        if not self._place.store.supports_listing:
            return ()
        try:
            return tuple(sorted({*sync(self._stored.names(path))} - NAMES))
        except UNREADABLE:
            return ()  # a plain web server, for example

    # --- Zarr and xarray objects ------------------------------------------------------------------------------------

    def group(self, path: str) -> zarr.Group:
        """The group as an object of zarr-python."""
        known = self._known(path)
        metadata = GroupMetadata(attributes=dict(known.attributes), zarr_format=known.zarr_format)  # type: ignore[arg-type]
        return zarr.Group(zarr.AsyncGroup(metadata=metadata, store_path=self._at(path)))

    def array(self, path: str) -> Any:
        """The array as an object of zarr-python, with a name for each dimension."""
        known, node = self._known(path), self.lookup(path)
        if node is None:
            raise KeyError(f"no array {path}")
        named = node.usable_dims or (None,) * len(node.shape)
        dims = [dim or f"{node.name}_dim_{n}" for n, dim in enumerate(named)]
        document, attributes = {**known.stored[known.name], "attributes": {}}, dict(known.attributes)
        if known.zarr_format == 3:
            document["dimension_names"] = dims
        else:
            attributes[DIMENSIONS] = dims
        # Arrays of a store often differ only in attributes, and zarr-python takes long to check the rest.
        alike = repr(document)
        if alike not in self._alike:
            self._alike[alike] = parse_array_metadata(document)
        metadata = copy(self._alike[alike])
        object.__setattr__(metadata, "attributes", attributes)
        return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=self._at(path), config=self._config))

    def _known(self, path: str) -> NodeDocuments:
        documents = self.documents(path)
        if documents is None:
            raise KeyError(f"no node {path}")
        return documents

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
            node = self.lookup(path)
            if node is not None and len(node.shape) == 1:
                with contextlib.suppress(*UNREADABLE):  # opening it for a Dataset reports what is wrong
                    self.variable(path)

    def skip(self, path: str) -> None:
        """Do not read these labels together with others: they are not needed."""
        for batch in self._batches.values():
            batch.waiting.pop(path, None)

    def _read(self, path: str) -> xr.Variable:
        name, array = path.rpartition("/")[2], self.array(path)
        reader = self._reader(parent(path) or ROOT, array.metadata.zarr_format)
        reader.members[name] = array
        variable: xr.Variable = reader.open_store_variable(name)  # type: ignore[no-untyped-call]
        if self._index is not None:
            variable = self._read_by_index(variable, self._index, path.strip("/"))
        if variable.dims != (name,) or not is_small(variable):
            return variable
        # Decoding reads times at once; other labels are read when their indexes are created, if at all.
        is_time = " since " in str(variable.attrs.get("units", ""))
        return cached(variable, self._batches["times" if is_time else "others"], path)

    def _read_by_index(self, variable: xr.Variable, store: IndexStore, path: str) -> xr.Variable:
        """The variable with data that our own reader reads: all chunks of a selection at once, not one by one."""
        array = store.layout.leaves[path].array
        if array is None:
            return variable  # labels, which the store computes
        data = LazyArray(store, array)
        if data.dtype != variable.dtype or data.shape != variable.shape:
            return variable
        group = path.rpartition("/")[0]
        if group not in self._groups:
            leaves = store.layout.leaves_in(group).values()
            self._groups[group] = group_chunks((leaf.array for leaf in leaves if leaf.array is not None), store.limits)
        chunks = chunk_encoding(array, variable.dims, self._groups[group])
        encoding = {**variable.encoding, "preferred_chunks": chunks["preferred_chunks"]}
        return xr.Variable(variable.dims, LazilyIndexedArray(data), variable.attrs, encoding)

    def _reader(self, group: str, zarr_format: int) -> _GivenArrays:
        key = (group, zarr_format)
        if key not in self._readers:
            fill_as_mask = zarr_format == 2 if self._fill_as_mask is None else self._fill_as_mask
            self._readers[key] = _GivenArrays(self.group(group), fill_as_mask)
        return self._readers[key]

    def attributes(self, path: str) -> dict[str, Any]:
        """Attributes of a group, as xarray shows them."""
        documents = self.documents(path)
        given = {} if documents is None else documents.attributes
        return {key: value for key, value in given.items() if not key.lower().startswith("_nc")}

    def closers(self) -> list[Callable[[], None]]:
        """The function that closes the store, unless the user passed the store itself."""
        return [self._place.store.close] if self.owned else []
