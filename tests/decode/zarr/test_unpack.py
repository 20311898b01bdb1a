"""periplus.unpack: stored numbers to physical ones."""

import numpy as np
import pytest

from periplus.errors import FormatError

SHAPE = (2, 3, 4)


def codecs(dtype, **settings):
    return [
        {"name": "periplus.unpack", "configuration": {"dtype": dtype, **settings}},
        {"name": "bytes", "configuration": {"endian": "little"}},
    ]


def stored(dtype):
    values = np.arange(24).reshape(SHAPE).astype(dtype)
    values[0, 0, 1] = values[1, 2, 2] = 7
    return values


def test_scale_offset_and_nodata(decoder):
    values = stored("<i2")
    found = decoder(codecs("<i2", nodata=7, scale=0.1, offset=-3), SHAPE, "f4")(values.tobytes(), valid=SHAPE)
    wanted = np.where(values == 7, np.nan, values * 0.1 - 3).astype("f4")
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == np.float32


def test_one_number_a_band(decoder):
    values = stored("<u2")
    settings = {"nodata": [7, 20], "scale": [2, 0.5], "offset": [100, 200]}
    found = decoder(codecs("<u2", **settings), SHAPE, "f8")(values.tobytes(), valid=SHAPE)
    wanted = values * np.array([2, 0.5])[:, None, None] + np.array([100, 200])[:, None, None]
    wanted[values == np.array([7, 20])[:, None, None]] = np.nan
    np.testing.assert_array_equal(found, wanted)


def test_bands_without_nodata_scale_or_offset_are_left_alone(decoder):
    values = stored("<u2")
    settings = {"nodata": [None, 20], "scale": [None, 0.5], "offset": [100, None]}
    found = decoder(codecs("<u2", **settings), SHAPE, "f4")(values.tobytes(), valid=SHAPE)
    np.testing.assert_array_equal(found[0], values[0] + 100)
    np.testing.assert_array_equal(found[1], np.where(values[1] == 20, np.nan, values[1] * 0.5))


@pytest.mark.parametrize("count", [1, 3])
def test_lists_of_another_length_than_the_chunk_has_bands_are_refused(count, decoder):
    for key in ("nodata", "scale", "offset"):
        with pytest.raises(FormatError):
            decoder(codecs("<u2", **{key: [1] * count}), SHAPE, "f4")


def test_a_stack_keeps_its_bands_apart(decoder):
    values = stored("<u2")
    chunks = (1, *SHAPE)
    found = decoder(codecs("<u2", scale=[2, 3]), chunks, "f4")(values.tobytes(), valid=chunks)
    np.testing.assert_array_equal(found[0], values * np.array([2, 3])[:, None, None])


@pytest.mark.parametrize(
    "settings", [{}, {"nodata": None, "scale": None, "offset": None}, {"nodata": 70000}, {"nodata": 1.5}]
)
def test_nothing_to_unpack_leaves_the_values(settings, decoder):
    values = stored("<i2")
    np.testing.assert_array_equal(
        decoder(codecs("<i2", **settings), SHAPE, "f4")(values.tobytes(), valid=SHAPE), values
    )


@pytest.mark.parametrize("nodata", [float("nan"), "NaN", float("inf"), -9999.0])
def test_nodata_of_floats(nodata, decoder):
    values = stored("<f4")
    values[1, 1, 1], values[1, 1, 2], values[1, 1, 3] = np.nan, np.inf, -9999
    found = decoder(codecs("<f4", nodata=nodata), SHAPE, "f4")(values.tobytes(), valid=SHAPE)
    wanted = values.copy()
    wanted[values == float(nodata)] = np.nan
    np.testing.assert_array_equal(found, wanted)


def test_float32_results_are_the_nearest_to_the_true_ones(decoder):
    values = np.arange(24, dtype="<i4").reshape(SHAPE) * 7919 + 2**24
    found = decoder(codecs("<i4", scale=0.0001, offset=273.15), SHAPE, "f4")(values.tobytes(), valid=SHAPE)
    np.testing.assert_array_equal(found, (values.astype("f8") * 0.0001 + 273.15).astype("f4"))


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        ("<i2", {"scale": "two"}),
        ("<i2", {"scale": []}),
        ("<i2", {"nodata": {}}),
        ("<i2", {"scale": 10**400}),
        ("<c8", {}),
        ("<U5", {}),
        ("nonsense", {}),
        (None, {}),
        (["<i2"], {}),
    ],
)
def test_settings_that_mean_nothing_are_refused(dtype, settings, decoder):
    with pytest.raises(FormatError):
        decoder(codecs(dtype, **settings), SHAPE, "f4")


def test_only_floats_come_out(decoder):
    with pytest.raises(FormatError):
        decoder(codecs("<i2"), SHAPE, "i4")
