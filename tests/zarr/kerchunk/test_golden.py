"""References of earlier versions stay readable: Parquet of Zarr v3, and rows of several ranges without a path."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import periplus
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem

GOLDEN = Path(__file__).parent / "golden"
"""Portable indexes of `data.bin`: an array of 2 x 2 chunks, whose last is missing."""
BASE = {"template_overrides": {"base": f"{GOLDEN}/"}}


def values(kind):
    data = (GOLDEN / "data.bin").read_bytes()
    chunks = [data[start : start + 16] for start in (0, 16, 32)] + [bytes(16)]
    if kind == "several":  # the second half of a chunk is stored first
        chunks = [chunk[8:] + chunk[:8] for chunk in chunks]
    blocks = np.array([np.frombuffer(chunk, np.uint8).reshape(4, 4) for chunk in chunks])
    return blocks.reshape(2, 2, 4, 4).swapaxes(1, 2).reshape(8, 8)


@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["single", "several"])
def test_references_of_earlier_versions_read_as_they_always_did(kind, zarr_format, suffix):
    place = GOLDEN / f"{kind}-v{zarr_format}{suffix}"
    assert np.array_equal(periplus.open(place, **BASE)["a"][:], values(kind))
    system = MultiReferenceFileSystem(str(place), asynchronous=True, **BASE)
    group = zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")
    assert np.array_equal(group["a"][:], values(kind))
