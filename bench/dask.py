"""Time series through xarray and dask with default chunks: a point, an index of vegetation, monthly composites."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench.archive import landscape
from bench.measure import Section

SIZE, TILE, DATES, DAYS = 1024, 256, 25, 7
LATENCY = 0.02
BANDS = ("red", "nir")
CORNER, PIXEL, CRS = (500_000, 5_000_000), 10, 32633
POINT = (504_775.0, 4_994_115.0)
WARM = "warm"
"""A small archive that every process reads first, so that imports and first use stay outside the clock."""
TOLERANCE = 1e-4

Case = Callable[[Any, Any], Any]


def run(folder: Path, *, rounds: int = 3) -> Section:
    section = Section(
        "Time series with dask, wall and CPU seconds",
        "s",
        f"{DATES} dates of two bands, each a COG of {SIZE} x {SIZE} uint16 (deflate, predictor 2, {TILE}-pixel tiles): "
        f"on disk, on an HTTP server that waits {LATENCY * 1000:.0f} ms before every response, and on an S3-compatible "
        "server (SeaweedFS on the same machine, no latency added). `point` is the series of both bands at a pixel, "
        "`NDVI` its mean for every date, `composite` the median of every month for one band. All use the default "
        "scheduler and their default chunks: periplus `chunks={}` from an index on disk, odc-stac `chunks={}` and "
        "stackstac from STAC items in memory, rioxarray `chunks=True` file by file. For `point`, odc-stac and "
        "stackstac load the box of the pixel only. Every run is a new process that has read a small archive in the "
        "same place before. The time includes opening; the best of several rounds counts; values are compared. Cells "
        "are wall / CPU seconds; `ahead` is the wall time of the faster of odc-stac and stackstac divided by that of "
        "periplus.",
    )
    for where, place in places(folder):
        for case in CASES:
            done: dict[str, list[dict[str, Any]]] = {name: [] for name in OPEN}
            for _ in range(rounds):
                for name in OPEN:
                    done[name].append(in_process(name, case, place))
            truth = done["periplus"][0]["values"]
            for name, runs in done.items():
                assert np.allclose(runs[0]["values"], truth, atol=TOLERANCE), f"{name} computes other values"
            wall = {name: min(one["wall"] for one in runs) for name, runs in done.items()}
            spent = {name: min(one["cpu"] for one in runs) for name, runs in done.items()}
            values: dict[str, float | str] = {name: f"{wall[name]:.2f} / {spent[name]:.2f}" for name in OPEN}
            ahead = min(wall["odc-stac"], wall["stackstac"]) / wall["periplus"]
            section.add(f"{where}, {case}", **values, ahead=ahead)
    return section


# --- the archive ----------------------------------------------------------------------------------------------------


def archive(folder: Path, *, size: int = SIZE, dates: int = DATES) -> Path:
    """One COG for every date and band, each with other values."""
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(parents=True, exist_ok=True)
    scenes = [(band, day) for day in days(dates) for band in BANDS]
    for number, (band, day) in enumerate(scenes):
        path = folder / f"{band}_{day:%Y%m%d}.tif"
        if path.exists():
            continue
        ground = np.roll(landscape(size, size, 1, 5 + BANDS.index(band)), (3 * number, 7 * number), (1, 2))
        profile = {
            "driver": "COG", "width": size, "height": size, "count": 1, "dtype": "uint16", "blocksize": TILE,
            "compress": "deflate", "predictor": 2, "crs": f"EPSG:{CRS}",
            "transform": from_origin(*CORNER, PIXEL, PIXEL),
        }  # fmt: skip
        with rasterio.open(path, "w", **profile) as target:
            target.write((ground * 600 + 400).astype("uint16"))
    return folder


def days(count: int = DATES) -> list[datetime]:
    return [datetime(2021, 3, 1, 10, tzinfo=UTC) + timedelta(days=DAYS * n) for n in range(count)]


def places(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where the archive is, and what a process needs to read it there."""
    from periplus.testing.servers.s3 import s3_server

    files = archive(folder / "dates")
    archive(files / WARM, size=512, dates=2)
    yield "disk", both(str(files), folder / "disk")
    with served(files) as url:
        yield "HTTP", both(url, folder / "http")
    with s3_server() as server:
        put_all(files, server)
        access = {
            "AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_S3_ENDPOINT": server.endpoint.removeprefix("http://"), "AWS_HTTPS": "NO",
            "AWS_VIRTUAL_HOSTING": "FALSE", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        yield "S3", both(server.url, folder / "s3", options=server.storage_options, environment=access)


def both(base: str, indexes: Path, **rest: Any) -> dict[str, Any]:
    """The archive, and the one that is read first."""
    warm = described(f"{base}/{WARM}", indexes / WARM, size=512, dates=2, **rest)
    return {**described(base, indexes, **rest), "warm": warm}


def described(base: str, indexes: Path, *, size: int = SIZE, dates: int = DATES, **rest: Any) -> dict[str, Any]:
    """What a process needs to read an archive: indexes are made here, because STAC items are made by others too."""
    import periplus

    indexes.mkdir(parents=True, exist_ok=True)
    for band in BANDS:
        urls = [f"{base}/{band}_{day:%Y%m%d}.tif" for day in days(dates)]
        pattern, target = band + "_{time:%Y%m%d}", indexes / f"{band}.parquet"
        target.unlink(missing_ok=True)
        with periplus.index(
            urls, to=str(target), arrange="stack", pattern=pattern, storage_options=rest.get("options")
        ):
            pass
    return {"base": base, "indexes": str(indexes), "size": size, "dates": dates, **rest}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "periplus.testing.servers.http", str(folder), str(LATENCY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()  # type: ignore[union-attr]
        process.communicate()


def put_all(folder: Path, server: Any) -> None:
    import asyncio

    from periplus.fetch import Fetch

    with Fetch(storage_options=server.storage_options) as fetch:
        for path in sorted(folder.rglob("*.tif")):
            asyncio.run(fetch.write(f"{server.url}/{path.relative_to(folder)}", path))


# --- the contenders: both bands as lazy arrays ----------------------------------------------------------------------


def open_periplus(place: dict[str, Any], *, point: bool) -> list[Any]:
    import xarray as xr

    return [
        xr.open_dataset(
            f"{place['indexes']}/{band}.parquet",
            engine="periplus",
            chunks={},
            allow=place["base"] + "/",
            storage_options=place.get("options"),
        ).data
        for band in BANDS
    ]


def open_odc(place: dict[str, Any], *, point: bool) -> list[Any]:
    import odc.stac

    x, y = POINT
    box = {"crs": CRS, "resolution": PIXEL, "x": (x - 5, x + 5), "y": (y - 5, y + 5)} if point else {}
    dataset = odc.stac.load(items(place), bands=list(BANDS), chunks={}, **box)
    return [dataset[band] for band in BANDS]


def open_stackstac(place: dict[str, Any], *, point: bool) -> list[Any]:
    import stackstac

    x, y = POINT
    box = {"bounds": (x - 5, y - 5, x + 5, y + 5)} if point else {}
    stack = stackstac.stack(items(place), assets=list(BANDS), **box)
    return [stack.sel(band=band) for band in BANDS]


def open_rioxarray(place: dict[str, Any], *, point: bool) -> list[Any]:
    import rioxarray
    import xarray as xr

    labels = xr.Variable("time", [day.replace(tzinfo=None) for day in days(place["dates"])])
    return [
        xr.concat(
            [
                rioxarray.open_rasterio(f"{place['base']}/{band}_{day:%Y%m%d}.tif", chunks=True).isel(band=0)
                for day in days(place["dates"])
            ],
            dim=labels,
        )
        for band in BANDS
    ]


OPEN: dict[str, Callable[..., list[Any]]] = {
    "periplus": open_periplus,
    "odc-stac": open_odc,
    "stackstac": open_stackstac,
    "rioxarray": open_rioxarray,
}


def items(place: dict[str, Any]) -> list[Any]:
    """The archive as STAC items with all that their readers use, so that they need not open a file to plan."""
    import pystac

    size = place["size"]
    west, north = CORNER
    transform = [PIXEL, 0, west, 0, -PIXEL, north]
    found = []
    for day in days(place["dates"]):
        item = pystac.Item(
            id=f"{day:%Y%m%d}", geometry=None, bbox=None, datetime=day, properties={"proj:epsg": CRS},
            stac_extensions=["https://stac-extensions.github.io/projection/v1.1.0/schema.json",
                             "https://stac-extensions.github.io/raster/v1.1.0/schema.json"],
        )  # fmt: skip
        for band in BANDS:
            fields = {
                "proj:shape": [size, size],
                "proj:transform": transform,
                "raster:bands": [{"data_type": "uint16"}],
            }
            href = f"{place['base']}/{band}_{day:%Y%m%d}.tif"
            item.add_asset(
                band, pystac.Asset(href, media_type=pystac.MediaType.COG, roles=["data"], extra_fields=fields)
            )
        found.append(item)
    return found


# --- the cases ------------------------------------------------------------------------------------------------------


def point(red: Any, nir: Any) -> Any:
    import dask

    x, y = POINT
    return np.stack(dask.compute(*(band.sel(x=x, y=y, method="nearest").data for band in (red, nir))))


def ndvi(red: Any, nir: Any) -> Any:
    red, nir = red.astype("float32"), nir.astype("float32")
    return ((nir - red) / (nir + red)).mean(("y", "x")).values


def composite(red: Any, nir: Any) -> Any:
    return red.resample(time="MS").median().values[..., ::64, ::64]


CASES: dict[str, Case] = {"point": point, "NDVI": ndvi, "composite": composite}


# --- one run in a process of its own --------------------------------------------------------------------------------


def in_process(name: str, case: str, place: dict[str, Any]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **place.get("environment", {})}
    done = subprocess.run(
        [sys.executable, "-m", "bench.dask", name, case],
        check=True, input=json.dumps(place), stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, case: str, place: dict[str, Any]) -> dict[str, Any]:
    def once(where: dict[str, Any]) -> Any:
        return CASES[case](*OPEN[name](where, point=case == "point"))

    if case != "point":
        once(place["warm"])
    else:
        OPEN[name](place["warm"], point=False)[0].isel(x=0, y=0).compute()
    start, spent = time.perf_counter(), time.process_time()
    values = once(place)
    wall, cpu = time.perf_counter() - start, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"wall": wall, "cpu": cpu, "MiB": peak, "values": np.asarray(values, float).ravel().tolist()}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], json.load(sys.stdin))))
