"""Tell an index from imagery by content, cheaply, without a Parquet library."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from periplus.policy import canonical, is_local
from periplus.table.forms import DUCKDB, FILES_NAME, FLAT

MAGIC = b"PAR1"
FOOTER_KEY = b"array_references"
INDEXES = ("", *FLAT, *DUCKDB)
"""Endings that remote indexes have; a dataset is a folder and needs none."""
REFERENCES = (b'"refs"', b'.zgroup"', b'.zarray"', b'zarr.json"')
"""What kerchunk references in JSON hold early on, and STAC items do not."""
HEAD = 64 << 10
LARGEST_FOOTER = 64 << 20
"""Bytes of a Parquet footer we look through."""


def holds_index(url: str | bytes) -> bool | None:
    """Whether a local file or folder is an index; None where only a name tells, as with remote ones."""
    if not isinstance(url, str):
        return False
    if not is_local(url):
        named = urlsplit(url).path.lower()
        return None if named.endswith("/") or Path(named).suffix in INDEXES else False
    path = Path(canonical(url))
    if path.suffix.lower() in DUCKDB:
        return None
    try:
        if path.suffix.lower() == ".json" or (path / ".zmetadata").is_file():
            return _has_references(path)
        return _has_key(path / FILES_NAME if path.is_dir() else path)
    except OSError:
        # Unreadable or absent: whoever opens it says so better than a guess can.
        return False


def _has_key(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            return False
        end = file.seek(-8, 2)
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or not 0 < length <= min(end - 4, LARGEST_FOOTER):
            return False
        file.seek(end - length)
        return FOOTER_KEY in file.read(length)


def _has_references(path: Path) -> bool:
    """Whether a JSON file, or a folder that is no Zarr store, holds kerchunk references."""
    if path.is_dir():
        return b'"record_size"' in (path / ".zmetadata").read_bytes()[:LARGEST_FOOTER]
    with path.open("rb") as file:
        head = file.read(HEAD)
    return any(mark in head for mark in REFERENCES)
