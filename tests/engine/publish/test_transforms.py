"""Conventions on Datasets, trees and stores place samples where they were: registrations, selections, round trips."""

import functools
import itertools
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

from periplus.engine.publish.publish import write_conventions
from periplus.errors import FormatError
from periplus.testing.hierarchies import StoredArray, declared, spatial, write_hierarchy
from periplus.validation.validate import validate

CRS = "EPSG:32633"
UPRIGHT = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)
ROTATED = (8.0, -3.0, 500000.0, -3.0, -8.0, 5000000.0)
THIRDS = (1 / 3, 0.0, 0.1, 0.0, -1 / 3, 50.1)
ROTATED_THIRDS = (1 / 3, 0.1, 0.1, 0.1, -1 / 3, 50.1)
TRANSFORMS = (UPRIGHT, ROTATED, THIRDS, ROTATED_THIRDS)
PARTS = (
    (slice(1, 5), slice(2, 7)),
    (slice(None, None, 2), slice(1, None, 3)),
    (slice(None, None, -1), slice(None, None, -1)),
    (slice(5, 0, -2), slice(6, 1, -2)),
    (slice(2, 3), slice(3, 4)),
    (slice(0, 1), slice(None)),
)


def bare(height=6, width=8, name="b"):
    return xr.Dataset({name: (("y", "x"), np.arange(height * width).reshape(height, width))})


def sample(transform, registration, row, column):
    """x and y of a sample, by the definition of the convention."""
    a, b, c, d, e, f = transform
    row, column = (row + 0.5, column + 0.5) if registration == "pixel" else (row, column)
    return a * column + b * row + c, d * column + e * row + f


def opened(dataset, **options):
    """The Dataset by way of a store."""
    store = MemoryStore()
    dataset.to_zarr(store, consolidated=False)
    return xr.open_dataset(store, engine="xgroup", **options)


def made(transform, registration, height=6, width=8, **options):
    dataset = write_conventions(bare(height, width), crs=CRS, transform=transform, registration=registration)
    return opened(dataset, **options)


whole = functools.cache(made)


def assert_placed(attributes, expected, shape):
    """The samples of attributes are at `expected(row, column)`, and the box is around them."""
    transform, registration = attributes["spatial:transform"], attributes["spatial:registration"]
    assert attributes["spatial:shape"] == list(shape)
    for row, column in itertools.product(range(shape[0]), range(shape[1])):
        assert sample(transform, registration, row, column) == pytest.approx(expected(row, column), abs=1e-7)
    a, b, c, d, e, f = transform
    more = 0 if registration == "pixel" else -1
    ends = list(itertools.product((0, shape[0] + more), (0, shape[1] + more)))
    xs, ys = [a * w + b * h + c for h, w in ends], [d * w + e * h + f for h, w in ends]
    assert attributes["spatial:bbox"] == pytest.approx([min(xs), min(ys), max(xs), max(ys)], abs=1e-7)


# --- registration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "written", "transform"),
    [
        ("pixel", "pixel", [10, 0, 500000, 0, -10, 5000000]),
        ("area", "pixel", [10, 0, 500000, 0, -10, 5000000]),
        ("node", "node", [10, 0, 500000, 0, -10, 5000000]),  # the transform is of samples, as the convention has it
        ("point", "node", [10, 0, 500005, 0, -10, 4999995]),  # the transform is of corners, as GDAL has it
    ],
)
@pytest.mark.parametrize("kind", ["dataset", "store"])
def test_a_transform_is_of_samples_for_nodes_and_of_corners_else(kind, word, written, transform):
    if kind == "dataset":
        target = write_conventions(bare(), crs=CRS, transform=UPRIGHT, registration=word)
    else:
        target = zarr.open_group(MemoryStore(), mode="w")
        target.create_array("b", shape=(6, 8), dtype="u1", dimension_names=("y", "x"))
        write_conventions(target, crs=CRS, transform=UPRIGHT, registration=word)
    assert target["b"].attrs["spatial:registration"] == written
    assert target["b"].attrs["spatial:transform"] == transform
    first, last = sample(transform, written, 0, 0), sample(transform, written, 5, 7)
    assert (last[0] - first[0], last[1] - first[1]) == (70, -50)
    box = target["b"].attrs["spatial:bbox"]
    assert box == ([500000, 4999940, 500080, 5000000] if written == "pixel" else [first[0], last[1], last[0], first[1]])
    assert target.attrs["spatial:bbox"] == box


