"""Read the metadata documents of a Zarr store by key, many at a time, whatever gives their bytes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from periplus.conventions.node import ROOT, join
from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.parse.json import parse_json
from periplus.parse.zarr import NodeDocuments, consolidated_in
from periplus.parse.zarr.documents import MOST_NODES, NAMES, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, key_of

if TYPE_CHECKING:
    from zarr.storage import StorePath

AT_ONCE = 64
_ROUNDS = {3: ((ZARR_JSON,),), 2: ((ZARRAY, ZATTRS), (ZGROUP,))}
"""Names of documents by version; a round is read where those before it have no node: most nodes are arrays."""


@dataclass(slots=True, kw_only=True, eq=False)
class DocumentReader:
    """The documents of nodes by their absolute paths. Nothing is kept."""

    get: Callable[[str], Awaitable[bytes | None]]
    """The bytes under a key; None where there are none."""
    names: Callable[[str], Coroutine[Any, Any, Iterable[str]]]
    """Names directly in the group at a path; those of documents are ignored."""
    skip: Callable[[str, str, str], None]
    """Takes the path of a node, the name of its document, and why that is not a JSON object; the node is skipped."""
    formats: tuple[int, ...] = (3, 2)
    """Versions of Zarr that a node may have, in the order in which they are tried."""
    limits: Limits = field(default_factory=Limits)
    folder: str | None = None
    """Where the store is on this machine; a link in it to a folder above is no member of a group."""
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def object(self, key: str) -> Mapping[str, Any] | None:
        """The JSON object under a key; None where there is none."""
        async with self._gate:
            data = await self.get(key)
        if data is None:
            return None
        path, _, name = key.rpartition("/")
        try:
            found, why = parse_json(data, what=name, limits=self.limits), f"{name} is not a JSON object"
        except (FormatError, LimitError) as error:
            found, why = None, error.message
        if isinstance(found, Mapping):
            return found
        self.skip(join(ROOT, path), name, why)
        return None

    async def node(self, path: str) -> NodeDocuments | None:
        """The documents of the node at a path; None where there is no node."""
        inside = path.strip("/")
        for version in self.formats:
            stored: dict[str, Mapping[str, Any]] = {}
            for names in _ROUNDS[version]:
                reads = [self.object(key_of(inside, name)) for name in names]
                found = await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]  # a task costs time
                stored |= {name: one for name, one in zip(names, found, strict=True) if one is not None}
                if stored.keys() - {ZATTRS}:
                    return NodeDocuments(path=inside, stored=stored)
        return None

    async def root(self) -> tuple[NodeDocuments | None, dict[str, Any] | None]:
        """The documents of the root, and those by key that are consolidated in it, if they are."""
        root, v2 = await asyncio.gather(self.node(ROOT), self.object(ZMETADATA))
        if root is None:
            return None, None
        return root, consolidated_in({ZMETADATA: v2} if root.zarr_format == 2 else root.stored)

    async def members(self, path: str) -> dict[str, NodeDocuments]:
        """The members of a group."""
        paths = []
        for name in await self.names(path):
            try:
                inside = join(path, name)
            except FormatError as error:
                self.skip(path, name, error.message)
            else:
                if name not in NAMES and not self._leads_back(inside):
                    paths.append(inside)
        found = await asyncio.gather(*(self.node(one) for one in paths))
        return {one: node for one, node in zip(paths, found, strict=True) if node is not None}

    def _leads_back(self, path: str) -> bool:
        """Whether a link leads to a folder that it is in, where every path would go on without end."""
        if self.folder is None or not os.path.islink(self.folder + path):
            return False
        above = [path[:n] for n, letter in enumerate(path) if letter == "/"]
        return os.path.realpath(self.folder + path) in {os.path.realpath(self.folder + one) for one in above}

    async def below(self, path: str) -> dict[str, NodeDocuments]:
        """Every node below a group."""
        found = await self.members(path)
        groups = [one for one, node in found.items() if node.kind == "group"]
        for inside in await asyncio.gather(*map(self.below, groups)):
            found |= inside
            if len(found) > MOST_NODES:
                raise LimitError(f"the store has more than {MOST_NODES} nodes")
        return found


def store_reader(place: StorePath, skip: Callable[[str, str, str], None], **settings: Any) -> DocumentReader:
    """A reader of a store of zarr-python, from a path in it."""
    from zarr.storage import LocalStore

    async def get(key: str) -> bytes | None:
        data = await (place / key).get()
        return None if data is None else data.to_bytes()

    async def names(path: str) -> list[str]:
        return [name async for name in place.store.list_dir((place / path.strip("/")).path)]

    folder = str(place.store.root / place.path) if isinstance(place.store, LocalStore) else None
    return DocumentReader(get=get, names=names, skip=skip, folder=folder, **settings)
