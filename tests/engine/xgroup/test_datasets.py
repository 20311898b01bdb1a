"""The engine `xgroup` on whole stores: what stock xarray gives, plus the coordinates that conventions give."""

import pickle
import subprocess
import sys
import tracemalloc
import warnings
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr
from zarr.storage import LocalStore, MemoryStore, ZipStore

from periplus.engine.xgroup.backend import XGroupBackend, XGroupReferenceError, require
from periplus.testing.hierarchies import UTM, CountingStore, StoredArray, declare_huge, spatial, write_hierarchy


def grid(attributes=None, shape=(4, 5), dims=("y", "x"), **more):
    return StoredArray(dims=dims, shape=shape, attributes=spatial() if attributes is None else attributes, **more)


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


def stock(store, **options):
    return xr.open_dataset(store, engine="zarr", consolidated=False, **options)


PACKED = {
    "packed": StoredArray(
        dims=("time", "y", "x"),
        values=np.arange(2 * 6 * 8, dtype="int16").reshape(2, 6, 8) - 5,
        chunks=(1, 3, 4),
        fill=-1,
        attributes={**spatial(), "_FillValue": -1, "scale_factor": 0.1, "add_offset": 2.0, "units": "K"},
    ),
    "masked": StoredArray(
        dims=("y", "x"),
        values=np.where(np.arange(48).reshape(6, 8) % 3, np.arange(48.0).reshape(6, 8), -9.0).astype("float32"),
        chunks=(4, 8),
        fill=np.nan,
        attributes={**spatial(), "missing_value": -9.0},
    ),
    "flags": StoredArray(dims=("y", "x"), values=np.eye(6, 8, dtype=bool), attributes=spatial()),
    "names": StoredArray(dims=("time",), values=np.array(["ab", "c"]), attributes={}),
    "time": StoredArray(
        dims=("time",), values=np.array([1.0, 2.5]), attributes={"units": "days since 2001-01-01", "calendar": "noleap"}
    ),
}


@pytest.mark.filterwarnings("ignore:The data type:UserWarning")
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("chunks", [None, {}])
def test_values_masks_scales_encodings_and_dask_chunks_are_those_of_stock_xarray(zarr_format, consolidated, chunks):
    store = write_hierarchy(MemoryStore(), PACKED, zarr_format=zarr_format, consolidated=consolidated)
    # `names` has no principal convention; that is not what this is about.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = xr.open_dataset(store, engine="xgroup", chunks=chunks)
    theirs = stock(store, chunks=chunks)
    xr.testing.assert_identical(ours.drop_vars(["x", "y"]), theirs)
    for name in theirs.variables:
        encoding = {key: value for key, value in ours[name].encoding.items() if key != "grid_mapping"}
        assert repr(encoding) == repr(theirs[name].encoding)  # not a number is not equal to itself
        assert ours[name].chunks == theirs[name].chunks
        assert ours[name].dtype == theirs[name].dtype
    np.testing.assert_array_equal(ours.x, UTM[2] + 10 * (np.arange(8) + 0.5))


def test_the_zarr_fill_value_masks_in_version_2_and_not_in_version_3():
    for zarr_format, missing in ((2, 1), (3, 0)):
        store = write_hierarchy(MemoryStore(), {"a": grid(dtype="float32", fill=3.0)}, zarr_format=zarr_format)
        assert int(opened(store).a.isnull().sum()) == missing
        assert int(stock(store).a.isnull().sum()) == missing
    assert int(opened(store, use_zarr_fill_value_as_mask=True).a.isnull().sum()) == 1


def test_opening_reads_no_chunk_and_lists_nothing_where_metadata_are_consolidated():
    nodes = {"g/a": grid(), "g/b": grid(), "time": StoredArray(dims=("time",), shape=(3,))}
    inner = write_hierarchy(MemoryStore(), nodes, consolidated=True)
    store = CountingStore(inner)
    opened(store, group="g")
    assert store.chunks == []
    assert store.listed == []
    opened_tree = xr.open_datatree(store, engine="xgroup")
    assert store.chunks == ["time/c/0"]  # a stored index is read, as xarray's own engine does
    assert store.listed == []
    assert set(opened_tree.groups) == {"/", "/g"}


def test_values_are_read_only_where_they_are_asked_for():
    store = CountingStore(write_hierarchy(MemoryStore(), {"a": grid(shape=(40, 50), chunks=(10, 10))}))
    dataset = opened(store)
    assert store.chunks == []
    dataset.a[:10, :10].load()
    assert store.chunks == ["a/c/0/0"]


