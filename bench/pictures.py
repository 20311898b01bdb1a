"""Seeded imagery in the formats of archives: NITF plain and in JPEG 2000, a JPEG, an elevation cell."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.archive import landscape

SIZE = 4096
TILE = 1024
BLOCK = 512
POSTS = 3601
"""Of a side of a DTED cell of level 2."""


def _kept(folder: Path, name: str, make: Callable[[], bytes]) -> Path:
    path = folder / name
    if not path.exists():
        path.write_bytes(make())
    return path


def colours() -> np.ndarray:
    """(3, y, x) bytes."""
    return (landscape(SIZE, SIZE, 3, 7) * 255).astype(np.uint8)


def nitf(folder: Path) -> Path:
    """An uncompressed NITF in blocks, its bands one after another in each, as GDAL writes it."""
    path = folder / "plain.ntf"
    if not path.exists():
        _write(path, colours(), driver="NITF", blockxsize=BLOCK, blockysize=BLOCK, tiled=True)
    return path


def nitf_jpeg(folder: Path) -> Path:
    """A NITF of JPEG blocks, as GDAL writes it."""
    from rasterio.shutil import copy

    path = folder / "jpeg.ntf"
    if not path.exists():
        copy(nitf(folder), path, driver="NITF", IC="C3", QUALITY="85", BLOCKXSIZE=BLOCK, BLOCKYSIZE=BLOCK)
    return path


def codestream(folder: Path, *, lossless: bool = False) -> Path:
    """A codestream of tiles in six tile-parts each, by resolution, all first parts first, and no table of them.

    A lossless one is a quarter of the picture, for it takes long to make.
    """
    from periplus.testing.formats import jpeg2000 as j2ks

    def make() -> bytes:
        options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 6, "YCC": "YES"}
        values = colours()
        if lossless:
            values = values[:, : SIZE // 2, : SIZE // 2]
        else:
            options |= {"QUALITY": "12", "REVERSIBLE": "NO"}
        return j2ks.interleaved(j2ks.made(values, blockxsize=TILE, blockysize=TILE, **options))

    return _kept(folder, "lossless.j2k" if lossless else "parts.j2k", make)


def nitf_codestream(folder: Path) -> Path:
    """The same codestream in a NITF file."""
    from periplus.testing.formats import nitf as nitfs

    def make() -> bytes:
        stream = codestream(folder).read_bytes()
        item = nitfs.ImageSegment(values=colours(), coding="C8", streams=[stream], block=(TILE, TILE))
        return nitfs.nitf(item)

    return _kept(folder, "parts.ntf", make)


def jpeg(folder: Path, *, restarts: bool = False) -> Path:
    """A JPEG file with coarser chroma, as cameras write them; with restart markers where asked for."""
    from PIL import Image

    def make() -> bytes:
        target = io.BytesIO()
        image = Image.fromarray(np.ascontiguousarray(np.moveaxis(colours(), 0, -1)))
        image.save(target, "JPEG", quality=85, **({"restart_marker_rows": 1} if restarts else {}))
        return target.getvalue()

    return _kept(folder, "restarts.jpg" if restarts else "picture.jpg", make)


def png(folder: Path) -> Path:
    """A PNG file of half the size, its rows filtered as the encoder saw fit."""
    path = folder / "picture.png"
    if not path.exists():
        _write(path, colours()[:, : SIZE // 2, : SIZE // 2], driver="PNG")
    return path


def cell(folder: Path) -> Path:
    """An elevation cell of level 2."""
    from periplus.testing.formats import dted as dteds

    def make() -> bytes:
        relief = landscape(4096, 4096, 1, 5)[:, :POSTS, :POSTS]
        return dteds.gdal_cell((relief * 4000 - 200).astype(np.int16))

    return _kept(folder, "cell.dt2", make)


def _write(path: Path, values: np.ndarray, **profile: object) -> None:
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    bands, height, width = values.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", count=bands, height=height, width=width, dtype=values.dtype, **profile) as target:
            target.write(values)
