"""periplus.crop: chunks that are stored larger than the array's."""

import numpy as np
import pytest

from periplus.errors import DecodeError, FormatError

STORED = (2, 8, 16)
PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}


def cropped(shape):
    return {"name": "periplus.crop", "configuration": {"shape": shape}}


def test_the_first_rows_and_columns_are_given(decoder):
    values = np.arange(256, dtype="<u2").reshape(STORED)
    found = decoder([cropped([2, 8, 16]), PLAIN], (2, 5, 9), "u2")(values.tobytes(), valid=(2, 5, 9))
    np.testing.assert_array_equal(found[:, :5, :9], values[:, :5, :9])


def test_unpacking_comes_after_it(decoder):
    values = np.arange(256, dtype="<u2").reshape(STORED)
    unpack = {"name": "periplus.unpack", "configuration": {"dtype": "<u2", "nodata": 3, "scale": 0.5, "offset": None}}
    found = decoder([cropped([2, 8, 16]), unpack, PLAIN], (2, 5, 9), "f4")(values.tobytes(), valid=(2, 5, 9))
    np.testing.assert_array_equal(found[:, :5, :9], np.where(values == 3, np.nan, values * 0.5)[:, :5, :9])


@pytest.mark.parametrize("shape", [None, [], [2, 8], [2, 4, 16], [2, 8, "16"], [2, 8, True], [2, 8.0, 16]])
def test_a_shape_that_does_not_hold_the_chunk_is_refused(decoder, shape):
    with pytest.raises(FormatError, match=r"periplus\.crop"):
        decoder([cropped(shape), PLAIN], (2, 5, 9), "u2")


def test_a_crop_of_nothing_is_refused(decoder):
    with pytest.raises(FormatError, match="list of 1 to 16"):
        decoder([cropped([2, 8, 16])], (2, 5, 9), "u2")


def test_too_few_bytes_are_an_error(decoder):
    with pytest.raises(DecodeError):
        decoder([cropped([2, 8, 16]), PLAIN], (2, 5, 9), "u2")(b"\0" * 100, valid=(2, 5, 9))
