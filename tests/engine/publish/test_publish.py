"""Conventions written into Zarr groups and onto Datasets are what rioxarray and the engine xgroup read."""

import numpy as np
import pyproj
import pytest
import rasterio.crs
import rioxarray  # noqa: F401 - gives Datasets their `rio`
import xarray as xr
import zarr
from zarr.storage import MemoryStore

from periplus.engine.publish.publish import write_conventions
from periplus.errors import DeniedError, FormatError, MissingError

# rioxarray multiplies affines with `*`, which affine 3.1 frowns upon; consolidated metadata are no part of Zarr 3.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
]
UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)
CRS = "EPSG:32633"


def dataset(size=8, step=10.0):
    return xr.Dataset(
        {"b02": (("time", "y", "x"), np.arange(2 * size * size).reshape(2, size, size))},
        {"x": 500000 + step * (np.arange(size) + 0.5), "y": 5000000 - step * (np.arange(size) + 0.5)},
    )


def pyramid(group, *, labels=True):
    for n in range(3):
        level = dataset(16 >> n, 10.0 * 2**n)
        for name, variable in level.variables.items():
            if labels or name == "b02":
                where = group.require_group(str(n))
                made = where.create_array(name, data=variable.values, **_dims(group, variable.dims))
                if group.metadata.zarr_format == 2:
                    made.attrs["_ARRAY_DIMENSIONS"] = list(variable.dims)
    return group


def _dims(group, dims):
    return {"dimension_names": dims} if group.metadata.zarr_format == 3 else {}


def test_a_dataset_comes_back_with_its_place_and_rioxarray_finds_it(tmp_path):
    written = write_conventions(dataset(), crs=CRS)
    assert written["b02"].attrs["spatial:transform"] == list(UTM)
    assert written.attrs["spatial:bbox"] == [500000, 4999920, 500080, 5000000]
    written.to_zarr(tmp_path / "a.zarr", consolidated=False)
    again = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    assert again.rio.crs == CRS
    assert tuple(again.rio.transform())[:6] == UTM
    assert again["b02"].attrs["proj:code"] == CRS


def test_a_dataset_is_not_changed_in_place():
    source = dataset()
    write_conventions(source, crs=CRS)
    assert source.attrs == source["b02"].attrs == {}
    assert "spatial_ref" not in source.coords


def test_a_transform_that_is_given_needs_no_labels():
    bare = dataset().drop_vars(["x", "y"])
    assert write_conventions(bare, crs=CRS, transform=UTM)["b02"].attrs["spatial:shape"] == [8, 8]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_numbered_groups_of_a_store_become_a_pyramid_that_xgroup_reads(tmp_path, zarr_format):
    group = pyramid(zarr.open_group(tmp_path / "p.zarr", mode="w", zarr_format=zarr_format))
    written = write_conventions(tmp_path / "p.zarr", crs=CRS, resampling="average", consolidate=True)
    assert sorted(written.grid_mappings) == ["0/spatial_ref", "1/spatial_ref", "2/spatial_ref"]
    layout = dict(zarr.open_group(tmp_path / "p.zarr", mode="r").attrs)["multiscales"]["layout"]
    assert [item["spatial:transform"][0] for item in layout] == [10, 20, 40]
    assert zarr.open_group(tmp_path / "p.zarr", mode="r").metadata.consolidated_metadata is not None
    for n in range(3):
        level = xr.open_dataset(tmp_path / "p.zarr", engine="xgroup", group=str(n))
        np.testing.assert_array_equal(level["x"], dataset(16 >> n, 10.0 * 2**n)["x"])
        assert level.rio.crs == CRS
    np.testing.assert_array_equal(group["0/b02"][:], dataset(16)["b02"])


def test_levels_without_labels_are_placed_by_their_sizes(tmp_path):
    group = pyramid(zarr.open_group(tmp_path / "p.zarr", mode="w"), labels=False)
    write_conventions(group, crs=CRS, transform=UTM)
    assert group["2/b02"].attrs["spatial:transform"] == [40, 0, 500000, 0, -40, 5000000]
    assert group.attrs["spatial:bbox"] == [500000, 4999840, 500160, 5000000]


def test_older_drafts_in_a_store_are_written_in_the_current_form(tmp_path):
    group = zarr.open_group(tmp_path / "old.zarr", mode="w")
    for name, size in (("r10m", 16), ("r20m", 8)):
        group.require_group(name).create_array("b", shape=(size, size), dtype="u1", dimension_names=("Y", "X"))
    layout = [{"group": "r10m"}, {"group": "r20m", "from_group": "r10m", "factors": [2, 2]}]
    group.attrs.update(
        {
            "zarr_conventions": [
                {"uuid": "d35379db-88df-4056-af3a-620245f8e347", "name": "multiscales"},
                {"uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f", "name": "proj:"},
                {"uuid": "11111111-1111-1111-1111-111111111111", "name": "ours"},
            ],
            "multiscales": {"layout": layout},
            "proj:code": CRS,
            "proj:transform": list(UTM),
            "proj:spatial_dimensions": ["Y", "X"],
        }
    )
    write_conventions(group)
    again = zarr.open_group(tmp_path / "old.zarr", mode="r")
    assert [entry["name"] for entry in again.attrs["zarr_conventions"]] == ["ours", "multiscales", "spatial", "proj"]
    assert [item["asset"] for item in again.attrs["multiscales"]["layout"]] == ["r10m", "r20m"]
    assert again["r20m/b"].attrs["spatial:transform"] == [20, 0, 500000, 0, -20, 5000000]
    level = xr.open_dataset(tmp_path / "old.zarr", engine="xgroup", group="r20m")
    assert level["X"].values[0] == 500010


