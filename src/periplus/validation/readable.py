"""Whether nodes can be opened: fields, codecs and types as zarr-python reads them, labels that fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.node import ROOT, Node, parent
from periplus.limits import GIB
from periplus.validation.documents import StoreDocuments

MOST_LABELS = GIB
"""Bytes of labels that xarray reads into memory for an index."""
CODE = "node.unreadable"
BELOW = "consolidated_metadata"
"""The field of a group with the metadata of the nodes below it, which are checked by themselves."""


def unreadable(hierarchy: StoreDocuments, nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    """Findings for nodes that readers cannot open, or do not see."""
    reasons: dict[str, tuple[str, bool]] = {}
    can_open = find_spec("zarr") is not None
    for path, node in nodes.items():
        documents = hierarchy.documents[path]
        above = hierarchy.documents[parent(path) or ROOT].zarr_format
        if node.zarr_format != above:
            message = f"this is a node of Zarr v{node.zarr_format} in a group of v{above}, where readers do not see it"
            yield Diagnostic("store.mixed-versions", "warning", path, documents.name, message)
        if can_open:
            document = {
                name: value for name, value in documents.stored.get(documents.name, {}).items() if name != BELOW
            }
            if node.zarr_format == 2 or isinstance(document.get("attributes", {}), Mapping):
                document["attributes"] = {}
            alike = repr(document)  # nodes of a store often differ only in attributes
            if alike not in reasons:
                reasons[alike] = _reason(document, node.kind)
            reason, unknown_codec = reasons[alike]
            if reason:
                message = f"zarr-python cannot open this {node.kind}: {reason}"
                hint = "install the package that has this codec" if unknown_codec else ""
                yield Diagnostic(CODE, "warning" if unknown_codec else "error", path, documents.name, message, hint)
        if (
            node.kind == "array"
            and node.dims == (node.name,)
            and node.dtype
            and node.shape[0] * np.dtype(node.dtype).itemsize > MOST_LABELS
        ):
            message = f"{node.shape[0]} labels are too many for an index: xarray reads them all when it opens the group"
            yield Diagnostic("node.labels", "warning", path, "shape", message)


def _reason(document: dict[str, Any], kind: str) -> tuple[str, bool]:
    """Why zarr-python cannot open a node, and whether only a codec is unknown here; empty where it can."""
    from zarr.core.array import parse_array_metadata
    from zarr.core.group import GroupMetadata

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of codecs and types that are not in the specification
            parse_array_metadata(document) if kind == "array" else GroupMetadata.from_dict(document)
    except Exception as error:  # noqa: BLE001 - a codec may raise anything
        text = str(error).strip().partition("\n")[0][:300]
        reason = f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text or type(error).__name__
        return reason, isinstance(error, ImportError) or type(error).__name__ == "UnknownCodecError"
    return "", False
