"""What few files hold: YCbCr without JPEG, NeXT and LogLuv; written by hand, compared with libtiff and GDAL."""

import struct

import imagecodecs
import numpy as np
import pytest

from periplus.errors import DecodeError, FormatError
from periplus.testing.formats import samples
from periplus.testing.formats.custom_tiff import RATIONAL, SHORT, image_tags, tiff
from periplus.testing.formats.tiff import seen_by_gdal


@pytest.mark.parametrize("subsampling", [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize("compression", [1, 5])
@pytest.mark.parametrize("reference", [None, [16, 235, 128, 240, 128, 240]])
def test_ycbcr_without_jpeg_becomes_the_rgb_of_libtiff(subsampling, compression, reference, decoder):
    across, down = subsampling
    height, width = 3 * down, 4 * across  # five units of 4 x 4 make libtiff forget the last bytes
    units = np.random.default_rng(across * 10 + down).integers(0, 256, 3 * 4 * (across * down + 2), "u1").tobytes()
    data = units if compression == 1 else imagecodecs.lzw_encode(units)
    changes = {} if reference is None else {"t532": (RATIONAL, [n for value in reference for n in (value, 1)])}
    file = tiff(
        image_tags(
            width,
            height,
            t258=(SHORT, [8, 8, 8]),
            t259=(SHORT, [compression]),
            t262=(SHORT, [6]),
            t277=(SHORT, [3]),
            t279=len(data),
            t530=(SHORT, [across, down]),
            **changes,
        ),
        data=data,
    )
    wanted = np.moveaxis(imagecodecs.tiff_decode(file), -1, 0)
    settings = {"ycbcr_subsampling": [across, down]}
    if reference is not None:
        settings["reference_black_white"] = [float(value) for value in reference]
    codec = samples.tiff_tile(wanted, compression, photometric=6, **settings)
    decode = decoder(codec, wanted.shape, "u1")
    np.testing.assert_array_equal(decode(data, valid=wanted.shape), wanted)
    if compression == 1:
        with pytest.raises(DecodeError):
            decode(data[:-1], valid=wanted.shape)


@pytest.mark.parametrize("subsampling", [(1, 1), (2, 2)])
def test_ycbcr_with_differences(subsampling, decoder):
    image = np.random.default_rng(5).integers(0, 256, (6, 8, 3), "u1")
    data = imagecodecs.lzw_encode(np.diff(image, axis=1, prepend=np.uint8(0)).tobytes())
    colours = {"t258": (SHORT, [8, 8, 8]), "t262": (SHORT, [6]), "t277": (SHORT, [3]), "t530": (SHORT, [1, 1])}
    tags = image_tags(8, 6, t259=(SHORT, [5]), t279=len(data), t317=(SHORT, [2]), **colours)
    wanted = np.moveaxis(imagecodecs.tiff_decode(tiff(tags, data=data)), -1, 0)
    codec = samples.tiff_tile(wanted, 5, photometric=6, predictor=2, ycbcr_subsampling=list(subsampling))
    if subsampling != (1, 1):
        with pytest.raises(FormatError, match="predictor 2 on YCbCr"):
            decoder(codec, wanted.shape, "u1")
        return
    np.testing.assert_array_equal(decoder(codec, wanted.shape, "u1")(data, valid=wanted.shape), wanted)


def test_rows_of_nextstep(decoder):
    """A literal row, a literal span on white, and runs."""
    rows = [
        b"\x00" + bytes([0b00011011, 0b11100100, 0b01010101]),
        b"\x40" + struct.pack(">HH", 1, 1) + bytes([0b00110110]),
        bytes([0x40 | 5, 0x80 | 3, 0x00 | 4]),
        bytes([0xC0 | 12]),
    ]
    data = b"".join(rows)
    file = tiff(image_tags(12, 4, t258=(SHORT, [2]), t259=(SHORT, [32766]), t279=len(data)), data=data)
    wanted = imagecodecs.tiff_decode(file)[None].astype("u1")
    decode = decoder(samples.tiff_tile(wanted, 32766, bits_per_sample=2), wanted.shape, "u1")
    np.testing.assert_array_equal(decode(data, valid=wanted.shape), wanted)
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:cut], valid=wanted.shape)


def test_rows_of_thunderscan(decoder):
    """Plain values, runs, and differences of two and three bits, skipped ones among them; as GDAL reads them."""
    rows = [
        bytes([0xC0 | 7, 0x00 | 4, 0x40 | 0b011101, 0x80 | 0b011101, 0x00 | 2]),
        bytes([0x00 | 3, 0xC0 | 15, 0x40 | 0b010101, 0x40 | 0b101001, 0x80 | 0b100111, 0x00 | 3]),
        bytes([0x80 | 0b111101, 0x80 | 0b101110, 0x00 | 8]),
    ]
    data = b"".join(rows)
    file = tiff(image_tags(12, 3, t258=(SHORT, [4]), t259=(SHORT, [32809]), t279=len(data)), data=data)
    wanted = seen_by_gdal(file)["0/data"]
    decode = decoder(samples.tiff_tile(wanted, 32809, bits_per_sample=4), wanted.shape, "u1")
    np.testing.assert_array_equal(decode(data, valid=wanted.shape), wanted)
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:cut], valid=wanted.shape)


def test_logluv_is_what_gdal_reads(decoder):
    rng = np.random.default_rng(3)
    height, width = 4, 30
    planes = rng.integers(0, 256, (height, 4, width), "u1")
    planes[:, 0, :] &= 0x7F
    planes[1:3] = planes[1:3, :, :1]
    data = b""
    for row in planes:
        for plane in row:
            same = (plane == plane[0]).all()
            data += bytes([128 + width - 2, plane[0]]) if same else bytes([width]) + plane.tobytes()
    file = tiff(
        image_tags(
            width,
            height,
            t258=(SHORT, [16, 16, 16]),
            t259=(SHORT, [34676]),
            t262=(SHORT, [32845]),
            t277=(SHORT, [3]),
            t279=len(data),
            t339=(SHORT, [2, 2, 2]),
        ),
        data=data,
    )
    wanted = seen_by_gdal(file)["0/data"]
    assert wanted.dtype == np.int16
    decode = decoder(samples.tiff_tile(wanted, 34676, photometric=32845), wanted.shape, "i2")
    np.testing.assert_array_equal(decode(data, valid=wanted.shape), wanted)
    for cut in range(0, len(data), 7):
        with pytest.raises(DecodeError):
            decode(data[:cut], valid=wanted.shape)
