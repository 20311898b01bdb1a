"""Attributes of the conventions, to be written to nodes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = "periplus.conventions.write.attributes"
__all__ = [
    "GriddedArray",
    "Layer",
    "WrittenConventions",
    "array_attributes",
    "as_grid",
    "declare",
    "grid_mapping_attributes",
    "layer_grid",
    "merged",
    "multiscales_attributes",
    "proj_attributes",
    "size",
    "spatial_attributes",
    "spatial_dims",
    "written_bbox",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME), name)
