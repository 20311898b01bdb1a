"""References of the engine `xgroup`: to other groups and stores, resolved to coordinates; broken ones are warnings."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray as xr
from zarr.storage import MemoryStore

from periplus.engine.xgroup.backend import (
    XGroupConflictWarning,
    XGroupNoPrincipalWarning,
    XGroupPathWarning,
    XGroupReferenceWarning,
    XGroupStoreWarning,
)
from periplus.testing.hierarchies import StoredArray, declared, spatial, write_hierarchy

DAYS = StoredArray(dims=("time",), values=np.array([0.0, 2.0, 8.0]))
CLOCK = {"unit": "days", "epoch": "2000-01-01", "calendar": "standard"}


def cs(*crs, extra=("ref", "uom")):
    return {**declared("cs", *extra), "cs": {"crs": list(crs)}}


def axis(name, values, kind="planar", abbreviation=None, **coordinates):
    described = {"coordinates": [{"values": values, **coordinates}]}
    return {
        "type": kind,
        "axes": {name: described if abbreviation is None else {"abbreviation": abbreviation, **described}},
    }


def external(node, **more):
    return {"external": {"ref": {"node": node, **more}}}


def times(node, **more):
    return cs(axis("time", external(node, **more), "temporal", "T", time=CLOCK))


def series(attributes, size=3):
    return StoredArray(dims=("time",), shape=(size,), attributes=attributes)


def quietly(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


def loudly(store, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(store, engine="xgroup", **options)
    return dataset, caught


JANUARY = np.array(["2000-01-01", "2000-01-03", "2000-01-09"], "datetime64[ns]")


@pytest.mark.parametrize(
    "node",
    ["/coords/time", "../../coords/time", "../coords/time"],
    ids=["absolute", "from the node", "from the group"],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_references_to_other_groups_become_coordinates(node, zarr_format):
    nodes = {"g/v": series(times(node)), "coords/time": DAYS}
    dataset = quietly(write_hierarchy(MemoryStore(), nodes, zarr_format=zarr_format), group="g")
    np.testing.assert_array_equal(dataset.time, JANUARY)
    assert dataset.v.sel(time="2000-01-03").item() == 1
    assert list(dataset.data_vars) == ["v"]


def test_an_array_of_the_same_group_is_found_from_the_node():
    store = write_hierarchy(MemoryStore(), {"v": series(times("../time")), "time": DAYS})
    dataset = quietly(store)
    np.testing.assert_array_equal(dataset.time, JANUARY)
    assert list(dataset.data_vars) == ["v"]


def test_a_whole_crs_by_pointer_is_found():
    shared = axis("lat", {"regular": [-89.5, 1.0]}, abbreviation="Y", direction="north", unit="degree")
    crs = {"ref": {"node": "/defs", "attribute": "/attributes/crs/grid"}}
    nodes = {
        "defs": {**declared("cs"), "crs": {"grid": shared}},
        "g/v": StoredArray(dims=("lat",), shape=(4,), attributes=cs(crs)),
    }
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert dataset.lat.values.tolist() == [-89.5, -88.5, -87.5, -86.5]


def test_regular_ordinal_scalar_and_explicit_axes_with_bounds_and_units():
    lat = axis(
        "lat",
        {"regular": [-89.5, 1]},
        abbreviation="Y",
        direction="north",
        unit={"ucum": {"unit": "deg"}},
        boundaries={"regular": [-0.5, 0.5]},
    )
    height = axis("height", {"explicit": [2]}, "vertical", "Z", direction="up", unit="m")
    name = axis("name", {"explicit": ["a", "b"]}, "undefined")
    attributes = cs(lat, {"type": "undefined", "axes": {"k": {}}}, height, name)
    nodes = {"v": StoredArray(dims=("name", "k", "lat"), shape=(2, 2, 3), attributes=attributes)}
    dataset = quietly(write_hierarchy(MemoryStore(), nodes))
    assert dataset.lat.values.tolist() == [-89.5, -88.5, -87.5]
    assert dataset.lat.attrs["units"] == "deg"
    assert dataset[dataset.lat.attrs["bounds"]].values.tolist() == [[-90.0, -89.0], [-89.0, -88.0], [-88.0, -87.0]]
    assert dataset[dataset.lat.attrs["bounds"]].dims == ("lat", "bnds")
    assert dataset.k.values.tolist() == [0, 1]
    assert dataset.k.dtype.kind == "i"
    assert dataset.height.shape == ()
    assert dataset.height.item() == 2
    assert dataset.name.values.tolist() == ["a", "b"]
    assert list(dataset.data_vars) == ["v"]


def test_an_ordinal_axis_of_billions_costs_nothing():
    attributes = cs({"type": "undefined", "axes": {"k": {}}})
    store = MemoryStore()
    from periplus.testing.hierarchies import declare_huge

    declare_huge(store, "v", (5_000_000_000,), ("k",), attributes)
    dataset = quietly(store)
    assert dataset.k[-1].item() == 4_999_999_999
    assert dataset.sel(k=4_000_000_000).v.shape == ()


def test_bounds_of_long_regular_axes_are_computed_where_asked_for():
    lat = axis("lat", {"regular": [0.5, 1]}, abbreviation="Y", boundaries={"regular": [-0.5, 0.5]}, unit="m")
    store = MemoryStore()
    from periplus.testing.hierarchies import declare_huge

    declare_huge(store, "v", (10**9,), ("lat",), cs(lat))
    dataset = quietly(store)
    bounds = dataset[dataset.lat.attrs["bounds"]]
    assert bounds[[0, 7, -1]].values.tolist() == [[0.0, 1.0], [7.0, 8.0], [1e9 - 1, 1e9]]
    assert bounds[5:9:2, 1].values.tolist() == [6.0, 8.0]


@pytest.mark.parametrize("stored", [(3, 2), (2, 3)])
def test_bounds_elsewhere_are_coordinates_whichever_way_they_are_stored(stored):
    edges = np.array([[0.0, 1.0], [2.0, 3.0], [8.0, 9.0]])
    bounds = StoredArray(dims=("time", "bnds") if stored == (3, 2) else ("bnds", "time"), values=edges.reshape(3, 2))
    if stored == (2, 3):
        bounds = StoredArray(dims=("bnds", "time"), values=edges.T.copy())
    crs = axis("time", external("/c/time"), "temporal", "T", time=CLOCK, boundaries=external("/c/time_bnds"))
    nodes = {"g/v": series(cs(crs)), "c/time": DAYS, "c/time_bnds": bounds}
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert dataset.time_bnds.dims == ("time", "bnds")
    np.testing.assert_array_equal(dataset.time_bnds[:, 0], JANUARY)
    assert list(dataset.data_vars) == ["v"]


def test_offsets_from_stored_labels_are_bounds():
    crs = axis("z", external("/c/z"), "vertical", "Z", unit="m", boundaries={"regular": [-1.0, 2.0]})
    z = StoredArray(dims=("z",), values=np.array([5, 7], "int16"), attributes={"scale_factor": 10.0})
    nodes = {"g/v": StoredArray(dims=("z",), shape=(2,), attributes=cs(crs)), "c/z": z}
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert dataset.z.values.tolist() == [50.0, 70.0]
    assert dataset[dataset.z.attrs["bounds"]].values.tolist() == [[49.0, 52.0], [69.0, 72.0]]


def test_parametric_terms_are_coordinates():
    terms = {"a": external("/c/a")["external"], "ps": external("/c/ps")["external"]}
    level = axis(
        "lev",
        {"explicit": [1.0, 2.0]},
        "vertical",
        "Z",
        direction="down",
        unit="1",
        parametric={"formula": "atmosphere_sigma_coordinate", "terms": terms},
    )
    nodes = {
        "g/v": StoredArray(dims=("lev", "x"), shape=(2, 4), attributes=cs(level, {"axes": {"x": {}}})),
        "c/a": StoredArray(dims=("lev",), values=np.array([10.0, 20.0])),
        "c/ps": StoredArray(dims=("x",), values=np.arange(4.0)),
    }
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert {"a", "ps"} <= set(dataset.coords)
    assert dataset.lev.attrs["formula_terms"] == "a: a ps: ps"
    assert dataset.lev.attrs["standard_name"] == "atmosphere_sigma_coordinate"
    assert list(dataset.data_vars) == ["v"]


@pytest.mark.parametrize("place", ["g", "c"])
def test_an_axis_that_is_a_term_of_its_own_formula_is_described(place):
    terms = {"s": external(f"/{place}/s_rho")["external"], "C": external("/c/Cs_r")["external"]}
    vertical = axis(
        "s_rho",
        external(f"/{place}/s_rho"),
        "vertical",
        "Z",
        direction="up",
        unit="1",
        parametric={"formula": "ocean_s_coordinate_g2", "terms": terms},
    )
    nodes = {
        "g/v": StoredArray(dims=("s_rho",), shape=(2,), attributes=cs(vertical)),
        f"{place}/s_rho": StoredArray(dims=("s_rho",), values=np.array([-0.7, -0.1])),
        "c/Cs_r": StoredArray(dims=("s_rho",), values=np.array([-0.6, -0.2])),
    }
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert dataset.s_rho.values.tolist() == [-0.7, -0.1]
    assert dataset.s_rho.attrs["standard_name"] == "ocean_s_coordinate_g2"
    assert dataset.s_rho.attrs["formula_terms"] == "s: s_rho C: Cs_r"
    assert (dataset.s_rho.attrs["axis"], dataset.s_rho.attrs["positive"]) == ("Z", "up")
    assert list(dataset.data_vars) == ["v"]


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian"])
def test_calendars_are_decoded_by_cftime(calendar):
    clock = {"unit": "days", "epoch": "2000-02-28", "calendar": calendar}
    crs = axis("time", {"regular": [0, 1]}, "temporal", "T", time=clock)
    dataset = quietly(write_hierarchy(MemoryStore(), {"v": series(cs(crs))}))
    second = {"noleap": (3, 1), "360_day": (2, 29), "julian": (2, 29)}[calendar]
    assert (dataset.time[1].item().month, dataset.time[1].item().day) == second
    assert dataset.time.encoding["calendar"] == calendar


def test_geolocation_arrays_of_another_group_are_coordinates():
    geolocation = {
        "geodetic": {"x": {"ref": {"node": "../../c/lon"}}, "y": {"ref": {"node": "../../c/lat"}}},
        "planar": {"x": {"node": "/c/px"}, "y": {"node": "/c/py"}},
    }
    attributes = {**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "geolocation", "ref"), "geolocation": geolocation}
    nodes = {"d/v": StoredArray(dims=("y", "x"), shape=(3, 4), attributes=attributes)}
    nodes |= {
        f"c/{name}": StoredArray(dims=("y", "x"), shape=(3, 4), dtype="float64") for name in ("lon", "lat", "px", "py")
    }
    dataset = quietly(write_hierarchy(MemoryStore(), nodes), group="d")
    assert {"lon", "lat", "px", "py"} <= set(dataset.coords)
    assert list(dataset.data_vars) == ["v"]
    assert dataset.lon.attrs["standard_name"] == "longitude"
    np.testing.assert_array_equal(dataset.lon, np.arange(12.0).reshape(3, 4))
    tree = xr.open_datatree(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    assert set(tree["c"].data_vars) == {"lon", "lat", "px", "py"}


def test_geolocation_arrays_of_the_same_group_are_coordinates_too():
    geolocation = {"geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}}}
    attributes = {**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "geolocation", "ref"), "geolocation": geolocation}
    nodes = {"v": StoredArray(dims=("y", "x"), shape=(3, 4), attributes=attributes)}
    nodes |= {name: StoredArray(dims=("y", "x"), shape=(3, 4)) for name in ("lon", "lat")}
    dataset = quietly(write_hierarchy(MemoryStore(), nodes))
    assert list(dataset.data_vars) == ["v"]


# --- CF -------------------------------------------------------------------------------------------------------------


def roms():
    rho, u = ("eta_rho", "xi_rho"), ("eta_rho", "xi_u")
    where = "/time/ocean_time /grid/lon_rho /grid/lat_rho"
    terms = "s: /grid/s_rho C: /grid/Cs_r eta: /ocean/zeta h: /grid/h hc: /grid/hc"
    clock = {"units": "seconds since 2000-01-01", "calendar": "gregorian"}
    return {
        "/": {"Conventions": "CF-1.11"},
        "time/ocean_time": StoredArray(dims=("time",), values=np.array([0.0, 86400.0]), attributes=clock),
        "grid/lon_rho": StoredArray(dims=rho, values=np.ones((3, 4)), attributes={"units": "degrees_east"}),
        "grid/lat_rho": StoredArray(dims=rho, values=np.zeros((3, 4)), attributes={"bounds": "lat_vertices"}),
        "grid/lat_vertices": StoredArray(dims=(*rho, "corner"), shape=(3, 4, 4), dtype="float64"),
        "grid/h": StoredArray(dims=rho, shape=(3, 4), dtype="float64"),
        "grid/hc": StoredArray(dims=(), values=np.array(5.0)),
        "grid/Cs_r": StoredArray(dims=("s_rho",), values=np.array([-0.5, 0.0])),
        "grid/s_rho": StoredArray(dims=("s_rho",), values=np.array([-0.7, -0.1]), attributes={"formula_terms": terms}),
        "grid/mask_rho": StoredArray(dims=rho, shape=(3, 4)),
        "ocean/zeta": StoredArray(dims=("time", *rho), shape=(2, 3, 4), attributes={"coordinates": where}),
        "ocean/temp": StoredArray(
            dims=("time", "s_rho", *rho),
            shape=(2, 2, 3, 4),
            attributes={"coordinates": f"{where} /grid/s_rho", "ancillary_variables": "/grid/mask_rho"},
        ),
        "ocean/u": StoredArray(dims=("time", *u), shape=(2, 3, 3), attributes={"coordinates": "/time/ocean_time"}),
    }


def test_cf_paths_into_other_groups_become_coordinates_by_flat_names():
    store = write_hierarchy(MemoryStore(), roms())
    with pytest.warns(XGroupNoPrincipalWarning, match="/ocean/temp"):
        dataset = xr.open_dataset(store, engine="xgroup", group="ocean")
    assert set(dataset.data_vars) == {"temp", "u", "zeta"}
    assert {"ocean_time", "lon_rho", "lat_rho", "s_rho", "h", "hc", "Cs_r", "mask_rho"} <= set(dataset.coords)
    assert dataset.lat_vertices.dims == ("eta_rho", "xi_rho", "corner")
    assert dataset.ocean_time.values[1] == np.datetime64("2000-01-02")
    assert dataset.temp.encoding["coordinates"].split() == ["ocean_time", "lon_rho", "lat_rho", "s_rho"]
    assert dataset.temp.attrs["ancillary_variables"] == "mask_rho"
    assert "/" not in dataset.s_rho.attrs["formula_terms"]
    assert "lon_rho" not in dataset.u.coords
    np.testing.assert_array_equal(dataset.temp, np.arange(48).reshape(2, 2, 3, 4))


def test_arrays_of_a_group_stay_data_there_though_others_refer_to_them():
    with pytest.warns(XGroupNoPrincipalWarning):
        tree = xr.open_datatree(write_hierarchy(MemoryStore(), roms()), engine="xgroup")
    assert {"lon_rho", "h"} <= set(tree["grid"].data_vars)
    assert set(tree.groups) == {"/", "/grid", "/ocean", "/time"}


def test_a_grid_mapping_and_bounds_of_another_group_are_coordinates():
    nodes = {
        "/": {"Conventions": "CF-1.11"},
        "crs/map": StoredArray(dims=(), values=np.array(0), attributes={"grid_mapping_name": "latitude_longitude"}),
        "g/lat": StoredArray(dims=("lat",), values=np.array([1.0, 2.0]), attributes={"bounds": "../b/lat_bnds"}),
        "b/lat_bnds": StoredArray(dims=("lat", "nv"), values=np.array([[0.5, 1.5], [1.5, 2.5]])),
        "g/v": StoredArray(dims=("lat",), shape=(2,), attributes={"grid_mapping": "/crs/map"}),
    }
    dataset, _ = loudly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert dataset.v.attrs["grid_mapping"] == "map"
    assert "map" in dataset.coords
    assert dataset.lat.attrs["bounds"] == "lat_bnds"
    assert dataset.lat_bnds.values.tolist() == [[0.5, 1.5], [1.5, 2.5]]


def test_coordinate_variables_of_groups_above_are_found_as_cf_searches():
    nodes = {
        "/": {"Conventions": "CF-1.11"},
        "lat": StoredArray(dims=("lat",), values=np.array([1.0, 2.0])),
        "g/h/v": StoredArray(dims=("lat",), shape=(2,)),
    }
    dataset, _ = loudly(write_hierarchy(MemoryStore(), nodes), group="g/h")
    assert dataset.lat.values.tolist() == [1.0, 2.0]


# --- what is broken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "category", "named"),
    [
        ({"node": "/nowhere/time"}, XGroupReferenceWarning, "XGroupReferenceError"),
        ({"node": "../../../../time"}, XGroupPathWarning, "XGroupPathError"),
        ({"node": "time\\x"}, XGroupPathWarning, "XGroupPathError"),
        ({"uri": "https://example.invalid/a.zarr", "node": "/time"}, XGroupStoreWarning, "XGroupStoreError"),
        ({"attribute": "/attributes/x"}, XGroupPathWarning, "XGroupPathError"),
        ({}, XGroupPathWarning, "XGroupPathError"),
        ({"node": 5}, XGroupPathWarning, "XGroupPathError"),
        ({"node": ""}, XGroupPathWarning, "XGroupPathError"),
        ({"node": ".."}, XGroupReferenceWarning, "XGroupReferenceError"),
    ],
    ids=[
        "missing",
        "above the root",
        "malformed",
        "another store",
        "no node",
        "empty",
        "number",
        "empty node",
        "group",
    ],
)
def test_a_broken_reference_is_a_warning_and_the_rest_opens(reference, category, named):
    broken = cs(axis("time", {"external": {"ref": reference}}, "temporal", "T", time=CLOCK))
    nodes = {"g/bad": series(broken), "g/good": series(times("/c/time")), "c/time": DAYS}
    store = write_hierarchy(MemoryStore(), nodes)
    with pytest.warns(category, match=f"{named}: /g/bad, attribute 'cs.crs.*external") as caught:
        dataset = xr.open_dataset(store, engine="xgroup", group="g")
    assert len([one for one in caught if issubclass(one.category, category)]) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(dataset.time, JANUARY)
    np.testing.assert_array_equal(dataset.bad, [0, 1, 2])
    # All are below the one category that the draft of this engine has.
    assert issubclass(category, XGroupNoPrincipalWarning)


def test_warnings_are_silenced_and_promoted_by_category():
    store = write_hierarchy(MemoryStore(), {"v": series({})})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", XGroupNoPrincipalWarning)
        xr.open_dataset(store, engine="xgroup")
    with warnings.catch_warnings():
        warnings.simplefilter("error", XGroupNoPrincipalWarning)
        with pytest.raises(XGroupNoPrincipalWarning, match="/v"):
            xr.open_dataset(store, engine="xgroup")


def test_a_coordinate_of_another_length_is_a_warning():
    store = write_hierarchy(MemoryStore(), {"g/v": series(times("/c/time"), size=4), "c/time": DAYS})
    with pytest.warns(UserWarning, match="/g/v") as caught:
        dataset = xr.open_dataset(store, engine="xgroup", group="g")
    assert len(caught) >= 1
    assert "time" not in dataset.coords
    assert dataset.v.size == 4


def test_references_in_a_circle_end():
    nodes = {
        "a": {**declared("cs"), "crs": {"c": {"ref": {"node": "/b", "attribute": "/attributes/crs/c"}}}},
        "b": {**declared("cs"), "crs": {"c": {"ref": {"node": "/a", "attribute": "/attributes/crs/c"}}}},
        "g/v": series(cs({"ref": {"node": "/a", "attribute": "/attributes/crs/c"}})),
    }
    dataset, caught = loudly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert any(one.category is XGroupReferenceWarning and "circle" in str(one.message) for one in caught)
    assert dataset.v.size == 3


def test_an_array_that_refers_to_itself_stays_data():
    itself = {"geodetic": {"x": {"node": "../v"}, "y": {"node": "../v"}}}
    attributes = {**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "geolocation", "ref"), "geolocation": itself}
    nodes = {"v": StoredArray(dims=("y", "x"), shape=(3, 4), attributes=attributes), "w": series(times("../w"))}
    dataset, _ = loudly(write_hierarchy(MemoryStore(), nodes))
    assert set(dataset.data_vars) == {"v", "w"}
    assert dataset.w.values.tolist() == [0, 1, 2]


def test_labels_that_describe_themselves_are_decoded():
    time = StoredArray(dims=("time",), values=np.array([0.0, 2.0, 8.0]), attributes=times("../time"))
    dataset = quietly(write_hierarchy(MemoryStore(), {"time": time}))
    np.testing.assert_array_equal(dataset.time, JANUARY)


def test_a_dimension_called_bnds_is_no_trouble():
    lat = axis("lat", {"regular": [0, 1]}, abbreviation="Y", unit="m", boundaries={"regular": [-0.5, 0.5]})
    attributes = cs(lat, {"axes": {"bnds": {}}})
    store = write_hierarchy(
        MemoryStore(), {"v": StoredArray(dims=("lat", "bnds"), shape=(3, 5), attributes=attributes)}
    )
    dataset = quietly(store)
    bounds = dataset[dataset.lat.attrs["bounds"]]
    assert bounds.values.tolist() == [[-0.5, 0.5], [0.5, 1.5], [1.5, 2.5]]
    assert bounds.dims[1] != "bnds"
    assert dataset.bnds.size == 5


def test_bounds_in_a_circle_end():
    nodes = {
        "/": {"Conventions": "CF-1.11"},
        "c/a": StoredArray(dims=("x",), shape=(2,), attributes={"bounds": "/c/b", "coordinates": "/c/b"}),
        "c/b": StoredArray(dims=("x",), shape=(2,), attributes={"bounds": "/c/a", "coordinates": "/c/a"}),
        "g/v": StoredArray(dims=("x",), shape=(2,), attributes={"coordinates": "/c/a"}),
    }
    dataset, _ = loudly(write_hierarchy(MemoryStore(), nodes), group="g")
    assert "a" in dataset.coords


# --- arrays that do not fit each other ------------------------------------------------------------------------------


def test_arrays_of_other_sizes_keep_their_own_dimensions():
    nodes = {
        "fine": StoredArray(dims=("y", "x"), shape=(8, 8), attributes=spatial()),
        "coarse": StoredArray(dims=("y", "x"), shape=(4, 4), attributes=spatial((20, 0, 500000, 0, -20, 5000000))),
    }
    with pytest.warns(XGroupConflictWarning, match="/coarse has size 4 along y where others have 8, size 4 along x"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    assert dataset.fine.dims == ("y", "x")
    assert dataset.coarse.dims == ("coarse_y", "coarse_x")
    assert dataset.coarse_x.values.tolist() == [500010.0, 500030.0, 500050.0, 500070.0]
    assert dataset.x[0].item() == 500005.0


def test_arrays_of_other_transforms_keep_their_own_labels():
    nodes = {
        "a": StoredArray(dims=("y", "x"), shape=(4, 4), attributes=spatial()),
        "b": StoredArray(dims=("y", "x"), shape=(4, 4), attributes=spatial((10, 0, 0, 0, -10, 5000000))),
    }
    with pytest.warns(XGroupConflictWarning, match="/b has other labels along x"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    assert dataset.b.dims == ("y", "b_x")
    assert dataset.b_x[0].item() == 5.0
    assert dataset.x[0].item() == 500005.0


def test_two_coordinates_of_one_name_are_kept_apart():
    nodes = {
        "/": {"Conventions": "CF-1.11"},
        "g/a": StoredArray(dims=("n",), shape=(2,), attributes={"coordinates": "/one/lon"}),
        "g/b": StoredArray(dims=("n",), shape=(2,), attributes={"coordinates": "/two/lon"}),
        "one/lon": StoredArray(dims=("n",), values=np.array([1.0, 2.0])),
        "two/lon": StoredArray(dims=("n",), values=np.array([3.0, 4.0])),
    }
    dataset, _ = loudly(write_hierarchy(MemoryStore(), nodes), group="g")
    found = {name: dataset[name].values.tolist() for name in dataset.coords}
    assert sorted(found.values()) == [[1.0, 2.0], [3.0, 4.0]]
    assert dataset[dataset.b.encoding["coordinates"]].values.tolist() == [3.0, 4.0]
    assert dataset[dataset.a.encoding["coordinates"]].values.tolist() == [1.0, 2.0]


def test_units_of_measurement_are_plain_text():
    attributes = {**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "uom"), "uom": {"ucum": {"unit": "W/m2"}}}
    dataset = quietly(
        write_hierarchy(MemoryStore(), {"v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=attributes)})
    )
    assert dataset.v.attrs["units"] == "W/m2"


def test_what_is_not_declared_is_used_only_if_asked_for():
    attributes = {key: value for key, value in spatial().items() if key != "zarr_conventions"}
    store = write_hierarchy(MemoryStore(), {"v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=attributes)})
    strict, caught = loudly(store)
    assert not strict.coords
    assert any("without declaration" in str(one.message) for one in caught)
    lenient, caught = loudly(store, strict=False)
    assert lenient.x[0].item() == 500005.0
    assert any("used anyway" in str(one.message) for one in caught)


def test_handlers_of_other_packages_are_asked():
    from periplus.conventions.handlers import register, unregister

    class Ours:
        tier, name, uuid = "principal", "ours", None

        def detect(self, root, group, array):
            return "ours" in array.attrs

        def get_variables(self, array, group, root):
            return {"station": xr.Variable(array.metadata.dimension_names, [f"s{n}" for n in range(array.shape[0])])}

    class Failing(Ours):
        name = "failing"

        def get_variables(self, array, group, root):
            raise RuntimeError("no")

    store = write_hierarchy(MemoryStore(), {"v": StoredArray(dims=("n",), shape=(2,), attributes={"ours": 1})})
    register(Ours)
    register(Failing)
    try:
        dataset, caught = loudly(store)
    finally:
        unregister(Ours)
        unregister(Failing)
    assert dataset.station.values.tolist() == ["s0", "s1"]
    assert "station" in dataset.coords
    assert ["failing" in str(one.message) for one in caught] == [True]


@pytest.mark.parametrize("reference", [{}, {"attribute": "/attributes/crs/x"}, {"node": None}, "x"])
def test_a_crs_or_node_that_refers_to_no_node_is_a_malformed_reference(reference):
    nodes = {
        "g/shared": series({**declared("cs", "ref"), "cs": {"crs": [{"ref": reference}]}}),
        "g/own": series({**declared("ref"), "ref": reference}),
    }
    with pytest.warns() as caught:
        xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup", group="g")
    named = {str(one.message).split(",")[0] for one in caught if one.category is XGroupPathWarning}
    expected = {"XGroupPathError: /g/shared"} | ({"XGroupPathError: /g/own"} if reference != "x" else set())
    assert named >= expected


def test_directions_types_and_roles_are_attributes_of_coordinates():
    down = {"abbreviation": "Z", "coordinates": [{"direction": "down", "unit": "m", "values": {"regular": [0, 1]}}]}
    clock = {
        "abbreviation": "T",
        "coordinates": [{"time": CLOCK, "values": {"external": {"ref": {"node": "/c/time"}}}}],
    }
    east = {"abbreviation": "X", "direction": "east", "coordinates": [{"unit": "m", "values": {"regular": [0, 1]}}]}
    crs = [
        {"type": "vertical", "axes": {"z": down}},
        {"type": "temporal", "axes": {"time": clock}},
        {"axes": {"x": east}},
    ]
    place = {
        "geodetic": {"x": {"node": "/c/lon"}, "y": {"node": "/c/lat"}},
        "planar": {"x": {"node": "/c/e"}, "y": {"node": "/c/n"}},
    }
    attributes = {**declared("cs", "ref", "geolocation"), "cs": {"crs": crs}, "geolocation": place}
    swath = {name: StoredArray(dims=("z", "x"), shape=(2, 4)) for name in ("c/lon", "c/lat", "c/e", "c/n")}
    nodes = {
        "c/time": DAYS,
        **swath,
        "g/v": StoredArray(dims=("z", "time", "x"), shape=(2, 3, 4), attributes=attributes),
    }
    dataset = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup", group="g")
    assert {name: one.attrs.get("direction") for name, one in dataset.coords.items() if name in dataset.dims} == {
        "z": "down",
        "time": None,
        "x": "east",
    }
    assert (dataset.z.attrs["positive"], dataset.z.attrs["crs_type"]) == ("down", "vertical")
    assert dataset.time.attrs["crs_type"] == "temporal"
    assert "crs_type" not in dataset.x.attrs
    assert {name: dataset[name].attrs["geolocation_role"] for name in ("lon", "lat", "e", "n")} == {
        "lon": "geodetic_longitude",
        "lat": "geodetic_latitude",
        "e": "planar_easting",
        "n": "planar_northing",
    }


def test_errors_are_offered_under_the_names_of_the_draft():
    program = (
        "import periplus.engine.xgroup as ours\n"
        "from zarr_xgroup.errors import XGroupError, XGroupNoPrincipalWarning, XGroupPathError\n"
        "from zarr_xgroup.errors import XGroupReferenceError, XGroupStoreError, XGroupWarning\n"
        "assert XGroupNoPrincipalWarning is ours.XGroupNoPrincipalWarning\n"
        "import zarr_xgroup\n"
        "assert zarr_xgroup.errors.XGroupWarning is XGroupWarning\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_errors_of_an_installed_draft_stay_its_own(tmp_path):
    (tmp_path / "zarr_xgroup").mkdir()
    (tmp_path / "zarr_xgroup" / "__init__.py").write_text("")
    (tmp_path / "zarr_xgroup" / "errors.py").write_text("mine = 1")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import periplus.engine.xgroup, zarr_xgroup.errors as e"
    )
    subprocess.run([sys.executable, "-c", program + "; assert e.mine == 1"], check=True)
