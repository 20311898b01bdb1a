"""Which form an index has: kerchunk references or our own. Light, since every index is opened through it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from periplus.errors import MissingError, PeriplusError
from periplus.fetch.local.folders import restore_folder
from periplus.limits import Limits
from periplus.policy import canonical, is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.table import Table

ZMETADATA = ".zmetadata"
"""What a Parquet directory begins with."""


def is_json(url: str) -> bool:
    """Whether a URL is that of a JSON file, by its name."""
    return url.partition("?")[0].lower().endswith(".json")


def open_index(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits | None = None,
    allow: Iterable[str] = (),
    trust: bool = False,
    **options: Any,
) -> Table:
    """An index in any form of a file or folder: kerchunk by the name `.json` or by its `.zmetadata`, else our own."""
    plain = canonical(url)
    folder = plain if plain.endswith("/") else plain + "/"
    if is_local(plain):
        restore_folder(plain.removesuffix("/"))
    if is_json(plain) or (is_local(plain) and Path(folder + ZMETADATA).is_file()):
        return _open_kerchunk(url, fetch=fetch, limits=limits, allow=allow, **options)
    from periplus.table import open_table

    try:
        return open_table(url, fetch=fetch, limits=limits, allow=allow, trust=trust, **options)
    except MissingError:
        if is_local(plain):
            raise
        try:
            fetch.run(fetch.head(folder + ZMETADATA))
        except PeriplusError:
            there = False
        else:
            there = True
        if not there:
            raise
    return _open_kerchunk(url, fetch=fetch, limits=limits, allow=allow, **options)


def _open_kerchunk(url: str, **options: Any) -> Table:
    from periplus.zarr.kerchunk.read import open_kerchunk

    return open_kerchunk(url, **options)
