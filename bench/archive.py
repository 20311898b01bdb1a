"""Seeded test imagery: COGs that compress like real scenes, one set for each encoding."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

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
    """`count` copies of one small-headed COG: the header benchmark's archive."""
    first = scene(folder, "series-0000", height=2048, width=4096, bands=1, dtype="int16", seed=1,
                  compress="zstd", predictor=2)  # fmt: skip
    data = first.read_bytes()
    paths = [first]
    for number in range(1, count):
        path = folder / f"series-{number:04d}.tif"
        if not path.exists():
            path.write_bytes(data)
        paths.append(path)
    return paths
