"""Writing a collection of 100,000 files, and adding 24 files to it: what they cost beyond scanning."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measure import Section, peak_mib

COUNT = 100_000
ADDED = 24
CODECS = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 0}})


def run(folder: Path, *, rounds: int = 3) -> Section:
    section = Section(
        f"Write a collection of {COUNT:,} files, and add files",
        "",
        "Every file has two levels, five chunks and its own position; no file is read. `write` is the CPU time in "
        "ms per file, from the scanned headers to the index on disk. `add` is the CPU time in s to open the index "
        f"and add {ADDED} files. Each is a separate process; memory is the peak of the process that writes.",
    )
    for form, name in (("flat", "collected.parquet"), ("dataset", "collected")):
        target = str(folder / name)
        section.add(form, **_in_process("write", target))
        section.add(form, **{"add CPU s": min(_in_process("add", target)["add CPU s"] for _ in range(rounds))})
    return section


def _in_process(job: str, target: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.collecting", job, target]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def scanned(number: int) -> Any:
    """A file as its scanner describes it."""
    import numpy as np

    from periplus.harvest.inputs import Input
    from periplus.harvest.scanning.drive import Harvested
    from periplus.model import Array, Encoding, Found, Georeference, Refs, Source, chunk_positions

    founds = []
    for level in (0, 1):
        pixel = 10.0 * 2**level
        corner = 3e5 + 10_240 * (number % 1000), 5e6 - 10_240 * (number // 1000)
        array = Array(
            name=f"{level}/data",
            dims=("bands", "y", "x"),
            shape=(1, 1024 >> level, 1024 >> level),
            chunks=(1, 512, 512),
            dtype=np.dtype("int16"),
            fill=-1,
            encodings=(Encoding(tuple(dict(codec) for codec in CODECS)),),
            attributes={"_FillValue": -1, "units": "K"},
            level=level,
            georeference=Georeference(crs="EPSG:32633", transform=(pixel, 0.0, corner[0], 0.0, -pixel, corner[1])),
        )
        chunk = chunk_positions(array.grid)
        rows = np.arange(chunk.shape[1], dtype=np.int64)
        founds.append(Found(array, Refs(chunk=chunk, offset=1000 * rows, length=np.full(len(rows), 900, np.int64))))
    url = f"s3://bucket/scenes/{number // 1000:04d}/{number:07d}.tif"
    source = Source(url=url, size=100_000, etag=f'"{number}"')
    return Harvested(input=Input(url=url), source=source, format="tiff", founds=tuple(founds), number=number)


def write(target: str, count: int = COUNT) -> dict[str, float]:
    from periplus.arrange import collect
    from periplus.fetch import Fetch
    from periplus.harvest.parts.gather import Gathered
    from periplus.table import write_table

    shutil.rmtree(target, ignore_errors=True)
    gathered, spent = Gathered(), 0.0
    for first in range(0, count, 1000):
        files = [scanned(number) for number in range(first, min(first + 1000, count))]
        start = time.process_time()
        for file in files:
            gathered.add(file)
        spent += time.process_time() - start
    start = time.process_time()
    gathered.finish()
    laid = collect(gathered.entries, gathered.refs)
    with Fetch() as fetch:
        write_table(target, laid.catalog, laid.blocks, laid.files, fetch=fetch)
    spent += time.process_time() - start
    return {"write CPU ms a file": 1000 * spent / count, "peak MiB": peak_mib()}


def add(target: str) -> dict[str, float]:
    from periplus.arrange import collect
    from periplus.fetch import Fetch
    from periplus.harvest.parts.gather import Gathered
    from periplus.policy import Policy
    from periplus.table import append_table, open_table
    from periplus.table.collection.build import extended
    from periplus.table.collection.groups import GroupAttributes, GroupedArrays

    copy = f"{target.removesuffix('.parquet')}-longer" + (".parquet" if target.endswith(".parquet") else "")
    shutil.rmtree(copy, ignore_errors=True)
    (shutil.copytree if Path(target).is_dir() else shutil.copy)(target, copy)
    with Fetch() as fetch:
        start = time.process_time()
        before = open_table(copy, fetch=fetch, policy=Policy.everything())
        arrays = before.catalog.arrays
        assert isinstance(arrays, GroupedArrays)
        count = len(arrays.names)
        gathered = Gathered()
        for number in range(count, count + ADDED):
            gathered.add(scanned(number))
        gathered.finish()
        entries = [replace(entry, group=f"more/{number}") for number, entry in enumerate(gathered.entries)]
        laid = collect(entries, gathered.refs)
        known = {f"more/{number}": count + number for number in range(ADDED)}
        longer = extended(arrays, laid.catalog.arrays, known, laid.catalog.attributes)
        catalog = replace(before.catalog, arrays=longer, attributes=GroupAttributes({}, longer))
        table = append_table(copy, catalog, laid.blocks, laid.files, fetch=fetch, before=before)
        spent = time.process_time() - start
        assert table.rows == before.rows + 5 * ADDED
    return {"add CPU s": spent}


if __name__ == "__main__":
    print(json.dumps({"write": write, "add": add}[sys.argv[1]](sys.argv[2])))
