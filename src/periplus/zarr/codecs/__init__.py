"""Codecs of Zarr v3 and filters of Zarr v2 for chunks as they are stored in imagery files."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULE = "periplus.zarr.codecs.v3"
__all__ = [
    "Crop",
    "Dted",
    "JbpBlock",
    "Jpeg",
    "Jpeg2000",
    "Listed",
    "Png",
    "TiffTile",
    "Unpack",
    "VectorQuantised",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE), name)
