"""Hostile stores in the engine `xgroup`: whatever attributes there are, arrays open as in stock xarray."""

import dataclasses
import os
import random
import warnings

import numpy as np
import pytest
import xarray as xr
from zarr.storage import MemoryStore

import periplus
from periplus.engine.xgroup.backend import XGroupConventionWarning, XGroupReferenceWarning
from periplus.testing.hierarchies import StoredArray, declare_huge, declared, spatial, write_hierarchy

ODD = [
    None, True, -1, 0, 1e308, 10**400, "", "x", "/", "..", "../..", "time", "/g/v", "\x00", "a" * 3000, -0.5, 3, [], {},
    [None], {"ref": {}}, {"node": 1}, [1, 2, 3], ["y", "y"], [[1]], {"a": {"b": {}}}, [10, 0, 0, 0, -10, 0], [0] * 6,
    {"layout": []}, {"layout": [{"asset": ".."}]}, {"layout": [{"asset": "."}, {"asset": "."}]}, {"node": "."},
]  # fmt: skip


def mutated(rng, value):
    """The value with one odd thing somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kept = dict(value)
        if rng.random() < 0.1:
            del kept[key]
        else:
            kept[key] = mutated(rng, kept[key])
        return kept
    if isinstance(value, list) and value and rng.random() < 0.85:
        kept = list(value)
        place = rng.randrange(len(kept))
        kept[place] = mutated(rng, kept[place])
        return kept
    return rng.choice(ODD)


def stores():
    clock = {"unit": "days", "epoch": "2000-01-01"}
    time = {"abbreviation": "T", "coordinates": [{"time": clock, "values": {"external": {"ref": {"node": "/c/time"}}}}]}
    lat = {
        "abbreviation": "Y",
        "coordinates": [
            {"unit": {"ucum": {"unit": "deg"}}, "values": {"regular": [0, 1]}, "boundaries": {"regular": [-1, 1]}}
        ],
    }
    cs = {"crs": [{"type": "temporal", "axes": {"time": time}}, {"axes": {"lat": lat, "k": {}}}]}
    place = {"geodetic": {"x": {"ref": {"node": "/c/lon"}}, "y": {"node": "/c/lat"}}}
    layout = [
        {"asset": "0", "spatial:transform": [10, 0, 0, 0, -10, 0], "spatial:shape": [4, 4]},
        {"asset": "1", "derived_from": "0", "transform": {"scale": [2, 2], "translation": [0, 0]}},
    ]
    located = {**spatial(), **declared("geolocation", "spatial"), "geolocation": place}
    pyramid = {**declared("multiscales", "spatial", "proj"), "proj:code": "EPSG:32633"}
    square = {"dims": ("y", "x"), "shape": (4, 4)}
    return [
        {
            "g/v": StoredArray(
                dims=("time", "lat", "k"), shape=(2, 3, 2), attributes={**declared("cs", "ref", "uom"), "cs": cs}
            ),
            "c/time": StoredArray(dims=("time",), values=np.array([0.0, 1.0])),
        },
        {
            "g/v": StoredArray(**square, attributes=located),
            "c/lon": StoredArray(**square),
            "c/lat": StoredArray(**square),
        },
        {
            "/": {**pyramid, "multiscales": {"layout": layout}},
            "0/b": StoredArray(**square),
            "1/b": StoredArray(dims=("y", "x"), shape=(2, 2)),
        },
        {
            "/": {"Conventions": "CF-1.11"},
            "g/v": StoredArray(**square, attributes={"coordinates": "/c/lon /c/lat", "grid_mapping": "/c/crs"}),
            "c/crs": StoredArray(dims=(), values=np.array(0), attributes={"grid_mapping_name": "latitude_longitude"}),
            "c/lon": StoredArray(**square, attributes={"bounds": "lat"}),
            "c/lat": StoredArray(**square, attributes={"coordinates": "lon"}),
        },
    ]  # fmt: skip


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(30 * int(os.environ.get("PERIPLUS_FUZZ", "1"))))
def test_odd_attributes_never_keep_a_store_from_opening(seed):
    rng = random.Random(seed)
    nodes = dict(rng.choice(stores()))
    for path in rng.sample(sorted(nodes), k=rng.choice([1, 2])):
        node = nodes[path]
        attributes = mutated(rng, dict(node.attributes if isinstance(node, StoredArray) else node))
        if isinstance(attributes, dict):
            nodes[path] = (
                dataclasses.replace(node, attributes=attributes) if isinstance(node, StoredArray) else attributes
            )
    store = write_hierarchy(MemoryStore(), nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = xr.open_groups(store, engine="xgroup")
        xr.open_datatree(store, engine="xgroup").load()
    values = sorted(one.values.tolist() for group in groups.values() for one in group.data_vars.values() if one.ndim)
    plain = [node.numbers.tolist() for path, node in nodes.items() if isinstance(node, StoredArray) and node.dims]
    assert all(one in plain for one in values)
    assert any(values)


def test_times_that_cannot_be_decoded_elsewhere_stay_numbers():
    time = StoredArray(dims=("time",), values=np.array([0.0, 1.0]), attributes={"units": "days since 2000-13-45"})
    nodes = {
        "/": {"Conventions": "CF-1.11"},
        "c/time": time,
        "g/v": StoredArray(dims=("time",), shape=(2,), attributes={"coordinates": "/c/time"}),
    }
    store = write_hierarchy(MemoryStore(), nodes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(store, engine="xgroup", group="g")
    assert any(one.category is XGroupReferenceWarning and "cannot be decoded" in str(one.message) for one in caught)
    assert dataset.v.values.tolist() == [0, 1]
    assert dataset.coords["time"].attrs["units"] == "days since 2000-13-45"


def test_a_node_that_is_no_metadata_is_a_warning(tmp_path):
    path = write_hierarchy(
        tmp_path / "s.zarr", {"g/v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=spatial())}
    )
    (path / "c").mkdir()
    (path / "c" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array", "shape": "none"}')
    cs = {"crs": [{"axes": {"y": {"coordinates": [{"values": {"external": {"ref": {"node": "/c"}}}}]}, "x": {}}}]}
    import zarr

    zarr.open_group(path)["g/v"].attrs.update({**declared("cs", "ref"), "cs": cs})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(path, engine="xgroup", group="g")
    assert any("/c" in str(one.message) for one in caught)
    assert dataset.v.shape == (2, 2)


def test_huge_regular_times_do_not_fill_memory():
    time = {"coordinates": [{"time": {"unit": "seconds", "epoch": "2000-01-01"}, "values": {"regular": [0, 1]}}]}
    store = MemoryStore()
    declare_huge(store, "v", (10**12,), ("time",), {**declared("cs"), "cs": {"crs": [{"axes": {"time": time}}]}})
    with pytest.warns(XGroupConventionWarning, match="too many to decode"):
        dataset = xr.open_dataset(store, engine="xgroup")
    assert dataset.time[-1].item() == 10**12 - 1


def test_huge_turned_grids_do_not_fill_memory():
    store = MemoryStore()
    declare_huge(store, "v", (10**6, 10**6), ("y", "x"), spatial((1, 0.5, 0, 0.5, -1, 0)))
    dataset = xr.open_dataset(store, engine="xgroup")
    assert dataset.xc.shape == (10**6, 10**6)
    assert dataset.xc[-1, -1].item() == pytest.approx(1.5e6 - 0.75)


def test_thousands_of_broken_arrays_give_few_warnings():
    broken = {**declared("cs", "ref"), "cs": {"crs": [{"ref": {"node": "/none", "attribute": "/x"}}]}}
    nodes = {f"a{n}": StoredArray(dims=("n",), shape=(1,), attributes=broken) for n in range(200)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    assert len(caught) <= 51
    assert "further findings" in str(caught[-1].message)


def test_links_that_lead_back_end(tmp_path):
    path = write_hierarchy(
        tmp_path / "s.zarr", {"g/v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=spatial())}
    )
    (path / "g" / "again").symlink_to(path / "g")
    (path / "g" / "up").symlink_to("..")
    (path / "a").mkdir()
    (path / "a" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (path / "a" / "other").symlink_to("../g")  # no loop: the same group under another path
    assert set(xr.open_datatree(path, engine="xgroup").groups) == {"/", "/a", "/a/other", "/g"}
    assert periplus.validate(path).arrays == 2


def test_a_folder_whose_name_no_node_can_have_is_skipped(tmp_path):
    path = write_hierarchy(
        tmp_path / "s.zarr", {"g/v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=spatial())}
    )
    (path / "a\\b").mkdir()
    with pytest.warns(UserWarning, match="not a valid path"):
        assert set(xr.open_datatree(path, engine="xgroup").groups) == {"/", "/g"}
    assert "store.json" in {one.code for one in periplus.validate(path).findings}
