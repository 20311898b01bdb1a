"""Mosaics through the Zarr face: chunks made of pieces are handed out whole."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import periplus
from periplus.testing.formats import dted as dteds
from periplus.testing.scenes import merged, tile


@pytest.mark.parametrize("codecs", ["standard", "all"])
def test_zarr_reads_files_that_overlap(tmp_path: Path, codecs: str) -> None:
    paths = [tile(tmp_path / f"{n}.tif", 11 * n, 50 * n) for n in range(3)]
    with periplus.index(paths, arrange="mosaic", duplicates="first") as index:
        array = zarr.open_group(index.store(codecs=codecs), mode="r")["0/data"]
        np.testing.assert_array_equal(array[...], merged(paths)[0])


def test_zarr_reads_the_edges_of_a_missing_cell(tmp_path: Path) -> None:
    whole = dteds.heights("whole", 25, 25)
    for row, column in ((0, 0), (1, 0), (1, 1)):
        part = whole[:, 12 * row : 12 * row + 13, 12 * column : 12 * column + 13]
        data = dteds.cell(part, interval=(3000, 3000), west=column, south=9 - row)
        (tmp_path / f"{row}{column}.dt0").write_bytes(data)
    expected = whole.copy()
    expected[:, :12, 13:] = dteds.NULL
    with periplus.index(str(tmp_path / "*.dt0"), arrange="mosaic") as index:
        array = zarr.open_group(index.store(), mode="r")["0/data"]
        np.testing.assert_array_equal(array[...], expected)
