"""Measure CPU seconds fairly: contenders take turns in every round, and the best round of each counts."""

from __future__ import annotations

import gc
import math
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass
class Section:
    """One table of results: a row a case, a column a contender."""

    title: str
    unit: str
    note: str = ""
    rows: dict[str, dict[str, float | str]] = field(default_factory=dict)

    def add(self, case: str, **values: float | str) -> None:
        self.rows.setdefault(case, {}).update(values)
        shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"  {case}: {shown}", file=sys.stderr, flush=True)


PATIENCE = 3.0
"""Seconds for which quick contenders go on: the best of three short reads is as much chance as speed."""
MOST_ROUNDS = 15


def race(
    contenders: Mapping[str, Callable[[], Any]], *, rounds: int = 3, patience: float = PATIENCE
) -> tuple[dict[str, float], dict[str, float]]:
    """Best CPU seconds (all threads of this process) and best wall seconds of each, taken in turn."""
    spent, waited = dict.fromkeys(contenders, math.inf), dict.fromkeys(contenders, math.inf)
    began, done = time.perf_counter(), 0
    while done < rounds or (done < MOST_ROUNDS and time.perf_counter() - began < patience):
        for name, run in contenders.items():
            gc.collect()
            wall, cpu_seconds = time.perf_counter(), time.process_time()
            run()
            spent[name] = min(spent[name], time.process_time() - cpu_seconds)
            waited[name] = min(waited[name], time.perf_counter() - wall)
        done += 1
    return spent, waited


def compete(contenders: Mapping[str, Callable[[], Any]], *, rounds: int = 3, patience: float = 0) -> dict[str, float]:
    """Best CPU seconds of each contender: exactly so many rounds, or more of them where there is patience for it."""
    return race(contenders, rounds=rounds, patience=patience)[0]


def cpu(run: Callable[[], Any], *, rounds: int = 1) -> float:
    return compete({"it": run}, rounds=rounds)["it"]


def peak_mib() -> float:
    """Highest resident size of this program so far (getrusage would count the process it was started from too)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def machine() -> dict[str, str]:
    """Facts of this machine and the versions compared."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    import os

    facts = {"processor": model, "cores": str(os.cpu_count()), "python": platform.python_version()}
    for name in ("periplus", "numpy", "imagecodecs", "pyarrow", "duckdb", "obstore", "rasterio", "tifffile",
                 "async-tiff", "virtual-tiff", "virtualizarr", "kerchunk", "zarr",
                 "osml-imagery-io", "xarray", "dask", "odc-stac", "stackstac", "rioxarray"):  # fmt: skip
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    return facts
