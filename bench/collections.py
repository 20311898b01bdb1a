"""A collection of 100,000 images at different places: opening, selecting, reading and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

COUNT = 100_000
TILE = 256
PIXEL = 10.0
SIZE = 2 * TILE
SPAN = SIZE * PIXEL
ACROSS = 400
"""Images in a row; the next row lies below."""
CODECS = ({"name": "bytes", "configuration": {"endian": "little"}},)


def corner(number: int) -> tuple[float, float]:
    return 300_000.0 + SPAN * (number % ACROSS), 9_000_000.0 - SPAN * (number // ACROSS)


def write_collection(url: Path, count: int) -> Path:
    """An index of `count` images of two levels, five chunks; the file of the middle one is there to be read."""
    from periplus.fetch import Fetch
    from periplus.model import Array, Bundle, Catalog, Encoding, Files, Georeference, Refs
    from periplus.policy import Policy
    from periplus.table import write_table
    from periplus.table.buffers import strings
    from periplus.table.bundles import Bundled
    from periplus.table.families import GroupAttributes, Groups

    def level(number: int) -> Array:
        pixel = PIXEL * 2**number
        return Array(
            name=f"{number}/data",
            dims=("bands", "y", "x"),
            shape=(1, SIZE >> number, SIZE >> number),
            chunks=(1, TILE, TILE),
            dtype=np.dtype("uint8"),
            encodings=(Encoding(CODECS),),
            level=number,
            georeference=Georeference(crs="EPSG:32633", transform=(pixel, 0.0, 0.0, 0.0, -pixel, 0.0)),
        )

    ids = np.arange(count, dtype=np.int32)
    names = [f"scenes/s{number:07d}" for number in range(count)]
    groups = Groups(
        families=[{"0/data": level(0), "1/data": level(1)}],
        names=strings(names),
        family=np.zeros(count, np.int32),
        x=300_000.0 + SPAN * (ids % ACROSS),
        y=9_000_000.0 - SPAN * (ids // ACROSS),
        file=ids,
        note=np.where(ids % 2, 0, -1).astype(np.int32),
        notes=[{"sensor": "a"}],
    )
    group = np.empty(count, object)
    group[:] = names
    files = Files(
        path=[f"{url.parent}/{name}.raw" for name in names],
        size=np.full(count, 5 * TILE * TILE),
        etag=[None if number == count // 2 else f"{number:016x}" for number in range(count)],
        last_modified=np.where(ids == count // 2, np.datetime64("NaT"), np.datetime64("2026-01-01", "us")),
        datetime=np.datetime64("2020-01-01", "us") + ids * np.timedelta64(3600, "s"),
        format=["raw"] * count,
        status=["ok"] * count,
        error=[None] * count,
        columns={"group": group},
    )
    catalog = Catalog(
        arrays=groups, attributes=GroupAttributes({"": {"title": "many"}}, groups), arrangement={"kind": "collect"}
    )

    def bundles(step: int = 20_000) -> Any:
        y, x = np.array([0, 0, 1, 1, 0], np.int32), np.array([0, 1, 0, 1, 0], np.int32)
        for first in range(0, count, step):
            size = min(step, count - first)
            yield Bundle(
                names=[f"{name}/{k}/data" for name in names[first : first + size] for k in range(2)],
                owner=(np.array([0, 0, 0, 0, 1], np.int32) + 2 * np.arange(size, dtype=np.int32)[:, None]).ravel(),
                dims=("bands", "y", "x"),
                refs=Refs(
                    chunk=np.stack([np.zeros(5 * size, np.int32), np.tile(y, size), np.tile(x, size)]),
                    offset=np.tile(np.arange(5, dtype=np.int64) * TILE * TILE, size),
                    length=np.full(5 * size, TILE * TILE, np.int64),
                    file=np.repeat(np.arange(first, first + size, dtype=np.int32), 5),
                ),
            )

    middle = url.parent / f"{names[count // 2]}.raw"
    middle.parent.mkdir(parents=True, exist_ok=True)
    middle.write_bytes(np.arange(5 * TILE * TILE, dtype=np.uint8).tobytes())
    with Fetch(policy=Policy.everything()) as fetch:
        write_table(str(url), catalog, Bundled(bundles(), groups), files, fetch=fetch)
    return url
