"""Imagery through kerchunk references, where its chunks are unlike those of Zarr."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import periplus
from periplus.zarr.multireference import MultiReferenceFileSystem

FILES = Path(__file__).parents[1] / "decode" / "files"


@pytest.fixture(autouse=True)
def _codecs(our_codecs):
    """Ours decode, also where another library offers the same URIs."""


def by_zarr(target):
    system = MultiReferenceFileSystem(str(target), asynchronous=True)
    return zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["steps-apart", "steps-chroma"])
def test_chunks_of_several_tiles_end_where_the_image_ends(name, zarr_format, tmp_path):
    path = tmp_path / "a.j2k"
    path.write_bytes((FILES / f"{name}.j2k").read_bytes())
    with periplus.index(path) as index:
        array = index["0/data"]
        assert any(n % size for n, size in zip(array.shape, array.chunks, strict=True))
        index.write(tmp_path / "a.json", zarr_format=zarr_format, codecs="all")
        # Compared with another decoder where these files are read.
        np.testing.assert_array_equal(by_zarr(tmp_path / "a.json")["0/data"][...], array[...])
