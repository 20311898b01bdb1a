"""Pyramids in the engine `xgroup`: every layout opens as a tree, and a level is chosen by what is asked for."""

import warnings

import numpy as np
import pytest
import xarray as xr
from zarr.storage import MemoryStore

from periplus.engine.xgroup.backend import levels
from periplus.errors import FormatError, MissingError
from periplus.testing.hierarchies import CountingStore, StoredArray, declared, write_hierarchy

SIZES = (16, 8, 4)


def transform(level):
    step = 10.0 * 2**level
    return [step, 0.0, 500000.0, 0.0, -step, 5000000.0]


def layout(*assets, transforms=True, **more):
    items = []
    for n, asset in enumerate(assets):
        item = {"asset": asset, "transform": {"scale": [1.0, 1.0] if n == 0 else [2.0, 2.0]}}
        if n:
            item["derived_from"] = assets[n - 1]
        if transforms or n == 0:
            item |= {"spatial:transform": transform(n), "spatial:shape": [SIZES[n], SIZES[n]]}
        items.append(item)
    return {
        **declared("multiscales", "spatial", "proj"),
        "proj:code": "EPSG:32633",
        "spatial:dimensions": ["y", "x"],
        "multiscales": {"layout": items},
        **more,
    }


def level(n, dims=("y", "x"), **more):
    values = np.full((SIZES[n],) * 2, n) + np.arange(SIZES[n])
    return StoredArray(dims=dims, values=values.astype("int32"), **more)


PYRAMIDS = {
    "groups": {"/": layout("0", "1", "2"), "0/b": level(0), "1/b": level(1), "2/b": level(2)},
    "arrays": {"/": layout("0", "1", "2"), "0": level(0), "1": level(1), "2": level(2)},
    "nested arrays": {
        "/": layout("0/data", "1/data", "2/data"),
        "0/data": level(0),
        "1/data": level(1),
        "2/data": level(2),
    },
    "nested groups": {
        "/": layout("resolutions/full", "resolutions/half", "resolutions/quarter"),
        "resolutions/full/b": level(0),
        "resolutions/half/b": level(1),
        "resolutions/quarter/b": level(2),
    },
    "GDAL's overviews": {
        "/": layout("b", "ovr_2x/b", "ovr_4x/b"),
        "b": level(0),
        "ovr_2x/b": level(1),
        "ovr_4x/b": level(2),
    },
    "overviews as groups": {
        "/": layout("b", "ovr_2x", "ovr_4x"),
        "b": level(0),
        "ovr_2x/b": level(1),
        "ovr_4x/b": level(2),
    },
    "the group itself": {"/": layout(".", "r20", "r40"), "b": level(0), "r20/b": level(1), "r40/b": level(2)},
}


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


