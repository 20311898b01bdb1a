"""Metadata documents by key, sorted by the node that they belong to, with those that are consolidated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.limits import Limits
from periplus.parse.json import abbreviated, check_text
from periplus.parse.zarr.arrays import parse_v2_array, parse_v3_array
from periplus.parse.zarr.metadata import ArrayMetadata, GroupMetadata

ZARR_JSON, ZARRAY, ZGROUP, ZATTRS, ZMETADATA = "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"
NAMES = frozenset({ZARR_JSON, ZARRAY, ZGROUP, ZATTRS, ZMETADATA})
"""Last parts of the keys of metadata documents."""
MOST_NODES = 1 << 20
"""Nodes of one store."""
LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeDocuments:
    """The metadata documents of one node, as stored."""

    path: str
    """Without a leading slash; the root is the empty string."""
    stored: Mapping[str, Mapping[str, Any]]
    """By the last part of their key: `zarr.json`; or `.zgroup` or `.zarray`, with `.zattrs` where there is one."""

    @property
    def zarr_format(self) -> int:
        return 3 if ZARR_JSON in self.stored else 2

    @property
    def kind(self) -> Literal["group", "array"]:
        if self.zarr_format == 3:
            return "array" if self.stored[ZARR_JSON].get("node_type") == "array" else "group"
        return "array" if ZARRAY in self.stored else "group"

    @property
    def name(self) -> str:
        """The last part of the key of the document that describes the node."""
        if self.zarr_format == 3:
            return ZARR_JSON
        return ZARRAY if self.kind == "array" else ZGROUP

    @property
    def attributes_name(self) -> str:
        """The last part of the key of the document that holds the attributes."""
        return ZARR_JSON if self.zarr_format == 3 else ZATTRS

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes as stored; empty where there are none, or where they are not an object."""
        holder = self.stored.get(self.attributes_name, {})
        attributes = holder.get("attributes") if self.zarr_format == 3 else holder
        return attributes if isinstance(attributes, Mapping) else {}

    def with_attributes(self, attributes: Mapping[str, Any]) -> NodeDocuments:
        """The same node with other attributes."""
        document = {**self.stored[ZARR_JSON], "attributes": attributes} if self.zarr_format == 3 else attributes
        return replace(self, stored={**self.stored, self.attributes_name: document})

    def parse(self, limits: Limits | None = None) -> ArrayMetadata | GroupMetadata:
        """What the documents describe; FormatError or LimitError begins with the key of the document."""
        document = self.stored.get(self.name, {})
        try:
            if self.zarr_format == 3:
                _check_v3(document)
            if self.kind == "group":
                return GroupMetadata(zarr_format=self.zarr_format, attributes=self.attributes)
            if self.zarr_format == 3:
                return parse_v3_array(document, limits or Limits())
            return parse_v2_array(document, self.attributes, limits or Limits())
        except PeriplusError as error:
            error.message = f"{key_of(self.path, self.name)}: {error.message}"
            raise


def _check_v3(document: Mapping[str, Any]) -> None:
    if document.get("zarr_format", 3) != 3:
        raise FormatError(f"zarr_format is {abbreviated(document['zarr_format'])}, not 3")
    if document.get("node_type", "group") not in ("array", "group"):
        raise FormatError(f"node_type is {abbreviated(document['node_type'])}, not array or group")


def key_of(path: str, name: str) -> str:
    """The key of a document of a node."""
    return f"{path}/{name}" if path else name


def nodes_of(
    documents: Mapping[str, Any], *, skip: Callable[[str, str], None] | None = None
) -> dict[str, NodeDocuments]:
    """The nodes of documents by key (`a/.zarray`, `a/zarr.json`), by path, parents first.

    Consolidated documents count where a node has none of its own. A `.zattrs` alone makes a group, as some writers of
    references omit `.zgroup`. A document that is not an object, or whose path is none, is a FormatError, unless `skip`
    takes its key and what is wrong; the node is then without it.
    """
    if len(documents) > MOST_NODES:
        raise LimitError(f"there are {len(documents)} metadata documents, over the limit of {MOST_NODES}")
    by_path: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, document in {**(consolidated_in(documents) or {}), **documents}.items():
        path, _, name = key.rpartition("/")
        if name not in NAMES or name == ZMETADATA:
            continue
        try:
            if not isinstance(document, Mapping):
                raise FormatError(f"{key}: a JSON object is required, not {abbreviated(document)}")
            by_path.setdefault(check_path(path), {})[name] = document
        except FormatError as error:
            if skip is None:
                raise
            skip(key, error.message)
    return {path: NodeDocuments(path=path, stored=by_path[path]) for path in sorted(by_path)}


def consolidated_in(documents: Mapping[str, Any]) -> dict[str, Any] | None:
    """The documents by key that `.zmetadata`, or the `zarr.json` of the root, repeats; None where neither does."""
    v2, v3 = documents.get(ZMETADATA), documents.get(ZARR_JSON)
    found: dict[str, Any] | None = None
    if isinstance(v2, Mapping) and isinstance(v2.get("metadata"), Mapping):
        found = dict(v2["metadata"])
    inline = v3.get("consolidated_metadata") if isinstance(v3, Mapping) else None
    if isinstance(inline, Mapping) and isinstance(inline.get("metadata"), Mapping):
        found = {**(found or {}), **{key_of(path, ZARR_JSON): one for path, one in inline["metadata"].items()}}
    return found


def check_path(path: str) -> str:
    """A path that a node may have; FormatError for others."""
    if not path:
        return path
    check_text(path, "the path of a node")
    if len(path) > LONGEST_PATH or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise FormatError(f"{abbreviated(path)} cannot be the path of a node")
    return path
