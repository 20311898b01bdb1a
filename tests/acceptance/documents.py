"""Opens and reads seeded mutants of indexes through the public names; run as a program, it reports as JSON.

    python documents.py FOLDER SHARE/SHARES EACH SEED [CASE NUMBER]

As mutants.py, but the index is what is damaged: its footer document member by member, and its bytes.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import xarray as xr

import periplus
from periplus.limits import MIB, Limits
from periplus.table.document.document import KEY
from periplus.testing.forge import forge
from periplus.testing.formats import tiff as tiffs
from periplus.testing.mutate import json_mutants, mutants

LIMITS = Limits(chunk_bytes=64 * MIB, read_bytes=64 * MIB)
HANG_SECONDS = 20
ROOM = 1536 * MIB
SCENES = ("geo-attributes", "cog-mask", "uint12-pixel", "geo-rotated", "palette")


def uses(index: periplus.Index) -> Iterator[Callable[[], Any]]:
    """Everything one may ask of an index."""
    yield lambda: repr(index)
    for name in index:
        yield lambda name=name: index[name][...]
        yield lambda name=name: index[name][..., :3, :3]
        yield lambda name=name: index.read(array=name, max_size=9)
        yield lambda name=name: index.read(array=name, bbox=(500_000.0, 5_199_900.0, 500_100.0, 5_200_000.0))
        yield lambda name=name: index.select(array=name, footprints=True)
    yield lambda: index.sql("select * from arrays")
    yield lambda: opened_by_xarray(index, {})
    yield lambda: opened_by_xarray(index, {"mask_and_scale": False, "chunks": {}})
    yield lambda: index.sql("select * from chunks limit 3")


def opened_by_xarray(index: periplus.Index, options: dict[str, Any]) -> None:
    with xr.open_dataset(index, engine="periplus", **options) as dataset:
        assert repr(dataset)
        dataset.isel({dim: slice(0, 3) for dim in dataset.dims}).load()


def attempt(path: Path) -> str:
    """What came of one mutant: `read`, or the kind of the first error."""
    try:
        index = periplus.open(path, limits=LIMITS)
    except periplus.PeriplusError as error:
        return error.kind
    kinds = ["read"]
    with index:
        for use in uses(index):
            try:
                use()
            except periplus.PeriplusError as error:
                kinds.append(error.kind)
    return kinds[-1]


def damaged(index: Path, seed: int, each: int) -> Iterator[Callable[[], Any]]:
    """Ways to write the mutants of one index: half of them in the document, half anywhere in the file."""
    main = index if index.is_file() else index / "files.parquet"
    sound = main.read_bytes()
    document = json.loads(pq.read_metadata(main).metadata[KEY])

    def restored(change: Callable[[], Any]) -> Callable[[], Any]:
        def write() -> None:
            main.write_bytes(sound)
            change()

        return write

    for one in json_mutants(document, seed=seed, count=each - each // 2):
        yield restored(lambda one=one: forge(index, document=lambda _: one))
    for data in mutants(sound, seed=seed, count=each // 2):
        yield restored(lambda data=data: main.write_bytes(data))
    yield restored(lambda: None)


def main(folder: Path, share: str, each: int, seed: int, case: int = 0, number: int = 0) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "the CRS is left out")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)
    part, parts = map(int, share.split("/"))
    indexes = []
    for name in SCENES[part::parts]:
        (folder / f"{name}.tif").write_bytes(tiffs.case(name).data)
        for form in (f"{name}.parquet", name):
            periplus.index(folder / f"{name}.tif", to=folder / form).close()
            attempt(folder / form)
            indexes.append(folder / form)
    at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before, kinds, findings = peak(), Counter(), []
    slowest: tuple[float, str] = (0.0, "")
    for place in range(case, len(indexes)):
        index, identity = indexes[place], seed * 1000 + part * 100 + place
        for count, damage in enumerate(damaged(index, identity, each)):
            if place == case and count < number:
                continue
            what = f"{index.name} seed {identity} number {count}"
            os.pwrite(at, f"{place} {count} {what}".ljust(120).encode(), 0)
            damage()
            signal.alarm(HANG_SECONDS)
            start = time.process_time()
            try:
                kinds[attempt(index)] += 1
            except Exception as error:  # noqa: BLE001 - which is what is looked for
                frames = traceback.extract_tb(error.__traceback__)[-4:]
                places = " > ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
                findings.append(f"{what}: {error!r:.200} at {places}")
            slowest = max(slowest, (time.process_time() - start, what))
    signal.alarm(0)
    print(json.dumps({"kinds": kinds, "slowest": slowest, "grown": peak() - before, "findings": findings}))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
