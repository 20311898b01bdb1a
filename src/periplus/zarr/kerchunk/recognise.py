"""Names of kerchunk references: a JSON file, or the directory of a `.zmetadata`."""

from __future__ import annotations

ZMETADATA = ".zmetadata"
"""The file of a Parquet directory that describes the others."""


def is_json(url: str) -> bool:
    """Whether a URL is that of a JSON file, by its name."""
    return url.partition("?")[0].lower().endswith(".json")
