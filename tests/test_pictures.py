"""PNG files are what Pillow reads back, and the stretch does what it says."""

import io

import numpy as np
import pytest
from PIL import Image

from periplus.pictures import encode, paint, percentiles, stretch


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (64, 33)])
def test_pillow_reads_back_every_pixel(channels, mode, size):
    image = np.random.default_rng(1).integers(0, 256, (*size, channels), np.uint8)
    read = Image.open(io.BytesIO(encode(image)))
    assert read.mode == mode
    np.testing.assert_array_equal(np.asarray(read).reshape(image.shape), image)


def test_one_range_serves_all_bands_and_its_ends_are_black_and_white():
    bands = np.array([[[0, 500, 1000]], [[1000, 500, 0]], [[250, 250, 250]]], np.uint16)
    image, shown = stretch(bands, limits=(0.0, 1000.0))
    assert shown == (0.0, 1000.0)
    np.testing.assert_array_equal(image[0], [[0, 255, 64], [128, 128, 64], [255, 0, 64]])


def test_values_beyond_the_range_are_clipped_not_wrapped():
    image, _ = stretch(np.array([[[-5e30, 0.5, 5e30]]]), limits=(0.0, 1.0))
    np.testing.assert_array_equal(image[0, :, 0], [0, 128, 255])


def test_bytes_are_shown_as_they_are():
    bands = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    image, shown = stretch(bands)
    assert shown is None
    np.testing.assert_array_equal(image, bands.transpose(1, 2, 0))


def test_transparent_only_where_every_band_is_nodata():
    bands = np.array([[[7, 7, 20]], [[7, 30, 40]], [[7, 50, 60]]], np.uint8)
    image, _ = stretch(bands, nodata=[7, 7, 7])
    np.testing.assert_array_equal(image[0, :, 3], [0, 255, 255])
    np.testing.assert_array_equal(image[0, 2], [20, 40, 60, 255])


def test_nodata_may_differ_by_band():
    bands = np.array([[[1, 5]], [[5, 2]], [[1, 2]]], np.uint8)
    image, _ = stretch(bands, nodata=[1, 5, 1])
    np.testing.assert_array_equal(image[0, :, 3], [0, 255])


def test_nan_is_transparent_and_does_not_bend_the_stretch():
    values = np.linspace(0, 100, 101, dtype=np.float32)[None, None].copy()
    values[0, 0, 50] = np.nan
    image, shown = stretch(values)
    assert shown == pytest.approx((1.98, 98.02), abs=0.05)
    assert image[0, 50, 1] == 0
    assert image[0, 49, 1] == 255


def test_an_alpha_band_is_kept():
    bands = np.full((4, 1, 2), 9, np.uint8)
    bands[3] = [[200, 200]]
    bands[:3, 0, 0] = 0
    bands[3, 0, 0] = 0
    image, _ = stretch(bands, nodata=[0, 0, 0, 0])
    np.testing.assert_array_equal(image[0, :, 3], [0, 200])


def test_a_flat_or_empty_picture_has_a_range_too():
    assert stretch(np.full((1, 2, 2), 5, np.int16))[1] == (5.0, 5.0)
    assert percentiles(np.array([], np.float32)) == (0.0, 1.0)


def test_a_palette_gives_its_colours_and_what_is_no_colour_is_transparent():
    colours = [[0, 0, 0], [255, 0, 0], [0, 255, 9]]
    np.testing.assert_array_equal(paint(np.array([[1, 2]], np.uint8), colours), [[[255, 0, 0], [0, 255, 9]]])
    painted = paint(np.array([[0, 2, 7]], np.uint16), colours, nodata=0)
    np.testing.assert_array_equal(painted[0, :, 3], [0, 255, 0])
    np.testing.assert_array_equal(painted[0, 1], [0, 255, 9, 255])