@pytest.mark.parametrize("same", [True, False])
def test_the_box_of_the_root_is_at_nodes_if_all_arrays_have_nodes(same):
    group = zarr.open_group(MemoryStore(), mode="w")
    for name, registration in (("a", "node"), ("b", "node" if same else "pixel")):
        place = spatial(UPRIGHT, **{"spatial:registration": registration})
        group.create_array(name, shape=(6, 8), dtype="u1", dimension_names=("y", "x"), attributes=place)
    write_conventions(group, crs=CRS)
    if same:
        assert group.attrs["spatial:bbox"] == group["a"].attrs["spatial:bbox"] == [500000, 4999950, 500070, 5000000]
        assert group.attrs["spatial:registration"] == "node"
    else:
        assert group.attrs["spatial:bbox"] == [499995, 4999940, 500080, 5000005]
    assert [finding.code for finding in validate(group.store).findings] == []


def test_labels_are_samples_whatever_the_registration():
    labels = {"x": 100 + 10.0 * np.arange(8), "y": 80 - 10.0 * np.arange(6)}
    node = write_conventions(bare().assign_coords(labels), registration="node")["b"].attrs
    assert (node["spatial:transform"], node["spatial:bbox"]) == ([10, 0, 100, 0, -10, 80], [100, 30, 170, 80])
    pixel = write_conventions(bare().assign_coords(labels), registration="pixel")["b"].attrs
    assert (pixel["spatial:transform"], pixel["spatial:bbox"]) == ([10, 0, 95, 0, -10, 85], [95, 25, 175, 85])


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ({"registration": "nodes"}, ValueError, "pixel, node, area, point"),
        ({"registration": "Pixel"}, ValueError, "pixel, node, area, point"),
        ({"transform": (1, 2, 3)}, ValueError, "six finite numbers"),
        ({"transform": (1, 1, 0, 1, 1, 0)}, ValueError, "inverse"),
        ({"transform": "north"}, ValueError, "six finite numbers"),
        ({"spatial_dims": "yx"}, ValueError, "spatial_dims"),
        ({"spatial_dims": ("x", "x")}, ValueError, "spatial_dims"),
        ({"spatial_dims": ("rows", "x")}, ValueError, "spatial_dims"),
        ({"resampling": 2}, TypeError, "resampling"),
    ],
)
def test_wrong_arguments_are_refused(argument, error, match):
    with pytest.raises(error, match=match):
        write_conventions(bare(), **argument)


# --- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("coords", ["auto", "lazy", "none"])
def test_a_dataset_that_is_opened_and_written_again_is_the_same(transform, registration, coords):
    first = made(transform, registration, coords=coords)
    assert first["b"].attrs["spatial:transform"] == list(transform)
    assert first["b"].attrs["spatial:registration"] == registration
    again = opened(write_conventions(first), coords=coords)
    xr.testing.assert_identical(again.load(), first.load())
    assert again["b"].attrs == first["b"].attrs


def nodes_or_pixels(registration):
    """Levels of one area: 9, 5 and 3 nodes, or 8, 4 and 2 pixels."""
    return [(9, 9), (5, 5), (3, 3)] if registration == "node" else [(8, 8), (4, 4), (2, 2)]


