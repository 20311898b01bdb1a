"""The Zarr face: the same rows as a Zarr store, as kerchunk references, as codecs. Names load when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "IndexStore": "store.store",
    "MultiReferenceFileSystem": "fsspec.filesystem",
    "documents": "description.metadata",
    "layout": "description.metadata",
    "open_kerchunk": "kerchunk.read",
    "write_kerchunk": "kerchunk.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
