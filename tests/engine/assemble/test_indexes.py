"""Lazy coordinates in xarray, compared with the same Dataset on ordinary labels."""

import pickle
import tracemalloc

import numpy as np
import pytest
import xarray as xr
from affine import Affine
from rioxarray.rioxarray import affine_to_coords
from xarray.indexes import PandasIndex

from periplus.conventions.meaning import Grid
from periplus.conventions.spatial.grid import coords_of
from periplus.engine.assemble import indexes
from periplus.engine.assemble.coordinates import grid_pair, make
from periplus.engine.assemble.indexes import AxisIndex, GridIndex

# rioxarray multiplies affines with `*`, which affine 3.1 frowns upon.

TRANSFORM = (10.0, 0.0, 300000.1, 0.0, -10.0, 5200000.3)
TURNED = (8.0, 3.0, 1000.0, 2.5, -9.0, 5000.0)
SHAPE = (40, 60)


@pytest.fixture(autouse=True)
def every_axis_is_long(monkeypatch):
    monkeypatch.setattr(indexes, "ORDINARY", 0)


def coordinates(transform, dims, shape):
    """The coordinates of pixel centres, as the assembler makes them."""
    coords = coords_of(Grid(dims=dims, shape=shape, transform=transform), {})
    if len(coords[0].dims) == 1:
        made = {coord.name: make(coord, coord.dims, None) for coord in coords}
    else:
        made = grid_pair(coords[1], coords[0], dims, ("xc", "yc"))
    return xr.Coordinates({n: one.variable for n, one in made.items()}, {n: one.index for n, one in made.items()})


def same(lazy, ordinary):
    """Identical, but for the kind of index."""
    names = [name for name, index in lazy.xindexes.items() if isinstance(index, AxisIndex)]
    stored = lazy.drop_indexes(names).assign_coords({name: lazy[name].values for name in names})
    xr.testing.assert_identical(stored, ordinary)


def pair(transform=TRANSFORM, shape=SHAPE):
    values = np.arange(shape[0] * shape[1]).reshape(shape)
    lazy = xr.Dataset({"data": (("y", "x"), values)}, coords=coordinates(transform, ("y", "x"), shape))
    ordinary = affine_to_coords(Affine(*transform), shape[1], shape[0])
    return lazy, xr.Dataset({"data": (("y", "x"), values)}, coords=ordinary)


def test_labels_are_bit_for_bit_those_of_rioxarray():
    lazy, ordinary = pair((0.1, 0, -180.3, 0, -1 / 3600, 90.7))
    assert isinstance(lazy.xindexes["x"], AxisIndex)
    assert (lazy.x.values == ordinary.x.values).all()
    assert (lazy.y.values == ordinary.y.values).all()


SELECTIONS = [
    {"x": 300015.1},
    {"x": slice(300100, 300200)},
    {"y": slice(5200000, 5199800)},
    {"y": slice(5199800, 5200000)},
    {"x": slice(None, None, 2), "y": slice(None, 5199800, 3)},
    {"x": slice(300500, 300100, -1)},
    {"x": [300015.1, 300045.1], "y": 5199995.3},
    {"x": np.array([300045.1, 300015.1, 300045.1])},
    {"x": xr.DataArray([300045.1, 300015.1], dims="p"), "y": xr.DataArray([5199995.3, 5199985.3], dims="p")},
    {"x": xr.DataArray([300045.1], dims="x", coords={"x": [7]})},
    {"x": np.arange(60) % 7 == 0},
    {"x": slice(np.float64(300100), xr.DataArray(300200.0))},
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=range(len(SELECTIONS)))
def test_sel_selects_what_ordinary_labels_select(selection):
    lazy, ordinary = pair()
    same(lazy.sel(selection), ordinary.sel(selection))


@pytest.mark.parametrize("method", ["nearest", "pad", "ffill", "backfill", "bfill"])
@pytest.mark.parametrize(
    "label", [300020.1, 300017.0, [300017.0, 300033.0], xr.DataArray([[300017.0]], dims=("a", "b"))]
)
def test_sel_with_a_method(method, label):
    lazy, ordinary = pair()
    same(lazy.sel(x=label, method=method), ordinary.sel(x=label, method=method))
    same(lazy.sel(x=label, method=method, tolerance=10), ordinary.sel(x=label, method=method, tolerance=10))


@pytest.mark.parametrize(
    ("selection", "options", "error"),
    [
        ({"x": 300016.0}, {}, KeyError),
        ({"x": [300015.1, 1.0]}, {}, KeyError),
        ({"x": 1.0}, {"method": "nearest", "tolerance": 5}, KeyError),
        ({"x": np.nan}, {"method": "nearest"}, KeyError),
        ({"x": slice(1, 2)}, {"method": "nearest"}, NotImplementedError),
    ],
)
def test_sel_fails_where_ordinary_labels_fail(selection, options, error):
    for dataset in pair():
        with pytest.raises(error):
            dataset.sel(selection, **options)


@pytest.mark.parametrize(
    "positions",
    [
        {"x": 5},
        {"x": -1, "y": 0},
        {"x": slice(3, 50, 4)},
        {"y": slice(None, None, -1)},
        {"y": slice(30, 2, -5), "x": slice(-7, None)},
        {"x": [5, 1, 1]},
        {"x": np.arange(60) % 7 == 0},
        {"x": slice(5, 5)},
        {"x": xr.DataArray([1, 2], dims="p")},
        {"x": xr.DataArray([1, 2], dims="x")},
    ],
    ids=range(10),
)
def test_isel_keeps_the_labels_of_what_it_keeps(positions):
    lazy, ordinary = pair()
    same(lazy.isel(positions), ordinary.isel(positions))
    twice = {"x": slice(None, None, -1)} if "x" in lazy.isel(positions).dims else {}
    same(lazy.isel(positions).isel(twice), ordinary.isel(positions).isel(twice))


