"""CF encodings, against xarray's own decoder and rioxarray."""

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from periplus.conventions.cf.encode import control_points, encode_time, geotransform
from periplus.model import GroundControlPoint

MOMENTS = st.lists(st.integers(-(2**50), 2**50) | st.sampled_from([0, 86_400_000_000, 1_000_000, 1_000]), max_size=5)


@given(MOMENTS, st.sampled_from([1, 1_000, 1_000_000, 86_400_000_000]))
def test_encoded_times_decode_to_the_same_moments(moments, grain):
    times = np.array([m // grain * grain for m in moments], "datetime64[us]")
    numbers, attributes = encode_time(times)
    coder = xr.coders.CFDatetimeCoder(time_unit="us")
    decoded = xr.decode_cf(xr.Dataset({"t": ("t", numbers, attributes)}), decode_times=coder)["t"].values
    assert (decoded == times).all()


def test_the_unit_is_the_coarsest_that_is_exact():
    def unit(text):
        return encode_time(np.array([text], "datetime64[us]"))[1]["units"]

    assert unit("2021-01-05") == "days since 1970-01-01"
    assert unit("2021-01-05T10:11:12") == "seconds since 1970-01-01"
    assert unit("2021-01-05T10:11:12.345") == "milliseconds since 1970-01-01"
    assert unit("2021-01-05T10:11:12.345678") == "microseconds since 1970-01-01"
    assert encode_time(np.array([1], "datetime64[ns]"))[1]["units"] == "nanoseconds since 1970-01-01"


def test_a_missing_time_stays_missing():
    times = np.array(["2021-01-05", "NaT"], "datetime64[us]")
    numbers, attributes = encode_time(times)
    decoded = xr.decode_cf(xr.Dataset({"t": ("n", numbers, attributes)}))["t"].values
    assert decoded[0] == times[0]
    assert np.isnat(decoded[1])


def test_only_times_are_encoded():
    with pytest.raises(TypeError):
        encode_time(np.arange(3))


def test_a_geotransform_keeps_every_digit():
    transform = (0.1, 1e-17, 300000.1, 2 / 3, -1 / 3, 5e6)
    c, a, b, f, d, e = (float(v) for v in geotransform(transform).split())
    assert (a, b, c, d, e, f) == transform


def test_rioxarray_reads_control_points():
    points = [
        GroundControlPoint(column=0, row=0, x=10.5, y=50.25, z=3),
        GroundControlPoint(column=9, row=4, x=9, y=5),
    ]
    spatial_ref = xr.Variable((), 0, {"gcps": control_points(points)})
    read = xr.DataArray(np.zeros((2, 2)), dims=("y", "x"), coords={"spatial_ref": spatial_ref}).rio.get_gcps()
    assert [(p.col, p.row, p.x, p.y, p.z) for p in read] == [(0, 0, 10.5, 50.25, 3), (9, 4, 9, 5, 0)]