def pyramid(registration, transform, **attributes):
    """A pyramid that declares nothing but on its group, as others write it."""
    sizes = nodes_or_pixels(registration)
    layout = [{"asset": "0", "spatial:transform": list(transform)}]
    layout += [{"asset": str(n), "derived_from": str(n - 1), "transform": {"scale": [2.0, 2.0]}} for n in (1, 2)]
    root = {
        **declared("multiscales", "spatial", "proj"),
        "proj:code": CRS,
        "spatial:dimensions": ["y", "x"],
        "spatial:registration": registration,
        "multiscales": {"layout": layout},
    }
    return {"/": root, **{f"{n}/b": StoredArray(dims=("y", "x"), shape=size) for n, size in enumerate(sizes)}}


def grown(transform, factor):
    a, b, c, d, e, f = transform
    return [a * factor, b * factor, c, d * factor, e * factor, f]


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_tree_of_levels_that_is_opened_and_written_again_is_the_same(transform, registration):
    tree = xr.open_datatree(write_hierarchy(MemoryStore(), pyramid(registration, transform)), engine="xgroup")
    written = write_conventions(tree)
    layout = written.attrs["multiscales"]["layout"]
    assert [item["spatial:transform"] for item in layout] == [grown(transform, 2**n) for n in range(3)]
    assert written.attrs.get("spatial:registration", "pixel") == registration
    store = MemoryStore()
    written.to_zarr(store, consolidated=False)
    again = xr.open_datatree(store, engine="xgroup")
    for n in range(3):
        assert again[f"{n}/b"].attrs["spatial:registration"] == registration
        for name in tree[str(n)].ds.coords:
            np.testing.assert_array_equal(again[str(n)].ds[name], tree[str(n)].ds[name])
    store = MemoryStore()
    write_conventions(again).to_zarr(store, consolidated=False)
    xr.testing.assert_identical(xr.open_datatree(store, engine="xgroup").load(), again.load())


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize("how", [{"level": 1}, {"group": "1"}])
def test_one_level_keeps_the_registration_that_its_pyramid_declares(how, registration):
    level = xr.open_dataset(
        write_hierarchy(MemoryStore(), pyramid(registration, UPRIGHT)), engine="xgroup", consolidated=False, **how
    )
    written = write_conventions(level)["b"].attrs
    assert written["spatial:registration"] == registration
    assert written["spatial:transform"] == grown(UPRIGHT, 2)
    np.testing.assert_array_equal(opened(write_conventions(level))["x"], level["x"])


@pytest.mark.parametrize("registration", ["pixel", "node"])
def test_a_store_that_is_written_again_is_the_same_and_valid(tmp_path, registration):
    write_hierarchy(zarr.storage.LocalStore(tmp_path), pyramid(registration, UPRIGHT))
    group = zarr.open_group(tmp_path, mode="r+", use_consolidated=False)
    write_conventions(group)
    transforms = [group[f"{n}/b"].attrs["spatial:transform"] for n in range(3)]
    assert transforms == [grown(UPRIGHT, 2**n) for n in range(3)]
    first = {path: dict(member.attrs) for path, member in group.members(max_depth=None)} | {"": dict(group.attrs)}
    write_conventions(group)
    assert {path: dict(one.attrs) for path, one in group.members(max_depth=None)} | {"": dict(group.attrs)} == first
    assert {one.code for one in validate(str(tmp_path)).findings} <= {"store.unconsolidated"}


