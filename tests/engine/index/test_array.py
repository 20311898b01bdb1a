"""Indexing of a lazy array as xarray does it, compared with the same array in memory."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from xarray.core.indexing import LazilyIndexedArray

from periplus.engine.index import array as array_module
from periplus.engine.index.array import LazyArray
from periplus.engine.index.packing import per_band, stored
from periplus.errors import FormatError
from periplus.model import Array

SHAPE, CHUNKS = (3, 4, 30, 41), (1, 4, 8, 16)


class Recorder:
    """Replaces an index and the reader: reads selections from memory and notes which chunks each touches."""

    table = fetch = limits = None

    def __init__(self, values, chunks):
        self.values, self.chunks, self.touched = values, chunks, []

    def read(self, selection):
        axes = [np.array(a.start + a.step * np.arange(a.count)) for a in selection.axes]
        axes = [axis[::-1] if a.flipped else axis for axis, a in zip(axes, selection.axes, strict=True)]
        axes = [
            axis if a.listed is None else np.array(a.listed, int) for axis, a in zip(axes, selection.axes, strict=True)
        ]
        grid = np.meshgrid(*(np.unique(axis // c) for axis, c in zip(axes, self.chunks, strict=True)), indexing="ij")
        self.touched += [tuple(int(v) for v in chunk) for chunk in zip(*(g.ravel() for g in grid), strict=True)]
        return self.values[np.ix_(*axes)][tuple(0 if a.dropped else slice(None) for a in selection.axes)]


@pytest.fixture(autouse=True, scope="module")
def reader():
    """The reader asks the recorder, which stands for the table."""

    def read_array(table, fetch, array, selection, *, limits):
        return table.read(selection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_module, "read_array", read_array)
        yield


def lazy(packing=None, dtype="int32"):
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)
    index = Recorder(values, CHUNKS)
    index.table = index
    array = Array(name="0/data", dims=("time", "bands", "y", "x"), shape=SHAPE, chunks=CHUNKS, dtype=np.dtype(dtype))
    return index, xr.Variable(array.dims, LazilyIndexedArray(LazyArray(index, array, packing)))


@st.composite
def keys(draw):
    size = draw(st.integers(1, 5))
    points = draw(st.booleans())
    key = {}
    for dim, n in zip(("time", "bands", "y", "x"), SHAPE, strict=True):
        place = st.integers(-n, n - 1)
        part = st.builds(slice, st.none() | place, st.none() | place, st.sampled_from([None, 1, 2, 5, -1, -3]))
        listed = st.lists(place, max_size=6)
        mask = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
        vector = st.lists(place, min_size=size, max_size=size).map(lambda v: xr.Variable("p", v))
        key[dim] = draw(st.one_of(place, part, *([vector] if points else [listed, mask])))
    return {dim: k for dim, k in key.items() if draw(st.booleans())}


@given(keys(), keys())
def test_every_kind_of_key_gives_what_memory_gives(first, then):
    index, variable = lazy()
    memory = xr.Variable(variable.dims, index.values)
    xr.testing.assert_identical(variable.isel(first).load(), memory.isel(first))
    again = {d: k for d, k in then.items() if isinstance(k, slice)}
    again = {d: k for d, k in again.items() if d in memory.isel(first).dims}
    xr.testing.assert_identical(variable.isel(first).isel(again).load(), memory.isel(first).isel(again))


def test_indexing_reads_nothing_until_values_are_wanted():
    index, variable = lazy()
    part = variable.isel(time=1, x=slice(3, 20)).isel(y=[2, 25])
    assert index.touched == []
    part.load()
    assert sorted(index.touched) == [(1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 3, 0), (1, 0, 3, 1)]


def test_points_take_each_chunk_once_and_no_other():
    index, variable = lazy()
    y, x = xr.Variable("p", [29, 0, 1, 28, 0]), xr.Variable("p", [40, 0, 2, 33, 1])
    values = variable.isel(time=0, y=y, x=x).load()
    assert (values.values == index.values[0][:, y.values, x.values]).all()
    assert sorted(index.touched) == [(0, 0, 0, 0), (0, 0, 3, 2)]


def test_points_past_the_edge_are_an_index_error():
    _, variable = lazy()
    for place in (-31, 30):
        with pytest.raises(IndexError):
            variable.isel(y=xr.Variable("p", [0, place]), x=xr.Variable("p", [0, 0])).load()


PACKED = {"_FillValue": [0, None, 300, -5], "scale_factor": [1, 0.5, 2, 10], "add_offset": 7}


@given(keys())
def test_bands_that_differ_in_packing_are_unpacked_each_in_its_way(key):
    packing = per_band(PACKED, np.dtype("int32"), 1, 4)
    index, variable = lazy(packing)
    raw = index.values.astype(float)
    expected = raw * np.array([1, 0.5, 2, 10]).reshape(4, 1, 1) + 7
    expected[:, 0][raw[:, 0] == 0] = np.nan
    expected[:, 2][raw[:, 2] == 300] = np.nan
    assert variable.dtype == np.float64
    got = variable.isel(key).load()
    np.testing.assert_array_equal(got.values, xr.Variable(variable.dims, expected).isel(key).values)


def test_the_float_of_unpacked_bands_is_the_one_xarray_chooses():
    for dtype in ("uint8", "int16", "uint16", "int32", "float32", "float64"):
        nodata = {"_FillValue": np.dtype(dtype).type(0)}
        for one in (nodata, {"scale_factor": 2.0}, {"add_offset": 3.0}, {"scale_factor": 2.0, "add_offset": 3.0}):
            ours = per_band({name: [value, value] for name, value in one.items()}, np.dtype(dtype), 0, 2).dtype
            plain = xr.Dataset({"v": ("n", np.zeros(2, dtype), one)})
            assert ours == xr.decode_cf(plain).v.dtype, (dtype, one)


def test_packing_lists_must_fit_the_bands():
    with pytest.raises(FormatError, match="3 values for 4 bands"):
        per_band({"scale_factor": [1, 2, 3]}, np.dtype("u1"), 0, 4)
    with pytest.raises(FormatError, match="1 values for"):
        per_band({"_FillValue": 0, "scale_factor": [1]}, np.dtype("u1"), 0, 2**60)
    with pytest.raises(FormatError, match="complex"):
        per_band({"scale_factor": [1, 2]}, np.dtype("c8"), 0, 2)
    assert per_band({"scale_factor": 2, "_FillValue": 0}, np.dtype("u1"), 0, 4) is None
    with pytest.raises(FormatError, match="no bands"):
        per_band({"scale_factor": [1, 2]}, np.dtype("u1"), None, 0)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (255, "u1", 255),
        (-9999, "u1", None),
        (-9999.0, "i2", -9999),
        (0.5, "i2", None),
        (float("nan"), "i2", None),
        ("NaN", "f4", np.nan),
        (-3.4028234663852886e38, "f4", np.finfo("f4").min),
        (2**63 - 1, "i8", 2**63 - 1),
        (None, "f4", None),
    ],
)
def test_nodata_is_a_stored_value_or_nothing(value, dtype, expected):
    got = stored(value, np.dtype(dtype))
    assert got is expected or got == expected or (np.isnan(got) and np.isnan(expected))
