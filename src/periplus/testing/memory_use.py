"""Measure how much memory code needs: each piece runs in its own process, under a limit of address space."""

from __future__ import annotations

import atexit
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
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

    Every piece runs in a fork of one process, so that the memory of one does not count for another.
    """
    asked = {"work": {name: [code, list(given)] for name, (code, given) in work.items()}, "memory": memory}
    process = _measuring()
    assert process.stdin and process.stdout  # noqa: PT018 - pipes
    print(json.dumps(asked), file=process.stdin, flush=True)
    return {name: MemoryUse(*cost) for name, cost in json.loads(process.stdout.readline()).items()}


@cache
def _measuring() -> subprocess.Popen[str]:
    """The process that forks; one for all measurements, since it takes seconds to import the libraries."""
    process = subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


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


def _measured(code: str, given: list[Any], memory: int) -> Any:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(_run(code, given, memory)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else MemoryUse("killed", f"status {status}", 0.0)


def _main() -> None:
    from importlib import import_module

    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        found = {name: _measured(code, given, asked["memory"]) for name, (code, given) in asked["work"].items()}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
