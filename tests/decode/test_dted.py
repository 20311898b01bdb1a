"""Elevation cells are turned in part where only part is wanted; what is decoded is checked."""

import numpy as np
import pytest

import periplus
from periplus.errors import DecodeError, FormatError
from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import dted as dteds

POSTS, LINES = 150, 201
WANTS = [
    (slice(None), slice(None)),
    (slice(3, 40), slice(70, 140)),
    (slice(0, 1), slice(0, 1)),
    (slice(None, None, 3), slice(5, None, 7)),
    (slice(149, 150), slice(200, 201)),
    (slice(2, 2), slice(9, 9)),
]


def chunk(values, **trims):
    data = dteds.cell(values)
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    (codec,) = found.array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], **trims}}
    start, length = int(found.refs.offset[0]), int(found.refs.length[0])
    return codec, data[start : start + length]


@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("trims", [{}, {"trim_top": 4, "trim_bottom": 1, "trim_left": 2, "trim_right": 9}])
def test_what_is_wanted_is_there_whatever_else_is_not(decoder, want, trims):
    values = dteds.heights("partly", POSTS, LINES)
    codec, data = chunk(values, **trims)
    top, left = trims.get("trim_top", 0), trims.get("trim_left", 0)
    inside = values[:, top : POSTS - trims.get("trim_bottom", 0), left : LINES - trims.get("trim_right", 0)]
    decode = decoder(codec, inside.shape, "i2")
    window = (slice(None), *want)
    seen = decode(data, valid=inside.shape, want=window)
    assert seen.shape == inside.shape
    np.testing.assert_array_equal(seen[window], inside[window])
    np.testing.assert_array_equal(decode(data, valid=inside.shape), inside)


def test_a_damaged_record_is_found_by_whoever_looks_at_it(decoder):
    values = dteds.heights("damaged", POSTS, LINES)
    codec, data = chunk(values)
    size = len(data) // LINES
    data = data[: 100 * size + 50] + bytes([data[100 * size + 50] ^ 1]) + data[100 * size + 51 :]
    decode = decoder(codec, values.shape, "i2")
    with pytest.raises(DecodeError, match="record 100 of the cell fails its checksum"):
        decode(data, valid=values.shape)
    with pytest.raises(DecodeError, match="record 100"):
        decode(data, valid=values.shape, want=(slice(None), slice(0, 1), slice(90, 101)))
    seen = decode(data, valid=values.shape, want=(slice(None), slice(0, 9), slice(0, 90)))
    np.testing.assert_array_equal(seen[:, :9, :90], values[:, :9, :90])


def test_windows_of_an_index_are_those_of_the_cell(tmp_path):
    values = dteds.heights("window", POSTS, LINES)
    path = tmp_path / "cell"
    path.write_bytes(dteds.cell(values))
    with periplus.index(path) as index:
        array = index["0/data"]
        for want in WANTS:
            np.testing.assert_array_equal(array[(slice(None), *want)], values[(slice(None), *want)])
        np.testing.assert_array_equal(array[0, ::-1, ::-2], values[0, ::-1, ::-2])
        assert array[0, 77, 88] == values[0, 77, 88]


def test_settings_that_are_missing_or_wrong_are_named(decoder):
    values = dteds.heights("settings", 5, 4)
    codec, _ = chunk(values)
    for key, value, message in (
        ("num_lon_lines", None, "dted codec: num_lon_lines is missing"),
        ("trim_top", -1, "dted codec: trim_top is -1, no whole number from 0 to"),
    ):
        settings = {**codec["configuration"], key: value}
        with pytest.raises(FormatError, match=message):
            decoder({**codec, "configuration": settings}, values.shape, "i2")
