"""Real TIFF files, small and seeded, and a Fetch that ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.transform import Affine

from periplus.fetch import Fetch
from periplus.harvest.scanning import stream as stream_module

PLACE = Affine(10, 0, 500000, 0, -10, 5000000)


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    with Fetch() as made:
        yield made


def values(seed: int, size: int = 96, dtype: Any = "uint16") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    y, x = np.indices((size, size))
    wave = 1000 + 500 * np.sin(x / 9 + seed) * np.cos(y / 7) + rng.normal(0, 9, (size, size))
    return wave.astype(np.int64).astype(dtype)


def write(
    path: Path,
    seed: int = 0,
    *,
    size: int = 96,
    dtype: Any = "uint16",
    block: int = 32,
    nodata: float | None = None,
    scale: float | None = None,
    offset: float | None = None,
    cog: bool = False,
    moment: str | None = None,
    compress: str = "deflate",
    **options: Any,
) -> np.ndarray[Any, Any]:
    """A GeoTIFF made by GDAL; the values it holds."""
    data = values(seed, size, dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = {"blocksize": block} if cog else {"blockxsize": block, "blockysize": block, "tiled": True}
    with rasterio.open(
        path,
        "w",
        driver="COG" if cog else "GTiff",
        height=size,
        width=size,
        count=1,
        dtype=dtype,
        crs="EPSG:32633",
        transform=PLACE,
        nodata=nodata,
        compress=compress,
        **layout,
        **options,
    ) as file:
        file.write(data, 1)
        if scale is not None:
            file.scales = [scale]
        if offset is not None:
            file.offsets = [offset]
        if moment is not None:
            file.update_tags(TIFFTAG_DATETIME=moment)
    return data


def plain(path: Path, seed: int = 0, size: int = 64) -> np.ndarray[Any, Any]:
    """A small TIFF made by tifffile, fast to write by the thousand."""
    data = values(seed, size)
    tifffile.imwrite(path, data, tile=(32, 32), compression="zlib")
    return data


@pytest.fixture
def tiff() -> SimpleNamespace:
    return SimpleNamespace(write=write, plain=plain, values=values)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of local files that were scanned."""
    names: list[str] = []
    real = stream_module.harvest_local

    def watched(item: Any, path: str, *rest: Any, **more: Any) -> Any:
        names.append(Path(path).name)
        return real(item, path, *rest, **more)

    monkeypatch.setattr(stream_module, "harvest_local", watched)
    return names
