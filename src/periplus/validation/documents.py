"""The metadata documents of a Zarr store as they are stored, read by URL without any chunk, or taken from an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.node import ROOT, Node, node_of
from periplus.errors import FormatError, LimitError, MissingError, PeriplusError
from periplus.parse.zarr import NodeDocuments, nodes_of
from periplus.policy import WEB, is_local, scheme_of
from periplus.zarr.documents import DocumentReader, store_reader

if TYPE_CHECKING:
    from periplus.fetch import Fetch

MOST_BYTES = 64 << 20


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


def read_documents(url: str, fetch: Fetch) -> StoreDocuments:
    """All metadata of the store at a URL; only the consolidated metadata where the store cannot be listed."""
    return fetch.run(_read(url.rstrip("/"), fetch))


async def _read(url: str, fetch: Fetch) -> StoreDocuments:
    findings: list[Diagnostic] = []

    async def get(key: str) -> bytes | None:
        try:
            data, _ = await fetch.read(f"{url}/{key}", 0, MOST_BYTES + 1)
        except MissingError:
            return None
        if len(data) > MOST_BYTES:
            raise LimitError(f"{key} is larger than {MOST_BYTES} bytes", url=url)
        return data

    reader = DocumentReader(
        get=get,
        names=lambda path: fetch.folders(f"{url}{path}".rstrip("/")),
        skip=partial(_skip, findings),
        folder=url if is_local(url) else None,
    )
    return await _gathered(reader, findings, url=url, listed=scheme_of(url) not in WEB)


async def _gathered(
    reader: DocumentReader, findings: list[Diagnostic], *, url: str | None, listed: bool
) -> StoreDocuments:
    root, consolidated = await reader.root()
    if root is None:
        raise MissingError("there is no Zarr store: no zarr.json, .zgroup or .zarray was found", url=url)
    if not listed and consolidated is None:
        raise FormatError("this store cannot be listed, and its metadata are not consolidated", url=url)
    if listed:
        found = await reader.below(ROOT) if root.kind == "group" else {}
    else:
        found = from_keys(consolidated or {}, findings)
    return StoreDocuments(
        documents=dict(sorted({ROOT: root, **found}.items())),
        url=url,
        consolidated=consolidated,
        listed=listed,
        findings=tuple(findings),
    )


def read_group(root: Any) -> StoreDocuments:
    """All metadata below a group that zarr-python opened; they count as consolidated."""
    from zarr.core.sync import sync

    findings: list[Diagnostic] = []
    reader = store_reader(root.store_path, partial(_skip, findings))
    found = sync(_gathered(reader, findings, url=None, listed=root.store.supports_listing))
    return replace(found, consolidated={}, listed=False)


def _skip(findings: list[Diagnostic], path: str, name: str, reason: str) -> None:
    findings.append(Diagnostic("store.json", "error", path, name, f"{reason}; the node is skipped"))


def from_keys(keys: Mapping[str, Any], findings: list[Diagnostic]) -> dict[str, NodeDocuments]:
    """Nodes by absolute path, of documents by key."""

    def skip(key: str, reason: str) -> None:
        path, _, name = key.rpartition("/")
        _skip(findings, ROOT + path, name, reason)

    return {ROOT + path: documents for path, documents in nodes_of(keys, skip=skip).items()}


def of_keys(keys: Mapping[str, Mapping[str, Any]], *, url: str | None = None) -> StoreDocuments:
    """The documents of an open store by key; they count as consolidated."""
    findings: list[Diagnostic] = []
    below = {key: document for key, document in keys.items() if "/" in key}
    return StoreDocuments(documents=from_keys(keys, findings), url=url, consolidated=below, findings=tuple(findings))
