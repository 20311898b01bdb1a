"""Header extraction: where are the tiles of this file? periplus against every extractor in the field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.archive import series, tiling
from bench.measure import Section, compete

FILES, FEW = 200, 40


def run(folder: Path, *, rounds: int = 5) -> Section:
    section = Section(
        "Read headers, CPU ms per file",
        "ms",
        f"{FILES} local COGs, int16, 2048 x 4096, 512-pixel tiles, zstd with predictor 2, 43 tiles including "
        "overviews; without imports. `harvest` reads and scans every header; `index` is all of `periplus.index`, "
        "with a table in memory.",
    )
    for case, make in (("one grid, as a time series", series), ("each elsewhere, as mosaic tiles", tiling)):
        paths = [str(path) for path in make(folder, FILES * rounds)]
        groups = [paths[i : i + FILES] for i in range(0, len(paths), FILES)]
        few = [group[:FEW] for group in groups]
        times = compete(
            {
                "periplus harvest": anew(harvest_all, groups),
                "periplus index": anew(index_all, groups),
                "async-tiff": anew(partial(async_tiff_all, folder), groups),
                "tifffile": anew(partial(each, tifffile_one), groups),
                "virtual-tiff": anew(partial(each, virtual_tiff_one), few),
                "kerchunk": anew(partial(each, kerchunk_one), few),
            },
            rounds=rounds,
        )
        per_file = {n: s / (FEW if n in ("virtual-tiff", "kerchunk") else FILES) * 1000 for n, s in times.items()}
        best = min(v for k, v in per_file.items() if not k.startswith("periplus"))
        section.add(f"{case}: ms a file", **per_file)
        section.add(f"{case}: best peer / this", **{name: best / value for name, value in per_file.items()})
    return section


def anew(run: Callable[[list[str]], object], groups: list[list[str]]) -> Callable[[], object]:
    """Other files in every round, so that nothing kept from one round helps the next."""
    turn = iter(groups)
    return lambda: run(next(turn))


def each(one: Callable[[str], object], paths: list[str]) -> None:
    for path in paths:
        one(path)


def harvest_all(paths: list[str]) -> int:
    from periplus.fetch import Fetch
    from periplus.harvest import harvest

    with Fetch() as fetch:
        return sum(len(found.refs) for file in harvest(paths, fetch) for found in file.founds)


def index_all(paths: list[str]) -> int:
    import periplus

    return periplus.index(paths, arrange="collect").table.rows


def async_tiff_all(folder: Path, paths: list[str]) -> int:
    return asyncio.run(_async_tiff_all(folder, paths))


async def _async_tiff_all(folder: Path, paths: list[str]) -> int:
    from async_tiff import TIFF
    from obstore.store import LocalStore

    store = LocalStore(folder)
    gate = asyncio.Semaphore(64)

    async def one(path: str) -> int:
        async with gate:
            tiff = await TIFF.open(Path(path).name, store=store, prefetch=32768)
            return sum(len(np.asarray(ifd.tile_offsets)) + len(np.asarray(ifd.tile_byte_counts)) for ifd in tiff.ifds)

    return sum(await asyncio.gather(*map(one, paths)))


def tifffile_one(path: str) -> int:
    from tifffile import TiffFile

    with TiffFile(path) as tiff:
        return sum(len(page.dataoffsets) + len(page.databytecounts) for page in tiff.pages)


def virtual_tiff_one(path: str) -> object:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF

    return VirtualTIFF()("file://" + path, ObjectStoreRegistry({"file://": LocalStore()}))


def kerchunk_one(path: str) -> object:
    from kerchunk.tiff import tiff_to_zarr

    return tiff_to_zarr(path)