def test_a_grid_of_trillions_of_pixels_opens_without_labels_in_memory(tmp_path):
    shape = (1_800_000, 3_600_000)
    transform = (1e-4, 0.0, -180.0, 0.0, -1e-4, 90.0)
    declare_huge(tmp_path / "huge.zarr", "a", shape, ("lat", "lon"), spatial(transform, ("lat", "lon")))
    store = CountingStore(LocalStore(tmp_path / "huge.zarr"))
    dataset = opened(store)
    assert store.chunks == []
    assert not dataset.lon.variable._in_memory or dataset.lon.variable._data.dtype == np.float64
    assert float(dataset.lon[0]) == pytest.approx(-180 + 5e-5, abs=1e-12)
    assert float(dataset.lat[-1]) == pytest.approx(-90 + 5e-5, abs=1e-10)
    there = dataset.sel(lat=slice(48.001, 48.0)).isel(lon=7)
    assert there.a.shape == (10,)
    near = dataset.sel(lon=[12.3, 12.4], lat=[1.0, 2.0], method="nearest")
    assert near.a.shape == (2, 2)


def test_node_registration_is_exact():
    attributes = {**spatial((0.1, 0, -10.0, 0, -0.1, 50.0)), "spatial:registration": "node"}
    dataset = opened(write_hierarchy(MemoryStore(), {"a": grid(attributes)}))
    assert dataset.x[0].item() == -10.0
    assert dataset.y[0].item() == 50.0
    np.testing.assert_array_equal(dataset.x, np.arange(5) * 0.1 + -10.0)


@pytest.mark.parametrize("registration", ["pixel", "node"])
def test_turned_grids_have_lazy_coordinates_over_both_dimensions(registration):
    transform = (8.0, 6.0, 100.0, 6.0, -8.0, 200.0)
    attributes = {**spatial(transform), "spatial:registration": registration}
    dataset = opened(write_hierarchy(MemoryStore(), {"a": grid(attributes)}))
    offset = 0.5 if registration == "pixel" else 0.0
    rows, columns = np.meshgrid(np.arange(4) + offset, np.arange(5) + offset, indexing="ij")
    np.testing.assert_array_equal(dataset.xc, 8.0 * columns + 6.0 * rows + 100.0)
    np.testing.assert_array_equal(dataset.yc, 6.0 * columns - 8.0 * rows + 200.0)
    assert dataset.xc.dims == ("y", "x")
    assert "x" not in dataset.coords
    point = dataset.sel(xc=dataset.xc[2, 3].item(), yc=dataset.yc[2, 3].item(), method="nearest")
    assert point.a.item() == dataset.a[2, 3].item()


def test_labels_can_be_lazy_in_memory_or_left_out():
    store = write_hierarchy(MemoryStore(), {"a": grid()})
    lazy, memory, none = (opened(store, coords=how) for how in ("lazy", "memory", "none"))
    xr.testing.assert_equal(lazy, memory)
    assert type(lazy.xindexes["x"]).__name__ == "AxisIndex"
    assert type(memory.xindexes["x"]).__name__ == "PandasIndex"
    assert "x" not in none.coords
    with pytest.raises(ValueError, match="coords must be one of"):
        opened(store, coords="some")


def test_labels_that_are_stored_are_those_taken():
    x = (UTM[2] + 10 * (np.arange(5) + 0.5)).astype("f4")
    nodes = {"a": grid(), "x": StoredArray(dims=("x",), values=x, attributes={"units": "m"})}
    store = write_hierarchy(MemoryStore(), nodes)
    dataset = opened(store)
    np.testing.assert_array_equal(dataset.x, x)
    assert dataset.y[0].item() == UTM[5] - 5
    xr.testing.assert_identical(dataset.drop_vars("y"), stock(store))


def test_lazy_labels_of_a_grid_come_before_stored_ones_if_asked_for():
    nodes = {"a": grid(), "x": StoredArray(dims=("x",), values=UTM[2] + 10 * (np.arange(5) + 0.5)), "time": TIMES}
    store = CountingStore(write_hierarchy(MemoryStore(), nodes))
    dataset = opened(store, coords="lazy")
    assert store.chunks == ["time/c/0"]
    assert type(dataset.xindexes["x"]).__name__ == "AxisIndex"
    xr.testing.assert_equal(dataset, opened(store))


