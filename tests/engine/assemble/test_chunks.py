"""Groups of stored chunks that a task of dask reads: large enough, aligned, and the same for arrays of one Dataset."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from periplus.engine.assemble.chunks import TASK_BYTES, PreferredChunks, axes_of, chunk_encoding, group_chunks
from periplus.limits import Limits
from periplus.model import Array

DIMS = ("time", "bands", "y", "x")


def array(shape, chunks, *, dims=DIMS, dtype="uint16", name="0/data", edges=None):
    return Array(name=name, dims=dims, shape=shape, chunks=chunks, dtype=np.dtype(dtype), edges=edges)


def pieces(one, *others, limits=None):
    """Number of groups along each dimension of the first array."""
    groups = group_chunks([one, *others], limits or Limits())
    return tuple(-(-n // groups[axis]) for n, axis in zip(one.grid, axes_of(one), strict=True))


@pytest.mark.parametrize(
    ("shape", "chunks", "expected"),
    [
        ((4, 3, 300, 400), (1, 3, 128, 128), (2, 1, 1, 1)),
        ((3, 1, 300, 400), (1, 1, 128, 128), (1, 1, 1, 1)),
        ((25, 1, 1024, 1024), (1, 1, 256, 256), (4, 1, 2, 2)),
        ((25, 1, 10980, 10980), (1, 1, 512, 512), (13, 1, 11, 11)),
        ((25, 10, 1024, 1024), (1, 1, 256, 256), (4, 10, 2, 2)),  # bands stored apart stay apart
        ((1, 1, 20000, 512), (1, 1, 1, 512), (1, 1, 5, 1)),
        ((1, 1, 8192, 8192), (1, 1, 8192, 8192), (1, 1, 1, 1)),  # larger than a task already
        ((0, 1, 512, 512), (1, 1, 256, 256), (0, 1, 1, 1)),
    ],
)
def test_the_dimension_with_most_pieces_is_grouped_first(shape, chunks, expected):
    assert pieces(array(shape, chunks)) == expected


@st.composite
def arrays(draw):
    shape = tuple(draw(st.integers(1, n)) for n in (400, 5, 9000, 9000))
    chunks = tuple(draw(st.integers(1, n)) for n in (3, 5, 700, 700))
    return array(shape, chunks, dtype=draw(st.sampled_from(["uint8", "int16", "float32", "float64"])))


@given(arrays())
def test_groups_are_whole_chunks_of_bounded_size(one):
    chunks = chunk_encoding(one, one.dims, group_chunks([one], Limits()))["preferred_chunks"]
    sizes = [chunks.get(dim, n) for dim, n in zip(one.dims, one.shape, strict=True)]
    stored = [min(n, c) for n, c in zip(one.shape, one.chunks, strict=True)]
    assert all(a % b == 0 or a == n for a, b, n in zip(sizes, stored, one.shape, strict=True))
    assert sizes == stored or math.prod(sizes) * max(one.dtype.itemsize, 4) <= TASK_BYTES
    assert dict(chunks) == dict(zip(one.dims, stored, strict=True))


def test_arrays_of_one_dataset_have_the_same_groups():
    data = array((25, 4, 4096, 4096), (1, 4, 512, 512), dtype="float32")
    mask = array((25, 1, 4096, 4096), (1, 1, 512, 512), dtype="uint8", name="0/mask")
    alone = pieces(data)
    assert pieces(data, mask) == alone == pieces(mask, data)
    assert pieces(mask) != alone


def test_no_task_reads_more_than_the_limits_allow():
    one = array((25, 1, 1024, 1024), (1, 1, 256, 256))
    assert pieces(one, limits=Limits(read_bytes=4 * 256 * 256 * 2)) == (7, 1, 4, 4)
    assert pieces(one, limits=Limits(read_bytes=1)) == one.grid


def test_chunks_of_unequal_size_are_grouped_too():
    one = array((90, 100), (60, 100), dims=("y", "x"), edges=((10, 60, 20), None))
    assert chunk_encoding(one, one.dims, group_chunks([one], Limits()))["preferred_chunks"].get("y", 90) == (90,)
    large = array((90, 1 << 16), (60, 1 << 16), dims=("y", "x"), edges=((10, 60, 20), None))
    assert chunk_encoding(large, large.dims, group_chunks([large], Limits()))["preferred_chunks"].get("y", 90) == (
        10,
        60,
        20,
    )


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda chunks: pickle.loads(pickle.dumps(chunks))])
def test_chunks_survive_copies(again):
    chunks = again(PreferredChunks({"y": 16, "x": 16}, {"y": 64, "x": 32}))
    assert (chunks["y"], chunks.get("y"), chunks.get("y", 100), chunks.get("z", 7)) == (16, 16, 64, 7)
    assert chunks.renamed({"y": "row"}).get("row", 100) == 64
