"""The table at size: writing, opening and querying 22.1 million references, against kerchunk Parquet."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench.measure import Section, compete, cpu, peak_mib

FILES = 8_660
KERCHUNK_FILES = 100
MAP = [(4000, 4030), (0, 1), (12, 23), (30, 41)]
"""30 days of 11 x 11 tiles: 3,630 references."""
SERIES = [(0, FILES), (0, 1), (20, 21), (35, 36)]
"""One tile on every day: 8,660 references."""


def run(folder: Path, *, rounds: int = 5) -> Section:
    section = Section(
        "22,134,960 references (8,660 files x 2,556 tiles)",
        "",
        "Each form is written by a separate process, from a generator of 512 files at a time; memory is the peak "
        f"of that process. kerchunk Parquet is written for {KERCHUNK_FILES} files, and the result is multiplied by "
        "the number of rows. Queries are CPU ms of `Table.refs`: `first` also opens the index and reads its files "
        "table; `next` queries an open index for other chunks. `open` is the wall time in ms of `periplus.open` "
        "in a process that has imported periplus.",
    )
    for form, name in (("dataset", "big-dataset"), ("flat", "big-flat.parquet")):
        section.add(form, **in_process("write", str(folder / name)))
        section.add(form, **in_process("query", str(folder / name)))
    facts = in_process("kerchunk", str(folder / "big-kerchunk"))
    scale = FILES / KERCHUNK_FILES
    section.add("kerchunk Parquet, scaled", **{"write CPU s": facts["write CPU s"] * scale, "MB": facts["MB"] * scale})
    section.add(f"kerchunk Parquet, {KERCHUNK_FILES} files", **facts)
    return section


def in_process(job: str, target: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", "bench.rows", job, target], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def size_mb(path: Path) -> float:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files) / 1e6


def write(target: str) -> dict[str, float]:
    import shutil

    from periplus.fetch import Fetch
    from periplus.table import write_table
    from periplus.testing.synthetic import synthetic_blocks, synthetic_catalog, synthetic_files

    path = Path(target)
    if path.is_dir():
        shutil.rmtree(path)
    catalog, blocks, files = synthetic_catalog(FILES), synthetic_blocks(FILES), synthetic_files(FILES)
    making = cpu(lambda: sum(len(refs) for _, refs in synthetic_blocks(FILES)))
    before = peak_mib()
    with Fetch() as fetch:
        spent = cpu(lambda: write_table(target, catalog, blocks, files, fetch=fetch))
    return {
        "write CPU s": spent - making,
        "MB": size_mb(path),
        "peak MiB": peak_mib(),
        "growth MiB": peak_mib() - before,
    }


Window = list[tuple[int, int]]


def moved(window: Window, rows: int) -> Window:
    """The same window some tile rows further up, in other row groups."""
    y0, y1 = window[2]
    return [*window[:2], (y0 - rows, y1 - rows), window[3]]


def query(target: str) -> dict[str, float]:
    """CPU ms of each kind of question, and wall ms of opening."""
    import periplus
    from periplus.table import Table

    sql = (
        "select * from chunks where time_chunk >= ? and time_chunk < ? and bands_chunk >= ? and bands_chunk < ? "
        "and y_chunk >= ? and y_chunk < ? and x_chunk >= ? and x_chunk < ?"
    )

    def index() -> periplus.Index:
        return periplus.open(target, allow="s3://")

    def first(window: Window) -> int:
        return len(index().table.refs("0/data", window))

    def by_sql(table: Table, window: Window) -> int:
        return table.sql(sql, [n for pair in window for n in pair]).num_rows

    def opening() -> float:
        start = time.perf_counter()
        index()
        return (time.perf_counter() - start) * 1000

    assert first(MAP) == by_sql(index().table, MAP) == 30 * 11 * 11
    assert first(SERIES) == by_sql(index().table, SERIES) == FILES
    best = compete(
        {
            "first map ms": lambda: first(MAP),
            "first series ms": lambda: first(SERIES),
        },
        rounds=5,
    )
    for name, window in (("map", MAP), ("series", SERIES)):
        table = index().table
        table.refs("0/data", window)
        by_sql(table, window)
        places = [moved(window, rows) for rows in (6, 12)]
        best[f"next {name} ms"] = min(cpu(partial(table.refs, "0/data", place)) for place in places)
        best[f"next {name} by SQL ms"] = min(cpu(partial(by_sql, table, place)) for place in places)
    return {"open ms": min(opening() for _ in range(5))} | {name: spent * 1000 for name, spent in best.items()}


def kerchunk(target: str) -> dict[str, float]:
    """The same references through kerchunk's LazyReferenceMapper, for fewer files."""
    import shutil

    import fsspec
    import numpy as np
    from fsspec.implementations.reference import LazyReferenceMapper

    from periplus.testing.synthetic import synthetic_blocks, synthetic_files

    shutil.rmtree(target, ignore_errors=True)
    files, parts = synthetic_files(KERCHUNK_FILES), [refs for _, refs in synthetic_blocks(KERCHUNK_FILES)]
    metadata = {
        ".zgroup": {"zarr_format": 2},
        "data/.zarray": {
            "shape": [KERCHUNK_FILES, 17_999, 36_000],
            "chunks": [1, 512, 512],
            "dtype": "<i2",
            "compressor": {"id": "zstd", "level": 1},
            "fill_value": 0,
            "filters": None,
            "order": "C",
            "zarr_format": 2,
        },
        "data/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "y", "x"]},
    }

    def fill() -> None:
        out = LazyReferenceMapper.create(target, fs=fsspec.filesystem("file"), record_size=100_000, engine="pyarrow")
        for key, value in metadata.items():
            out[key] = json.dumps(value).encode()
        for refs in parts:
            assert refs.file is not None
            columns = (refs.chunk[0], refs.chunk[-2], refs.chunk[-1], refs.file, refs.offset, refs.length)
            for t, y, x, file, offset, length in zip(*(np.asarray(c).tolist() for c in columns), strict=True):
                out[f"data/{t}.{y}.{x}"] = [files.path[file], offset, length]
        out.flush()

    spent = cpu(fill)

    def look(times: range, ys: range, xs: range) -> int:
        mapper = LazyReferenceMapper(target, fs=fsspec.filesystem("file"), engine="pyarrow")
        return len([mapper[f"data/{t}.{y}.{x}"] for t in times for y in ys for x in xs])

    best = compete({
        "map": lambda: look(range(30), range(12, 23), range(30, 41)),
        "series": lambda: look(range(KERCHUNK_FILES), range(20, 21), range(35, 36)),
    }, rounds=3)  # fmt: skip
    facts = {"write CPU s": spent, "MB": size_mb(Path(target)), "peak MiB": peak_mib()}
    return facts | {f"first {name} ms": spent * 1000 for name, spent in best.items()}


if __name__ == "__main__":
    print(json.dumps({"write": write, "query": query, "kerchunk": kerchunk}[sys.argv[1]](sys.argv[2])))
