"""Group 3 fax with fill bits, zeros before an end-of-line code, that are declared or not, and without such codes."""

from __future__ import annotations

import io
import re
import struct

import numpy as np
import pytest
import rasterio
import tifffile
from PIL import Image

import periplus
from periplus.testing.formats.custom_tiff import SHORT, image_tags, tiff


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


def without_lines(data: bytes) -> bytes:
    """The stream of a Group 3 TIFF without its end-of-line codes, as some writers store it."""
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        stream = data[page.dataoffsets[0] :][: page.databytecounts[0]]
    bits = re.sub("(0*)0{11}1", r"\1", "".join(f"{byte:08b}" for byte in stream))
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


@pytest.mark.parametrize("padding", [0, 1, 5])
@pytest.mark.parametrize(("rows", "columns"), [(1, 42), (2, 42), (3, 17), (64, 200)])
def test_lines_need_no_end_code(rows: int, columns: int, padding: int, tmp_path) -> None:
    rng = np.random.default_rng(rows)
    values = np.cumsum(rng.random((rows, columns)) < 0.15, axis=1) % 2 == 1
    stream = without_lines(group3(values, written=0, said=0))
    path = tmp_path / "fax.tif"
    for length in (len(stream), len(stream) // 2):
        data = stream[:length] + bytes(padding)
        tags = image_tags(columns, rows, t258=(SHORT, [1]), t259=3, t279=len(data))
        path.write_bytes(tiff(tags, data=data))
        array = periplus.index(path)["0/data"]
        if length == len(stream):
            with rasterio.open(path) as dataset:
                np.testing.assert_array_equal(array[...], dataset.read())
            np.testing.assert_array_equal(array[...][0], values)
        else:
            with pytest.raises(periplus.DecodeError, match="cut off"):
                array[...]
