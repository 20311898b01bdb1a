"""The xarray engine `xgroup`: Zarr hierarchies with the coordinates that GeoZarr conventions give them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Names of the backend, which is imported when the first is used: it needs xarray."""
    backend = import_module(f"{__name__}.backend")
    if name not in backend.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(backend, name)
