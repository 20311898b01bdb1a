"""22.1 million references as a Zarr store: opened, one chunk read, a map and a time series looked up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.measure import Section, cpu, peak_mib
from bench.rows import FILES

POSITION = (4000, 0, 20, 30)
"""The one chunk that is really there."""


def run(folder: Path, *, rounds: int = 5) -> Section:
    section = Section(
        "22,134,960 references as a Zarr store",
        "",
        "Each row is the best of several processes. `open and read` is the wall time in ms from `periplus.open` "
        "to the values of one chunk of a local file through zarr-python, in a process that has already imported "
        "zarr and periplus; `cold` includes all imports. `map` and `series` are the CPU ms to look up the 2,556 "
        "chunks of one day and the 8,660 chunks of one tile; the files of these chunks do not exist, so nothing "
        "is fetched. Memory is the peak of the process.",
    )
    for form, name in (("dataset", "big-store"), ("flat", "big-store.parquet")):
        target = folder / name
        if not target.exists():
            write(target)
        facts = [in_process(target) for _ in range(rounds)]
        section.add(form, **{name: min(one[name] for one in facts) for name in facts[0]})
    return section


def in_process(target: Path) -> dict[str, float]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "bench.bigstore", str(target)], check=True, capture_output=True, text=True
    )
    cold = (time.perf_counter() - start) * 1000
    facts = json.loads(done.stdout.splitlines()[-1])
    facts["cold ms"] = cold - facts.pop("after ms")
    return dict(facts)


def write(target: Path) -> None:
    """The synthetic index of benchmark `rows` with local files, one of which is there: sparse, with one tile in it."""
    import imagecodecs

    from periplus.fetch import Fetch
    from periplus.model import Refs
    from periplus.table import write_table
    from periplus.testing.synthetic import synthetic_blocks, synthetic_catalog, synthetic_files

    data = imagecodecs.zstd_encode(np.arange(512 * 512, dtype="<i2").tobytes())
    place = target.parent / "big-store-files"
    place.mkdir(exist_ok=True)
    listed = synthetic_files(FILES)
    files = replace(
        listed,
        path=[str(place / f"{number}.tif") for number in range(FILES)],
        last_modified=np.full(FILES, "NaT", "M8[us]"),
        etag=[None] * FILES,
    )
    spot: list[int] = []

    def blocks():
        for name, refs in synthetic_blocks(FILES):
            hit = np.flatnonzero((refs.chunk == np.array(POSITION)[:, None]).all(axis=0))
            if len(hit):
                length = refs.length.copy()
                length[hit] = len(data)
                spot.append(int(refs.offset[hit[0]]))
                yield name, Refs(chunk=refs.chunk, offset=refs.offset, length=length, file=refs.file)
            else:
                yield name, refs

    with Fetch() as fetch:
        write_table(str(target), synthetic_catalog(FILES), blocks(), files, fetch=fetch)
    with (place / f"{POSITION[0]}.tif").open("wb") as file:
        file.truncate(int(listed.size[0]))
        file.seek(spot[0])
        file.write(data)


def measure(target: str) -> dict[str, float]:
    import pyarrow.parquet
    import pyproj
    import zarr

    import periplus
    import periplus.fetch
    import periplus.table.open
    import periplus.zarr.store.store

    del pyarrow, pyproj
    t, b, y, x = POSITION
    start, spent = time.perf_counter(), time.process_time()
    index = periplus.open(target, allow=str(Path(target).parent))
    array = zarr.open_group(index.store(), mode="r")["0/data"]
    values = array[t, b, y * 512 : (y + 1) * 512, x * 512 : (x + 1) * 512]
    wall, used = time.perf_counter() - start, time.process_time() - spent
    assert np.array_equal(values, np.arange(512 * 512, dtype="i2").reshape(512, 512))
    facts = {"open and read ms": wall * 1000, "open and read CPU ms": used * 1000, "peak MiB": peak_mib()}
    ended = time.perf_counter()
    chunks = index.store()._chunks.lookup
    one = index.table.array("0/data")
    facts["map ms"] = 1000 * cpu(lambda: [chunks.find(one, (t, 0, y, x)) for y in range(36) for x in range(71)])
    chunks = index.store()._chunks.lookup
    facts["series ms"] = 1000 * cpu(lambda: [chunks.find(one, (t, 0, y, x)) for t in range(FILES)])
    facts["peak after MiB"] = peak_mib()
    return facts | {"after ms": (time.perf_counter() - ended) * 1000}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
