"""Chunks that are stored larger than the array's: the extent of an encoding, and periplus.crop."""

import pickle

import numpy as np
import pytest

from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Encoding, Region

STORED = (2, 8, 16)
PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}


def cropped(shape):
    return {"name": "periplus.crop", "configuration": {"shape": shape}}


def test_the_first_rows_and_columns_are_given(decoder):
    values = np.arange(256, dtype="<u2").reshape(STORED)
    found = decoder([cropped([2, 8, 16]), PLAIN], (2, 5, 9), "u2")(values.tobytes(), valid=(2, 5, 9))
    np.testing.assert_array_equal(found[:, :5, :9], values[:, :5, :9])


def test_an_extent_is_what_the_codec_says():
    values = np.arange(256, dtype="<u2").reshape(STORED)
    made = prepare(Encoding((PLAIN,), extent=STORED), chunks=(2, 5, 9), dtype=np.dtype("u2"), limits=Limits())
    for decode in (made, pickle.loads(pickle.dumps(made))):
        found = decode(values.tobytes(), valid=(2, 5, 9))
        np.testing.assert_array_equal(found[:, :5, :9], values[:, :5, :9])
    with pytest.raises(FormatError, match="does not hold"):
        prepare(Encoding((PLAIN,), extent=(2, 8, 8)), chunks=(2, 5, 9), dtype=np.dtype("u2"), limits=Limits())


def test_a_region_is_not_decoded_as_if_it_were_the_chunk():
    region = Region(begin=(0, 0, 0), at=(0, 0, 0), size=(1, 1, 1))
    with pytest.raises(FormatError, match="region"):
        prepare(Encoding((PLAIN,), STORED, region=region), chunks=(2, 5, 9), dtype=np.dtype("u2"), limits=Limits())


def test_unpacking_comes_after_it(decoder):
    values = np.arange(256, dtype="<u2").reshape(STORED)
    unpack = {"name": "periplus.unpack", "configuration": {"dtype": "<u2", "nodata": 3, "scale": 0.5, "offset": None}}
    found = decoder([cropped([2, 8, 16]), unpack, PLAIN], (2, 5, 9), "f4")(values.tobytes(), valid=(2, 5, 9))
    np.testing.assert_array_equal(found[:, :5, :9], np.where(values == 3, np.nan, values * 0.5)[:, :5, :9])


@pytest.mark.parametrize("shape", [None, [], [2, 8], [2, 4, 16], [2, 8, "16"], [2, 8, True], [2, 8.0, 16]])
def test_a_shape_that_does_not_hold_the_chunk_is_refused(decoder, shape):
    with pytest.raises(FormatError, match=r"periplus\.crop|does not hold"):
        decoder([cropped(shape), PLAIN], (2, 5, 9), "u2")


def test_a_crop_of_nothing_is_refused(decoder):
    with pytest.raises(FormatError, match="list of 1 to 16"):
        decoder([cropped([2, 8, 16])], (2, 5, 9), "u2")


def test_too_few_bytes_are_an_error(decoder):
    with pytest.raises(DecodeError):
        decoder([cropped([2, 8, 16]), PLAIN], (2, 5, 9), "u2")(b"\0" * 100, valid=(2, 5, 9))
