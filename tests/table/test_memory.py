"""Rows in memory: the same are found whether they are in order or not, with gaps, parts or none."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from periplus.model import Array, Files, Refs
from periplus.table.memory import MemoryRows, inside
from periplus.testing.indexes import files_of

GRID = (5, 4, 6)


def _array(grid: tuple[int, ...]) -> Array:
    dims = tuple(f"d{n}" for n in range(len(grid)))
    return Array(name="a", dims=dims, shape=tuple(2 * n for n in grid), chunks=(2,) * len(grid), dtype=np.dtype("u1"))


def _refs(grid: tuple[int, ...], kind: str, seed: int) -> Refs:
    rng = np.random.default_rng(seed)
    chunk = np.indices(grid).reshape(len(grid), -1).astype(np.int32)
    part = None
    if kind == "gaps":
        chunk = chunk[:, rng.random(chunk.shape[1]) < 0.6]
    if kind == "parts":
        count = rng.integers(0, 4, chunk.shape[1])
        part = np.concatenate([np.arange(n) for n in count]).astype(np.uint16)
        chunk = np.repeat(chunk, count, axis=1)
    if kind == "shuffled":
        chunk = chunk[:, rng.permutation(chunk.shape[1])]
    if kind == "outside":
        chunk[0, rng.integers(chunk.shape[1])] = grid[0]
    if kind == "none":
        chunk = chunk[:, :0]
    count = chunk.shape[1]
    return Refs(chunk=chunk, offset=np.arange(count), length=np.ones(count, np.int64), part=part)


@pytest.mark.parametrize("kind", ["dense", "gaps", "parts", "shuffled", "outside", "none"])
@pytest.mark.parametrize("grid", [(7,), (3, 5), GRID, (1, 1, 1)])
def test_the_rows_of_a_window_are_those_inside_it(grid: tuple[int, ...], kind: str) -> None:
    array, refs = _array(grid), _refs(grid, kind, 11)
    files: Files = files_of(["a.tif"])
    rows = MemoryRows(refs={"a": refs}, sources=files, count=len(refs))
    rng = np.random.default_rng(5)
    for _ in range(60):
        window = [tuple(sorted(rng.integers(0, n + 1, 2).tolist())) for n in grid]
        found, wanted = rows.find(array, window), refs.take(inside(refs, window))
        if window != [(0, n) for n in grid]:
            np.testing.assert_array_equal(found.offset, wanted.offset)
            np.testing.assert_array_equal(found.chunk, wanted.chunk)
            assert (found.part is None) == (wanted.part is None)
    again = pickle.loads(pickle.dumps(rows))
    assert again.count == rows.count
    np.testing.assert_array_equal(again.find(array, window).offset, found.offset)
