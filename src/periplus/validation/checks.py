"""Checks of a whole store: the meaning of every node, its footprints and whether its arrays can be opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from periplus.conventions.context import Reading
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Grid, GroupMeaning, Meaning
from periplus.conventions.node import ROOT, Node, NodeLookup
from periplus.conventions.read import Reader
from periplus.conventions.spatial.grid import check_bbox
from periplus.validation.consolidation import consolidation
from periplus.validation.documents import StoreDocuments
from periplus.validation.readable import unreadable


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreMeaning:
    """A store and the meaning of its nodes."""

    hierarchy: StoreDocuments
    nodes: Mapping[str, Node]
    groups: Mapping[str, GroupMeaning]
    arrays: Mapping[str, Meaning]
    findings: list[Diagnostic] = field(default_factory=list)

    @property
    def lookup(self) -> NodeLookup:
        return self.nodes.get

    @cached_property
    def inside(self) -> Mapping[str, list[Grid]]:
        """The grids of the arrays directly in each group, by its path."""
        found: dict[str, list[Grid]] = {}
        for path, meaning in self.arrays.items():
            if meaning.grid is not None:
                found.setdefault(path.rpartition("/")[0] or ROOT, []).append(meaning.grid)
        return found

    @property
    def declared(self) -> list[str]:
        """The convention of every declaration in the store."""
        groups = [name for meaning in self.groups.values() for name in meaning.conventions]
        return groups + [name for meaning in self.arrays.values() for name in meaning.conventions]


def understand_all(hierarchy: StoreDocuments) -> StoreMeaning:
    """Every node read by the conventions, with all findings; metadata only."""
    nodes, invalid = hierarchy.nodes()
    reader = Reader(lookup=nodes.get)
    groups = {path: reader.group(node) for path, node in nodes.items() if node.kind == "group"}
    arrays = {path: reader.array(node) for path, node in nodes.items() if node.kind == "array"}
    made = StoreMeaning(hierarchy=hierarchy, nodes=nodes, groups=groups, arrays=arrays)
    made.findings.extend([*hierarchy.findings, *invalid])
    for group in groups.values():
        made.findings.extend(group.diagnostics)
    for array in arrays.values():
        made.findings.extend(array.diagnostics)
    made.findings.extend(footprints(made))
    made.findings.extend(unreadable(hierarchy, nodes))
    made.findings.extend(consolidation(hierarchy))
    if not made.declared:
        message = "no node declares any convention; nothing of them was checked"
        made.findings.append(Diagnostic("store.nothing", "warning", ROOT, "zarr_conventions", message))
    return made


def footprints(store: StoreMeaning) -> list[Diagnostic]:
    """Boxes of groups, compared with their grids."""
    found: list[Diagnostic] = []
    for path, meaning in store.groups.items():
        grid = None if meaning.bbox is None else grid_of(store, path)
        if meaning.bbox is not None and grid is not None and grid.shape[0] and grid.shape[1]:
            reading = Reading(node=store.nodes[path], lookup=store.lookup)
            check_bbox(reading, grid, meaning.bbox, path)
            found += reading.notes
    return found


def grid_of(store: StoreMeaning, path: str) -> Grid | None:
    """The grid a box of a node belongs to: that of the array, of the finest level, or the only one of a group."""
    if path in store.arrays:
        return store.arrays[path].grid
    pyramid = store.groups[path].pyramid
    if pyramid is not None:
        return next((level.grid for level in pyramid.levels if level.order == 0), None)
    grids = {(grid.shape, grid.transform, grid.registration): grid for grid in store.inside.get(path, ())}
    return next(iter(grids.values())) if len(grids) == 1 else None
