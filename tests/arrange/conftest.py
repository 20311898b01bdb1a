"""Small files that were never on a disk: entries with arrays and references, for pure tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from periplus.arrange import FileEntry
from periplus.model import Array, Encoding, Georeference, Refs, Source, chunk_positions

CODECS = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 0}})


def image(name: str = "0/data", *, size: int = 64, dtype: Any = np.int16, codecs: Any = CODECS, **more: Any) -> Array:
    """A one-band image of four chunks."""
    settings: dict[str, Any] = {
        "dims": ("bands", "y", "x"),
        "shape": (1, size, size),
        "chunks": (1, size // 2, size // 2),
        "dtype": np.dtype(dtype),
        "encodings": (Encoding(tuple(codecs)),),
        "georeference": Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)),
    }
    return Array(name=name, **{**settings, **more})


def packed(array: Array, nodata: Any = None, scale: Any = None, offset: Any = None) -> Array:
    """The array with its packing in its attributes."""
    named = {"_FillValue": nodata, "scale_factor": scale, "add_offset": offset}
    attributes = {**array.attributes, **{name: value for name, value in named.items() if value is not None}}
    return replace(array, attributes=attributes, fill=nodata)


def entry(url: str, *arrays: Array, day: int | None = None, **more: Any) -> FileEntry:
    moment = None if day is None else datetime(2021, 1, day, tzinfo=UTC)
    return FileEntry(source=Source(url=url, size=1000), format="tiff", datetime=moment, arrays=arrays, **more)


def lookup(entries: Sequence[FileEntry], *, missing: Sequence[tuple[int, int]] = ()) -> Any:
    """References that tell which entry, array and chunk they are of; `missing` (entry, chunk) have none."""

    def refs(number: int, which: int) -> Refs:
        chunk = chunk_positions(entries[number].arrays[which].grid)
        rows = np.array([k for k in range(chunk.shape[1]) if (number, k) not in missing], dtype=np.intp)
        whole = np.arange(chunk.shape[1], dtype=np.int64) + 100 * which + 10_000 * number
        return Refs(chunk=chunk[:, rows], offset=whole[rows], length=np.full(len(rows), 7, np.int64))

    return refs


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(image=image, packed=packed, entry=entry, lookup=lookup, codecs=CODECS)
