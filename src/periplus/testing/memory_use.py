"""Measure how much memory code needs: each piece runs in its own process, under a limit of address space."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from periplus.limits import GIB

IMPORTED = (
    "asyncio", "duckdb", "imagecodecs", "numcodecs", "numpy", "pyarrow.dataset", "pyarrow.parquet", "zarr",
    "periplus.fetch", "periplus.read", "periplus.table.open", "periplus.table.parquet.rows",
    "periplus.table.query.select", "periplus.table.duckdb.sql", "periplus.zarr.kerchunk.read",
    "periplus.zarr.store.store",
)  # fmt: skip
"""Imported before anything is measured."""


class MemoryUse(NamedTuple):
    """How a piece of code ended, and by how much memory the process grew."""

    outcome: str
    """`done`, the kind of a PeriplusError, or the name of another exception."""
    message: str
    mebibytes: float


def measure_memory(work: Mapping[str, tuple[str, Sequence[Any]]], *, memory: int = 3 * GIB) -> dict[str, MemoryUse]:
    """Run pieces of Python code; each sees its values as the list `given`. `memory` limits the address space of each.

    The libraries are imported once; every piece runs in a fork, so that the memory of one does not count for another.
    """
    asked = json.dumps({"work": {name: [code, list(given)] for name, (code, given) in work.items()}, "memory": memory})
    done = subprocess.run(  # noqa: S603 - this very module
        [sys.executable, "-m", __name__], input=asked, check=True, capture_output=True, text=True, timeout=600
    )
    return {name: MemoryUse(*cost) for name, cost in json.loads(done.stdout).items()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _run(code: str, given: list[Any], memory: int) -> MemoryUse:
    from periplus.errors import PeriplusError

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    before = _peak()
    outcome, message = "done", ""
    try:
        exec(code, {"given": given})  # noqa: S102 - the code of a test
    except BaseException as error:  # noqa: BLE001 - reported
        outcome = error.kind if isinstance(error, PeriplusError) else type(error).__name__
        message = str(error)
    return MemoryUse(outcome, message[:2000], _peak() - before)


def _main() -> None:
    from importlib import import_module

    for name in IMPORTED:
        import_module(name)
    asked = json.load(sys.stdin)
    found: dict[str, Any] = {}
    for name, (code, given) in asked["work"].items():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, json.dumps(_run(code, given, asked["memory"])).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            text = answer.read()
        _, status = os.waitpid(child, 0)
        found[name] = json.loads(text) if text else MemoryUse("killed", f"status {status}", 0.0)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