def test_arrays_of_several_grids_and_crs_keep_theirs():
    nodes = {
        "a": StoredArray(
            dims=("y", "x"), shape=(6, 8), attributes=spatial(UPRIGHT, ("y", "x"), "proj") | {"proj:code": CRS}
        ),
        "b": StoredArray(
            dims=("y", "x"),
            shape=(3, 4),
            attributes=spatial((0.5, 0, 10, 0, -0.5, 50), ("y", "x"), "proj")
            | {"proj:code": "EPSG:4326", "spatial:registration": "node"},
        ),
    }
    with pytest.warns(UserWarning, match="size 3 along y"):
        first = xr.open_dataset(write_hierarchy(MemoryStore(), nodes), engine="xgroup")
    again = opened(write_conventions(first))
    for name, code in (("a", CRS), ("b", "EPSG:4326")):
        assert again[name].attrs["proj:code"] == code
        assert again[name].attrs["spatial:transform"] == first[name].attrs["spatial:transform"]
        for dim in again[name].dims:
            np.testing.assert_array_equal(again[dim], first[dim])
    assert again["b"].attrs["spatial:registration"] == "node"
    assert len([name for name in again.coords if "spatial_ref" in str(name)]) == 2


# --- selections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("part", PARTS)
def test_the_transform_follows_a_selection(transform, registration, part):
    rows, columns = range(6)[part[0]], range(8)[part[1]]
    for coords in ("auto", "lazy"):
        first = whole(transform, registration, coords=coords)
        written = write_conventions(first.isel(y=part[0], x=part[1]))["b"].attrs
        assert written["spatial:registration"] == registration
        assert_placed(
            written,
            lambda row, column: sample(transform, registration, rows[row], columns[column]),
            (len(rows), len(columns)),
        )


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize("transform", [UPRIGHT, ROTATED])
def test_coordinates_that_were_computed_still_place_a_part(transform, registration):
    first = made(transform, registration).isel(y=[1, 3, 5], x=[6, 4, 2]).load()
    written = write_conventions(first)["b"].attrs
    assert_placed(written, lambda r, c: sample(transform, registration, 1 + 2 * r, 6 - 2 * c), (3, 3))
    with pytest.raises(FormatError, match="no transform gives them"):
        write_conventions(made(transform, registration).isel(x=[0, 1, 3]).load())
    one = made(transform, registration).isel(x=[5]).load()
    assert_placed(write_conventions(one)["b"].attrs, lambda r, c: sample(transform, registration, r, 5), (6, 1))


def test_upright_labels_are_followed_whatever_was_done_to_them():
    first = made(UPRIGHT, "pixel")
    coarse = write_conventions(first.coarsen(x=2, y=2).mean())["b"].attrs
    assert (coarse["spatial:transform"], coarse["spatial:shape"]) == ([20, 0, 500000, 0, -20, 5000000], [3, 4])
    east = first.assign_coords(x=first.x + 80)
    wide = write_conventions(xr.concat([first, east], "x", coords="minimal", compat="override"))["b"].attrs
    assert (wide["spatial:transform"], wide["spatial:shape"]) == (list(UPRIGHT), [6, 16])
    turned = write_conventions(first.sortby("y"))["b"].attrs
    assert turned["spatial:transform"] == [10, 0, 500000, 0, 10, 4999940]
    apart = xr.concat([first, east.assign_coords(x=first.x + 100)], "x", coords="minimal", compat="override")
    with pytest.raises(FormatError, match="uneven"):
        write_conventions(apart)


def test_a_single_row_has_the_step_of_the_grid_it_is_of_or_none():
    first = made(UPRIGHT, "pixel")
    with pytest.raises(FormatError, match="single label of y"):
        write_conventions(first.coarsen(y=6).mean())  # between two rows
    with pytest.raises(FormatError, match="single label of y"):
        write_conventions(first.isel(y=[2]).assign_coords(y=[4000005.0]))  # far beyond the grid
    with pytest.raises(FormatError, match="single label of x"):
        write_conventions(bare(6, 1).assign_coords(x=[3.0], y=np.arange(6.0)))
    given = write_conventions(bare(6, 1).assign_coords(x=[3.0], y=np.arange(6.0)), transform=(1, 0, 2.5, 0, 1, -0.5))
    assert given["b"].attrs["spatial:shape"] == [6, 1]


