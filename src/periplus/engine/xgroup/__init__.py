"""The xarray engine `xgroup`: Zarr hierarchies with the coordinates that GeoZarr conventions give them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def __getattr__(name: str) -> Any:
    """Names of the backend, which is imported when the first is used: it needs xarray."""
    backend = import_module(f"{__name__}.backend")
    if name not in backend.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(backend, name)


def _offer_errors() -> None:
    """Let programs written for the draft of this engine import its errors, where its package is not installed."""
    name = "zarr_xgroup"
    if name in sys.modules or find_spec(name) is not None:
        return
    package = ModuleType(name, "Errors and warnings of the engine `xgroup`, under the names of its draft; by periplus.")
    package.__path__ = []
    errors = import_module(f"{__name__}.warnings")
    package.errors = errors  # type: ignore[attr-defined]
    sys.modules |= {name: package, f"{name}.errors": errors}


_offer_errors()