def tree_of(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_datatree(store, engine="xgroup", **options)


def only(dataset):
    (variable,) = dataset.data_vars.values()
    return variable


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", PYRAMIDS)
@pytest.mark.parametrize("place", ["", "scenes/a/"])
def test_every_layout_opens_as_nodes_that_align(kind, place, zarr_format):
    nodes = {f"{place}{path.strip('/')}" or "/": node for path, node in PYRAMIDS[kind].items()}
    store = CountingStore(write_hierarchy(MemoryStore(), nodes, zarr_format=zarr_format))
    tree = tree_of(store)
    assert store.chunks == []
    found = {node.path: node for node in tree.subtree if node.data_vars}
    assert len(found) == 3
    assert len({len(path.split("/")) for path in found}) in (1, 2)
    assert not any(one != other and other.startswith(one + "/") for one in found for other in found)
    for node in found.values():
        size = node.sizes["x"]
        n = SIZES.index(size)
        step = 10.0 * 2**n
        np.testing.assert_array_equal(node.x, 500000 + step * (np.arange(size) + 0.5))
        np.testing.assert_array_equal(node.y, 5000000 - step * (np.arange(size) + 0.5))
        assert only(node.to_dataset()).values[0].tolist() == (n + np.arange(size)).tolist()
        assert node.spatial_ref.attrs["crs_wkt"].startswith("PROJCRS")


@pytest.mark.parametrize("kind", PYRAMIDS)
def test_a_level_is_opened_by_number_asset_resolution_and_pixels(kind):
    store = write_hierarchy(MemoryStore(), PYRAMIDS[kind])
    assert only(opened(store)).shape == (16, 16)
    for n, size in enumerate(SIZES):
        assert only(opened(store, level=n)).shape == (size, size)
    assert only(opened(store, level=-1)).shape == (4, 4)
    asset = PYRAMIDS[kind]["/"]["multiscales"]["layout"][1]["asset"]
    assert only(opened(store, level=asset)).shape == (8, 8)
    by_resolution = {5: 16, 10: 16, 19.9: 16, 20: 8, 39: 8, 40: 4, 1000: 4}
    assert {r: only(opened(store, resolution=r)).shape[0] for r in by_resolution} == by_resolution
    by_pixels = {10_000: 16, 256: 16, 255: 8, 64: 8, 63: 4, 16: 4, 3: 4}
    assert {p: only(opened(store, max_pixels=p)).shape[0] for p in by_pixels} == by_pixels
    with pytest.raises(MissingError, match="no level 3"):
        opened(store, level=3)
    with pytest.raises(MissingError, match="no level 'x'"):
        opened(store, level="x")
    for size in (-1, "a"):
        with pytest.raises(ValueError, match="above 0"):
            opened(store, resolution=size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0, "resolution": 10}, "no effect"),
        ({"level": 0, "max_pixels": 10}, "no effect"),
        ({"bbox_crs": "EPSG:4326"}, "no effect"),
        ({"bbox": (1, 0, 0, 1)}, "x before y"),
        ({"bbox": "x"}, "x before y"),
        ({"bbox": (0, 0, 1, 1), "bbox_crs": "foo"}, "EPSG:4326"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message) as raised:
        opened(write_hierarchy(MemoryStore(), PYRAMIDS["groups"]), **options)
    assert type(raised.value) is ValueError


def test_a_box_cuts_and_counts():
    store = write_hierarchy(MemoryStore(), PYRAMIDS["groups"])
    box = (500020.0, 4999900.0, 500060.0, 4999960.0)
    part = opened(store, bbox=box)
    assert part.x.values.tolist() == [500025.0, 500035.0, 500045.0, 500055.0]
    assert part.y.values.tolist() == [4999955.0, 4999945.0, 4999935.0, 4999925.0, 4999915.0, 4999905.0]
    whole = opened(store)
    xr.testing.assert_equal(part.b, whole.b.sel(x=part.x, y=part.y))
    assert opened(store, bbox=box, max_pixels=24).b.shape == (6, 4)
    assert opened(store, bbox=box, max_pixels=23).b.shape == (3, 2)
    assert opened(store, bbox=box, level=1).x.values.tolist() == [500030.0, 500050.0]
    assert opened(store, bbox=(500023, 4999931, 500023, 4999931)).b.shape == (1, 1)
    with pytest.raises(MissingError, match="no array intersects"):
        opened(store, bbox=(0, 0, 1, 1))


def test_a_box_may_be_in_another_crs():
    store = write_hierarchy(MemoryStore(), PYRAMIDS["groups"])
    from pyproj import Transformer

    to_degrees = Transformer.from_crs("EPSG:32633", "EPSG:4326", always_xy=True)
    west, south = to_degrees.transform(500021.0, 4999901.0)
    east, north = to_degrees.transform(500059.0, 4999959.0)
    part = opened(store, bbox=(west, south, east, north), bbox_crs="EPSG:4326")
    assert (part.x.values[0], part.x.values[-1]) == (500025.0, 500055.0)


def test_a_box_on_a_turned_grid_covers_it():
    attributes = {
        **declared("spatial"),
        "spatial:dimensions": ["y", "x"],
        "spatial:transform": [8.0, 6.0, 0.0, 6.0, -8.0, 0.0],
    }
    store = write_hierarchy(MemoryStore(), {"a": StoredArray(dims=("y", "x"), shape=(20, 20), attributes=attributes)})
    whole, box = opened(store), (60.0, 10.0, 80.0, 40.0)
    part = opened(store, bbox=box)
    inside = (whole.xc > box[0]) & (whole.xc < box[2]) & (whole.yc > box[1]) & (whole.yc < box[3])
    wanted = set(whole.a.values[inside.values].tolist())
    assert wanted
    assert wanted <= set(part.a.values.ravel().tolist())
    assert part.a.size < 150


