"""CRS in the engine `xgroup`: rioxarray and xproj find what the conventions declare, though neither reads them."""

import warnings

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - registers .rio
import xarray as xr
import xproj  # noqa: F401 - registers .proj
from pyproj import CRS
from zarr.storage import MemoryStore

from periplus.engine.xgroup.backend import XGroupConventionWarning, XGroupNoPrincipalWarning
from periplus.testing.hierarchies import StoredArray, declared, spatial, write_hierarchy

UTM33, UTM32, WORLD = (CRS.from_epsg(n) for n in (32633, 32632, 4326))


def image(attributes, shape=(4, 5), dims=("y", "x")):
    return StoredArray(dims=dims, shape=shape, attributes=attributes)


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


def forms(crs):
    return {
        "code": {"proj:code": ":".join(crs.to_authority())},
        "wkt2": {"proj:wkt2": crs.to_wkt()},
        "projjson": {"proj:projjson": crs.to_json_dict()},
    }


@pytest.mark.parametrize("form", ["code", "wkt2", "projjson"])
@pytest.mark.parametrize("crs", [UTM33, WORLD], ids=["metres", "degrees"])
def test_rioxarray_and_xproj_find_the_crs(form, crs):
    attributes = spatial((0.5, 0, 10, 0, -0.5, 50), ("y", "x"), "proj", **forms(crs)[form])
    dataset = opened(write_hierarchy(MemoryStore(), {"a": image(attributes)}))
    assert CRS.from_user_input(dataset.rio.crs) == crs
    assert CRS.from_user_input(dataset.a.rio.crs) == crs
    assert dataset.proj.crs == crs
    assert type(dataset.xindexes["spatial_ref"]).__name__ == "CRSIndex"
    assert tuple(dataset.a.rio.transform())[:6] == (0.5, 0, 10, 0, -0.5, 50)
    assert dataset.a.rio.bounds() == (10, 48, 12.5, 50)
    assert dataset.x.attrs["axis"] == "X"
    assert "grid_mapping" not in dataset.a.attrs


def test_the_transform_of_nodes_is_that_of_corners_for_rioxarray():
    attributes = {**spatial((1, 0, 10, 0, -1, 50), ("y", "x"), "proj"), **forms(WORLD)["code"]}
    attributes["spatial:registration"] = "node"
    dataset = opened(write_hierarchy(MemoryStore(), {"a": image(attributes)}))
    assert dataset.a.rio.bounds() == (9.5, 46.5, 14.5, 50.5)
    assert tuple(dataset.a.rio.transform())[:6] == (1, 0, 9.5, 0, -1, 50.5)


def test_a_crs_is_inherited_from_the_group_and_overridden_by_the_array():
    nodes = {
        "g": {**spatial((10, 0, 0, 0, -10, 0), ("y", "x"), "proj"), **forms(UTM33)["code"]},
        "g/a": image({}),
        "g/b": image({**declared("proj"), **forms(UTM32)["code"]}),
        "g/h/c": image({}),
    }
    store = write_hierarchy(MemoryStore(), nodes)
    dataset = opened(store, group="g")
    assert dataset.a.rio.crs == UTM33
    assert dataset.b.rio.crs == UTM32
    assert dataset.a.encoding["grid_mapping"] != dataset.b.encoding["grid_mapping"]
    with pytest.warns(UserWarning, match="no principal"):
        below = xr.open_dataset(store, engine="xgroup", group="g/h")
    assert "spatial_ref" not in below.coords


def test_wkt_has_precedence_where_texts_disagree_with_a_warning():
    attributes = spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "proj", **forms(UTM33)["code"], **forms(WORLD)["wkt2"])
    with pytest.warns(XGroupConventionWarning, match="disagree"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), {"a": image(attributes)}), engine="xgroup")
    assert dataset.rio.crs == WORLD


def test_a_crs_that_is_none_is_warned_of_and_left_out():
    attributes = spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "proj", **{"proj:wkt2": "NONSENSE[1]"})
    with pytest.warns(XGroupConventionWarning, match="not understood"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), {"a": image(attributes)}), engine="xgroup")
    assert "spatial_ref" not in dataset.coords
    assert dataset.x.size == 5


def test_a_stored_grid_mapping_is_kept_and_found():
    mapping = StoredArray(dims=(), values=np.array(0), attributes=WORLD.to_cf())
    attributes = {"grid_mapping": "crs", **spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "proj"), **forms(WORLD)["wkt2"]}
    store = write_hierarchy(MemoryStore(), {"crs": mapping, "a": image(attributes)})
    dataset = opened(store)
    assert "crs" in dataset.coords
    assert "spatial_ref" not in dataset.coords
    assert dataset.a.attrs["grid_mapping"] == "crs"
    assert dataset.rio.crs == WORLD
    whole = opened(store, decode_coords="all")
    assert whole.a.encoding["grid_mapping"] == "crs"


