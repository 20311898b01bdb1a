"""Traffic: requests, bytes and wall time for a window over HTTP with injected latency."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bench.archive import scene, series
from bench.measure import Section

LATENCY = 0.05
ROWS, COLUMNS = slice(700, 2748), slice(900, 2948)


def run(folder: Path) -> Section:
    from periplus.testing.servers.http import RangeServer

    section = Section(
        "Over HTTP with 50 ms latency",
        "",
        "A local server that waits 50 ms before every response. `window` reads 2048 x 2048 pixels that are not "
        "aligned to tiles from a 4096 x 4096 COG (deflate, int16), including the header; `index` reads the "
        "headers of 200 COGs.",
    )
    cog = scene(folder, "deflate-1", height=4096, width=4096, bands=1, dtype="int16", seed=2, compress="deflate")
    names = [path.name for path in series(folder, 200)]
    with RangeServer(folder) as server:
        warm = f"{server.url}/first.tif"  # imports and first use stay outside the clock
        for window in (
            periplus_window,
            store_window,
            rasterio_window,
            lambda url: virtualizarr_window(server.url, url),
        ):
            window(warm)
        server.latency = LATENCY

        def measured(case: str, who: str, run: object) -> object:
            server.log.clear()
            start = time.perf_counter()
            result = run()  # type: ignore[operator]
            spent = time.perf_counter() - start
            sent = sum(request.sent for request in server.log)
            section.add(f"{case}: {who}", requests=float(len(server.log)), kB=sent / 1e3, **{"wall s": spent})
            return result

        url = f"{server.url}/{cog.name}"
        ours = measured("window", "periplus", lambda: periplus_window(url))
        theirs = measured("window", "rasterio", lambda: rasterio_window(url))
        store = measured("window", "periplus store + zarr", lambda: store_window(url))
        wide = measured("window", "periplus store + zarr, 64 at once", lambda: store_window(url, 64))
        zarrs = measured("window", "virtualizarr + zarr", lambda: virtualizarr_window(server.url, url))
        assert np.array_equal(ours, theirs)
        assert np.array_equal(ours, store)
        assert np.array_equal(ours, wide)
        assert np.array_equal(np.asarray(ours)[0], zarrs)
        urls = [f"{server.url}/{name}" for name in names]
        measured("index 200 COGs", "periplus", lambda: periplus_index(urls))
        measured("index 200 COGs", "rasterio, 16 threads", lambda: rasterio_index(urls))
    return section


def periplus_window(url: str) -> np.ndarray:
    import periplus

    with periplus.index(url) as index:
        return index["0/data"][:, ROWS, COLUMNS]


def store_window(url: str, concurrency: int = 10) -> np.ndarray:
    import zarr

    import periplus

    with periplus.index(url) as index, zarr.config.set({"async.concurrency": concurrency}):
        return zarr.open_array(index.store(), path="0/data", mode="r")[:, ROWS, COLUMNS]


def rasterio_window(url: str) -> np.ndarray:
    import rasterio
    from rasterio.windows import Window

    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), rasterio.open("/vsicurl/" + url) as dataset:
        return dataset.read(window=Window.from_slices(ROWS, COLUMNS))


def virtualizarr_window(base: str, url: str) -> np.ndarray:
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtual_tiff import VirtualTIFF

    registry = ObjectStoreRegistry({base: HTTPStore.from_url(base, client_options={"allow_http": True})})
    store = VirtualTIFF(ifd=0)(url, registry)
    return zarr.open_group(store, mode="r")["0"][ROWS, COLUMNS]


def periplus_index(urls: list[str]) -> int:
    import periplus

    with periplus.index(urls, arrange="collect") as index:
        return index.table.rows


def rasterio_index(urls: list[str]) -> int:
    from concurrent.futures import ThreadPoolExecutor

    import rasterio

    def one(url: str) -> int:
        with rasterio.open("/vsicurl/" + url) as dataset:
            return int(dataset.width)

    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), ThreadPoolExecutor(16) as pool:
        return sum(pool.map(one, urls))
