"""Small Zarr hierarchies with GeoZarr conventions, written from a table of nodes, and a store that counts its reads."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from zarr.storage import WrapperStore

from periplus.conventions.identity import KEY, metadata

UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array to write; consecutive numbers where no values are given."""

    dims: tuple[str | None, ...] | None
    shape: tuple[int, ...] | None = None
    values: Any = None
    dtype: str = "int32"
    chunks: tuple[int, ...] | None = None
    fill: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> np.ndarray[Any, Any]:
        if self.values is not None:
            return np.asarray(self.values)
        shape = self.shape or ()
        return np.arange(int(np.prod(shape)), dtype=self.dtype).reshape(shape)


def declared(*names: str) -> dict[str, Any]:
    """The attribute that declares these conventions."""
    return {KEY: [metadata(name) for name in names]}


def spatial(
    transform: tuple[float, ...] = UTM, dims: tuple[str, str] = ("y", "x"), *others: str, **more: Any
) -> dict[str, Any]:
    """Attributes of an affine grid; `others` are further conventions to declare, `more` are further attributes."""
    return {
        **declared("spatial", *others),
        "spatial:dimensions": list(dims),
        "spatial:transform": list(transform),
        **more,
    }


def write_hierarchy(
    target: Any,
    nodes: Mapping[str, Mapping[str, Any] | StoredArray],
    *,
    zarr_format: Any = 3,
    consolidated: bool = False,
) -> Any:
    """Write groups (their attributes) and arrays by path; `/` is the root. Returns the target."""
    root = zarr.open_group(target, mode="w", zarr_format=zarr_format, attributes=dict(nodes.get("/", {})))  # type: ignore[arg-type]
    for path, node in sorted(nodes.items()):
        name = path.strip("/")
        if not isinstance(node, StoredArray):
            if name:
                root.require_group(name).attrs.update(dict(node))
            continue
        values = node.numbers
        attributes = dict(node.attributes)
        dims: Any = {}
        if zarr_format == 2 and node.dims is not None:
            attributes["_ARRAY_DIMENSIONS"] = list(node.dims)
        elif node.dims is not None:
            dims = {"dimension_names": node.dims}
        array = root.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=node.chunks or tuple(max(n, 1) for n in values.shape),
            fill_value=node.fill,
            attributes=attributes,
            **dims,
        )
        array[...] = values
    if consolidated:
        with warnings.catch_warnings():
            # zarr-python warns that the specification of version 3 has no consolidated metadata; all readers have them.
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(target)
    return target


def declare_huge(target: Any, path: str, shape: tuple[int, ...], dims: tuple[str, ...], attributes: Any) -> Any:
    """An array of any size without stored chunks."""
    root = zarr.open_group(target, mode="a")
    chunks = tuple(min(n, 4096) for n in shape)
    root.create_array(path, shape=shape, dtype="uint8", chunks=chunks, dimension_names=dims, attributes=attributes)
    return target


class CountingStore(WrapperStore):  # type: ignore[type-arg]
    """A store that records the keys read and the folders listed."""

    def __init__(self, store: Any, keys: list[str] | None = None) -> None:
        super().__init__(store)
        self.keys: list[str] = [] if keys is None else keys

    def _with_store(self, store: Any) -> CountingStore:
        # zarr opens a read-only copy of the store, which must record into the same list.
        return CountingStore(store, self.keys)

    @property
    def chunks(self) -> list[str]:
        """Keys that were read and hold no metadata."""
        plain = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
        return [key for key in self.keys if key.rpartition("/")[2] not in plain and not key.startswith("list ")]

    @property
    def listed(self) -> list[str]:
        """Folders that were listed."""
        return [key for key in self.keys if key.startswith("list ")]

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self.keys.append(key)
        return await super().get(key, *args, **kwargs)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        asked = list(key_ranges)
        self.keys += [key for key, _ in asked]
        return await super().get_partial_values(prototype, asked)

    def list_dir(self, prefix: str) -> Any:
        self.keys.append(f"list {prefix}")
        return super().list_dir(prefix)
