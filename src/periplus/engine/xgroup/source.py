"""A Zarr hierarchy as a source for the assembler: its nodes, the stores it refers to, and what conventions say."""

from __future__ import annotations

from collections.abc import Callable

import xarray as xr

from periplus.conventions.handlers import Handler, HandlerResult, ask, third_parties
from periplus.conventions.meaning import External, GroupMeaning, Meaning
from periplus.conventions.node import ROOT, Node, parent
from periplus.conventions.read import Reader
from periplus.engine.assemble.source import ArraySource, AssemblyOptions
from periplus.engine.xgroup.hierarchy import ZarrHierarchy
from periplus.engine.xgroup.stores import CrossStores
from periplus.engine.xgroup.warnings import warn_of
from periplus.model import Georeference


class ZarrSource(ArraySource):
    """A hierarchy while it is opened. `strict`: attributes of conventions that are not declared are ignored."""

    def __init__(
        self, hierarchy: ZarrHierarchy, cross: CrossStores, options: AssemblyOptions, *, strict: bool = True
    ) -> None:
        super().__init__(options)
        self.hierarchy, self.cross, self.strict = hierarchy, cross, strict
        self.computes_labels = options.coords == "lazy" or (hierarchy.is_index and options.coords != "none")
        self.handlers: tuple[Handler, ...]
        self.handlers, notes = third_parties()
        self.findings.add(notes)
        self._readers: dict[str | None, Reader] = {}
        self._meanings: dict[tuple[str | None, str], Meaning | None] = {}
        self._groups: dict[str, GroupMeaning | None] = {}

    def read(self, path: str) -> xr.Variable:
        return self.hierarchy.variable(path)

    def skip(self, path: str) -> None:
        self.hierarchy.skip(path)

    def _store(self, uri: str | None) -> ZarrHierarchy:
        return self.hierarchy if uri is None else self.cross.hierarchy(uri)

    def _reader(self, uri: str | None) -> Reader:
        if uri not in self._readers:
            lookup = self._store(uri).lookup
            self._readers[uri] = Reader(lookup=lookup, stores=self.cross, strict=self.strict)
        return self._readers[uri]

    def node(self, path: str, uri: str | None = None) -> Node | None:
        return self._store(uri).lookup(path)

    def meaning(self, path: str, uri: str | None = None) -> Meaning | None:
        """Everything the conventions say of an array; None where there is no such array."""
        key = (uri, path)
        if key not in self._meanings:
            node = self.node(path, uri)
            is_array = node is not None and node.kind == "array"
            self._meanings[key] = self._reader(uri).array(node) if node is not None and is_array else None
        return self._meanings[key]

    def georeference(self, meaning: Meaning) -> Georeference | None:
        if meaning.crs is None:
            return None
        return Georeference(crs=meaning.crs.text, transform=None if meaning.grid is None else meaning.grid.corner)

    def group_meaning(self, path: str) -> GroupMeaning | None:
        """Everything the conventions say of a group."""
        if path not in self._groups:
            node = self.hierarchy.lookup(path)
            found = None
            if node is not None and node.kind == "group" and node.attributes:
                found = self._reader(None).group(node)
                self.findings.add(found.diagnostics)
            self._groups[path] = found
        return self._groups[path]

    def external(self, values: External) -> xr.Variable:
        reference = values.reference
        if reference.uri is None:
            self.used.add(reference.path)
        return self._store(reference.uri).variable(reference.path)

    def from_handlers(self, path: str) -> HandlerResult | None:
        if not self.handlers:
            return None
        hierarchy = self.hierarchy
        group = hierarchy.group(parent(path) or ROOT)
        result = ask(self.handlers, path=path, root=hierarchy.group(ROOT), group=group, array=hierarchy.array(path))
        self.findings.add(result.diagnostics)
        return result

    def closers(self) -> list[Callable[[], None]]:
        """Functions that close the stores that were opened."""
        return [*self.cross.closers(), *self.hierarchy.closers()]

    def close(self) -> None:
        for close in self.closers():
            close()

    def warn(self) -> None:
        """Warn of everything that was found wrong."""
        for path, reason in self.hierarchy.unreadable.items():
            self.findings.broken(path, "", f"its metadata cannot be read: {reason}", "node.unreadable")
        without = self.findings.without_principal
        self.findings.without_principal = [path for path in without if path not in self.used]
        warn_of(self.findings)
