"""Consolidated metadata: what they should hold, and how they differ in meaning from the documents of the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.node import ROOT
from periplus.errors import PeriplusError
from periplus.parse.zarr import ArrayMetadata, NodeDocuments
from periplus.parse.zarr.codecs import v3_codecs
from periplus.parse.zarr.documents import ZARRAY, ZATTRS, key_of
from periplus.parse.zarr.dtypes import write_fill
from periplus.validation.documents import StoreDocuments

CONSOLIDATED = "consolidated_metadata"
DEFAULTS = {ZARRAY: {"order": "C", "dimension_separator": "."}}
"""What fields of a document mean where they are not there."""


def consolidation(hierarchy: StoreDocuments) -> list[Diagnostic]:
    """Differences between consolidated and stored metadata."""
    held = hierarchy.consolidated
    if held is None:
        if len(hierarchy.documents) < 2:
            return []
        message = "the metadata are not consolidated: readers must list the store and request each node"
        hint = "consolidate them; the option fix of periplus validate does so"
        if hierarchy.findings:
            hint = "first repair the documents that store.json reports: consolidated metadata would hide their nodes"
        return [Diagnostic("store.unconsolidated", "warning", ROOT, "", message, hint)]
    return list(_differences(hierarchy, held)) if hierarchy.listed else []


def _differences(hierarchy: StoreDocuments, held: Mapping[str, Any]) -> Iterator[Diagnostic]:
    wanted = consolidable(hierarchy)
    for key in sorted({*held, *wanted}):
        path, _, name = key.rpartition("/")
        if not path:
            continue
        one, other = held.get(key, _absent(name)), wanted.get(key, _absent(name))
        if one is None:
            message = f"{key} is missing in the consolidated metadata: readers do not find this node"
            yield Diagnostic("store.consolidated-missing", "error", ROOT + path, "", message)
        elif other is None:
            message = f"{key} is in the consolidated metadata, but the node does not exist"
            yield Diagnostic("store.consolidated-ghost", "error", ROOT + path, "", message)
        elif not _same(name, one, other):
            message = f"the consolidated metadata of {key} differ from those of the node: readers see outdated metadata"
            yield Diagnostic("store.consolidated-differs", "error", ROOT + path, "", message)


def consolidable(hierarchy: StoreDocuments) -> dict[str, Mapping[str, Any]]:
    """The documents by key that consolidated metadata hold: those of the version of Zarr that the root has.

    A document that is corrupt stays as it is consolidated, where it is.
    """
    root, held = hierarchy.documents[ROOT], hierarchy.consolidated or {}
    corrupt = [key_of(one.path.strip("/"), one.attribute) for one in hierarchy.findings]
    keys = {key: held[key] for key in corrupt if key in held}
    for one in hierarchy.documents.values():
        if one.zarr_format == root.zarr_format:
            keys |= {key_of(one.path, name): value for name, value in one.stored.items()}
    return keys if root.zarr_format == 2 else {key: value for key, value in keys.items() if "/" in key}


def is_current(hierarchy: StoreDocuments) -> bool:
    """Whether the consolidated metadata mean what the nodes do."""
    held, wanted = hierarchy.consolidated, consolidable(hierarchy)
    if held is None:
        return False
    pairs = ((key, held.get(key, _absent(key)), wanted.get(key, _absent(key))) for key in {*held, *wanted})
    return all(one is not None and other is not None and _same(key, one, other) for key, one, other in pairs)


def _absent(key: str) -> Mapping[str, Any] | None:
    """What it means that a document is not there: no attributes, or no node."""
    return {} if key.endswith(ZATTRS) else None


def _same(key: str, one: Any, other: Any) -> bool:
    if one == other:
        return True
    name = key.rpartition("/")[2]
    return _canonical(name, one) == _canonical(name, other)


def _canonical(name: str, document: Any) -> str:
    """A text that is equal for documents of one meaning: without defaults, and with values spelled in one way."""
    if name != ZATTRS and isinstance(document, Mapping):
        empty: tuple[Any, ...] = (None, [], {})
        filled = {key: value for key, value in document.items() if key != CONSOLIDATED and value not in empty}
        document = {**DEFAULTS.get(name, {}), **filled}
        node = NodeDocuments(path="", stored={name: document})
        try:
            metadata = node.parse() if node.kind == "array" else None
        except PeriplusError:
            metadata = None
        if isinstance(metadata, ArrayMetadata):
            document |= _spelled(document, metadata)
    return json.dumps(_numbers(document), sort_keys=True)


def _spelled(document: Mapping[str, Any], metadata: ArrayMetadata) -> dict[str, Any]:
    """Fields that have several spellings, in one of them."""
    made: dict[str, Any] = {"shape": metadata.shape}
    if metadata.dtype is not None:
        made["fill_value"] = write_fill(metadata.fill_value, metadata.dtype)
    if metadata.zarr_format == 3:
        kind = document["data_type"]
        made["data_type"] = kind["name"] if isinstance(kind, Mapping) and not kind.get("configuration") else kind
        made["codecs"] = v3_codecs(document["codecs"])
        made["chunk_key_encoding"] = repr(metadata.chunk_keys)
        made["dimension_names"] = metadata.dims
    return made


def _numbers(value: Any) -> Any:
    """The value with whole numbers as integers: 0 and 0.0 are one number in JSON."""
    if isinstance(value, Mapping):
        return {key: _numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
