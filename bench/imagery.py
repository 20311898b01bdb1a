"""Imagery: whole images and windows of NITF, JPEG 2000, JPEG and DTED, against GDAL, and osml-imagery-io by zarr."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import pictures
from bench.measure import Section, race

WINDOW = (slice(700, 1724), slice(900, 1924))
"""1024 x 1024, off the grid of tiles."""
PEERS = ("rasterio", "osml + zarr")
Reader = Callable[[tuple[slice, slice]], Any]


def run(folder: Path, *, rounds: int = 3) -> Section:
    section = Section(
        "NITF, JPEG, PNG and DTED, CPU seconds",
        "s",
        f"Local files of {pictures.SIZE} x {pictures.SIZE} x 3 bytes, and a DTED cell of {pictures.POSTS} x "
        f"{pictures.POSTS} posts. NITF NC has blocks of {pictures.BLOCK} pixels, and C3 the same blocks in JPEG. "
        f"NITF C8 has a lossy JPEG 2000 codestream with tiles of {pictures.TILE} pixels in six interleaved "
        "tile-parts. The JPEG file is one stream with 4:2:0 chroma. The PNG has half the width and height, and "
        "rows filtered with two neighbours (average, Paeth). `window` is 1024 x 1024 pixels that are not "
        "aligned to tiles. Indexes and "
        "datasets are opened before the measurement (GDAL opens files again, with its default cache, so that no "
        "block is cached between rounds). Values are compared first; for lossy images the mean difference is "
        "compared, because GDAL repeats chroma and libjpeg interpolates it. For osml-imagery-io, zarr reads the "
        "index of that library with its codecs; `-` means that it cannot index the file. Both JPEG 2000 decoders "
        "are the same library, which takes nearly all of the time. Both PNG readers use libdeflate; GDAL undoes "
        "these filters itself, and periplus with a second pass through libpng. Wall seconds use all cores: "
        "periplus decodes in as many threads as there are cores.",
    )
    for case, path, lossy in (
        ("NITF NC", pictures.nitf(folder), 0.0),
        ("NITF C8", pictures.nitf_codestream(folder), 0.5),
        ("NITF C3", pictures.nitf_jpeg(folder), 1.0),
        ("JPEG", pictures.jpeg(folder), 1.0),
        ("PNG", pictures.png(folder), 0.0),
        ("DTED", pictures.cell(folder), 0.0),
    ):
        readers = open_all(str(path), folder)
        height, width = shape_of(str(path))
        for kind, window in (("whole", (slice(0, height), slice(0, width))), ("window", WINDOW)):
            usable = agreeing(readers, window, lossy)
            times, waits = race({name: _bound(read, window) for name, read in usable.items()}, rounds=rounds)
            values: dict[str, float | str] = {name: times.get(name, "-") for name in ("periplus", *PEERS)}
            for name in PEERS:
                values[f"{name} / periplus"] = times[name] / times["periplus"] if name in times else "-"
            values |= {f"{name}, wall": waits.get(name, "-") for name in ("periplus", *PEERS)}
            section.add(f"{case}, {kind}", **values)
    return section


def _bound(read: Reader, window: tuple[slice, slice]) -> Callable[[], Any]:
    return lambda: read(window)


def agreeing(readers: dict[str, Reader], window: tuple[slice, slice], lossy: float) -> dict[str, Reader]:
    """The readers that can; one whose values are more than `lossy` apart in the mean is left out, and said."""
    truth = np.asarray(readers["rasterio"](window)).astype(np.int32)
    usable = {}
    for name, read in readers.items():
        try:
            values = np.asarray(read(window)).astype(np.int32)
        except Exception as error:  # noqa: BLE001 - a peer's inability is a result
            print(f"    {name} cannot: {type(error).__name__}: {str(error)[:90]}")
            continue
        apart = np.abs(values - truth) if values.shape == truth.shape else np.array([1 << 16])
        if apart.mean() > lossy:
            print(f"    {name} reads other values, {apart.mean():.3g} apart: left out")
            continue
        usable[name] = read
    return usable


def shape_of(path: str) -> tuple[int, int]:
    import rasterio

    with _quiet(), rasterio.open(path) as dataset:
        return dataset.shape


def open_all(path: str, folder: Path) -> dict[str, Reader]:
    """A reader by name, each opened once, outside the clock."""
    readers = {"periplus": open_periplus(path), "rasterio": open_rasterio(path)}
    try:
        readers["osml + zarr"] = open_osml(path, folder)
    except Exception as error:  # noqa: BLE001 - a peer's inability is a result
        print(f"    osml + zarr cannot: {type(error).__name__}: {str(error)[:90]}")
    return readers


def open_periplus(path: str) -> Reader:
    import periplus

    array = periplus.index(path)["0/data"]
    return lambda window: array[:, window[0], window[1]]


def open_rasterio(path: str) -> Reader:
    import rasterio
    from rasterio.windows import Window

    def read(window: tuple[slice, slice]) -> np.ndarray:
        with _quiet(), rasterio.open(path) as dataset:
            return dataset.read(window=Window.from_slices(*window))

    return read


def open_osml(path: str, folder: Path) -> Reader:
    """Its index as JSON, its filesystem, its codecs."""
    import zarr
    from aws.osml.io import zarr_codecs
    from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem
    from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index

    index = folder / (Path(path).name + ".osml.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_tile_index(OversightMLParser()(path), str(index))
        zarr_codecs._register_numcodecs()  # whoever registers last is asked
        fs = MultiReferenceFileSystem(str(index), asynchronous=True, remote_options={"asynchronous": True})
        array = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r")["0/data"]
    return lambda window: array[:, window[0], window[1]]


def _quiet() -> warnings.catch_warnings[Any]:
    from rasterio.errors import NotGeoreferencedWarning

    return warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning)
