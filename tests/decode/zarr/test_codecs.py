"""The codecs of Zarr itself, on bytes that numcodecs and the standard library encoded."""

import gzip

import numcodecs
import numpy as np
import pytest

from periplus.errors import DecodeError, FormatError
from periplus.testing.formats.tiff import picture

SHAPE = (2, 33, 17)


def endian(order):
    return {"name": "bytes", "configuration": {"endian": order}}


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16", "bool"])
@pytest.mark.parametrize("order", ["little", "big"])
def test_bytes_of_both_byte_orders(dtype, order, decoder):
    values = picture("bytes", dtype, SHAPE)
    data = values.astype(values.dtype.newbyteorder(">" if order == "big" else "<")).tobytes()
    found = decoder([endian(order)], SHAPE, dtype)(data, valid=SHAPE)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, values)
    with pytest.raises(DecodeError):
        decoder([endian(order)], SHAPE, dtype)(data[:-1], valid=SHAPE)


ENCODED = {
    "zstd": numcodecs.Zstd().encode,
    "numcodecs.zstd": numcodecs.Zstd(level=9, checksum=True).encode,
    "numcodecs.zlib": numcodecs.Zlib().encode,
    "zlib": numcodecs.Zlib(level=9).encode,
    "gzip": numcodecs.GZip().encode,
    "numcodecs.gzip": gzip.compress,
    "numcodecs.lzma": numcodecs.LZMA().encode,
    "numcodecs.lz4": numcodecs.LZ4().encode,
    "blosc": numcodecs.Blosc("zstd", shuffle=numcodecs.Blosc.BITSHUFFLE).encode,
    "numcodecs.blosc": numcodecs.Blosc("lz4", shuffle=numcodecs.Blosc.SHUFFLE).encode,
    "numcodecs.shuffle": numcodecs.Shuffle(4).encode,
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("order", ["little", "big"])
def test_compressors(name, order, decoder):
    values = picture(name, "u4", SHAPE)
    raw = values.astype(values.dtype.newbyteorder(">" if order == "big" else "<")).tobytes()
    decode = decoder([endian(order), {"name": name, "configuration": {}}], SHAPE, "u4")
    np.testing.assert_array_equal(decode(bytes(ENCODED[name](np.frombuffer(raw, "u1"))), valid=SHAPE), values)


def test_compressors_in_a_row_are_undone_last_first(decoder):
    values = picture("row", "u4", SHAPE)
    shuffled = numcodecs.Shuffle(4).encode(np.frombuffer(values.tobytes(), "u1"))
    data = gzip.compress(bytes(numcodecs.Zstd().encode(shuffled)))
    codecs = [endian("little"), {"name": "numcodecs.shuffle"}, {"name": "zstd"}, {"name": "gzip"}]
    np.testing.assert_array_equal(decoder(codecs, SHAPE, "u4")(data, valid=SHAPE), values)


def test_gzip_of_several_members_is_one_chunk(decoder):
    values = picture("members", "u2", SHAPE)
    raw = values.tobytes()
    decode = decoder([endian("little"), {"name": "gzip"}], SHAPE, "u2")
    np.testing.assert_array_equal(decode(gzip.compress(raw[:500]) + gzip.compress(raw[500:]), valid=SHAPE), values)


def test_a_blosc_header_that_lies_about_its_length_is_refused(decoder):
    values = picture("lying", "u4", SHAPE)
    data = bytearray(numcodecs.Blosc().encode(values))
    decode = decoder([endian("little"), {"name": "blosc"}], SHAPE, "u4")
    with pytest.raises(DecodeError):
        decode(bytes(data[:-10]), valid=SHAPE)
    data[12:16] = (len(data) + 1000).to_bytes(4, "little")
    with pytest.raises(DecodeError):
        decode(bytes(data), valid=SHAPE)


@pytest.mark.parametrize(
    ("name", "settings", "dtype", "what"),
    [
        ("periplus.floatpred", {}, "u2", "float predictor of uint16"),
        ("periplus.delta", {}, "f4", "differences of float32"),
        ("periplus.delta", {"axis": 8}, "u2", "along axis 8"),
        ("periplus.delta", {"dist": 2}, "u2", "at distance 2"),
        ("numcodecs.fixedscaleoffset", {"offset": 0, "scale": 0}, "f4", "scale 0"),
        ("numcodecs.fixedscaleoffset", {"offset": "a", "scale": 1}, "f4", "offset 'a'"),
        ("numcodecs.delta", {"astype": "U3"}, "u2", "not a numeric type"),
    ],
)
def test_filters_on_values_that_cannot_be_undone_are_refused(name, settings, dtype, what, decoder):
    with pytest.raises(FormatError, match=what):
        decoder([{"name": name, "configuration": settings}, endian("little")], SHAPE, dtype)


def test_a_predictor_is_not_undone_along_another_axis(decoder):
    turned = {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
    with pytest.raises(FormatError, match="transposed"):
        decoder([turned, {"name": "periplus.delta", "configuration": {}}, endian("little")], SHAPE, "u2")


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind", ["U3", "S3", "M8[us]", "m8[D]"])
def test_text_and_times_of_both_byte_orders(kind, order, decoder):
    values = np.array([["ab", "\U0001f600c", ""], ["", "x", "yz1"]], kind) if kind == "U3" else None
    if values is None:
        values = np.array([[0, 1, 2], [-1, 5, 10**6]]).astype(kind)
    data = values.astype(values.dtype.newbyteorder(">" if order == "big" else "<")).tobytes()
    found = decoder([endian(order)], (2, 3), kind)(data, valid=(2, 3))
    assert found.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found, values)
    with pytest.raises(FormatError, match="yields numbers"):
        decoder([{"name": "numcodecs.delta", "configuration": {"dtype": "i8"}}, endian(order)], (2, 3), kind)


def test_numbers_that_are_no_characters_are_refused(decoder):
    with pytest.raises(DecodeError, match="no character"):
        decoder([endian("little")], (1,), "U1")(b"\0\0\x11\0", valid=(1,))


def test_stored_booleans_are_true_unless_zero(decoder):
    found = decoder([{"name": "bytes"}], (4,), "bool")(b"\x00\x01\x02\xff", valid=(4,))
    assert found.view("u1").tolist() == [0, 1, 1, 1]