def test_without_a_pyramid_there_is_one_level():
    attributes = {**declared("spatial"), "spatial:dimensions": ["y", "x"], "spatial:transform": transform(0)}
    store = write_hierarchy(MemoryStore(), {"b": level(0, attributes=attributes)})
    for wish in ({"level": 0}, {"resolution": 1000}, {"max_pixels": 1}):
        assert opened(store, **wish).b.shape == (16, 16)
    with pytest.raises(MissingError, match="no pyramid"):
        opened(store, level=1)


def test_where_there_is_no_pyramid_the_error_names_those_there_are():
    nodes = {f"scenes/a/{path.strip('/')}".rstrip("/"): node for path, node in PYRAMIDS["groups"].items()}
    with pytest.raises(MissingError, match="group= /scenes/a does"):
        opened(write_hierarchy(MemoryStore(), nodes), level=1)


def test_variables_may_be_missing_at_levels():
    nodes = {**PYRAMIDS["groups"], "0/fine_only": level(0), "1/middle": level(1)}
    store = write_hierarchy(MemoryStore(), nodes)
    assert set(opened(store, level=0).data_vars) == {"b", "fine_only"}
    assert set(opened(store, level=1).data_vars) == {"b", "middle"}
    assert set(opened(store, level=2).data_vars) == {"b"}
    assert set(tree_of(store)["0"].data_vars) == {"b", "fine_only"}


def test_levels_that_do_not_exist_are_warned_of_and_left_out():
    nodes = {key: node for key, node in PYRAMIDS["groups"].items() if key != "1/b"}
    store = write_hierarchy(MemoryStore(), nodes)
    with pytest.warns(UserWarning, match="asset '1'"):
        dataset = xr.open_dataset(store, engine="xgroup", resolution=25)
    assert dataset.b.shape == (16, 16)


def test_the_order_of_a_layout_has_no_meaning():
    root = layout("0", "1", "2")
    root["multiscales"]["layout"].reverse()
    store = write_hierarchy(MemoryStore(), {**PYRAMIDS["groups"], "/": root})
    assert opened(store).b.shape == (16, 16)
    assert opened(store, level=2).b.shape == (4, 4)


def test_other_arrays_of_the_group_are_included_where_they_fit():
    labels = StoredArray(dims=("x",), values=500005 + 10 * np.arange(16), attributes={"long_name": "stored"})
    count = StoredArray(dims=("time",), values=np.array([1, 2]))
    base = {"/": layout("0", "1", "2"), "x": labels, "time": count}
    arrays = {str(n): StoredArray(dims=("time", "y", "x"), shape=(2, s, s)) for n, s in enumerate(SIZES)}
    store = write_hierarchy(MemoryStore(), base | arrays)
    fine, coarse = opened(store), opened(store, level=1)
    assert fine.x.attrs["long_name"] == "stored"
    assert coarse.x.values[0] == 500010.0
    assert fine.time.values.tolist() == coarse.time.values.tolist() == [1, 2]
    tree = tree_of(store)
    assert tree["0"].x.attrs["long_name"] == "stored"
    assert tree["2"].sizes == {"time": 2, "y": 4, "x": 4}


