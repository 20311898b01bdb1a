"""Opening Zarr hierarchies: the engine xgroup against xarray's own, and what a huge grid takes in memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from zarr.storage import LocalStore
from zarr.testing.store import LatencyStore

from bench.measure import Section, compete
from periplus.testing.hierarchies import CountingStore, StoredArray, declare_huge, declared, spatial, write_hierarchy

GROUPS, ARRAYS = 200, 10
LEVELS = 6
LATENCY = 0.01
HUGE = (1_800_000, 3_600_000)


def run(folder: Path, *, rounds: int = 5) -> Section:
    section = Section(
        "Open Zarr hierarchies, CPU ms",
        "ms",
        f"Consolidated Zarr v3 stores on disk. `groups` has {GROUPS} groups of {ARRAYS} arrays, each with an "
        f"affine transform, a CRS and stored times. `pyramid` has {LEVELS} levels of two variables, with "
        "multiscales metadata. `chunks read` counts chunks of stored coordinates. `seconds, far away` is the wall "
        f"time if each read takes {LATENCY * 1000:.0f} ms. Unlike `zarr`, `xgroup` adds coordinates and a CRS to "
        "every array. This takes a little longer than it saves if no coordinates are stored, as in the pyramid, "
        "because xarray also copies them with the tree. `huge grid` has 1.8 M x 3.6 M pixels; `MiB` is the memory "
        "of its coordinates.",
    )
    for case, store in (("groups", _groups(folder)), ("pyramid", _pyramid(folder))):
        times = compete({name: _opener(store, name) for name in ("xgroup", "zarr")}, rounds=rounds)
        section.add(f"{case}: open_datatree", **{name: seconds * 1000 for name, seconds in times.items()})
        section.add(f"{case}: chunks read", **{name: str(_chunks(store, name)) for name in times})
        section.add(f"{case}: seconds, far away", **{name: _far(store, name) for name in times})
    huge = folder / "huge.zarr"
    if not huge.exists():
        place = spatial((1e-4, 0, -180, 0, -1e-4, 90), ("lat", "lon"))
        declare_huge(huge, "a", HUGE, ("lat", "lon"), place)
    times = compete({"xgroup": lambda: xr.open_dataset(huge, engine="xgroup")}, rounds=rounds)
    section.add("huge grid: open_dataset", xgroup=times["xgroup"] * 1000)
    section.add("huge grid: MiB", xgroup=_memory(lambda: xr.open_dataset(huge, engine="xgroup")))
    return section


def _opener(store: Path, engine: str) -> Callable[[], Any]:
    return lambda: xr.open_datatree(store, engine=engine, chunks=None)  # type: ignore[arg-type]


def _chunks(store: Path, engine: str) -> int:
    counting = CountingStore(LocalStore(store))
    xr.open_datatree(counting, engine=engine)  # type: ignore[arg-type]
    return len(counting.chunks)


def _far(store: Path, engine: str) -> float:
    slow = LatencyStore(LocalStore(store), get_latency=LATENCY)
    start = time.perf_counter()
    xr.open_datatree(slow, engine=engine)  # type: ignore[arg-type]
    return time.perf_counter() - start


def _memory(opened: Callable[[], Any]) -> float:
    """MiB that an opened Dataset keeps, once everything is imported and cached."""
    opened()
    gc.collect()
    tracemalloc.start()
    kept = opened()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size / 2**20


def _groups(folder: Path) -> Path:
    nodes: dict[str, Any] = {}
    for n in range(GROUPS):
        place = spatial((10.0, 0, 500000.0 + n, 0, -10.0, 5e6), ("y", "x"), "proj", **{"proj:code": "EPSG:32633"})
        nodes[f"g{n}"] = place
        for k in range(ARRAYS - 1):
            nodes[f"g{n}/v{k}"] = StoredArray(dims=("time", "y", "x"), shape=(2, 8, 8), attributes={"units": "K"})
        clock = {"units": "days since 2000-01-01"}
        nodes[f"g{n}/time"] = StoredArray(dims=("time",), values=np.array([0.0, 1.0]), attributes=clock)
    return _written(folder / "groups.zarr", nodes)


def _pyramid(folder: Path) -> Path:
    layout = []
    nodes: dict[str, Any] = {}
    for n in range(LEVELS):
        step, size = 10.0 * 2**n, 1024 >> n
        item: dict[str, Any] = {"asset": str(n), "spatial:transform": [step, 0, 500000.0, 0, -step, 5e6]}
        item["spatial:shape"] = [size, size]
        if n:
            item |= {"derived_from": str(n - 1), "transform": {"scale": [2.0, 2.0]}}
        layout.append(item)
        nodes |= {f"{n}/{name}": StoredArray(dims=("y", "x"), shape=(size, size), chunks=(256, 256)) for name in "ab"}
    nodes["/"] = {
        **declared("multiscales", "spatial", "proj"),
        "proj:code": "EPSG:32633",
        "spatial:dimensions": ["y", "x"],
        "multiscales": {"layout": layout},
    }
    return _written(folder / "pyramid.zarr", nodes)


def _written(path: Path, nodes: dict[str, Any]) -> Path:
    if not path.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_hierarchy(path, nodes, consolidated=True)
    return path
