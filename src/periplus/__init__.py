"""periplus: index imagery and array archives where they lie. The array index is a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from periplus.errors import (
    ConflictError,
    DecodeError,
    DeniedError,
    FetchError,
    FormatError,
    LimitError,
    MissingError,
    PeriplusError,
    StaleError,
)

if TYPE_CHECKING:
    from periplus.engine.publish.publish import write_conventions
    from periplus.facade import Index, index, open
    from periplus.limits import Limits
    from periplus.validation.validate import validate

__version__ = "0.1.0"
__all__ = [
    "ConflictError",
    "DecodeError",
    "DeniedError",
    "FetchError",
    "FormatError",
    "Index",
    "LimitError",
    "Limits",
    "MissingError",
    "PeriplusError",
    "StaleError",
    "index",
    "open",
    "validate",
    "write_conventions",
]

_HOMES = {
    "Index": "facade",
    "index": "facade",
    "open": "facade",
    "Limits": "limits",
    "validate": "validation.validate",
    "write_conventions": "engine.publish.publish",
}


def __getattr__(name: str) -> Any:
    """Load the façade only when it is asked for, so that `import periplus` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'periplus' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"periplus.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
