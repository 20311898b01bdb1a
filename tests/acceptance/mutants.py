"""Indexes and reads seeded mutants of TIFFs through the public names; run as a program, it reports as JSON.

    python mutants.py FOLDER SHARE/SHARES EACH SEED [CASE NUMBER]

It takes every SHARES-th flavour and EACH mutants of it; CASE and NUMBER say where to go on. What it is at stands in
FOLDER/at, so that whoever started it knows which mutant killed it.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import periplus
from periplus.limits import MIB, Limits
from periplus.testing import tiffs
from periplus.testing.mutate import mutants

LIMITS = Limits(chunk_bytes=64 * MIB, read_bytes=64 * MIB)
HANG_SECONDS = 20
ROOM = 1024 * MIB
"""Address space beyond what the process has after a first round; half of it is for threads and their arenas."""
REWRITTEN = 8
"""Every so many mutants the index is also written, opened again and read."""


def read_all(index: periplus.Index) -> dict[str, "np.ndarray | str"]:
    """Every array, or the kind of error it gave; too large ones by a window."""
    found: dict[str, np.ndarray | str] = {}
    for name, array in index.arrays.items():
        try:
            try:
                values = array[...]
                assert values.shape == array.shape
            except periplus.LimitError:
                values = array[..., :9, :9]
            assert values.dtype == array.dtype
            found[name] = values
        except periplus.PeriplusError as error:
            found[name] = error.kind
    return found


def attempt(path: Path, data: bytes, number: int) -> str:
    """What came of one mutant: `read`, or the kind of the first error."""
    path.write_bytes(data)
    try:
        index = periplus.index(path, limits=LIMITS)
    except periplus.PeriplusError as error:
        return error.kind
    with index:
        found = read_all(index)
        if number % REWRITTEN == 0:
            again(index, path.with_name("again.parquet"), found)
    errors = [values for values in found.values() if isinstance(values, str)]
    return errors[0] if errors else "read"


def again(index: periplus.Index, target: Path, found: dict[str, "np.ndarray | str"]) -> None:
    """The index at rest says what it said in memory."""
    index.write(target).close()
    with periplus.open(target, limits=LIMITS) as opened:
        assert list(opened) == list(index)
        for name, values in read_all(opened).items():
            same = found[name]
            assert type(values) is type(same), name
            assert values == same if isinstance(values, str) else values.tobytes() == same.tobytes(), name


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(folder: Path, share: str, each: int, seed: int, case: int = 0, number: int = 0) -> None:
    warnings.simplefilter("error")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # says where, then the signal ends the process
    part, parts = map(int, share.split("/"))
    names = tiffs.names()[part::parts]
    path = folder / "mutant.tif"
    at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
    for name in names:
        assert attempt(path, tiffs.case(name).data, 0) == "read", name
    limit = space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before, kinds = peak(), Counter()
    slowest: tuple[float, str] = (0.0, "")
    findings: list[str] = []
    for place in range(case, len(names)):
        name = names[place]
        identity = seed * 1000 + tiffs.names().index(name)
        first = number if place == case else 0
        for count, mutant in enumerate(mutants(tiffs.case(name).data, seed=identity, count=each)):
            if count < first:
                continue
            os.pwrite(at, f"{place} {count} {name} seed {identity}".ljust(120).encode(), 0)
            signal.alarm(HANG_SECONDS)
            start = time.process_time()
            try:
                kinds[attempt(path, mutant, count)] += 1
            except Exception as error:  # noqa: BLE001 - which is what is looked for
                trace = error.__traceback__
                while trace.tb_next is not None:
                    trace = trace.tb_next
                place_of = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
                findings.append(f"{name} seed {identity} number {count}: {error!r} at {place_of}")
            spent = time.process_time() - start
            if spent > slowest[0]:
                slowest = (spent, f"{name} seed {identity} number {count}")
    signal.alarm(0)
    report = {"kinds": kinds, "slowest": slowest, "grown": peak() - before, "findings": findings}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
