"""PackBits streams that do not end with their chunk: padding is ignored, runs past the end are damage."""

import numpy as np
import pytest

from periplus.errors import DecodeError
from periplus.testing.formats import samples

VALUES = np.arange(4 * 8, dtype="u1").reshape(1, 4, 8)
ROWS = [bytes([7]) + row.tobytes() for row in VALUES[0]]
"""Each row as one literal run."""


@pytest.fixture
def decode(decoder):
    return decoder([samples.tiff_tile(VALUES, 32773)], VALUES.shape, "u1")


@pytest.mark.parametrize("padding", [b"", b"\x00", bytes(9), b"\x80\x80", b"\xff", b"\x7fabc"], ids=bytes.hex)
def test_padding_is_ignored(decode, padding):
    np.testing.assert_array_equal(decode(b"".join(ROWS) + padding, valid=VALUES.shape), VALUES)


@pytest.mark.parametrize(
    "last",
    [
        bytes([8]) + bytes(9),  # a literal run of a byte too many
        bytes([9]) + bytes(8),  # one that would be too long if it were whole
        b"\xf0\x05",  # a repeated byte
        b"\x03abcd" + b"\xf0\x05" + b"\x02abc",  # more runs after it
    ],
    ids=bytes.hex,
)
def test_a_run_past_the_end_is_damage(decode, last):
    with pytest.raises(DecodeError, match="run extends past"):
        decode(b"".join(ROWS[:3]) + last, valid=VALUES.shape)


def test_a_stream_that_ends_in_a_run_is_too_short(decode):
    with pytest.raises(DecodeError, match="ends after 31 of 32"):
        decode(b"".join(ROWS)[:-1], valid=VALUES.shape)


def test_runs_may_cross_into_rows_below_the_image(decode):
    one = bytes([31]) + VALUES.tobytes()
    for padding in (b"", b"\x7f"):
        np.testing.assert_array_equal(decode(one + padding, valid=(1, 3, 8))[:, :3], VALUES[:, :3])
    short = b"".join(ROWS[:3])
    np.testing.assert_array_equal(decode(short, valid=(1, 3, 8))[:, :3], VALUES[:, :3])
