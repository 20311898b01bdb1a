"""Seeded test imagery: COGs that compress like real scenes, one set for each encoding."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HEADER_BYTES = 64 << 10

ENCODINGS: dict[str, dict[str, Any]] = {
    "deflate": {"compress": "deflate"},
    "zstd + predictor 2": {"compress": "zstd", "predictor": 2},
    "jpeg": {"compress": "jpeg", "quality": 85},
    "uncompressed": {"compress": "none"},
}


@cache
def landscape(height: int, width: int, bands: int, seed: int) -> np.ndarray:
    """Smooth relief with fine grain, as reflectances look."""
    rng = np.random.default_rng(seed)
    image = np.zeros((bands, height, width), np.float32)
    for octave in range(3, 10):
        step = max(1, height >> octave)
        coarse = rng.standard_normal((bands, height // step + 2, width // step + 2)).astype(np.float32)
        image += np.kron(coarse, np.ones((1, step, step), np.float32))[:, :height, :width] * (step / height)
    image += rng.standard_normal(image.shape).astype(np.float32) * 0.01
    low, high = np.percentile(image[:, ::16, ::16], [1, 99])
    return np.clip((image - low) / (high - low), 0, 1)


def scene(
    folder: Path, name: str, *, height: int, width: int, bands: int, dtype: str, seed: int, **creation: Any
) -> Path:
    """A COG with 512-pixel tiles and overviews."""
    import rasterio
    from rasterio.transform import from_origin

    path = folder / f"{name}.tif"
    if path.exists():
        return path
    scale = 255 if dtype == "uint8" else 10_000
    values = (landscape(height, width, bands, seed) * scale).astype(dtype)
    profile = {
        "driver": "COG", "width": width, "height": height, "count": bands, "dtype": dtype, "blocksize": 512,
        "crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 10, 10), "overview_resampling": "average",
    } | creation  # fmt: skip
    with rasterio.open(path, "w", **profile) as target:
        target.write(values)
    return path


def series(folder: Path, count: int) -> list[Path]:
    """`count` COGs of one grid, as a daily product has them: the header benchmark's first archive."""
    first = _first(folder)
    data = first.read_bytes()
    return [_written(folder / f"series-{number:04d}.tif", data) for number in range(count)]


def tiling(folder: Path, count: int) -> list[Path]:
    """`count` COGs that each lie elsewhere, as the tiles of a mosaic do: nothing learned of one serves the next."""
    data = _first(folder).read_bytes()
    place = struct.pack("<6d", 0, 0, 0, 500_000, 5_000_000, 0)
    if data.count(place) != 1:
        raise ValueError("the tie point of the first scene is not where it was written")
    return [
        _written(
            folder / f"tiling-{number:04d}.tif",
            data.replace(place, struct.pack("<6d", 0, 0, 0, 500_000 + 40_960.0 * number, 5_000_000, 0)),
        )
        for number in range(count)
    ]


def _first(folder: Path) -> Path:
    return scene(folder, "first", height=2048, width=4096, bands=1, dtype="int16", seed=1, compress="zstd", predictor=2)


def _written(path: Path, data: bytes) -> Path:
    """The file with its header; the pixels are a hole of the right size, as nobody reads them here."""
    if not path.exists():
        with path.open("wb") as file:
            file.write(data[:HEADER_BYTES])
            file.truncate(len(data))
    return path
