"""periplus: index imagery and array archives in place. The array index is a table."""

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
    from periplus.arrays import Arrays, IndexArray
    from periplus.engine.publish.publish import write_conventions
    from periplus.entry import index, open
    from periplus.facade import Index
    from periplus.forms import WriteReport
    from periplus.harvest import Summary
    from periplus.limits import Limits
    from periplus.model import Files, Georeference
    from periplus.rasters import Raster
    from periplus.read import SourceReport
    from periplus.table.query.integrity import IndexReport
    from periplus.validation.report import ValidationReport
    from periplus.validation.validate import validate
    from periplus.zarr.icechunk.write import IcechunkCommit

__version__ = "0.1.0"
__all__ = [
    "Arrays",
    "ConflictError",
    "DecodeError",
    "DeniedError",
    "FetchError",
    "Files",
    "FormatError",
    "Georeference",
    "IcechunkCommit",
    "Index",
    "IndexArray",
    "IndexReport",
    "LimitError",
    "Limits",
    "MissingError",
    "PeriplusError",
    "Raster",
    "SourceReport",
    "StaleError",
    "Summary",
    "ValidationReport",
    "WriteReport",
    "index",
    "open",
    "validate",
    "write_conventions",
]

_MODULES = {
    "Arrays": "arrays",
    "Files": "model",
    "Georeference": "model",
    "IcechunkCommit": "zarr.icechunk.write",
    "Index": "facade",
    "IndexArray": "arrays",
    "IndexReport": "table.query.integrity",
    "Limits": "limits",
    "Raster": "rasters",
    "SourceReport": "read",
    "Summary": "harvest",
    "ValidationReport": "validation.report",
    "WriteReport": "forms",
    "index": "entry",
    "open": "entry",
    "validate": "validation.validate",
    "write_conventions": "engine.publish.publish",
}
"""Names that are imported when they are first used, so that `import periplus` stays cheap."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'periplus' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"periplus.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
