"""The xarray engine `xgroup`: Zarr hierarchies with the coordinates that GeoZarr conventions give them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = "periplus.engine.xgroup.backend"
__all__ = [
    "XGroupBackend",
    "XGroupConflictWarning",
    "XGroupConventionWarning",
    "XGroupError",
    "XGroupNoPrincipalWarning",
    "XGroupPathError",
    "XGroupPathWarning",
    "XGroupReferenceError",
    "XGroupReferenceWarning",
    "XGroupStoreError",
    "XGroupStoreWarning",
    "XGroupWarning",
    "levels",
    "require",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME), name)
