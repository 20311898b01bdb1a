"""A synthetic index as large as a real archive: 8,660 daily images of 36 x 71 tiles, generated in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from periplus.model import Array, Catalog, Coordinate, Encoding, Files, Georeference, Refs, chunk_positions

TILE = 512
ROWS, COLUMNS = 36, 71
DAYS = 8_660
HEADER = 41_000
"""Bytes before the first tile: the size of the tile tables of such an image."""
FOLDER = (
    "s3://us-west-2.opendata.source.coop/example/ghrsst-mur-v41/daily-cogs"
    "/global-foundation-temperature-analysis/edition-20/"
)


def synthetic_catalog(days: int = DAYS) -> Catalog:
    """One stacked array `0/data` of (time, bands, y, x) and its daily coordinate."""
    array = Array(
        name="0/data",
        dims=("time", "bands", "y", "x"),
        shape=(days, 1, 17_999, 36_000),
        chunks=(1, 1, TILE, TILE),
        dtype=np.dtype(np.int16),
        fill=-32_768,
        encodings=(
            Encoding(
                (
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
                )
            ),
        ),
        attributes={"_FillValue": -32_768, "scale_factor": 0.001, "add_offset": 298.15, "units": "kelvin"},
        georeference=Georeference(crs="EPSG:4326", transform=(0.01, 0.0, -179.995, 0.0, -0.01, 89.995)),
    )
    time = np.datetime64("2002-06-01T09:00", "us") + np.arange(days) * np.timedelta64(86_400_000_000, "us")
    return Catalog(
        arrays={array.name: array},
        coordinates={"time": Coordinate(name="time", dims=("time",), values=time)},
        arrangement={"kind": "stack", "dim": "time"},
    )


def synthetic_files(days: int = DAYS) -> Files:
    """Files with 138-character paths."""
    time = np.asarray(synthetic_catalog(days).coordinates["time"].values)
    names = [f"{np.datetime_as_string(t, unit='D').replace('-', '')}090000.tif" for t in time]
    return Files(
        path=[FOLDER + name for name in names],
        size=np.full(days, 1 << 31, np.int64),
        etag=[f'"{i:032x}-45"' for i in range(days)],
        last_modified=time.astype("datetime64[us]"),
        datetime=time.astype("datetime64[us]"),
        format=["tiff"] * days,
        status=["ok"] * days,
        error=[None] * days,
    )


def synthetic_blocks(days: int = DAYS, *, step: int = 512, seed: int = 0) -> Iterator[tuple[str, Refs]]:
    """References of `step` files at a time, in the order of a harvest; no more than that is in memory.

    30 % of the tiles are land of 63 bytes; the others have lengths that vary by 5 % in time around their mean.
    """
    tiles = ROWS * COLUMNS
    random = np.random.default_rng(seed)
    mean = random.lognormal(10.3, 0.5, tiles)
    land = random.random(tiles) < 0.3
    within = chunk_positions((1, ROWS, COLUMNS))
    for first in range(0, days, step):
        count = min(step, days - first)
        length = (mean * random.uniform(0.95, 1.05, (count, tiles))).astype(np.int64)
        length[:, land] = 63
        offset = HEADER + np.cumsum(length + 8, axis=1) - length - 8
        time = np.arange(first, first + count, dtype=np.int32)
        chunk = np.empty((4, count * tiles), np.int32)
        chunk[0] = np.repeat(time, tiles)
        chunk[1:] = np.tile(within, count)
        yield "0/data", Refs(chunk=chunk, offset=offset.ravel(), length=length.ravel(), file=np.repeat(time, tiles))
