"""A collection of 100,000 images at different places: opening, selecting, reading and SQL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Section, cpu

COUNT = 100_000
TILE = 256
PIXEL = 10.0
SIZE = 2 * TILE
SPAN = SIZE * PIXEL
ACROSS = 400
"""Images in a row; the next row lies below."""
CODECS = ({"name": "bytes", "configuration": {"endian": "little"}},)


def corner(number: int) -> tuple[float, float]:
    return 300_000.0 + SPAN * (number % ACROSS), 9_000_000.0 - SPAN * (number // ACROSS)


def write_collection(url: Path, count: int) -> Path:
    """An index of `count` images of two levels, five chunks; the file of the middle one is there to be read."""
    from periplus.fetch import Fetch
    from periplus.model import Array, Bundle, Catalog, Encoding, Files, Georeference, Refs
    from periplus.policy import Policy
    from periplus.table import write_table
    from periplus.table.collection.bundles import Bundled
    from periplus.table.collection.groups import GroupAttributes, GroupedArrays
    from periplus.table.parquet.buffers import strings

    def level(number: int) -> Array:
        pixel = PIXEL * 2**number
        return Array(
            name=f"{number}/data",
            dims=("bands", "y", "x"),
            shape=(1, SIZE >> number, SIZE >> number),
            chunks=(1, TILE, TILE),
            dtype=np.dtype("uint8"),
            encodings=(Encoding(CODECS),),
            level=number,
            georeference=Georeference(crs="EPSG:32633", transform=(pixel, 0.0, 0.0, 0.0, -pixel, 0.0)),
        )

    ids = np.arange(count, dtype=np.int32)
    names = [f"scenes/s{number:07d}" for number in range(count)]
    groups = GroupedArrays(
        families=[{"0/data": level(0), "1/data": level(1)}],
        names=strings(names),
        family=np.zeros(count, np.int32),
        x=300_000.0 + SPAN * (ids % ACROSS),
        y=9_000_000.0 - SPAN * (ids // ACROSS),
        file=ids,
        note=np.where(ids % 2, 0, -1).astype(np.int32),
        notes=[{"sensor": "a"}],
    )
    group = np.empty(count, object)
    group[:] = names
    files = Files(
        path=[f"{url.parent}/{name}.raw" for name in names],
        size=np.full(count, 5 * TILE * TILE),
        etag=[None if number == count // 2 else f"{number:016x}" for number in range(count)],
        last_modified=np.where(ids == count // 2, np.datetime64("NaT"), np.datetime64("2026-01-01", "us")),
        datetime=np.datetime64("2020-01-01", "us") + ids * np.timedelta64(3600, "s"),
        format=["raw"] * count,
        status=["ok"] * count,
        error=[None] * count,
        columns={"group": group},
    )
    catalog = Catalog(
        arrays=groups, attributes=GroupAttributes({"": {"title": "many"}}, groups), arrangement={"kind": "collect"}
    )

    def bundles(step: int = 20_000) -> Any:
        y, x = np.array([0, 0, 1, 1, 0], np.int32), np.array([0, 1, 0, 1, 0], np.int32)
        for first in range(0, count, step):
            size = min(step, count - first)
            yield Bundle(
                names=[f"{name}/{k}/data" for name in names[first : first + size] for k in range(2)],
                owner=(np.array([0, 0, 0, 0, 1], np.int32) + 2 * np.arange(size, dtype=np.int32)[:, None]).ravel(),
                dims=("bands", "y", "x"),
                refs=Refs(
                    chunk=np.stack([np.zeros(5 * size, np.int32), np.tile(y, size), np.tile(x, size)]),
                    offset=np.tile(np.arange(5, dtype=np.int64) * TILE * TILE, size),
                    length=np.full(5 * size, TILE * TILE, np.int64),
                    file=np.repeat(np.arange(first, first + size, dtype=np.int32), 5),
                ),
            )

    middle = url.parent / f"{names[count // 2]}.raw"
    middle.parent.mkdir(parents=True, exist_ok=True)
    middle.write_bytes(np.arange(5 * TILE * TILE, dtype=np.uint8).tobytes())
    with Fetch(policy=Policy.everything()) as fetch:
        write_table(str(url), catalog, Bundled(bundles(), groups), files, fetch=fetch)
    return url


HERE = """
import json, sys, time
import periplus, periplus.read.raster, periplus.table.open, periplus.table.query.select, periplus.table.duckdb.sql
from bench.collections import corner, SPAN
path, count = sys.argv[1], int(sys.argv[2])
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
found = {}
def timed(name, run, rounds=1):
    best = None
    for _ in range(rounds):
        began = time.process_time()
        answer = run()
        spent = 1000 * (time.process_time() - began)
        best = spent if best is None else min(best, spent)
    found[name] = best
    return answer
before = resident()
index = timed("open ms", lambda: periplus.open(path))
found["growth MiB"] = resident() - before
timed("first SQL ms", lambda: index.sql("select count(*) from arrays where level = 0"))
x, y = corner(count // 2)
box = x + 1, y - SPAN + 1, x + SPAN - 1, y - 1
timed("first select ms", lambda: index.select(bbox=box))
timed("select ms", lambda: index.select(bbox=box), 7)
timed("read ms", lambda: index.read(bbox=box), 7)
timed("read by name ms", lambda: index.read(array=f"scenes/s{count // 2:07d}"), 7)
assert index.read(bbox=box).values.shape == (1, 512, 512)
print(json.dumps(found))
"""


def peer(path: Path, count: int) -> dict[str, float]:
    """DuckDB on the files table of the dataset itself: the images that meet a box, and the first SQL."""
    import duckdb

    x, y = corner(count // 2)
    query = (
        f"select count(*) from read_parquet('{path}/files.parquet') "
        f"where x < {x + SPAN - 1} and x + {SPAN} > {x + 1} and y > {y - SPAN + 1} and y - {SPAN} < {y - 1}"
    )
    return {"select ms": 1000 * cpu(lambda: duckdb.sql(query).fetchall(), rounds=7)}


def run(folder: Path) -> Section:
    section = Section(
        f"A collection of {COUNT:,} images at different positions",
        "CPU ms",
        f"Every image has two levels and five chunks ({2 * COUNT:,} arrays, {5 * COUNT:,} references). The index "
        "is written from columns, and only one image exists. Each form is measured in a separate process, without "
        "imports. `growth` is the growth of resident memory when the index is opened. `select` and `read` use the "
        "bounding box of one image in an open index; those marked `first` also read the files table and connect "
        "to DuckDB. The last row is DuckDB alone, with a filter on the corners in files.parquet.",
    )
    root = Path(__file__).parent.parent
    for name, form in (("dataset", "many"), ("flat", "many.parquet")):
        path = folder / "collections" / form
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            section.add(name, **{"write CPU s": cpu(lambda: write_collection(path, COUNT))})  # noqa: B023
        command = [sys.executable, "-c", HERE, str(path), str(COUNT)]
        answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        section.add(name, **json.loads(answer.stdout))
    section.add("DuckDB on files.parquet", **peer(folder / "collections" / "many", COUNT))
    return section