def test_without_coordinates_a_transform_for_another_shape_is_refused():
    for transform in (UPRIGHT, ROTATED):
        part = made(transform, "pixel", coords="none").isel(x=slice(2, 5))
        with pytest.raises(FormatError, match=r"declare a transform for the shape \[6, 8\]"):
            write_conventions(part)
        assert write_conventions(part, transform=transform)["b"].attrs["spatial:shape"] == [6, 3]


def test_labels_decide_over_attributes_that_contradict_them():
    stale = made(UPRIGHT, "node").assign_coords(x=7 + 2.0 * np.arange(8), y=9 - 2.0 * np.arange(6))
    stale.attrs |= {"spatial:transform": list(UPRIGHT), "spatial:shape": [100, 100], "spatial:transform_type": "affine"}
    written = write_conventions(stale)
    assert written["b"].attrs["spatial:transform"] == [2, 0, 7, 0, -2, 9]
    assert written["b"].attrs["spatial:registration"] == "node"
    assert not {"spatial:transform", "spatial:shape", "spatial:transform_type"} & set(written.attrs)
    with pytest.raises(FormatError, match="contradict"):
        write_conventions(made(ROTATED, "pixel").drop_vars(["xc", "yc"]).assign_coords(x=range(8), y=range(6)))


def test_labels_that_a_given_transform_does_not_give_are_refused_or_dropped():
    labels = {"x": 500005 + 10.0 * np.arange(8), "y": 4999995 - 10.0 * np.arange(6)}
    dataset = bare().assign_coords(labels)
    assert write_conventions(dataset, transform=UPRIGHT)["b"].attrs["spatial:transform"] == list(UPRIGHT)
    with pytest.raises(FormatError, match="not where the transform places"):
        write_conventions(dataset, transform=UPRIGHT, registration="node")
    moved = write_conventions(dataset, transform=UPRIGHT, registration="node", labels=False)
    assert "x" not in moved.coords
    store = MemoryStore()
    dataset.to_zarr(store, consolidated=False)
    group = zarr.open_group(store, mode="r+", use_consolidated=False)
    with pytest.raises(FormatError, match="not where the transform places"):
        write_conventions(group, transform=UPRIGHT, registration="node")


def test_labels_of_a_store_decide_over_what_it_declares():
    store = MemoryStore()
    made(UPRIGHT, "node").isel(x=slice(3, 6)).to_zarr(store, consolidated=False)
    group = zarr.open_group(store, mode="r+", use_consolidated=False)
    assert group["b"].attrs["spatial:shape"] == [6, 8]
    write_conventions(group)
    written = dict(group["b"].attrs)
    assert_placed(written, lambda row, column: (500030 + 10 * column, 5000000 - 10 * row), (6, 3))
    assert written["spatial:registration"] == "node"
    group["x"][:] = [1, 2, 4]
    with pytest.raises(FormatError, match="uneven"):
        write_conventions(group)


def test_a_crs_that_is_replaced_leaves_no_code_behind():
    written = write_conventions(made(UPRIGHT, "pixel"), crs="+proj=laea +lat_0=51 +lon_0=9 +datum=WGS84")
    assert "proj:code" not in written["b"].attrs
    assert "Azimuthal" in written["b"].attrs["proj:wkt2"]


# --- levels by size --------------------------------------------------------------------------------------------------


def levels(sizes):
    group = zarr.open_group(MemoryStore(), mode="w")
    for n, size in enumerate(sizes):
        group.create_array(f"{n}/b", shape=(size, size), dtype="u1", dimension_names=("y", "x"))
    return group


