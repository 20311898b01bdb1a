"""Fill bits of Group 3 fax: zeros before an end-of-line code, which files have whether they say so or not."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import rasterio
from PIL import Image

import periplus


def group3(values: np.ndarray, *, written: int, said: int) -> bytes:
    """A Group 3 TIFF written by libtiff with some T4 options, whose tag then says others."""
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "TIFF", compression="group3", tiffinfo={292: written})
    data = stream.getvalue()
    entry = struct.pack("<HHII", 292, 4, 1, written)
    assert data.count(entry) == 1
    return data.replace(entry, struct.pack("<HHII", 292, 4, 1, said))


@pytest.mark.parametrize("written", [0, 4])
@pytest.mark.parametrize("said", [0, 4])
def test_rows_are_right_whatever_is_said_of_fill_bits(written: int, said: int, tmp_path) -> None:
    rng = np.random.default_rng(written)
    values = np.cumsum(rng.random((64, 200)) < 0.08, axis=1) % 2 == 1
    path = tmp_path / "fax.tif"
    path.write_bytes(group3(values, written=written, said=said))
    with rasterio.open(path) as dataset:
        truth = dataset.read()
    assert np.array_equal(periplus.index(path)["0/data"][...], truth)
