"""GeoTIFFs on one pixel grid, and their merge by rasterio, with which mosaics are compared."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.testing.formats.tiff import picture

WEST, NORTH, PIXEL = 500_000.0, 5_000_000.0, 10.0
NODATA = -32768
"""No image contains it, so that rasterio, which merges pixel by pixel, gives the same result as overlaying files."""


def tile(
    path: Path,
    row: float,
    column: float,
    size: tuple[int, int] = (64, 64),
    *,
    bands: int = 2,
    dtype: Any = np.int16,
    pixel: float = PIXEL,
    turn: float = 0.0,
    values: NDArray[Any] | None = None,
    levels: Sequence[int] = (),
    **profile: Any,
) -> Path:
    """A GeoTIFF whose first pixel is at (row, column) of the common grid."""
    import rasterio
    from affine import Affine
    from rasterio.enums import Resampling

    path.parent.mkdir(exist_ok=True)
    if values is None:
        values = picture(path.stem, dtype, (bands, *size))
    cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    x, y = (cos * column + sin * row) * PIXEL, (sin * column - cos * row) * PIXEL
    where = Affine(cos * pixel, sin * pixel, WEST + x, sin * pixel, -cos * pixel, NORTH + y)
    settings: dict[str, Any] = {"crs": "EPSG:32633", "nodata": NODATA, "compress": "deflate", "tiled": True}
    settings |= {"blockxsize": 32, "blockysize": 32, **profile}
    if not settings["tiled"]:
        settings.pop("blockxsize")
    with rasterio.open(
        path, "w", driver="GTiff", width=size[1], height=size[0], count=bands, dtype=dtype, transform=where, **settings
    ) as image:
        image.write(values)
        if levels:
            image.build_overviews(levels, Resampling.nearest)
    return path


def merged(paths: Sequence[Path], method: str = "first", **options: Any) -> tuple[NDArray[Any], Any]:
    """The scenes merged by rasterio, pixel by pixel, and the transform of the result."""
    from rasterio.merge import merge

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # rasterio's own use of affine
        values, transform = merge([str(path) for path in paths], method=method, **options)
    return values, transform
