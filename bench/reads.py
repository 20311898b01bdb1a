"""Reading: whole images and windows of local COGs, against GDAL, tifffile and the Zarr stacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.archive import ENCODINGS, scene
from bench.measure import PATIENCE, Section, compete

SIZE = 4096
WINDOW = (slice(700, 2748), slice(900, 2948))
"""2048 x 2048, not aligned with the tiles."""


def run(folder: Path, *, rounds: int = 3) -> Section:
    section = Section(
        "Read TIFF, CPU seconds",
        "s",
        f"Local COGs, {SIZE} x {SIZE}, 512-pixel tiles. `whole` is level 0; `window` is 2048 x 2048 pixels that "
        "are not aligned to tiles. Indexes, manifests and datasets are opened before the measurement, and values "
        "are compared first (for JPEG within the differences of decoders). Every library returns one contiguous "
        "(bands, y, x) array. An empty cell means that a library cannot read the file. periplus decodes in as "
        "many threads as there are cores, which halves the wall time and costs a few per cent of CPU time; "
        "rasterio uses one thread. Both use the same library for deflate. For pixel-interleaved samples (3 x "
        "uint8), GDAL has SIMD code to separate the bands; NumPy takes about 15 ms for a whole image, so GDAL is "
        "faster unless decoding takes most of the time.",
    )
    for bands, dtype in ((1, "int16"), (3, "uint8")):
        for encoding, creation in ENCODINGS.items():
            if encoding == "jpeg" and dtype != "uint8":
                continue
            path = scene(folder, f"{encoding.split()[0]}-{bands}", height=SIZE, width=SIZE, bands=bands, dtype=dtype,
                         seed=2, **creation)  # fmt: skip
            readers = open_all(str(path), bands)
            for kind, window in (("whole", (slice(0, SIZE), slice(0, SIZE))), ("window", WINDOW)):
                usable = agreeing(readers, window, lossy=encoding == "jpeg")
                times = compete(
                    {name: bind(read, window) for name, read in usable.items()}, rounds=rounds, patience=PATIENCE
                )
                values: dict[str, float | str] = {name: times.get(name, "-") for name in readers}
                values["rasterio / periplus"] = times["rasterio"] / times["periplus"]
                stacks = [times[name] for name in ("virtualizarr", "kerchunk") if name in times]
                values["best Zarr stack / periplus"] = min(stacks) / times["periplus"]
                section.add(f"{encoding}, {bands} x {dtype}, {kind}", **values)
    return section


Reader = Callable[[tuple[slice, slice]], Any]


def bind(read: Reader, window: tuple[slice, slice]) -> Callable[[], Any]:
    return lambda: read(window)


def agreeing(readers: dict[str, Reader], window: tuple[slice, slice], *, lossy: bool) -> dict[str, Reader]:
    """The readers that can read the window; a reader that gives other values is an error of the benchmark."""
    truth = np.asarray(readers["rasterio"](window))
    usable = {}
    for name, read in readers.items():
        try:
            values = np.asarray(read(window))
        except Exception as error:  # noqa: BLE001 - a peer's inability is a result
            print(f"    {name} cannot: {type(error).__name__}: {str(error)[:90]}")
            continue
        values = values.reshape(truth.shape) if values.size == truth.size else values
        if values.shape != truth.shape or (not lossy and not np.array_equal(values, truth)):
            print(f"    {name} reads other values: left out")
            continue
        usable[name] = read
    return usable


def open_all(path: str, bands: int) -> dict[str, Reader]:
    """A reader by name, each opened once, outside the clock."""
    makers = {
        "periplus": open_periplus, "periplus, 1 thread": open_periplus_alone, "rasterio": open_rasterio,
        "tifffile": open_tifffile,
        "virtualizarr": open_virtualizarr, "kerchunk": open_kerchunk,
    }  # fmt: skip
    readers = {}
    for name, make in makers.items():
        try:
            readers[name] = make(path, bands)
        except Exception as error:
            print(f"    {name} cannot open: {type(error).__name__}: {str(error)[:90]}")
            if name in ("periplus", "rasterio"):
                raise
    return readers


def open_periplus(path: str, bands: int) -> Reader:
    import periplus

    array = periplus.index(path)["0/data"]
    return lambda window: array[:, window[0], window[1]]


def open_periplus_alone(path: str, bands: int) -> Reader:
    import periplus
    from periplus.read import read_array

    index = periplus.index(path)
    array = index["0/data"].array
    return lambda window: read_array(
        index.table, index.fetch, array, (slice(None), *window), limits=index.limits, workers=1
    )


def open_rasterio(path: str, bands: int) -> Reader:
    import rasterio
    from rasterio.windows import Window

    def read(window: tuple[slice, slice]) -> np.ndarray:
        y, x = window
        with rasterio.Env(GDAL_CACHEMAX=64), rasterio.open(path) as dataset:  # reopened: no block cache between rounds
            return dataset.read(window=Window(x.start, y.start, x.stop - x.start, y.stop - y.start))

    return read


def open_tifffile(path: str, bands: int) -> Reader:
    """Whole pages by imread; windows by its Zarr store, its only way to read part of a page."""
    import tifffile
    import zarr

    store = tifffile.imread(path, aszarr=True, level=0, maxworkers=2)
    array = zarr.open_array(store, mode="r")

    def read(window: tuple[slice, slice]) -> np.ndarray:
        y, x = window
        values = tifffile.imread(path, level=0, key=0, maxworkers=2) if y.stop - y.start == SIZE else array[y, x]
        return np.ascontiguousarray(np.moveaxis(values, -1, 0)) if bands > 1 else values

    return read


def open_virtualizarr(path: str, bands: int) -> Reader:
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF

    store = VirtualTIFF(ifd=0)("file://" + path, ObjectStoreRegistry({"file://": LocalStore()}))
    array = zarr.open_group(store, mode="r")["0"]
    return lambda window: (
        array[(..., *window)] if array.shape[-1] != bands else np.ascontiguousarray(np.moveaxis(array[window], -1, 0))
    )


def open_kerchunk(path: str, bands: int) -> Reader:
    import fsspec
    import imagecodecs.numcodecs
    import zarr
    from kerchunk.tiff import tiff_to_zarr

    imagecodecs.numcodecs.register_codecs(verbose=False)
    refs = tiff_to_zarr(path)
    fs = fsspec.filesystem("reference", fo=refs, asynchronous=True, remote_options={"asynchronous": True})
    group = zarr.open(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r")
    array = group["0"] if isinstance(group, zarr.Group) else group

    def read(window: tuple[slice, slice]) -> np.ndarray:
        values = array[window]
        return np.ascontiguousarray(np.moveaxis(values, -1, 0)) if bands > 1 else values

    return read
