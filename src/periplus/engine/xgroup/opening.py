"""One opening of one store: its nodes, the stores it refers to, what conventions make of them, what is found wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from periplus.conventions.handlers import Answer, Handler, ask, third_parties
from periplus.conventions.meaning import External, GroupMeaning, Meaning
from periplus.conventions.node import ROOT, parent
from periplus.conventions.read import Reader
from periplus.engine.xgroup.nodes import Hierarchy
from periplus.engine.xgroup.problems import Report
from periplus.engine.xgroup.stores import CrossStores


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How groups are opened."""

    coords: str = "auto"
    """Labels of regular axes: `lazy`, in `memory`, `auto` by their number, or `none`."""
    strict: bool = True
    """Whether attributes of conventions that are not declared are left alone."""
    dequantize: bool = False
    """Whether quantised embeddings become the numbers they stand for."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of xarray's CF decoding."""
    drop: frozenset[str] = frozenset()

    @property
    def lazy(self) -> bool | None:
        return {"lazy": True, "memory": False}.get(self.coords)


class Opening:
    """What is known of a store while it is opened."""

    def __init__(self, hierarchy: Hierarchy, cross: CrossStores, options: Options) -> None:
        self.hierarchy, self.cross, self.options = hierarchy, cross, options
        self.report = Report()
        self.used: set[str] = set()
        """Paths of arrays that are coordinates of others."""
        self.handlers: tuple[Handler, ...]
        self.handlers, notes = third_parties()
        self.report.add(notes)
        self._readers: dict[str | None, Reader] = {}
        self._meanings: dict[tuple[str | None, str], Meaning | None] = {}
        self._groups: dict[str, GroupMeaning | None] = {}

    @property
    def computes(self) -> bool:
        """Whether labels that a grid gives are computed though they are stored too: always in an index of ours."""
        return self.options.coords == "lazy" or (self.hierarchy.is_index and self.options.coords == "auto")

    def store(self, uri: str | None) -> Hierarchy:
        return self.hierarchy if uri is None else self.cross.hierarchy(uri)

    def _reader(self, uri: str | None) -> Reader:
        if uri not in self._readers:
            lookup = self.store(uri).lookup
            self._readers[uri] = Reader(lookup=lookup, stores=self.cross, strict=self.options.strict)
        return self._readers[uri]

    def meaning(self, path: str, uri: str | None = None) -> Meaning | None:
        """Everything the conventions say of an array; None where there is no such array."""
        key = (uri, path)
        if key not in self._meanings:
            node = self.store(uri).lookup(path)
            is_array = node is not None and node.kind == "array"
            self._meanings[key] = self._reader(uri).array(node) if node is not None and is_array else None
        return self._meanings[key]

    def group_meaning(self, path: str) -> GroupMeaning | None:
        """Everything the conventions say of a group."""
        if path not in self._groups:
            node = self.hierarchy.lookup(path)
            found = None
            if node is not None and node.kind == "group" and node.attributes:
                found = self._reader(None).group(node)
                self.report.add(found.diagnostics)
            self._groups[path] = found
        return self._groups[path]

    def variable(self, values: External) -> xr.Variable:
        """The array that external values are in, undecoded."""
        reference = values.reference
        if reference.uri is None:
            self.used.add(reference.path)
        return self.store(reference.uri).variable(reference.path)

    def strangers(self, path: str) -> Answer | None:
        """What handlers of other packages say of an array; None where there are none."""
        if not self.handlers:
            return None
        hierarchy = self.hierarchy
        group = hierarchy.group(parent(path) or ROOT)
        answer = ask(self.handlers, path=path, root=hierarchy.group(ROOT), group=group, array=hierarchy.array(path))
        self.report.add(answer.diagnostics)
        return answer

    def endings(self) -> list[Callable[[], None]]:
        """What closes the stores that were opened."""
        return [*self.cross.endings(), *self.hierarchy.endings()]

    def close(self) -> None:
        for ending in self.endings():
            ending()

    def conclude(self) -> None:
        """Say what was found wrong."""
        for path, reason in self.hierarchy.unreadable.items():
            self.report.broken(path, "", f"its metadata cannot be read: {reason}")
        self.report.bare = [path for path in self.report.bare if path not in self.used]
        self.report.say()
