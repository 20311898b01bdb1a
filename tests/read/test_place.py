"""Placing: values are the same however their samples lie, and pixels of files interleaved by pixel are GDAL's."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.windows import Window

import periplus
from periplus.read.place import MANY_ELEMENTS, copy

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
KINDS = [(bands, dtype) for bands in (1, 2, 3, 4, 5) for dtype in ("u1", "i1", "u2", "i2", "f4")]


def _values(bands: int, dtype: str, rows: int, columns: int) -> np.ndarray:
    """Rows of interleaved samples, any bits at all."""
    size = np.dtype(dtype).itemsize
    octets = np.random.default_rng(bands).integers(0, 256, rows * columns * bands * size, dtype=np.uint8)
    return octets.view(np.uint16 if dtype == "f4" else dtype).astype(dtype)[: rows * columns * bands]


@pytest.mark.parametrize(("bands", "dtype"), KINDS)
def test_samples_are_taken_apart_whatever_their_number_and_type(bands: int, dtype: str) -> None:
    rows, columns = 70, 130
    flat = _values(bands, dtype, rows, columns)
    pixels = flat.reshape(rows, columns, bands)
    expected = np.array([[[pixels[y, x, b] for x in range(columns)] for y in range(rows)] for b in range(bands)])
    room = np.zeros((1, bands, rows + 3, columns + 5), dtype)
    target = room[:, :, 2:-1, 3:-2]
    copy(target, pixels.transpose(2, 0, 1)[None])
    np.testing.assert_array_equal(target[0], expected)
    assert not room[:, :, :2].any()
    assert not room[..., :3].any()
    back = np.zeros((bands, rows, columns), dtype)[:, ::-1, ::-1]
    copy(back, pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(back, expected)
    part = np.zeros((bands, rows - 4, columns - 9), dtype)
    copy(part, pixels.transpose(2, 0, 1)[:, 4:, 9:])
    np.testing.assert_array_equal(part, expected[:, 4:, 9:])
    some = np.zeros((bands, rows, -(-columns // 2)), dtype)
    copy(some, pixels.transpose(2, 0, 1)[:, :, ::2])
    np.testing.assert_array_equal(some, expected[:, :, ::2])


@pytest.mark.parametrize(("bands", "dtype"), [(2, "u1"), (4, "u1"), (2, "i2")])
def test_samples_at_odd_places_and_of_another_byte_order_are_taken_apart(bands: int, dtype: str) -> None:
    flat = _values(bands, dtype, 80, 120)
    memory = np.zeros(flat.nbytes + 1, np.uint8)
    memory[1:] = flat.view(np.uint8)
    odd = np.ndarray((80, 120, bands), dtype, memory, 1).transpose(2, 0, 1)
    assert odd.size >= MANY_ELEMENTS
    target = np.zeros(odd.shape, np.dtype(dtype).newbyteorder(">"))
    copy(target, odd)
    np.testing.assert_array_equal(target, flat.reshape(80, 120, bands).transpose(2, 0, 1))


@pytest.mark.parametrize("compress", ["none", "deflate"])
@pytest.mark.parametrize(("bands", "dtype"), [(2, "uint8"), (3, "uint8"), (4, "uint8"), (2, "int16"), (4, "uint16")])
def test_windows_of_interleaved_files_are_those_of_gdal(tmp_path: Path, bands: int, dtype: str, compress: str) -> None:
    values = np.random.default_rng(7).integers(0, 1 << 15, (bands, 300, 420)).astype(dtype)
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", count=bands, height=300, width=420, dtype=dtype, tiled=True,
        blockxsize=128, blockysize=128, compress=compress, interleave="pixel",
    ) as image:  # fmt: skip
        image.write(values)
    array = periplus.index(str(tmp_path / "a.tif"))["0/data"]
    with rasterio.open(tmp_path / "a.tif") as image:
        np.testing.assert_array_equal(array[...], image.read())
        np.testing.assert_array_equal(array[:, 31:290, 5:417], image.read(window=Window(5, 31, 412, 259)))
    np.testing.assert_array_equal(array[1:, ::-1, 400:3:-2], values[1:, ::-1, 400:3:-2])
    np.testing.assert_array_equal(array[::-1, 7:200], values[::-1, 7:200])