def test_writing_twice_changes_nothing(tmp_path):
    group = pyramid(zarr.open_group(tmp_path / "p.zarr", mode="w"))
    write_conventions(group, crs=CRS)
    first = {path: dict(member.attrs) for path, member in group.members(max_depth=None)} | {"": dict(group.attrs)}
    write_conventions(group)
    again = {path: dict(member.attrs) for path, member in group.members(max_depth=None)} | {"": dict(group.attrs)}
    assert again == first


def test_uneven_labels_and_arrays_of_other_dimensions_are_ignored(tmp_path):
    group = zarr.open_group(tmp_path / "c.zarr", mode="w")
    group.create_array("x", data=np.array([1.0, 2, 4]), dimension_names=("x",))
    group.create_array("y", data=np.array([1.0, 2, 3]), dimension_names=("y",))
    group.create_array("a", data=np.zeros((3, 3)), dimension_names=("y", "x"))
    group.create_array("m", data=np.zeros((3, 3)), dimension_names=("i", "j"))
    write_conventions(group, crs=CRS)
    assert "spatial:transform" not in group["a"].attrs
    assert group["a"].attrs["proj:code"] == CRS
    assert dict(group["m"].attrs) == {}


def test_a_tree_of_levels_becomes_a_pyramid(tmp_path):
    tree = xr.DataTree.from_dict({"/r20m": dataset(8, 20.0), "/r10m": dataset(16, 10.0)})
    written = write_conventions(tree, crs=CRS, resampling="nearest")
    assert [item["asset"] for item in written.attrs["multiscales"]["layout"]] == ["r10m", "r20m"]
    assert written["r20m/b02"].attrs["spatial:transform"] == [20, 0, 500000, 0, -20, 5000000]
    assert written["r10m"].ds.rio.crs == CRS
    written.to_zarr(tmp_path / "t.zarr", consolidated=False)
    again = xr.open_dataset(tmp_path / "t.zarr", engine="xgroup", group="r20m")
    np.testing.assert_array_equal(again["x"], dataset(8, 20.0)["x"])


def test_nodes_are_written_for_points(tmp_path):
    written = write_conventions(dataset(), crs=CRS, registration="point")
    assert written["b02"].attrs["spatial:registration"] == "node"
    assert written["b02"].attrs["spatial:transform"][2] == 500005


@pytest.mark.parametrize("transform", [UTM, (8.0, -3.0, 500000.0, -3.0, -8.0, 5000000.0)])
def test_lazy_labels_are_dropped_and_come_back_from_the_transform(tmp_path, transform):
    bare = dataset().drop_vars(["x", "y"])
    write_conventions(bare, crs=CRS, transform=transform).to_zarr(tmp_path / "a.zarr", consolidated=False)
    opened = xr.open_dataset(tmp_path / "a.zarr", engine="xgroup", coords="lazy")
    again = write_conventions(opened)
    assert not {"x", "y", "xc", "yc"} & set(again.variables)
    assert again["b02"].attrs["spatial:transform"] == list(transform)
    again.to_zarr(tmp_path / "b.zarr", consolidated=False)
    assert not (tmp_path / "b.zarr" / "x").exists()
    xr.testing.assert_allclose(xr.open_dataset(tmp_path / "b.zarr", engine="xgroup").load(), opened.load())


def test_labels_are_kept_or_dropped_as_requested():
    assert {"x", "y"} <= set(write_conventions(dataset(), crs=CRS).coords)
    assert {"x", "y"}.isdisjoint(write_conventions(dataset(), crs=CRS, labels=False).coords)


def test_what_cannot_be_written_to_is_refused_with_our_errors(tmp_path):
    with pytest.raises(MissingError):
        write_conventions(tmp_path / "none.zarr", crs=CRS)
    zarr.create_array(tmp_path / "array.zarr", shape=(3,), dtype="i4")
    with pytest.raises(FormatError):
        write_conventions(str(tmp_path / "array.zarr"), crs=CRS)
    zarr.open_group(tmp_path / "a.zarr", mode="w")
    with pytest.raises(DeniedError):
        write_conventions(zarr.open_group(tmp_path / "a.zarr", mode="r"), crs=CRS)


@pytest.mark.parametrize("crs", [32633, np.int64(32633), pyproj.CRS(32633), rasterio.crs.CRS.from_epsg(32633)])
def test_a_crs_may_be_a_number_or_one_of_another_library(crs):
    wanted = write_conventions(dataset(), crs="EPSG:32633")
    assert write_conventions(dataset(), crs=crs).attrs == wanted.attrs


def test_a_transform_may_be_an_affine():
    bare = dataset().drop_vars(["x", "y"])
    wanted = write_conventions(bare, crs=CRS, transform=(10, 0, 5, 0, -10, 7))
    assert write_conventions(bare, crs=CRS, transform=rasterio.Affine(10, 0, 5, 0, -10, 7)).attrs == wanted.attrs


@pytest.mark.parametrize(("crs", "error"), [("nowhere", ValueError), (0, ValueError), (1.5, TypeError)])
def test_a_wrong_crs_is_a_wrong_argument(crs, error):
    with pytest.raises(error) as raised:
        write_conventions(dataset(), crs=crs)
    assert type(raised.value) is error


def test_spatial_dims_that_no_array_has_are_a_wrong_argument():
    group = zarr.group(MemoryStore())
    group.create_array("a", shape=(4, 5), dtype="u1", dimension_names=("y", "x"))
    for target in (dataset(), group):
        with pytest.raises(ValueError, match="there are") as raised:
            write_conventions(target, crs=CRS, spatial_dims=("p", "q"))
        assert type(raised.value) is ValueError