@pytest.mark.parametrize(
    ("registration", "sizes", "steps"),
    [
        ("node", (9, 5, 3), (10, 20, 40)),
        ("node", (8, 4), (10, 20)),
        ("node", (8, 4, 2), (10, 20, 40)),  # samples 0, 2, 4, 6, and of these the first and third
        ("node", (64, 32, 16, 8, 4, 2), (10, 20, 40, 80, 160, 320)),
        ("node", (28, 10, 4), (10, 30, 90)),
        ("pixel", (9, 5, 3), (10, 20, 40)),
        ("pixel", (17, 9, 5, 3, 2), (10, 20, 40, 80, 160)),
        ("pixel", (300, 150, 75, 38, 19, 10), (10, 20, 40, 80, 160, 320)),
        ("pixel", (30, 20), (10, 15)),
    ],
)
def test_levels_without_labels_keep_the_first_sample_of_nodes(registration, sizes, steps):
    group = levels(sizes)
    write_conventions(group, crs=CRS, transform=UPRIGHT, registration=registration)
    for n, step in enumerate(steps):
        assert group[f"{n}/b"].attrs["spatial:transform"] == [step, 0, 500000, 0, -step, 5000000]
        assert group[f"{n}/b"].attrs["spatial:registration"] == registration
    tree = xr.DataTree.from_dict({f"/{n}": bare(size, size) for n, size in enumerate(sizes)})
    made_ = write_conventions(tree, crs=CRS, transform=UPRIGHT, registration=registration)
    assert [item["spatial:transform"][0] for item in made_.attrs["multiscales"]["layout"]] == list(steps)
    # A new transform of the finest level moves those that were declared before.
    write_conventions(group, transform=(20, 0, 0, 0, -20, 0), registration=registration)
    assert group["1/b"].attrs["spatial:transform"] == [2 * steps[1], 0, 0, 0, -2 * steps[1], 0]


@pytest.mark.parametrize("registration", ["pixel", "node"])
@pytest.mark.parametrize(
    "sizes", [(9, 5, 3), (17, 9, 5, 3, 2), (300, 150, 75, 38, 19, 10), (64, 32, 16, 8, 4, 2), (100, 33, 11), (9, 3)]
)
def test_steps_by_sizes_are_the_same_written_and_read(registration, sizes):
    try:
        group = levels(sizes)
        write_conventions(group, crs=CRS, transform=UPRIGHT, registration=registration)
    except FormatError:
        assert (registration, sizes) == ("node", (100, 33, 11))  # 99 cells to 32
        return
    written = [group[f"{n}/b"].attrs["spatial:transform"][0] for n in range(len(sizes))]
    plain = levels(sizes)
    chain = [{"asset": str(n), **({"derived_from": str(n - 1)} if n else {})} for n in range(len(sizes))]
    plain.attrs.put(
        declared("multiscales", "spatial")
        | {
            "multiscales": {"layout": chain},
            "spatial:dimensions": ["y", "x"],
            "spatial:transform": list(UPRIGHT),
            "spatial:registration": registration,
        }
    )
    read = []
    for n in range(len(sizes)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that levels declare no scale
            x = xr.open_dataset(plain.store, engine="xgroup", group=str(n))["x"].values
        read.append(x[1] - x[0])
    assert read == written


@pytest.mark.parametrize("sizes", [(9, 1), (9, 4), (16, 3)])
def test_nodes_whose_sizes_leave_the_step_open_are_not_placed(sizes):
    with pytest.raises(FormatError, match="does not give its pixel size"):
        write_conventions(levels(sizes), crs=CRS, transform=UPRIGHT, registration="node")


def test_a_labelled_level_places_the_coarser_ones_after_it():
    tree = xr.DataTree.from_dict({"/0": bare(12, 12), "/1": bare(4, 4), "/2": bare(2, 2)})
    labels = {"x": 5 + 25.0 * np.arange(4), "y": 95 - 25.0 * np.arange(4)}
    tree["1"] = xr.DataTree(bare(4, 4).assign_coords(labels))
    made_ = write_conventions(tree, crs=CRS, transform=(10, 0, 0, 0, -10, 100), registration="node")
    assert [item["spatial:transform"][0] for item in made_.attrs["multiscales"]["layout"]] == [10, 25, 50]