@pytest.mark.parametrize("how", ["path", "string", "store", "group", "mapping", "url"])
def test_whatever_zarr_opens_is_opened(tmp_path, how):
    nodes = {"g/a": grid()}
    path = write_hierarchy(tmp_path / "s.zarr", nodes)
    what = {
        "path": lambda: path,
        "string": lambda: str(path),
        "store": lambda: LocalStore(path),
        "group": lambda: zarr.open_group(path, mode="r"),
        "mapping": lambda: dict(write_hierarchy(MemoryStore(), nodes)._store_dict),
        "url": lambda: path.as_uri(),
    }[how]()
    assert opened(what, group="/g").x[0].item() == 500005.0


def test_a_group_object_is_opened_with_the_whole_store_around_it(tmp_path):
    nodes = {"g/a": StoredArray(dims=("time",), shape=(3,), attributes=cs_time("/t/time")), "t/time": TIMES}
    path = write_hierarchy(tmp_path / "s.zarr", nodes)
    dataset = opened(zarr.open_group(path, mode="r")["g"])
    assert dataset.time.dt.day.values.tolist() == [1, 3, 9]


TIMES = StoredArray(dims=("time",), values=np.array([0.0, 2.0, 8.0]))


def cs_time(node):
    from periplus.testing.hierarchies import declared

    values = {"external": {"ref": {"node": node}}}
    coordinates = {"time": {"unit": "days", "epoch": "2000-01-01", "calendar": "standard"}, "values": values}
    axes = {"time": {"abbreviation": "T", "coordinates": [coordinates]}}
    return {**declared("cs", "ref"), "cs": {"crs": [{"type": "temporal", "axes": axes}]}}


def test_groups_and_trees_have_the_same_datasets():
    store = write_hierarchy(MemoryStore(), {"/": {"title": "t"}, "g/a": grid(), "g/h/b": grid()})
    groups = xr.open_groups(store, engine="xgroup")
    tree = xr.open_datatree(store, engine="xgroup")
    assert sorted(groups) == sorted(tree.groups) == ["/", "/g", "/g/h"]
    assert tree.attrs == {"title": "t"}
    for path, dataset in groups.items():
        xr.testing.assert_identical(dataset, tree[path].to_dataset())
    below = xr.open_datatree(store, engine="xgroup", group="g")
    assert sorted(below.groups) == ["/", "/h"]
    xr.testing.assert_identical(below.to_dataset(), groups["/g"])


def test_odd_names_of_groups_are_kept():
    names = [".hidden", "a.b", "with space", "v1.", "ß", "..x"]
    store = write_hierarchy(MemoryStore(), {f"{name}/a": grid() for name in names})
    tree = xr.open_datatree(store, engine="xgroup")
    assert set(tree.groups) == {"/", *(f"/{name}" for name in names)}


def test_missing_stores_and_groups_are_named_in_the_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Zarr group"):
        opened(tmp_path / "none.zarr")
    store = write_hierarchy(MemoryStore(), {"g/a": grid()})
    with pytest.raises(XGroupReferenceError, match="no group /other"):
        opened(store, group="other")
    with pytest.raises(KeyError, match="is an array"):
        opened(store, group="g/a")
    with pytest.raises(ValueError, match="above the root"):
        opened(store, group="g/../..")


def test_a_group_below_a_root_without_metadata_is_opened(tmp_path):
    path = write_hierarchy(tmp_path / "s.zarr", {"g/a": grid()})
    (path / "zarr.json").unlink()
    assert opened(path, group="g").x[0].item() == 500005.0
    assert opened(zarr.open_group(path, path="g", mode="r")).x[0].item() == 500005.0


def test_arrays_without_names_of_dimensions_get_some():
    nodes = {"a": StoredArray(dims=None, shape=(2, 3)), "b": grid()}
    store = write_hierarchy(MemoryStore(), nodes)
    with pytest.warns(Warning, match="/a"):
        dataset = xr.open_dataset(store, engine="xgroup")
    assert dataset.a.dims == ("a_dim_0", "a_dim_1")
    np.testing.assert_array_equal(dataset.a, np.arange(6).reshape(2, 3))


def test_variables_can_be_dropped_and_decoding_turned_off():
    store = write_hierarchy(MemoryStore(), PACKED | {"names": grid(shape=(6, 8))})
    dataset = opened(store, drop_variables=["masked", "y"], mask_and_scale=False, decode_times=False)
    assert "masked" not in dataset
    assert "y" not in dataset.coords
    assert dataset.packed.dtype == np.int16
    assert dataset.time.values.tolist() == [1.0, 2.5]


