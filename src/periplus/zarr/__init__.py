"""An index as a Zarr store, kerchunk references, an Icechunk repository or VirtualiZarr manifests; and Zarr codecs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "IndexStore": "store.store",
    "MultiReferenceFileSystem": "fsspec.filesystem",
    "documents": "description.metadata",
    "layout": "description.metadata",
    "open_kerchunk": "kerchunk.read",
    "write_kerchunk": "kerchunk.write",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
