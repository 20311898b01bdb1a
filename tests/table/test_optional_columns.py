"""The optional columns of the chunk table, crc32c, bbox and geometry, in the index of another writer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile

import periplus

BOX = pa.struct([(name, pa.float64()) for name in ("xmin", "ymin", "xmax", "ymax")])


def widen(path: Path) -> None:
    """Add the optional columns to a Parquet file of rows, as another writer would."""
    file = pq.ParquetFile(path)
    rows, keys = file.read(), file.metadata.metadata
    count = rows.num_rows
    point = struct.pack("<BIdd", 1, 1, 5.0, 6.0)
    boxes = [{"xmin": float(k), "ymin": 0.0, "xmax": k + 1.0, "ymax": 1.0} for k in range(count)]
    rows = rows.append_column("crc32c", pa.array([None, *checksums(rows, path)[1:]], pa.uint32()))
    rows = rows.append_column("bbox", pa.array([None, *boxes[1:]], BOX))
    rows = rows.append_column("geometry", pa.array([point] * count, pa.binary()))
    pq.write_table(rows.replace_schema_metadata({**(rows.schema.metadata or {}), **keys}), path)


def checksums(rows: pa.Table, path: Path) -> list[int]:
    scenes = next(folder for folder in path.parents if (folder / "0.tif").exists())
    names = rows["path"] if "path" in rows.column_names else [f"{k}.tif" for k in rows["file_id"].to_pylist()]
    ranges = zip(names, rows["offset"].to_pylist(), rows["length"].to_pylist(), strict=True)
    return [google_crc32c.value((scenes / str(name)).read_bytes()[at : at + n]) for name, at, n in ranges]


def declare(folder: Path) -> None:
    """The sizes of the parts of a dataset as they are now, in its document."""
    path = folder / "files.parquet"
    file = pq.ParquetFile(path)
    files, keys = file.read(), dict(file.metadata.metadata)
    document = json.loads(keys[b"array_references"])
    for part in document["chunks"]:
        part["bytes"] = (folder / part["path"]).stat().st_size
    keys[b"array_references"] = json.dumps(document).encode()
    pq.write_table(files.replace_schema_metadata(keys), path)


@pytest.fixture
def scenes(tmp_path: Path) -> Callable[[int], list[Path]]:
    def made(count: int) -> list[Path]:
        paths = []
        for k in range(count):
            paths.append(tmp_path / f"{k}.tif")
            tifffile.imwrite(paths[-1], values(k), tile=(32, 32), compression="zlib", datetime=f"202{k}:01:01 00:00:00")
        return paths

    return made


def values(k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, 999, (70, 90)).astype("u2")


@pytest.mark.parametrize("form", ["i.parquet", "i/"])
def test_a_table_with_the_optional_columns_is_used_as_any_other(
    tmp_path: Path, scenes: Callable[[int], list[Path]], form: str
) -> None:
    *first, last = scenes(3)
    target = tmp_path / form
    periplus.index(first, to=str(target), arrange="stack")
    parts = [target] if target.is_file() else sorted(target.glob("chunks/**/*.parquet"))
    assert parts
    for part in parts:
        widen(part)
    if target.is_dir():
        declare(target)

    def check(index: periplus.Index, count: int) -> None:
        np.testing.assert_array_equal(index["0/data"][:, 0], np.stack([values(k) for k in range(count)]))
        assert index.select(array="0/data").num_rows == 9 * count

    with periplus.open(target) as index:
        check(index, 2)
        assert index.check_index().ok
        assert index.sql("SELECT count(*) AS n FROM chunks").to_pylist() == [{"n": 18}]
        for name in ("copy.parquet", "copy/", "copy.duckdb", "k.json"):
            index.write(tmp_path / name)
    for name in ("copy.parquet", "copy/", "copy.duckdb", "k.json"):
        with periplus.open(tmp_path / name, trust=True) as index:
            check(index, 2)
    index = periplus.index([last], to=str(target), arrange="stack", append=True)
    check(index, 3)
    with periplus.open(target) as index:
        check(index, 3)
        assert index.check_index().ok