def test_datasets_are_pickled_and_written_again(tmp_path):
    store = write_hierarchy(tmp_path / "a.zarr", {"a": grid(dtype="float32")})
    dataset = opened(store)
    xr.testing.assert_identical(pickle.loads(pickle.dumps(dataset)), dataset)
    dataset.to_zarr(tmp_path / "b.zarr", consolidated=False)
    again = stock(tmp_path / "b.zarr")
    np.testing.assert_array_equal(again.a, dataset.a)
    np.testing.assert_array_equal(again.x, dataset.x)


def test_the_engine_is_used_only_by_name(tmp_path):
    path = write_hierarchy(tmp_path / "s.zarr", {"a": grid()})
    assert XGroupBackend().guess_can_open(str(path)) is False
    assert "x" not in xr.open_dataset(path, consolidated=False).coords
    assert "xgroup" in xr.backends.list_engines()


def test_versions_that_are_too_old_raise_with_advice(monkeypatch):
    from periplus.engine.xgroup import backend as xgroup

    require()
    xgroup._ready.cache_clear()
    monkeypatch.setattr(xgroup, "version", lambda name: {"zarr": "2.18.3", "xarray": "2026.1.0"}[name])
    with pytest.raises(ImportError, match=r"zarr>=3\.1, and 2\.18\.3 is installed: pip install"):
        xr.open_dataset(MemoryStore(), engine="xgroup")
    monkeypatch.setattr(xgroup, "version", lambda name: "2024.9rc1" if name == "xarray" else "3.1")
    with pytest.raises(ImportError, match=r"xarray>=2025\.12"):
        require()


def test_opening_one_group_does_not_read_the_others():
    nodes = {f"other{n}/a": grid() for n in range(20)} | {"g/a": grid()}
    store = CountingStore(write_hierarchy(MemoryStore(), nodes))
    opened(store, group="g")
    assert not any("other" in key for key in store.keys)
    assert store.listed == ["list g"]


def test_a_huge_grid_keeps_less_than_a_mebibyte(tmp_path):
    transform = (1e-4, 0.0, -180.0, 0.0, -1e-4, 90.0)
    attributes = spatial(transform, ("lat", "lon"))
    path = declare_huge(tmp_path / "huge.zarr", "a", (1_800_000, 3_600_000), ("lat", "lon"), attributes)
    opened(path)  # what is imported and cached once is not the grid's
    tracemalloc.start()
    dataset = opened(path)
    dataset.sel(lat=slice(10, 9), lon=slice(5, 6))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_indexes_are_not_made_where_none_are_wanted():
    nodes = {"x": StoredArray(dims=("x",), shape=(5,)), "y": StoredArray(dims=("y",), shape=(4,))}
    store = CountingStore(write_hierarchy(MemoryStore(), nodes))
    dataset = opened(store, create_default_indexes=False)
    assert store.chunks == []
    assert not dataset.xindexes
    assert dataset.x.values.tolist() == [0, 1, 2, 3, 4]


def test_stored_labels_of_a_tree_are_read_once_each():
    nodes = {f"g{n}/x": StoredArray(dims=("x",), shape=(5,)) for n in range(5)}
    clock = {"units": "days since 2000-01-01"}
    nodes |= {f"g{n}/t": StoredArray(dims=("t",), values=np.arange(3.0), attributes=clock) for n in range(5)}
    store = CountingStore(write_hierarchy(MemoryStore(), nodes))
    tree = xr.open_datatree(store, engine="xgroup")
    assert sorted(store.chunks) == sorted(f"{path}/c/0" for path in nodes)
    assert tree["g3"].t.values[2] == np.datetime64("2000-01-03")


def test_gdal_reads_the_same_pixels_and_what_is_written_again(tmp_path):
    # GDAL 3.10 knows no GeoZarr, but CF: what xgroup adds is enough for it.
    attributes = {**spatial((10.0, 0, 500000, 0, -10, 5000000), ("y", "x"), "proj"), "proj:code": "EPSG:32633"}
    nodes = {"a": grid(attributes, shape=(40, 50), chunks=(20, 20), dtype="float32")}
    path = write_hierarchy(tmp_path / "s.zarr", nodes, zarr_format=2)
    dataset = opened(path)
    with rasterio.open(f'ZARR:"{path}":/a') as file:
        np.testing.assert_array_equal(file.read(1), dataset.a)
    dataset.to_zarr(tmp_path / "again.zarr", zarr_format=2, consolidated=False)
    with rasterio.open(f'ZARR:"{tmp_path / "again.zarr"}":/a') as file:
        assert file.crs.to_epsg() == 32633
        assert tuple(file.transform)[:6] == (10, 0, 500000, 0, -10, 5000000)
        np.testing.assert_array_equal(file.read(1), dataset.a)


