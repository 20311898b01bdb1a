"""Imagery over HTTP: bytes for a window of a lower resolution, and for finding the tile-parts of a codestream."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import pictures
from bench.measure import Section

LEVEL = 3
ROWS, COLUMNS = slice(20, 110), slice(10, 120)
"""Within the first tile at that level."""


def run(folder: Path) -> Section:
    from periplus.testing.servers.http import RangeServer

    stream, boxed = pictures.codestream(folder), pictures.nitf_codestream(folder)
    lossless = pictures.codestream(folder, lossless=True)
    section = Section(
        "JPEG 2000 over HTTP",
        "",
        f"The lossy codestream of the previous section ({stream.stat().st_size / 1e6:.1f} MB, without a table of "
        f"tile-part lengths), as a file and in NITF, and a lossless one ({lossless.stat().st_size / 1e6:.1f} MB). "
        f"`index` finds every tile-part. `level {LEVEL} window` then reads {ROWS.stop - ROWS.start} x "
        f"{COLUMNS.stop - COLUMNS.start} pixels of one tile at an eighth of the resolution; the bytes are compared "
        "with all tile-parts of that tile. Only the tile-parts of the lowest three resolutions are fetched. Their "
        "share is larger in the lossy file, because it has less data for the finer resolutions.",
    )
    with RangeServer(folder) as server:
        for case, path in (("lossy codestream", stream), ("NITF C8", boxed), ("lossless codestream", lossless)):
            _periplus(section, server, case, path, _tile_bytes(stream if path == boxed else path))
        _osml(section, server, "NITF C8", boxed)
    return section


def _add(section: Section, server: object, case: str, whole: int, what: str) -> None:
    log = server.log  # type: ignore[attr-defined]
    sent = sum(request.sent for request in log)
    section.add(case, requests=float(len(log)), kB=sent / 1e3, **{"% of": 100 * sent / whole, "of what": what})
    log.clear()


def _periplus(section: Section, server: object, case: str, path: Path, tile: int) -> None:
    import periplus

    url = f"{server.url}/{path.name}"  # type: ignore[attr-defined]
    server.log.clear()  # type: ignore[attr-defined]
    with periplus.index(url) as index:
        _add(section, server, f"{case}: periplus index", path.stat().st_size, "the file")
        seen = index[f"{LEVEL}/data"][:, ROWS, COLUMNS]
        _add(section, server, f"{case}: periplus level {LEVEL} window", tile, "the tile")
    np.testing.assert_array_equal(seen, _reduced(path))


def _osml(section: Section, server: object, case: str, path: Path) -> None:
    """Its index; of lower resolutions it has none."""
    import warnings

    from aws.osml.io.virtualizarr_parsers import OversightMLParser

    server.log.clear()  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        OversightMLParser()(f"{server.url}/{path.name}")  # type: ignore[attr-defined]
    _add(section, server, f"{case}: osml index", path.stat().st_size, "the file")


def _tile_bytes(stream: Path) -> int:
    from periplus.testing.formats import jpeg2000 as j2ks

    return sum(len(part.data) for part in j2ks.split(stream.read_bytes())[1] if part.tile == 0)


def _reduced(path: Path) -> np.ndarray:
    """The window as GDAL decodes it at that resolution."""
    import rasterio
    from rasterio.windows import Window

    from bench.imagery import _quiet

    with _quiet(), rasterio.open(path, OVERVIEW_LEVEL=LEVEL - 1) as dataset:
        return dataset.read(window=Window.from_slices(ROWS, COLUMNS))
