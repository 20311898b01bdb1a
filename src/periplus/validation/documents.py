"""The metadata documents of a Zarr store as they are stored: read by URL, never a chunk; or taken from an index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.node import DIMENSIONS, ROOT, Node, join
from periplus.errors import FormatError, LimitError, MissingError
from periplus.parse.json import parse_json
from periplus.policy import WEB, scheme_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch

MOST_NODES = 1 << 20
MOST_BYTES = 64 << 20
AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """The metadata of one node: what is stored, and under which names."""

    path: str
    """Absolute: `/` is the root."""
    zarr_format: int
    stored: Mapping[str, Mapping[str, Any]]
    """By the last part of the key: `zarr.json`, or `.zgroup` or `.zarray` with `.zattrs`."""

    @property
    def kind(self) -> str:
        if self.zarr_format == 3:
            return str(self.stored["zarr.json"].get("node_type", "group"))
        return "array" if ".zarray" in self.stored else "group"

    @property
    def attributes(self) -> Mapping[str, Any]:
        said = self.stored["zarr.json"].get("attributes") if self.zarr_format == 3 else self.stored.get(".zattrs")
        return said if isinstance(said, Mapping) else {}

    @property
    def holder(self) -> str:
        """The last part of the key of the document that holds the attributes."""
        return "zarr.json" if self.zarr_format == 3 else ".zattrs"

    def with_attributes(self, attributes: Mapping[str, Any]) -> Document:
        """The same node with other attributes; everything else as it was."""
        said = {**self.stored["zarr.json"], "attributes": attributes} if self.zarr_format == 3 else attributes
        return replace(self, stored={**self.stored, self.holder: said})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hierarchy:
    """All metadata of a store."""

    documents: Mapping[str, Document]
    """By path, parents first."""
    url: str | None = None
    consolidated: Mapping[str, Mapping[str, Any]] | None = None
    """By key (`a/zarr.json`, `a/.zarray`), as consolidated; None where nothing is."""
    listed: bool = True
    """Whether the store could be listed; where not, the consolidated metadata are all that is known."""
    findings: tuple[Diagnostic, ...] = ()
    """What is wrong with the documents themselves."""

    def nodes(self) -> dict[str, Node]:
        """The nodes as the conventions read them."""
        members: dict[str, list[str]] = {path: [] for path in self.documents}
        for path in self.documents:
            if path != ROOT:
                members.setdefault(path.rpartition("/")[0] or ROOT, []).append(path.rpartition("/")[2])
        return {path: _node(document, tuple(members[path])) for path, document in self.documents.items()}


def _node(document: Document, members: tuple[str, ...]) -> Node:
    common = {"path": document.path, "attributes": document.attributes, "zarr_format": document.zarr_format}
    if document.kind == "group":
        return Node(kind="group", members=members, **common)  # type: ignore[arg-type]
    said = document.stored["zarr.json" if document.zarr_format == 3 else ".zarray"]
    shape = tuple(n for n in _listed(said.get("shape")) if isinstance(n, int))
    names = said.get("dimension_names") if document.zarr_format == 3 else document.attributes.get(DIMENSIONS)
    dims = tuple(name if isinstance(name, str) else None for name in _listed(names)) or (None,) * len(shape)
    kind = said.get("data_type", said.get("dtype"))
    return Node(kind="array", shape=shape, dims=dims, dtype=_dtype(kind), **common)  # type: ignore[arg-type]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _dtype(kind: Any) -> str:
    try:
        return str(np.dtype(kind)) if isinstance(kind, str) else ""
    except TypeError:
        return str(kind)


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Walk:
    url: str
    fetch: Fetch
    documents: dict[str, Document] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def object(self, key: str) -> Mapping[str, Any] | None:
        """The JSON object under a key; None where there is none, or it is none."""
        async with self.gate:
            try:
                data, _ = await self.fetch.read(f"{self.url}/{key}", 0, MOST_BYTES + 1)
            except MissingError:
                return None
        path, _, name = key.rpartition("/")
        if len(data) > MOST_BYTES:
            raise LimitError(f"{key} is larger than {MOST_BYTES} bytes", url=self.url)
        try:
            found, why = parse_json(data, what=name), f"{name} is not a JSON object"
        except FormatError as error:
            found, why = None, error.message
        if not isinstance(found, Mapping):
            message = f"{why}; the node is skipped"
            self.findings.append(Diagnostic("store.json", "error", join(ROOT, path), name, message))
            return None
        return found

    async def node(self, path: str) -> Document | None:
        """The node at a path, of whichever version."""
        below = f"{path.strip('/')}/" if path != ROOT else ""
        v3 = await self.object(f"{below}zarr.json")
        if v3 is not None:
            return Document(path=path, zarr_format=3, stored={"zarr.json": v3})
        array, group = await asyncio.gather(self.object(f"{below}.zarray"), self.object(f"{below}.zgroup"))
        found = {".zarray": array} if array is not None else {".zgroup": group} if group is not None else None
        if found is None:
            return None
        attributes = await self.object(f"{below}.zattrs")
        stored = {name: value for name, value in {**found, ".zattrs": attributes}.items() if value is not None}
        return Document(path=path, zarr_format=2, stored=stored)

    async def below(self, path: str) -> None:
        """Every node below a group."""
        document = self.documents[path]
        if document.kind != "group":
            return
        names = await self.fetch.folders(f"{self.url}{path}" if path != ROOT else self.url)
        paths = [join(path, name) for name in names]
        found = await asyncio.gather(*(self.node(one) for one in paths))
        for one, node in zip(paths, found, strict=True):
            if node is not None:
                if len(self.documents) >= MOST_NODES:
                    raise LimitError(f"the store has more than {MOST_NODES} nodes", url=self.url)
                self.documents[one] = node
        await asyncio.gather(*(self.below(one) for one in paths if one in self.documents))


def read_hierarchy(url: str, fetch: Fetch) -> Hierarchy:
    """All metadata of the store at a URL. Where nothing can be listed, what is consolidated is taken for all."""
    return fetch.run(_read(url.rstrip("/"), fetch))


async def _read(url: str, fetch: Fetch) -> Hierarchy:
    walk = _Walk(url, fetch)
    root = await walk.node(ROOT)
    if root is None:
        raise MissingError("there is no Zarr store: no zarr.json, .zgroup or .zarray", url=url)
    walk.documents[ROOT] = root
    consolidated = await _consolidated(root, walk)
    listed = scheme_of(url) not in WEB
    if listed:
        await walk.below(ROOT)
    else:
        if consolidated is None:
            raise FormatError("this store can neither be listed nor are its metadata consolidated", url=url)
        walk.documents |= from_keys(consolidated, walk.findings)
    return Hierarchy(
        documents=dict(sorted(walk.documents.items())),
        url=url,
        consolidated=consolidated,
        listed=listed,
        findings=tuple(walk.findings),
    )


async def _consolidated(root: Document, walk: _Walk) -> dict[str, Mapping[str, Any]] | None:
    if root.zarr_format == 2:
        found = await walk.object(".zmetadata")
        held = None if found is None else found.get("metadata")
        return dict(held) if isinstance(held, Mapping) else None
    said = root.stored["zarr.json"].get("consolidated_metadata")
    held = said.get("metadata") if isinstance(said, Mapping) else None
    if not isinstance(held, Mapping):
        return None
    return {f"{path}/zarr.json": document for path, document in held.items()}


def from_keys(keys: Mapping[str, Any], findings: list[Diagnostic]) -> dict[str, Document]:
    """Nodes of documents by key."""
    by_node: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, value in keys.items():
        path, _, name = key.rpartition("/")
        where = join(ROOT, path)
        if not isinstance(value, Mapping):
            message = f"{name} is no JSON object; the node is passed over"
            findings.append(Diagnostic("store.json", "error", where, name, message))
            continue
        by_node.setdefault(where, {})[name] = value
    return {
        path: Document(path=path, zarr_format=3 if "zarr.json" in stored else 2, stored=stored)
        for path, stored in sorted(by_node.items())
        if stored.keys() & {"zarr.json", ".zarray", ".zgroup"}
    }


def of_documents(documents: Mapping[str, Mapping[str, Any]], *, url: str | None = None) -> Hierarchy:
    """The hierarchy of Zarr v3 documents by path; the root is the empty string."""
    findings: list[Diagnostic] = []
    held = from_keys({f"{path}/zarr.json".lstrip("/"): doc for path, doc in documents.items()}, findings)
    below = {f"{path}/zarr.json": doc for path, doc in documents.items() if path}
    return Hierarchy(documents=held, url=url, consolidated=below, findings=tuple(findings))
