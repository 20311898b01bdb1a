"""Nodes of a hierarchy as plain data, the callable that looks up other nodes, and functions for paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from periplus.errors import FormatError
from periplus.parse.zarr import ArrayMetadata, GroupMetadata

ROOT = "/"
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute that names the dimensions of an array of Zarr v2."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """The metadata of a group or an array, without values."""

    path: str
    """Absolute: `/` is the root, `/0/data` an array."""
    kind: Literal["group", "array"]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dims: tuple[str | None, ...] = ()
    """Names of an array's dimensions: `dimension_names`, or `_ARRAY_DIMENSIONS` of Zarr v2; None where one has none."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    """As NumPy names it: `float32`, `<U3`."""
    members: Sequence[str] = ()
    """Names of a group's direct children; none where the store cannot list them."""
    zarr_format: int = 3

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the dimensions that have names; none where the number of names is wrong."""
        named = zip(self.dims, self.shape, strict=True) if len(self.dims) == len(self.shape) else ()
        return {dim: size for dim, size in named if dim}

    @property
    def usable_dims(self) -> tuple[str | None, ...]:
        """`dims` without names that repeat another, since each must name one dimension; none if their number is wrong.

        An array of a matrix such as `r(r, r)` keeps the name of its first dimension.
        """
        if len(self.dims) not in (0, len(self.shape)):
            return ()
        return tuple(None if dim in self.dims[:n] else dim for n, dim in enumerate(self.dims))

    def document(self) -> dict[str, Any]:
        """What a JSON pointer points into: the node's metadata document, as far as conventions use it."""
        common = {"zarr_format": self.zarr_format, "node_type": self.kind, "attributes": self.attributes}
        if self.kind == "group":
            return common
        names = {"dimension_names": list(self.dims)} if self.dims else {}
        return {**common, "shape": list(self.shape), "data_type": self.dtype, **names}


def node_of(path: str, metadata: ArrayMetadata | GroupMetadata, members: Sequence[str] = ()) -> Node:
    """The node of parsed Zarr metadata; `path` is absolute, `members` are those of a group."""
    if isinstance(metadata, GroupMetadata):
        return Node(
            path=path,
            kind="group",
            attributes=metadata.attributes,
            members=members,
            zarr_format=metadata.zarr_format,
        )
    return Node(
        path=path,
        kind="array",
        attributes=metadata.attributes,
        # As declared where they are too few or too many: a Reader reports that.
        dims=metadata.dims if not metadata.dimension_names else metadata.dimension_names,
        shape=metadata.shape,
        dtype="" if metadata.dtype is None else str(metadata.dtype),
        zarr_format=metadata.zarr_format,
    )


class NodeLookup(Protocol):
    """The node at an absolute path, or None where there is none. Reads metadata only. Called often: it should cache."""

    def __call__(self, path: str, /) -> Node | None: ...


class StoreLookup(Protocol):
    """The lookup of another store by its URI; PeriplusError where it cannot be accessed."""

    def __call__(self, uri: str, /) -> NodeLookup: ...


def parent(path: str) -> str | None:
    """The path of the group that contains a node; None for the root."""
    if path == ROOT:
        return None
    return path.rpartition("/")[0] or ROOT


def ancestors(path: str) -> Iterator[str]:
    """Paths of the groups that contain a node, the nearest first, the root last."""
    up = parent(path)
    while up is not None:
        yield up
        up = parent(up)


def join(base: str, path: str) -> str:
    """`path` as seen from the node or group `base`; FormatError where it is malformed or goes above the root."""
    if "\\" in path or "\0" in path or "://" in path:
        raise FormatError(f"{path[:200]!r} is not a valid path of a node")
    parts: list[str] = [] if path.startswith("/") else [part for part in base.split("/") if part]
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise FormatError(f"{path[:200]!r} goes above the root")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return ROOT + "/".join(parts)


def relative(path: str, base: str) -> str:
    """The path of a node below the group `base`, seen from it; `.` for the group itself."""
    if path == base:
        return "."
    prefix = base.rstrip("/") + "/"
    if not path.startswith(prefix):
        raise FormatError(f"{path} is not below {base}")
    return path[len(prefix) :]
