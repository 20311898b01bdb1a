"""One index through every Zarr exit: whole images and single tiles by zarr-python, and by our own reader."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.archive import scene
from bench.imagery import open_osml
from bench.measure import PATIENCE, Section, compete

SIZE, TILE = 4096, 512
ENCODINGS: dict[str, dict[str, Any]] = {
    "deflate": {"compress": "deflate"},
    "zstd": {"compress": "zstd"},
    "lzw + predictor 2": {"compress": "lzw", "predictor": 2},
    "jpeg": {"compress": "jpeg", "quality": 85},
    "uncompressed": {"compress": "none"},
}
TILES = [(y, x) for y in range(1, 7, 2) for x in range(0, 8, 3)]
"""Nine tiles that do not lie side by side."""
Reader = Callable[[tuple[slice, slice]], Any]


def run(folder: Path, *, rounds: int = 3) -> Section:
    section = Section(
        "Zarr exports, CPU seconds",
        "s",
        f"One local COG of 3 x {SIZE} x {SIZE} bytes with {TILE}-pixel tiles. `our reader` is `index[...]`. The "
        "others are zarr-python with `index.store()`, with kerchunk references that periplus wrote "
        "(ReferenceFileSystem of fsspec), with an Icechunk repository that periplus wrote, and with the index of "
        f"osml-imagery-io (its filesystem and codecs). `tile` is the mean of {len(TILES)} tiles that are read one "
        "by one. Everything is opened before the measurement, and values are compared first; an empty cell means "
        "that a library cannot read the file. Deflate, zstd and uncompressed tiles are decoded by the codecs of "
        "Zarr; LZW and JPEG by periplus, in `index.store()` or as codecs of kerchunk and Icechunk.",
    )
    for encoding, creation in ENCODINGS.items():
        path = scene(folder, f"store-{encoding.split()[0]}", height=SIZE, width=SIZE, bands=3, dtype="uint8", seed=2,
                     **creation)  # fmt: skip
        readers = open_all(path, folder)
        whole = (slice(0, SIZE), slice(0, SIZE))
        usable = agreeing(readers, whole, lossy=encoding == "jpeg")
        for kind, read in (("whole", _once), ("tile", _tiles)):
            times = compete({name: _bound(read, usable[name]) for name in usable}, rounds=rounds, patience=PATIENCE)
            times = {name: spent / (len(TILES) if kind == "tile" else 1) for name, spent in times.items()}
            values: dict[str, float | str] = {name: times.get(name, "-") for name in readers}
            for name in readers:
                if name != "store":
                    values[f"{name} / store"] = times[name] / times["store"] if name in times else "-"
            section.add(f"{encoding}, {kind}", **values)
    return section


def _bound(read: Callable[[Reader], None], reader: Reader) -> Callable[[], None]:
    return lambda: read(reader)


def _once(reader: Reader) -> None:
    reader((slice(0, SIZE), slice(0, SIZE)))


def _tiles(reader: Reader) -> None:
    for y, x in TILES:
        reader((slice(y * TILE, (y + 1) * TILE), slice(x * TILE, (x + 1) * TILE)))


def agreeing(readers: dict[str, Reader], window: tuple[slice, slice], *, lossy: bool) -> dict[str, Reader]:
    """The readers that can; one that gives other values than our reader, which tests compare with GDAL, is left out."""
    truth = np.asarray(readers["our reader"](window)).astype(np.int16)
    usable = {}
    for name, read in readers.items():
        try:
            values = np.asarray(read(window)).astype(np.int16)
        except Exception as error:  # noqa: BLE001 - a peer's inability is a result
            print(f"    {name} cannot: {type(error).__name__}: {str(error)[:90]}")
            continue
        if values.shape != truth.shape or np.abs(values - truth).mean() > (1.0 if lossy else 0.0):
            print(f"    {name} reads other values: left out")
            continue
        usable[name] = read
    return usable


def open_all(path: Path, folder: Path) -> dict[str, Reader]:
    """A reader by name, each opened once, outside the clock; a peer that cannot is told and left out."""
    import periplus

    index = periplus.index(path)
    array = index["0/data"]
    readers: dict[str, Reader] = {"our reader": lambda window: array[:, window[0], window[1]]}
    makers = {
        "store": lambda: open_store(index),
        "kerchunk + fsspec": lambda: open_kerchunk(index, folder / f"{path.stem}.kerchunk.json"),
        "Icechunk": lambda: open_icechunk(index, folder / f"{path.stem}.icechunk"),
        "osml": lambda: open_osml(str(path), folder),
    }
    for name, make in makers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                readers[name] = make()
        except Exception as error:
            print(f"    {name} cannot open: {type(error).__name__}: {str(error)[:90]}")
            if name == "store":
                raise
    return readers


def _reader(group: Any) -> Reader:
    array = group["0/data"]
    return lambda window: array[:, window[0], window[1]]


def open_store(index: Any) -> Reader:
    import zarr

    return _reader(zarr.open_group(index.store(), mode="r"))


def open_kerchunk(index: Any, target: Path) -> Reader:
    import fsspec
    import zarr

    from periplus.zarr.codecs.v3 import register

    register()
    index.write(target)
    fs = fsspec.filesystem("reference", fo=str(target), asynchronous=True, remote_options={"asynchronous": True})
    return _reader(zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2))


def open_icechunk(index: Any, target: Path) -> Reader:
    import icechunk
    import zarr

    report = index.write(target).report
    storage = icechunk.local_filesystem_storage(str(target))
    allowed = dict.fromkeys(report.commit.prefixes)
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return _reader(zarr.open_group(repository.readonly_session("main").store, mode="r"))
