"""A Zarr hierarchy as nodes and lazy variables: metadata are read when asked for, once; values never."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import xarray as xr
import zarr
from xarray.backends import ZarrStore
from zarr.core.group import GroupMetadata
from zarr.core.sync import sync
from zarr.storage import StorePath

from periplus.conventions.node import DIMENSIONS, ROOT, Node, join, parent
from periplus.engine.xgroup.once import Batch, is_small, kept
from periplus.parse.json import check_depth
from periplus.zarr.store.store import IndexStore

Metadata: TypeAlias = Any
"""Of an array or a group, version 2 or 3, as zarr-python has it."""
_DOCUMENTS = ("zarr.json", ".zattrs", ".zgroup", ".zarray", ".zmetadata")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError)
"""What zarr-python raises for metadata documents that are none."""


class _Members(ZarrStore):
    """xarray's own reader of a group, given the arrays it shall know one by one, so that it lists nothing."""

    __slots__ = ("_given",)

    def __init__(self, group: zarr.Group, fill_as_mask: bool) -> None:
        self._given: dict[str, Any] = {}
        super().__init__(group, mode="r", cache_members=False, use_zarr_fill_value_as_mask=fill_as_mask)

    @property
    def members(self) -> dict[str, Any]:
        return self._given


class _Group(Node):
    """A group whose members are listed when somebody asks: most are only asked for their attributes."""

    __slots__ = ("_found", "_names")
    _found: tuple[str, ...] | None
    _names: Callable[[], tuple[str, ...] | None]

    def __init__(self, *, names: Callable[[], tuple[str, ...] | None], **facts: Any) -> None:
        object.__setattr__(self, "_names", names)
        super().__init__(**facts)

    @property
    def members(self) -> tuple[str, ...] | None:
        if not hasattr(self, "_found"):
            object.__setattr__(self, "_found", self._names())
        return self._found

    @members.setter
    def members(self, value: tuple[str, ...] | None) -> None:
        """Not known yet."""


async def _listed(place: StorePath) -> list[str]:
    return [name async for name in place.store.list_dir(place.path)]


