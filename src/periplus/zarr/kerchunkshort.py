"""Strips: whether the last chunks of an image hold only the rows that exist, which most codecs have no word for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from periplus.codecnames import JBP_BLOCK, TIFF_TILE
from periplus.decode import prepare
from periplus.errors import DecodeError, FetchError, MissingError
from periplus.limits import Limits
from periplus.model import Array, Refs

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.table import Table

PROBES = 4
"""Files that are looked at: those of one array are mostly written by one program."""
COMPRESSED = frozenset({TIFF_TILE, "zstd", "gzip", "blosc", "zlib"})


def last_rows(table: Table, fetch: Fetch, array: Array, limits: Limits) -> int | None:
    """Rows of the last chunks, where these are stored shorter than others; None where all are whole.

    Plain chunks are told by their length. Of compressed ones some are read and decoded; where that is not possible they
    are taken for short, which codecs that know short chunks read either way.
    """
    if array.ndim < 2 or len(array.encodings) != 1 or array.edges is not None:
        return None
    axis = array.ndim - 2
    rest = array.shape[axis] % array.chunks[axis]
    names = [str(codec.get("name", "")) for codec in array.encodings[0]]
    if any("last_rows" in (codec.get("configuration") or {}) for codec in array.encodings[0]):
        return None  # it is said already
    plain = names in (["bytes"], ["transpose", "bytes"], [JBP_BLOCK])
    packed = not plain and any(name in COMPRESSED or name.startswith("numcodecs.") for name in names)
    # Tiles are narrower than the image, and always whole.
    if not rest or not (plain or packed) or array.chunks[-1] < array.shape[-1]:
        return None
    window = [(0, n) for n in array.grid]
    window[axis] = (array.grid[axis] - 1, array.grid[axis])
    refs = table.refs(array.name, window)
    if plain:
        return rest if len(refs) and int(refs.length.min()) < _full(array) and _is_single(refs) else None
    return rest if any(_is_short(table, fetch, array, refs, row, limits) for row in _probes(refs)) else None


def _full(array: Array) -> int:
    """Stored bytes of a whole plain chunk."""
    settings = array.encodings[0][-1].get("configuration") or {}
    return -(-math.prod(array.chunks) * int(settings.get("nbpp", array.dtype.itemsize * 8)) // 8)


def _is_single(refs: Refs) -> bool:
    return refs.part is None or not refs.part.any()


def _probes(refs: Refs) -> list[int]:
    if not len(refs) or refs.inline is not None or not _is_single(refs):
        return []
    return sorted({int(row) for row in np.linspace(0, len(refs) - 1, PROBES)})


def _is_short(table: Table, fetch: Fetch, array: Array, refs: Refs, row: int, limits: Limits) -> bool:
    source = table.files.source(0 if refs.file is None else int(refs.file[row]))
    length = limits.check("the stored size of a chunk", int(refs.length[row]), limits.chunk_bytes)
    try:
        data, _ = fetch.run(fetch.read(source.url, int(refs.offset[row]), length, expect=source))
    except (FetchError, MissingError):
        return True
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits)
    try:
        return bool(decode(data, valid=array.chunks).shape[-2] < array.chunks[-2])
    except DecodeError:
        return True
