"""The metadata documents of a Zarr store as they are stored, read by URL without any chunk, or taken from an index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.node import ROOT, Node, join, node_of
from periplus.errors import FormatError, LimitError, MissingError, PeriplusError
from periplus.parse.json import parse_json
from periplus.parse.zarr import NodeDocuments, consolidated_in, nodes_of
from periplus.parse.zarr.documents import MOST_NODES
from periplus.policy import WEB, scheme_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch

MOST_BYTES = 64 << 20
AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreDocuments:
    """All metadata documents of a store."""

    documents: Mapping[str, NodeDocuments]
    """By absolute path, parents first."""
    url: str | None = None
    consolidated: Mapping[str, Mapping[str, Any]] | None = None
    """By key (`a/zarr.json`, `a/.zarray`), as consolidated; None where the store is not consolidated."""
    listed: bool = True
    """Whether the store could be listed; otherwise only the consolidated metadata are known."""
    findings: tuple[Diagnostic, ...] = ()
    """Problems of the documents themselves."""

    def nodes(self) -> tuple[dict[str, Node], list[Diagnostic]]:
        """The nodes as the conventions read them, and findings for documents that are not valid."""
        members: dict[str, list[str]] = {path: [] for path in self.documents}
        for path in self.documents:
            if path != ROOT:
                members.setdefault(path.rpartition("/")[0] or ROOT, []).append(path.rpartition("/")[2])
        found: dict[str, Node] = {}
        findings: list[Diagnostic] = []
        for path, documents in self.documents.items():
            try:
                found[path] = node_of(path, documents.parse(), tuple(members[path]))
            except PeriplusError as error:
                message = f"{error.message}; the node is skipped"
                findings.append(Diagnostic("store.json", "error", path, documents.name, message))
        return found, findings


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _StoreWalk:
    url: str
    fetch: Fetch
    documents: dict[str, NodeDocuments] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def object(self, key: str) -> Mapping[str, Any] | None:
        """The JSON object under a key; None where there is none, with a finding where it is not valid."""
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

    async def node(self, path: str) -> NodeDocuments | None:
        """The node at a path, of either version of Zarr."""
        below = f"{path.strip('/')}/" if path != ROOT else ""
        v3 = await self.object(f"{below}zarr.json")
        if v3 is not None:
            return NodeDocuments(path=path.strip("/"), stored={"zarr.json": v3})
        array, group = await asyncio.gather(self.object(f"{below}.zarray"), self.object(f"{below}.zgroup"))
        found = {".zarray": array} if array is not None else {".zgroup": group} if group is not None else None
        if found is None:
            return None
        attributes = await self.object(f"{below}.zattrs")
        stored = {name: value for name, value in {**found, ".zattrs": attributes}.items() if value is not None}
        return NodeDocuments(path=path.strip("/"), stored=stored)

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


def read_documents(url: str, fetch: Fetch) -> StoreDocuments:
    """All metadata of the store at a URL; only the consolidated metadata where the store cannot be listed."""
    return fetch.run(_read(url.rstrip("/"), fetch))


async def _read(url: str, fetch: Fetch) -> StoreDocuments:
    walk = _StoreWalk(url, fetch)
    root = await walk.node(ROOT)
    if root is None:
        raise MissingError("there is no Zarr store: no zarr.json, .zgroup or .zarray was found", url=url)
    walk.documents[ROOT] = root
    consolidated = await _consolidated(root, walk)
    listed = scheme_of(url) not in WEB
    if listed:
        await walk.below(ROOT)
    else:
        if consolidated is None:
            raise FormatError("this store cannot be listed, and its metadata are not consolidated", url=url)
        walk.documents |= from_keys(consolidated, walk.findings)
    return StoreDocuments(
        documents=dict(sorted(walk.documents.items())),
        url=url,
        consolidated=consolidated,
        listed=listed,
        findings=tuple(walk.findings),
    )


async def _consolidated(root: NodeDocuments, walk: _StoreWalk) -> dict[str, Mapping[str, Any]] | None:
    stored: Mapping[str, Any] = root.stored
    if root.zarr_format == 2:
        stored = {".zmetadata": await walk.object(".zmetadata")}
    return consolidated_in(stored)


def from_keys(keys: Mapping[str, Any], findings: list[Diagnostic]) -> dict[str, NodeDocuments]:
    """Nodes by absolute path, of documents by key."""

    def skip(key: str, reason: str) -> None:
        path, _, name = key.rpartition("/")
        message = f"{reason}; the node is skipped"
        findings.append(Diagnostic("store.json", "error", f"{ROOT}{path}", name, message))

    return {ROOT + path: documents for path, documents in nodes_of(keys, skip=skip).items()}


def of_keys(keys: Mapping[str, Mapping[str, Any]], *, url: str | None = None) -> StoreDocuments:
    """The documents of an open store by key; they count as consolidated."""
    findings: list[Diagnostic] = []
    below = {key: document for key, document in keys.items() if "/" in key}
    return StoreDocuments(documents=from_keys(keys, findings), url=url, consolidated=below, findings=tuple(findings))