class Hierarchy:
    """The nodes of one store below its root."""

    def __init__(
        self, root: zarr.Group, *, url: str | None = None, fill_as_mask: bool | None = None, owned: bool = True
    ) -> None:
        self.url, self.owned = url, owned
        self._place: StorePath = root.store_path
        self._fill_as_mask = fill_as_mask
        self._root = root
        self._metadata: dict[str, Metadata | None] = {ROOT: root.metadata}
        self._children: dict[str, tuple[str, ...]] = {}
        self._nodes: dict[str, Node | None] = {}
        self._variables: dict[str, xr.Variable] = {}
        self._readers: dict[str, _Members] = {}
        self._batches = {"times": Batch(), "others": Batch()}
        self.is_index = isinstance(root.store, IndexStore)
        """Whether its labels are computed from the grids of an index, as ours would be."""
        self.unreadable: dict[str, str] = {}
        """Paths of nodes whose metadata cannot be understood, and why."""
        self._complete = root.metadata.consolidated_metadata is not None
        if self._complete:
            self._consolidated(root.metadata)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def _consolidated(self, root: Metadata) -> None:
        waiting = [(ROOT, root)]
        while waiting:
            path, metadata = waiting.pop()
            inside = {} if metadata.consolidated_metadata is None else metadata.consolidated_metadata.metadata
            self._children[path] = tuple(sorted(inside))
            for name, child in inside.items():
                below = join(path, name)
                self._metadata[below] = child
                if isinstance(child, GroupMetadata):
                    waiting.append((below, child))

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
            members = dict(self.group(path).members())
            self._note(path, members)
        return self._children[path]

    def walk(self, path: str) -> list[str]:
        """Paths of a group and all groups below it, parents first."""
        if path not in self._children:
            # One concurrent listing; a request a group would be slow far away.
            deep = dict(self.group(path).members(max_depth=None))
            inside: dict[str, dict[str, Any]] = {path: {}}
            for name, member in deep.items():
                below = join(path, name)
                inside.setdefault(parent(below) or ROOT, {})[below.rpartition("/")[2]] = member
                if isinstance(member, zarr.Group):
                    inside.setdefault(below, {})
            for group, members in inside.items():
                self._note(group, members)
        found, waiting = [], [path]
        while waiting:
            here = waiting.pop()
            found.append(here)
            waiting += [join(here, name) for name in reversed(self.children(here)) if self.is_group(join(here, name))]
        return found

    def _note(self, path: str, members: Mapping[str, Any]) -> None:
        self._children[path] = tuple(sorted(members))
        for name, member in members.items():
            self._metadata[join(path, name)] = member.metadata

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
            if path in self._children:
                return Node(kind="group", members=self._children[path], **common)
            return _Group(kind="group", names=partial(self._names, path), **common)
        try:
            dtype = str(metadata.dtype.to_native_dtype())
        except UNREADABLE:
            dtype = ""  # a type that NumPy does not have; whoever reads values says so
        return Node(kind="array", dims=dims_of(metadata), shape=tuple(metadata.shape), dtype=dtype, **common)

    def _names(self, path: str) -> tuple[str, ...] | None:
        """Names in a group, without reading what they are; None where the store cannot list."""
        if path in self._children:
            return self._children[path]
        if not self._place.store.supports_listing:
            return None
        try:
            found = sync(_listed(self._at(path)))
        except UNREADABLE:
            return None  # a plain web server, for example
        return tuple(sorted(name for name in found if name not in _DOCUMENTS))

    # --- Zarr and xarray objects ------------------------------------------------------------------------------------

    def group(self, path: str) -> zarr.Group:
        """The group as zarr-python has it."""
        if path == ROOT:
            return self._root
        return zarr.Group(zarr.AsyncGroup(metadata=self._known(path), store_path=self._at(path)))

    def array(self, path: str) -> Any:
        """The array as zarr-python has it."""
        return zarr.Array(zarr.AsyncArray(metadata=self._known(path), store_path=self._at(path)))

    def _known(self, path: str) -> Metadata:
        metadata = self.metadata(path)
        if metadata is None:
            raise KeyError(f"there is no {path}")
        return metadata

    def _at(self, path: str) -> StorePath:
        return self._place / path.strip("/") if path != ROOT else self._place

    def variable(self, path: str) -> xr.Variable:
        """The array as xarray's own engine reads it before any decoding: lazy, with its encoding and all attributes."""
        if path not in self._variables:
            self._variables[path] = self._read(path)
        return self._variables[path].copy(deep=False)

    def prepare(self, paths: Iterable[str]) -> None:
        """Know the labels among these arrays, so that they are read together once the first is asked for."""
        for path in paths:
            metadata = self.metadata(path)
            if metadata is not None and len(metadata.shape) == 1:
                with contextlib.suppress(*UNREADABLE):  # whoever opens it says what is wrong
                    self.variable(path)

    def forget(self, path: str) -> None:
        """Do not read labels along with others: nobody will want them."""
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
        if variable.dims != (name,) or not is_small(variable):
            return variable
        # Decoding looks into times at once; other labels wait for their indexes, if such are made at all.
        is_time = " since " in str(variable.attrs.get("units", ""))
        return kept(variable, self._batches["times" if is_time else "others"], path)

    def _reader(self, group: str, zarr_format: int) -> _Members:
        if group not in self._readers:
            fill_as_mask = zarr_format == 2 if self._fill_as_mask is None else self._fill_as_mask
            self._readers[group] = _Members(self.group(group), fill_as_mask)
        return self._readers[group]

    def attributes(self, path: str) -> dict[str, Any]:
        """Of a group, as xarray shows them."""
        metadata = self.metadata(path)
        given = {} if metadata is None else dict(metadata.attributes)
        return {key: value for key, value in given.items() if not key.lower().startswith("_nc")}

    def endings(self) -> list[Callable[[], None]]:
        """What closes the store, unless it is somebody else's; it does not hold on to what is known of nodes."""
        return [self._place.store.close] if self.owned else []


def dims_of(metadata: Metadata) -> tuple[str | None, ...]:
    """Names of dimensions, in Zarr v2 from the attribute of xarray or of NCZarr; None for each that has none."""
    rank = len(metadata.shape)
    if metadata.zarr_format == 3:
        named: Any = metadata.dimension_names
    else:
        named = metadata.attributes.get(DIMENSIONS)
        if named is None:
            described = metadata.attributes.get("_NCZARR_ARRAY", metadata.attributes.get("_nczarr_array"))
            if isinstance(described, Mapping):
                told = described.get("dimension_references", described.get("dimrefs"))
                named = [os.path.basename(str(dim)) for dim in told] if isinstance(told, list) else None
    if not isinstance(named, list | tuple) or len(named) != rank:
        return (None,) * rank
    return tuple(dim if isinstance(dim, str) and dim else None for dim in named)
