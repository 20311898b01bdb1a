"""Header extraction: where are the tiles of this file? periplus against every extractor in the field."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from bench.archive import series
from bench.measure import Section, compete

FILES = 200


def run(folder: Path, *, rounds: int = 5) -> Section:
    paths = [str(path) for path in series(folder, FILES)]
    section = Section(
        "Header extraction, CPU ms a file",
        "ms",
        f"{FILES} local COGs, int16 2048 x 4096, 512-pixel tiles, zstd with predictor 2, 43 tiles "
        f"with overviews; imports "
        "excluded. `harvest` reads and scans every header, `index` the whole of "
        "`periplus.index` into a table in memory.",
    )
    times = compete(
        {
            "periplus harvest": lambda: harvest_all(paths),
            "periplus index": lambda: index_all(paths),
            "async-tiff": lambda: asyncio.run(async_tiff_all(folder, paths)),
            "tifffile": lambda: [tifffile_one(p) for p in paths],
            "virtual-tiff": lambda: [virtual_tiff_one(p) for p in paths[:40]],
            "kerchunk": lambda: [kerchunk_one(p) for p in paths[:40]],
        },
        rounds=rounds,
    )
    counts = {"virtual-tiff": 40, "kerchunk": 40}
    per_file = {name: seconds / counts.get(name, FILES) * 1000 for name, seconds in times.items()}
    best = min(v for k, v in per_file.items() if not k.startswith("periplus"))
    section.add("CPU ms a file", **per_file)
    section.add("best peer / this", **{name: best / value for name, value in per_file.items()})
    return section


def harvest_all(paths: list[str]) -> int:
    from periplus.fetch import Fetch
    from periplus.harvest import harvest

    with Fetch() as fetch:
        return sum(len(found.refs) for file in harvest(paths, fetch) for found in file.founds)


def index_all(paths: list[str]) -> int:
    import periplus

    return periplus.index(paths, arrange="collect").table.rows


async def async_tiff_all(folder: Path, paths: list[str]) -> int:
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