def test_a_store_that_was_given_open_stays_open(tmp_path):
    with ZipStore(tmp_path / "s.zip", mode="w") as store:
        write_hierarchy(store, {"a": grid()})
    store = ZipStore(tmp_path / "s.zip", mode="r")
    with opened(store) as dataset:
        assert dataset.x[0].item() == 500005.0
    assert opened(store).a.values[0, 1] == 1
    store.close()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("decode_coords", [True, False, "all"])
def test_a_plain_cf_group_is_what_stock_xarray_makes_of_it(zarr_format, decode_coords):
    place = {"dims": ("y", "x"), "shape": (3, 4), "dtype": "float64"}
    clock = {"units": "hours since 2020-01-01 12:00", "calendar": "standard", "standard_name": "time"}
    said = {"coordinates": "lat lon", "ancillary_variables": "quality", "grid_mapping": "crs", "_FillValue": 3}
    nodes = {
        "/": {"Conventions": "CF-1.10", "title": "plain"},
        "v": StoredArray(
            dims=("t", "y", "x"), shape=(2, 3, 4), dtype="int16", attributes={**said, "scale_factor": 0.5}
        ),
        "quality": StoredArray(
            dims=("t", "y", "x"), shape=(2, 3, 4), dtype="uint8", attributes={"flag_values": [0, 1]}
        ),
        "lat": StoredArray(**place, attributes={"units": "degrees_north"}),
        "lon": StoredArray(**place, attributes={"units": "degrees_east"}),
        "crs": StoredArray(dims=(), values=np.array(0), attributes={"grid_mapping_name": "latitude_longitude"}),
        "t": StoredArray(dims=("t",), values=np.array([0, 6]), attributes=clock),
        "length": StoredArray(dims=("t",), values=np.array([1.0, 2.0]), attributes={"units": "days"}),
    }
    store = write_hierarchy(MemoryStore(), nodes, zarr_format=zarr_format)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = xr.open_dataset(store, engine="xgroup", decode_coords=decode_coords)
        theirs = stock(store, decode_coords=decode_coords)
    related = {"lat", "lon", "crs"}
    xr.testing.assert_identical(
        ours.reset_coords(related & set(ours.coords)), theirs.reset_coords(related & set(theirs.coords))
    )
    assert set(ours.coords) == ({"t", *related} if decode_coords else {"t"})  # what attributes name is a coordinate
    for name in theirs.variables:
        assert repr(dict(sorted(ours[name].encoding.items()))) == repr(dict(sorted(theirs[name].encoding.items())))


def test_listing_engines_does_not_load_zarr():
    loaded = "'zarr' in sys.modules or 'periplus.facade' in sys.modules"
    code = f"import sys, periplus.engine.xgroup.backend; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_package_that_is_missing_is_named(monkeypatch):
    from periplus.engine.xgroup import backend as xgroup

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(xgroup, "version", missing)
    with pytest.raises(ImportError, match=r'needs xarray.*pip install "periplus\[xgroup\]"'):
        require()


@pytest.mark.filterwarnings("ignore:no principal convention")
@pytest.mark.parametrize("options", [{"decode_coords": False}, {"decode_cf": False}, {"decode_coords": "all"}])
def test_coordinates_of_cf_are_those_of_xarray_whatever_is_decoded(options):
    named = {"coordinates": "lon", "grid_mapping": "crs", "bounds": "edges"}
    nodes = {
        "a": StoredArray(dims=("y", "x"), shape=(4, 5), attributes=named),
        "lon": StoredArray(dims=("y", "x"), shape=(4, 5)),
        "edges": StoredArray(dims=("y", "x"), shape=(4, 5)),
        "crs": StoredArray(dims=(), shape=(), attributes={"grid_mapping_name": "latitude_longitude"}),
        "x": StoredArray(dims=("x",), shape=(5,)),
    }
    store = write_hierarchy(MemoryStore(), nodes)
    found = xr.open_dataset(store, engine="xgroup", **options)
    xr.testing.assert_identical(found, stock(store, **options))
    assert ("lon" in found.coords) is ("all" in options.values())
