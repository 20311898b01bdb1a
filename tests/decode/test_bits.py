"""Samples of odd width, unpacked one bit at a time by plain arithmetic for comparison."""

import numpy as np
import pytest

from periplus.errors import FormatError
from periplus.testing.formats.samples import TIFF_TILE

HEIGHT, WIDTH = 5, 7


def codec(bits, *, samples=1, sample_format=1, **changes):
    configuration = {
        "compression": 1,
        "bits_per_sample": bits,
        "samples_per_pixel": samples,
        "photometric": 1,
        "planar_config": 1,
        "predictor": 1,
        "tile_width": WIDTH,
        "tile_height": HEIGHT,
        "sample_format": sample_format,
        "jpeg_tables": None,
    }
    return {"name": TIFF_TILE, "configuration": {**configuration, **changes}}


def packed(values, bits):
    """Rows of Python integers as bytes, most significant bit first, each row padded to a whole byte."""
    rows = []
    for row in values:
        text = "".join(format(int(v) & (1 << bits) - 1, f"0{bits}b") for v in row)
        text += "0" * (-len(text) % 8)
        rows.append(int(text, 2).to_bytes(len(text) // 8, "big"))
    return b"".join(rows)


def integers(bits, samples, *, signed=False):
    rng = np.random.default_rng(bits * 10 + samples)
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    return [[low + int(rng.random() * (high - low)) for _ in range(WIDTH * samples)] for _ in range(HEIGHT)]


def size_of(bits):
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)


ODD = [bits for bits in range(1, 64) if bits not in (8, 16, 32)]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("bits", ODD)
def test_unsigned_integers_of_any_width(bits, samples, decoder):
    rows = integers(bits, samples)
    shape = (samples, HEIGHT, WIDTH)
    found = decoder(codec(bits, samples=samples), shape, f"u{size_of(bits)}")(packed(rows, bits), valid=shape)
    np.testing.assert_array_equal(found, np.array(rows, "u8").reshape(HEIGHT, WIDTH, samples).transpose(2, 0, 1))


@pytest.mark.parametrize("bits", ODD[1:])
def test_signed_integers_keep_their_sign(bits, decoder):
    rows = integers(bits, 1, signed=True)
    shape = (1, HEIGHT, WIDTH)
    found = decoder(codec(bits, sample_format=2), shape, f"i{size_of(bits)}")(packed(rows, bits), valid=shape)
    np.testing.assert_array_equal(found[0], np.array(rows, "i8"))


@pytest.mark.parametrize("bits", [1, 4, 12, 16])
def test_fill_order_two_reverses_the_bits_of_every_byte(bits, decoder):
    rows = integers(bits, 1)
    turned = bytes(int(format(b, "08b")[::-1], 2) for b in packed(rows, bits))
    shape = (1, HEIGHT, WIDTH)
    decode = decoder(codec(bits, fill_order=2, byte_order="big"), shape, f"u{size_of(bits)}")
    np.testing.assert_array_equal(decode(turned, valid=shape)[0], rows)


def test_fill_order_two_reverses_compressed_bytes_too(decoder):
    import zlib

    rows = integers(8, 1)
    turned = bytes(int(format(b, "08b")[::-1], 2) for b in zlib.compress(packed(rows, 8)))
    shape = (1, HEIGHT, WIDTH)
    np.testing.assert_array_equal(
        decoder(codec(8, fill_order=2, compression=8), shape, "u1")(turned, valid=shape)[0], rows
    )


def float24(number):
    sign, exponent, fraction = number >> 23, number >> 16 & 0x7F, number & 0xFFFF
    value = fraction / 2**16 * 2.0**-62 if exponent == 0 else (1 + fraction / 2**16) * 2.0 ** (exponent - 63)
    return -value if sign else value


@pytest.mark.parametrize("order", ["little", "big"])
def test_floats_of_24_bits(order, decoder):
    rng = np.random.default_rng(0)
    numbers = [int(n) for n in rng.integers(0, 0x7F << 16, HEIGHT * WIDTH)]
    numbers[:4] = [0, 1 << 23, 1, 0xBF0000]
    data = b"".join(n.to_bytes(3, order) for n in numbers)
    shape = (1, HEIGHT, WIDTH)
    decode = decoder(codec(24, sample_format=3, byte_order=order), shape, "f4")
    wanted = np.array([float24(n) for n in numbers], "f4").reshape(HEIGHT, WIDTH)
    np.testing.assert_array_equal(decode(data, valid=shape)[0], wanted)


@pytest.mark.parametrize(("bits", "stored", "dtype"), [(16, "i1", "c8"), (32, "i2", "c8"), (64, "i4", "c16")])
@pytest.mark.parametrize("order", ["little", "big"])
def test_complex_integers_become_complex_floats(bits, stored, dtype, order, decoder):
    parts = np.random.default_rng(0).integers(-100, 100, (HEIGHT, WIDTH, 2))
    data = parts.astype(np.dtype(stored).newbyteorder(">" if order == "big" else "<")).tobytes()
    shape = (1, HEIGHT, WIDTH)
    decode = decoder(codec(bits, sample_format=5, byte_order=order), shape, dtype)
    np.testing.assert_array_equal(decode(data, valid=shape)[0], parts[..., 0] + 1j * parts[..., 1])


@pytest.mark.parametrize("order", ["little", "big"])
def test_complex_halves_and_complex_of_any_byte_order(order, decoder):
    parts = np.random.default_rng(0).normal(0, 9, (HEIGHT, WIDTH, 2))
    shape = (1, HEIGHT, WIDTH)
    for bits, stored, dtype in ((32, "f2", "c8"), (64, "f4", "c8"), (128, "f8", "c16")):
        numbers = parts.astype(stored)
        data = numbers.astype(numbers.dtype.newbyteorder(">" if order == "big" else "<")).tobytes()
        decode = decoder(codec(bits, sample_format=6, byte_order=order), shape, dtype)
        np.testing.assert_array_equal(
            decode(data, valid=shape)[0], numbers[..., 0] + 1j * numbers[..., 1].astype(dtype)
        )


@pytest.mark.parametrize(
    ("bits", "sample_format", "predictor"), [(12, 1, 2), (128, 6, 2), (16, 1, 3), (32, 1, 255), (65, 1, 1), (48, 3, 1)]
)
def test_what_does_not_exist_is_refused_before_any_byte(bits, sample_format, predictor, decoder):
    with pytest.raises(FormatError):
        decoder(codec(bits, sample_format=sample_format, predictor=predictor, compression=8), (1, HEIGHT, WIDTH), "u2")