def test_groups_of_other_sizes_below_a_group_open_without_a_pyramid_too():
    nodes = {"b": level(0), "half/b": level(1), "half/quarter/b": level(2)}
    with pytest.warns(UserWarning, match="no principal"):
        tree = xr.open_datatree(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    shapes = {node.path: node["b"].shape for node in tree.subtree if node.data_vars}
    assert shapes == {"/base": (16, 16), "/half/base": (8, 8), "/half/quarter": (4, 4)}


def test_groups_of_other_labels_below_a_group_open_too():
    stored = {"dims": ("x",), "attributes": {}}
    nodes = {"x": StoredArray(values=np.arange(3), **stored), "g/x": StoredArray(values=np.arange(3) + 7, **stored)}
    tree = tree_of(write_hierarchy(MemoryStore(), nodes))
    assert tree["g"].x.values.tolist() == [7, 8, 9]
    assert tree["base"].x.values.tolist() == [0, 1, 2]
    alike = write_hierarchy(MemoryStore(), {**nodes, "g/x": nodes["x"]})
    assert set(tree_of(alike).groups) == {"/", "/g"}


def test_levels_are_listed_without_opening_them():
    store = CountingStore(write_hierarchy(MemoryStore(), PYRAMIDS["GDAL's overviews"]))
    found = levels(store)
    assert [(one.asset, one.shape, one.factors) for one in found] == [
        ("b", (16, 16), (1.0, 1.0)),
        ("ovr_2x/b", (8, 8), (2.0, 2.0)),
        ("ovr_4x/b", (4, 4), (4.0, 4.0)),
    ]
    assert store.chunks == []
    assert levels(write_hierarchy(MemoryStore(), {"a": level(0)})) == ()


def test_attributes_of_a_level_are_its_own_over_those_of_the_dataset():
    root = layout("0", "1", "2", title="scene", history="made")
    nodes = {**PYRAMIDS["groups"], "/": root, "1": {"history": "averaged"}}
    store = write_hierarchy(MemoryStore(), nodes)
    assert opened(store, level=1).attrs == {"title": "scene", "history": "averaged"}


@pytest.mark.parametrize("argument", ["level", "bbox", "nonsense"])
def test_a_tree_has_all_levels_and_takes_no_choice_of_one(argument):
    store = write_hierarchy(MemoryStore(), {"g/a": StoredArray(dims=("y", "x"), shape=(4, 5), attributes={})})
    with pytest.raises(TypeError, match=argument):
        xr.open_datatree(store, engine="xgroup", **{argument: 0})


def test_a_box_over_arrays_of_different_crs_is_cut_in_the_crs_of_each():
    def image(step, corner, code, shape):
        place = {"spatial:dimensions": ["y", "x"], "spatial:transform": [step, 0.0, corner[0], 0.0, -step, corner[1]]}
        return StoredArray(
            dims=("y", "x"), shape=shape, attributes={**declared("spatial", "proj"), "proj:code": code, **place}
        )

    nodes = {
        "a": image(1.0, (10.0, 50.0), "EPSG:4326", (10, 10)),
        # The same area in metres: a degree is 111319.49 m along the equator of the web's Mercator.
        "b": image(111319.49079327358 / 2, (1113194.9079327358, 6446275.841017161), "EPSG:3857", (30, 20)),
    }
    store = write_hierarchy(MemoryStore(), nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FormatError, match="bbox_crs"):
            xr.open_dataset(store, engine="xgroup", bbox=(12, 45, 14, 48))
        part = xr.open_dataset(store, engine="xgroup", bbox=(12, 45, 14, 48), bbox_crs="EPSG:4326")
    assert part["a"].shape == (3, 2)
    assert part["b"].shape[1] == 4
    assert part["b"].attrs["spatial:dimensions"] == list(part["b"].dims)
    same = {"a": image(1.0, (10.0, 50.0), "EPSG:4326", (5, 5)), "b": image(1.0, (10.0, 50.0), "EPSG:3857", (5, 5))}
    with pytest.raises(FormatError, match="drop_variables"):
        xr.open_dataset(
            write_hierarchy(MemoryStore(), same), engine="xgroup", bbox=(12, 45, 14, 48), bbox_crs="EPSG:4326"
        )


def test_a_level_of_a_pyramid_that_is_not_declared_is_an_error_with_the_way_to_use_it():
    base = layout("0", "1", "2")
    del base["zarr_conventions"]
    store = write_hierarchy(MemoryStore(), {"/": base, **{f"{n}/b": level(n) for n in range(3)}})
    with pytest.raises(MissingError, match=r"/ holds no pyramid, because .* not declared .* strict=False uses it"):
        xr.open_dataset(store, engine="xgroup", level=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert xr.open_dataset(store, engine="xgroup", level=1, strict=False).sizes["x"] == SIZES[1]
