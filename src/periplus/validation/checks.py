"""Checks of a whole store: the meaning of every node, and consolidated metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from periplus.conventions.context import Reading
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Grid, GroupMeaning, Meaning
from periplus.conventions.node import ROOT, Node, NodeLookup
from periplus.conventions.read import Reader
from periplus.conventions.spatial.grid import check_bbox
from periplus.parse.zarr import NodeDocuments
from periplus.parse.zarr.documents import key_of
from periplus.validation.documents import StoreDocuments

CONSOLIDATED = "consolidated_metadata"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    made.findings.extend(consolidation(hierarchy))
    if not made.declared:
        message = "no node declares any convention; nothing of them was checked"
        made.findings.append(Diagnostic("store.nothing", "warning", ROOT, "zarr_conventions", message))
    return made


def footprints(store: StoreMeaning) -> list[Diagnostic]:
    """Boxes of groups, compared with their grids."""
    found: list[Diagnostic] = []
    for path, meaning in store.groups.items():
        grid = grid_of(store, path)
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
    below = path.rstrip("/") + "/"
    inside = [meaning.grid for name, meaning in store.arrays.items() if name.rpartition("/")[0] + "/" == below]
    grids = {(grid.shape, grid.transform, grid.registration): grid for grid in inside if grid is not None}
    return next(iter(grids.values())) if len(grids) == 1 else None


def consolidation(hierarchy: StoreDocuments) -> list[Diagnostic]:
    """Differences between consolidated and stored metadata."""
    if hierarchy.consolidated is None:
        if len(hierarchy.documents) < 2:
            return []
        message = "the metadata are not consolidated: readers must list the store and request each node"
        hint = "consolidate them; the option fix of periplus validate does so"
        return [Diagnostic("store.unconsolidated", "warning", ROOT, "", message, hint)]
    if not hierarchy.listed:
        return []
    stored = stored_keys(hierarchy.documents)
    root = {key for key in stored if "/" not in key}
    held = {key: value for key, value in hierarchy.consolidated.items() if key not in root}
    wanted = {key: value for key, value in stored.items() if key not in root}
    found = []
    for key in sorted({*held, *wanted}):
        path = "/" + key.rpartition("/")[0]
        if key not in held:
            message = f"{key} is missing in the consolidated metadata: readers do not find this node"
            found.append(Diagnostic("store.consolidated-missing", "error", path, "", message))
        elif key not in wanted:
            message = f"{key} is in the consolidated metadata, but the node does not exist"
            found.append(Diagnostic("store.consolidated-ghost", "error", path, "", message))
        elif plain(held[key]) != plain(wanted[key]):
            message = f"the consolidated metadata of {key} differ from those of the node: readers see outdated metadata"
            found.append(Diagnostic("store.consolidated-differs", "error", path, "", message))
    return found


def stored_keys(documents: Mapping[str, NodeDocuments]) -> dict[str, Mapping[str, Any]]:
    """The documents by key, as they are consolidated; attributes of Zarr v2 that are not there are empty."""
    stored = documents.values()
    return {key_of(one.path, name): value for one in stored for name, value in one.stored.items()}


def plain(document: Any) -> str:
    """A text that is equal for equivalent documents; consolidated metadata are ignored."""
    if isinstance(document, Mapping):
        document = {key: value for key, value in document.items() if key != CONSOLIDATED}
        if document.get("attributes") == {}:
            document = {key: value for key, value in document.items() if key != "attributes"}
    return json.dumps(document, sort_keys=True)
