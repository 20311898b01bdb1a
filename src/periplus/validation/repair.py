"""Safe repairs: update declarations, move boxes to pixel edges, consolidate metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from periplus.conventions.identity import CONVENTIONS, KEY, declared, metadata
from periplus.conventions.node import ROOT
from periplus.conventions.write.attributes import written_bbox
from periplus.parse.zarr import NodeDocuments
from periplus.parse.zarr.documents import key_of
from periplus.validation.checks import StoreMeaning, grid_of
from periplus.validation.consolidation import CONSOLIDATED, consolidable, is_current
from periplus.validation.documents import StoreDocuments
from periplus.validation.report import Repair

if TYPE_CHECKING:
    from periplus.fetch import Fetch

FIXED_NAMES = frozenset({"spatial", "proj", "multiscales", "uom", "tessera"})
"""Conventions whose published schema fixes how they are declared."""
BBOX = "spatial:bbox"
BOXES = ("spatial.bbox-half-pixel", "spatial.bbox-edges")
DECLARATIONS = ("identity.old-url", "identity.name", "identity.no-uuid", "identity.object-form")


def repaired(store: StoreMeaning) -> tuple[StoreDocuments, tuple[Repair, ...]]:
    """The repaired metadata, and every change; nothing is written."""
    repairs: list[Repair] = []
    documents: dict[str, NodeDocuments] = {}
    # A group and its arrays may give the same finding twice; it is repaired once.
    boxes = {one.path: one.code for one in store.findings if one.attribute == BBOX and one.code in BOXES}
    for path, document in store.hierarchy.documents.items():
        attributes = _declared(path, document.attributes, repairs)
        if path in boxes:
            attributes = _with_box(store, path, attributes, boxes[path], repairs)
        same = attributes == document.attributes
        documents[path] = document if same else document.with_attributes(attributes)
    hierarchy = replace(store.hierarchy, documents=documents)
    return _consolidated(hierarchy, repairs), tuple(repairs)


def _declared(path: str, attributes: Mapping[str, Any], repairs: list[Repair]) -> dict[str, Any]:
    """Every declaration that can be identified, in the form of its schema; others stay as they are."""
    entries, notes = declared(attributes, path)
    codes = {note.code for note in notes} & set(DECLARATIONS)
    if not codes:
        return dict(attributes)
    listed = [
        metadata(entry.name) if entry.name in FIXED_NAMES else _with_uuid(entry.name, entry.entry) for entry in entries
    ]
    code = next(one for one in DECLARATIONS if one in codes)
    names = ", ".join(sorted({entry.name or "?" for entry in entries}))
    repairs.append(Repair(code=code, path=path, attribute=KEY, message=f"declare {names} by uuid and current URLs"))
    return {**attributes, KEY: listed}


def _with_uuid(name: str | None, entry: Mapping[str, Any]) -> dict[str, Any]:
    return dict(entry) if name is None else {"uuid": CONVENTIONS[name].uuid, **entry}


def _with_box(
    store: StoreMeaning, path: str, attributes: dict[str, Any], code: str, repairs: list[Repair]
) -> dict[str, Any]:
    """The box of an array or of a group, at the edges, where it was written from pixel centres."""
    grid = grid_of(store, path)
    if grid is None or BBOX not in attributes:
        return attributes
    box = [float(value) for value in written_bbox(grid)]
    message = f"{attributes[BBOX]} becomes {box}"
    repairs.append(Repair(code=code, path=path, attribute=BBOX, message=message))
    return {**attributes, BBOX: box}


def _consolidated(hierarchy: StoreDocuments, repairs: list[Repair]) -> StoreDocuments:
    """The hierarchy with all its metadata consolidated.

    A store that cannot be listed keeps what it has; one with corrupt documents is not consolidated, since readers would
    not see that their nodes exist.
    """
    corrupt = hierarchy.consolidated is None and hierarchy.findings
    if len(hierarchy.documents) < 2 or not hierarchy.listed or corrupt or is_current(hierarchy):
        return hierarchy
    root, wanted = hierarchy.documents[ROOT], consolidable(hierarchy)
    code = "store.unconsolidated" if hierarchy.consolidated is None else "store.consolidated-differs"
    where = ".zmetadata" if root.zarr_format == 2 else CONSOLIDATED
    repairs.append(Repair(code=code, path=ROOT, attribute=where, message=f"consolidate {len(wanted)} documents"))
    return replace(hierarchy, consolidated=wanted)


def changes(before: StoreDocuments, after: StoreDocuments) -> list[tuple[str, bytes]]:
    """(key, document) of everything to write, the root with what is consolidated last."""
    found: list[tuple[str, bytes]] = []
    for path, document in after.documents.items():
        if path == ROOT or document is before.documents[path]:
            continue
        name = document.attributes_name
        found.append((key_of(document.path, name), _text(document.stored[name])))
    root = after.documents[ROOT]
    if root.zarr_format == 2:
        if root is not before.documents[ROOT]:
            found.append((root.attributes_name, _text(root.stored[root.attributes_name])))
        if after.consolidated is not before.consolidated and after.consolidated is not None:
            found.append((".zmetadata", _text({"zarr_consolidated_format": 1, "metadata": dict(after.consolidated)})))
    elif root is not before.documents[ROOT] or after.consolidated is not before.consolidated:
        found.append(("zarr.json", _text(_root(root, after.consolidated))))
    return found


def _root(root: NodeDocuments, consolidated: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
    document = {key: value for key, value in root.stored["zarr.json"].items() if key != CONSOLIDATED}
    if consolidated is None:
        return document
    inside = {
        key.rpartition("/")[0]: {name: part for name, part in value.items() if name != CONSOLIDATED}
        for key, value in consolidated.items()
    }
    return {**document, CONSOLIDATED: {"kind": "inline", "must_understand": False, "metadata": inside}}


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()


def write_changes(url: str, made: Sequence[tuple[str, bytes]], fetch: Fetch) -> None:
    """Write every document, each at once: a reader sees the old one or the new one."""
    for key, data in made:
        fetch.run(fetch.write(f"{url.rstrip('/')}/{key}", data))