def test_everyday_operations_agree_with_ordinary_labels():
    lazy, ordinary = pair()
    for operation in (
        lambda d: d + d.isel(x=slice(3, 30)),
        lambda d: xr.concat([d.isel(x=slice(0, 20)), d.isel(x=slice(20, 60))], "x"),
        lambda d: xr.concat([d, d], xr.Variable("time", [0, 1])),
        lambda d: xr.merge([d, d.rename(data="other").isel(y=slice(5, 9))], join="outer"),
        lambda d: d.rename(x="lon").sel(lon=300015.1),
        lambda d: d.transpose("x", "y"),
        lambda d: d.roll(x=3, roll_coords=True),
        lambda d: d.coarsen(x=2, y=2).mean(),
        lambda d: d.diff("x"),
        lambda d: d.rolling(x=3, center=True).sum(),
        lambda d: d.groupby_bins("x", [300000, 300200, 300600]).sum(),
        lambda d: d.mean("x"),
        lambda d: d.sortby("y"),
        lambda d: d.stack(pixel=("y", "x")).isel(pixel=slice(0, 9)).reset_index("pixel"),
        lambda d: d.copy(deep=True),
        lambda d: d.where(d.x > 300200, drop=True),
        lambda d: d.assign(twice=d.data * 2).differentiate("x"),
        lambda d: pickle.loads(pickle.dumps(d)),
        lambda d: d.to_dataframe().to_xarray().transpose("y", "x").sortby("y", ascending=False),
    ):
        same(operation(lazy), operation(ordinary))


def test_lazy_labels_do_not_align_with_others_silently():
    lazy, ordinary = pair()
    with pytest.raises(ValueError, match="conflicting indexes"):
        lazy + ordinary.isel(x=slice(1, None))


def test_equality_is_that_of_labels():
    (one, _), (other, _) = pair(), pair()
    assert one.xindexes["x"].equals(other.xindexes["x"])
    back = one.isel(x=slice(None, None, -1)).isel(x=slice(None, None, -1))
    assert one.identical(back)
    shifted, _ = pair((10.0, 0.0, 300010.1, 0.0, -10.0, 5200000.3))
    assert not one.xindexes["x"].equals(shifted.xindexes["x"])


def test_a_continental_grid_costs_nothing():
    shape = (1_800_000, 3_600_000)
    tracemalloc.start()
    made = coordinates((1e-4, 0, -180, 0, -1e-4, 90), ("y", "x"), shape)
    grid = xr.Dataset({"data": (("y", "x"), np.broadcast_to(np.uint8(1), shape))}, coords=made)
    part = grid.sel(x=slice(10, 10.01), y=slice(50.01, 50))
    nearest = grid.sel(x=10.123456, y=-3.2, method="nearest")
    text = repr(grid)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert dict(part.sizes) == {"y": 100, "x": 100}
    assert abs(float(nearest.x) - 10.123456) <= 0.5e-4
    assert "3600000" in text
    assert peak < 4 << 20


def test_a_short_axis_has_ordinary_labels_and_a_long_one_becomes_short(monkeypatch):
    monkeypatch.undo()
    made = coordinates((1.0, 0, 0, 0, -1.0, 0), ("y", "x"), (10, indexes.ORDINARY + 10))
    assert isinstance(made.xindexes["y"], PandasIndex)
    assert isinstance(made.xindexes["x"], AxisIndex)
    grid = xr.Dataset(coords=made)
    assert isinstance(grid.isel(x=slice(0, 100)).xindexes["x"], PandasIndex)
    assert isinstance(grid.isel(x=slice(1, None)).xindexes["x"], AxisIndex)
    assert grid.isel(x=slice(0, 100)).reindex(x=[0.5, 1.25]).x.size == 2


def test_a_turned_grid_has_two_lazy_coordinates():
    made = coordinates(TURNED, ("y", "x"), SHAPE)
    grid = xr.Dataset({"data": (("y", "x"), np.arange(2400).reshape(SHAPE))}, coords=made)
    assert isinstance(grid.xindexes["xc"], GridIndex)
    ordinary = affine_to_coords(Affine(*TURNED), SHAPE[1], SHAPE[0])
    assert (grid.xc.values == ordinary["x"]).all()
    assert (grid.yc.values == ordinary["y"]).all()
    part = grid.isel(y=slice(30, 2, -3), x=slice(4, 9))
    assert isinstance(part.xindexes["xc"], GridIndex)
    assert (part.xc.values == ordinary["x"][30:2:-3, 4:9]).all()
    assert (grid.isel(x=3).yc.values == ordinary["y"][:, 3]).all()
    there = {"xc": float(part.xc[2, 1]) + 0.4, "yc": float(part.yc[2, 1]) - 0.4}
    assert int(part.sel(there, method="nearest").data) == int(part.data[2, 1])
    points = {name: xr.DataArray([value, value], dims="p") for name, value in there.items()}
    assert part.sel(points, method="nearest").data.shape == (2,)
    with pytest.raises(KeyError):
        grid.sel(xc=0.0, yc=0.0, method="nearest")
    assert part.equals(pickle.loads(pickle.dumps(part)))