def test_an_array_called_spatial_ref_is_not_overwritten():
    nodes = {"a": image({**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "proj"), **forms(WORLD)["code"]})}
    nodes["spatial_ref"] = StoredArray(dims=(), values=np.array(7))
    dataset = opened(write_hierarchy(MemoryStore(), nodes))
    assert dataset.spatial_ref.item() == 7
    assert dataset.a.rio.crs == WORLD


def test_trees_of_several_crs_open():
    nodes = {
        "a": image({**spatial((10, 0, 0, 0, -10, 0), ("y", "x"), "proj"), **forms(UTM33)["code"]}),
        "g/a": image({**spatial((10, 0, 0, 0, -10, 0), ("y", "x"), "proj"), **forms(UTM32)["code"]}),
    }
    tree = xr.open_datatree(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    assert tree["base"].to_dataset().rio.crs == UTM33
    assert tree["g"].to_dataset().rio.crs == UTM32


def test_geolocation_arrays_bring_their_crs():
    located = {"geodetic": {"x": {"node": "/c/lon"}, "y": {"node": "/c/lat"}, "crs": {"proj:code": "EPSG:4326"}}}
    nodes = {
        "d/v": image({**declared("geolocation", "ref"), "geolocation": located}),
        "c/lon": image({}),
        "c/lat": image({}),
    }
    with pytest.warns(UserWarning, match="no principal"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup", group="d")
    assert dataset.v.rio.crs == WORLD
    assert {"lon", "lat"} <= set(dataset.v.coords)


def test_labelled_axes_do_not_get_the_crs_of_geolocation_arrays():
    located = {"geodetic": {"x": {"node": "/d/lon"}, "y": {"node": "/d/lat"}, "crs": {"proj:code": "EPSG:4326"}}}
    nodes = {
        "d/v": image({**declared("geolocation", "ref"), "geolocation": located}, dims=("rlat", "rlon")),
        "d/lon": image({}, dims=("rlat", "rlon")),
        "d/lat": image({}, dims=("rlat", "rlon")),
        "d/rlat": StoredArray(dims=("rlat",), values=np.linspace(-10, 10, 4)),
        "d/rlon": StoredArray(dims=("rlon",), values=np.linspace(-20, 20, 5)),
    }
    with pytest.warns(UserWarning, match="no principal"):
        dataset = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup", group="d")
    assert {"lon", "lat", "rlon", "rlat"} <= set(dataset.v.coords)
    assert "spatial_ref" not in dataset.variables
    assert dataset.v.rio.crs is None


def test_xproj_is_not_needed(monkeypatch):
    from periplus.engine.assemble import grid_mapping as xgroupcrs

    xgroupcrs.crs_index.cache_clear()
    monkeypatch.setattr(xgroupcrs, "find_spec", lambda name: None)
    attributes = {**spatial((1, 0, 0, 0, -1, 0), ("y", "x"), "proj"), **forms(WORLD)["code"]}
    try:
        dataset = opened(write_hierarchy(MemoryStore(), {"a": image(attributes)}))
    finally:
        xgroupcrs.crs_index.cache_clear()
    assert dataset.rio.crs == WORLD
    assert "spatial_ref" not in dataset.xindexes


@pytest.mark.parametrize("registration", ["pixel", "node"])
def test_a_box_moves_the_transform_that_attributes_say(registration):
    attributes = {**spatial((10, 0, 500, 0, -10, 800), ("y", "x"), "proj"), **forms(UTM33)["code"]}
    attributes |= {"spatial:registration": registration, "spatial:shape": [8, 9]}
    store = write_hierarchy(MemoryStore(), {"a": image(attributes, (8, 9)), "b": image(attributes, (8, 9))})
    whole, part = opened(store), opened(store, bbox=(521, 741, 549, 769))
    by_hand = whole.sel(x=part.x, y=part.y)
    assert part.a.rio.transform() == by_hand.a.rio.transform(recalc=True)
    assert part.a.rio.bounds() == by_hand.a.rio.bounds(recalc=True)
    assert part.a.attrs["spatial:shape"] == list(part.a.shape)
    assert part.b.attrs == part.a.attrs
    assert whole.a.attrs["spatial:transform"] == [10, 0, 500, 0, -10, 800]
    again = write_hierarchy(MemoryStore(), {"a": image(dict(part.a.attrs), part.a.shape)})
    np.testing.assert_array_equal(opened(again).x, part.x)


def test_a_box_moves_the_transform_of_the_group_too():
    group = {**spatial((10, 0, 500, 0, -10, 800), ("y", "x"), "proj"), **forms(UTM33)["code"], "spatial:shape": [8, 9]}
    store = write_hierarchy(MemoryStore(), {"/": group, "a": image({}, (8, 9))})
    part = opened(store, bbox=(521, 741, 549, 769))
    assert part.attrs["spatial:transform"] == [10, 0, 520, 0, -10, 770]
    assert part.attrs["spatial:shape"] == [3, 3]
    assert tuple(part.rio.transform())[:6] == (10, 0, 520, 0, -10, 770)


def test_a_declared_crs_replaces_that_of_a_grid_mapping_for_the_arrays_that_declare_it():
    grid = spatial((0.5, 0, 10, 0, -0.5, 50), ("y", "x"))
    both = spatial((0.5, 0, 10, 0, -0.5, 50), ("y", "x"), "proj")
    declares = {**both, "proj:code": "EPSG:32633", "grid_mapping": "crs"}
    store = write_hierarchy(
        MemoryStore(),
        {
            "a": image(declares),
            "b": image({**grid, "grid_mapping": "crs"}),
            "c": image({**declares, "grid_mapping": "own"}),
            "crs": StoredArray(dims=(), shape=(), attributes={"crs_wkt": UTM32.to_wkt()}),
            "own": StoredArray(dims=(), shape=(), attributes={"crs_wkt": UTM32.to_wkt(), "gcps": "kept"}),
        },
    )
    with pytest.warns(XGroupConventionWarning, match="has another CRS than /[ac] declares; EPSG:32633 is used"):
        dataset = xr.open_dataset(store, engine="xgroup", decode_coords="all")
    assert [CRS.from_user_input(dataset[name].rio.crs) for name in "abc"] == [UTM33, UTM32, UTM33]
    assert dataset.b.encoding["grid_mapping"] == "crs"
    assert not {"crs", "own"} & set(dataset.data_vars)
    assert (dataset.c.encoding["grid_mapping"], dataset.own.attrs["gcps"]) == ("own", "kept")
    assert CRS.from_user_input(dataset[["c"]].rio.crs) == UTM33


# --- GDAL -----------------------------------------------------------------------------------------------------------


def test_the_crs_that_gdal_writes_is_read(tmp_path):
    profile = {"driver": "Zarr", "height": 4, "width": 5, "count": 1, "dtype": "uint16", "crs": "EPSG:32633"}
    with rasterio.open(tmp_path / "g.zarr", "w", transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6), **profile) as file:
        file.write(np.arange(20, dtype="u2").reshape(1, 4, 5))
    with pytest.warns(XGroupNoPrincipalWarning):
        dataset = xr.open_dataset(tmp_path / "g.zarr", engine="xgroup")
    assert dataset.g.rio.crs.to_epsg() == 32633
    assert dataset.proj.crs == UTM33
    assert dataset.X.values.tolist() == [500005.0, 500015.0, 500025.0, 500035.0, 500045.0]


@pytest.mark.parametrize(
    "stated",
    [
        {"wkt": UTM33.to_wkt()},
        {"projjson": UTM33.to_json_dict()},
        {"url": "http://www.opengis.net/def/crs/EPSG/0/32633"},
        {"wkt": "not a CRS", "url": "http://www.opengis.net/def/crs/EPSG/0/32633"},
    ],
)
def test_every_form_of_it_is_read(stated):
    store = write_hierarchy(MemoryStore(), {"a": image({**spatial(), "_CRS": stated})})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(store, engine="xgroup")
    assert dataset.proj.crs == UTM33
    assert bool(caught) == ("not a CRS" in str(stated))


def test_a_convention_overrides_it():
    attributes = {**spatial(), **declared("spatial", "proj"), **forms(UTM33)["wkt2"]}
    for other, disagrees in ((UTM33, False), (UTM32, True)):
        store = write_hierarchy(MemoryStore(), {"a": image({**attributes, "_CRS": {"wkt": other.to_wkt()}})})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert xr.open_dataset(store, engine="xgroup").proj.crs == UTM33
        assert [one.category for one in caught] == [XGroupConventionWarning] * disagrees
    store = write_hierarchy(MemoryStore(), {"a": image({**spatial(), "_CRS": 5})})
    assert "spatial_ref" not in opened(store).coords
