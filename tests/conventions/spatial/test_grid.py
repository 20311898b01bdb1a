"""spatial: exact coordinates by registration, inheritance to direct children, and findings for what is odd."""

import numpy as np
import pytest
from affine import Affine as Matrix

UTM = [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0]


def place(store, **attributes):
    return store.array(
        "/a",
        ("y", "x"),
        (4, 5),
        "spatial",
        **{"spatial__dimensions": ["y", "x"], "spatial__transform": UTM, **attributes},
    )


def values(meaning, name):
    return {c.name: c for c in meaning.coords}[name].values.values()


def centres(transform, shape, registration):
    """Coordinates by another library."""
    matrix = Matrix(*transform)
    shift = 0.5 if registration == "pixel" else 0.0
    rows, cols = np.indices(shape)
    points = [matrix @ (c + shift, r + shift) for r, c in zip(rows.ravel(), cols.ravel(), strict=True)]
    return np.array([p[0] for p in points]).reshape(shape), np.array([p[1] for p in points]).reshape(shape)


def test_pixels_have_their_coordinates_at_their_centres(store, codes):
    place(store)
    meaning = store.read("/a")
    assert values(meaning, "x").tolist() == [500005, 500015, 500025, 500035, 500045]
    assert values(meaning, "y").tolist() == [4999995, 4999985, 4999975, 4999965]
    assert meaning.principal == ("spatial",)
    assert meaning.grid.bbox == (500000, 4999960, 500050, 5000000)
    assert codes(meaning, all=True) == []


def test_nodes_have_theirs_exactly_where_the_transform_says(store):
    third = [1 / 3, 0.0, -10.0, 0.0, -1 / 3, 50.0]
    place(store, spatial__transform=third, spatial__registration="node")
    meaning = store.read("/a")
    assert values(meaning, "x").tolist() == [-10.0 + i / 3 for i in range(5)]
    assert values(meaning, "y")[0] == 50.0
    assert meaning.grid.bbox == pytest.approx((-10 - 1 / 6, 49 - 1 / 6, -10 + 4 / 3 + 1 / 6, 50 + 1 / 6))


@pytest.mark.parametrize("registration", ["pixel", "node"])
def test_a_turned_grid_has_two_coordinates_over_both_dimensions(store, registration):
    turned = [8.0, -3.0, 500000.0, -3.0, -8.0, 5000000.0]
    place(store, spatial__transform=turned, spatial__registration=registration)
    meaning = store.read("/a")
    assert [(c.name, c.dims, c.role) for c in meaning.coords] == [
        ("yc", ("y", "x"), "auxiliary"),
        ("xc", ("y", "x"), "auxiliary"),
    ]
    x, y = centres(turned, (4, 5), registration)
    np.testing.assert_array_equal(values(meaning, "xc"), x)
    np.testing.assert_array_equal(values(meaning, "yc"), y)


def test_dimensions_may_come_in_any_order_and_among_others(store):
    store.array(
        "/a", ("time", "lon", "lat"), (2, 5, 4), "spatial", spatial__dimensions=["lat", "lon"], spatial__transform=UTM
    )
    meaning = store.read("/a")
    assert (meaning.grid.dims, meaning.grid.shape) == (("lat", "lon"), (4, 5))
    assert values(meaning, "lon")[0] == 500005
    assert values(meaning, "lat").shape == (4,)


def test_the_order_of_dimensions_decides_and_no_coordinate_x_has_values_of_y(store, codes):
    place(store, spatial__dimensions=["x", "y"])
    meaning = store.read("/a")
    assert [(c.name, c.dims) for c in meaning.coords] == [("yc", ("y", "x")), ("xc", ("y", "x"))]
    assert values(meaning, "xc").tolist() == [[500005 + 10 * row] * 5 for row in range(4)]
    assert values(meaning, "yc").tolist() == [[4999995 - 10 * column for column in range(5)]] * 4
    assert meaning.grid.bbox == (500000, 4999950, 500040, 5000000)
    assert codes(meaning) == ["spatial.dimensions-order"]


def test_an_order_that_the_transform_confirms_is_no_finding(store, codes):
    place(store, spatial__dimensions=["x", "y"], spatial__transform=[0.0, 10.0, 500000.0, -10.0, 0.0, 5000000.0])
    meaning = store.read("/a")
    assert values(meaning, "x").tolist() == [500005, 500015, 500025, 500035, 500045]
    assert values(meaning, "y").tolist() == [4999995, 4999985, 4999975, 4999965]
    assert codes(meaning, all=True) == []


def test_a_group_lends_its_grid_to_direct_children_only(store, codes):
    store.group("/", "spatial", spatial__dimensions=["y", "x"], spatial__transform=UTM)
    store.array("/a", ("y", "x"), (4, 5))
    store.array("/time", ("time",), (2,))
    store.array("/label", ("n",), (2,))
    store.array("/sub/a", ("y", "x"), (4, 5))
    assert values(store.read("/a"), "x")[0] == 500005
    assert codes(store.read("/a")) == codes(store.read("/time")) == codes(store.read("/label")) == []
    assert store.read("/sub/a").coords == ()
    assert codes(store.read("/sub/a")) == ["principal.none"]


def test_a_lenient_reading_lends_it_further_with_a_note(store, codes):
    store.group("/", "spatial proj", spatial__dimensions=["y", "x"], spatial__transform=UTM, proj__code="EPSG:32633")
    store.array("/sub/a", ("y", "x"), (4, 5))
    meaning = store.read("/sub/a", strict=False)
    assert values(meaning, "x")[0] == 500005
    assert meaning.crs.code == "EPSG:32633"
    assert codes(meaning) == ["spatial.grandchild", "proj.grandchild"]


def test_an_array_overrides_single_keys_of_its_group(store, codes):
    store.group("/", "spatial", spatial__dimensions=["y", "x"], spatial__transform=UTM, spatial__registration="node")
    store.array("/a", ("y", "x"), (4, 5), "spatial", spatial__transform=[20.0, 0, 0, 0, -20, 0])
    store.array("/b", ("y", "x"), (4, 5), spatial__registration="pixel")
    assert values(store.read("/a"), "x").tolist() == [0, 20, 40, 60, 80]
    assert values(store.read("/b"), "x")[0] == 500005
    assert codes(store.read("/b"), all=True) == ["spatial.by-group"]


def test_an_inherited_grid_of_another_shape_is_ignored(store, codes):
    store.group("/", "spatial", spatial__dimensions=["y", "x"], spatial__transform=UTM, spatial__shape=[8, 10])
    store.array("/a", ("y", "x"), (4, 5))
    meaning = store.read("/a")
    assert (meaning.grid, codes(meaning)) == (None, ["spatial.shape-inherited"])


def test_without_declaration_nothing_is_read_unless_asked(store, codes):
    store.array("/a", ("y", "x"), (4, 5), spatial__dimensions=["y", "x"], spatial__transform=UTM)
    strict, lenient = store.read("/a"), store.read("/a", strict=False)
    assert strict.coords == ()
    assert codes(strict) == ["spatial.undeclared", "principal.none"]
    assert values(lenient, "x")[0] == 500005
    assert codes(lenient) == ["spatial.undeclared"]


def test_the_box_gives_a_transform_where_there_is_none(store, codes):
    box = [500000.0, 4999960.0, 500050.0, 5000000.0]
    store.array("/a", ("y", "x"), (4, 5), "spatial", spatial__dimensions=["y", "x"], spatial__bbox=box)
    meaning = store.read("/a")
    assert meaning.grid.transform == tuple(UTM)
    assert codes(meaning) == ["spatial.transform-from-bbox"]
    node = store.array(
        "/b",
        ("y", "x"),
        (5, 6),
        "spatial",
        spatial__dimensions=["y", "x"],
        spatial__bbox=box,
        spatial__registration="node",
    )
    assert store.read(node.path).grid.transform == tuple(UTM)


def test_a_box_across_the_antimeridian_gives_one_too(store):
    box = [170.0, -10.0, -170.0, 10.0]
    store.array("/a", ("lat", "lon"), (4, 5), "spatial", spatial__dimensions=["lat", "lon"], spatial__bbox=box)
    assert store.read("/a").grid.transform == (4.0, 0.0, 170.0, 0.0, -5.0, 10.0)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"spatial__bbox": [500005.0, 4999965.0, 500045.0, 4999995.0]}, "spatial.bbox-half-pixel"),
        ({"spatial__bbox": [500000.0, 4999900.0, 500050.0, 5000000.0]}, "spatial.bbox-differs"),
        ({"spatial__bbox": [0, 1, 2]}, "spatial.bbox"),
        ({"spatial__shape": [5, 4]}, "spatial.shape-mismatch"),
        ({"spatial__shape": ["4", 5]}, "spatial.shape"),
        ({"spatial__registration": "corner"}, "spatial.registration"),
        ({"spatial__dimensions": ["x", "y"]}, "spatial.dimensions-order"),
        ({"spatial__transform": [500000.0, 10.0, 0.0, 5000000.0, 0.0, -10.0]}, "spatial.transform-order"),
    ],
)
def test_what_is_odd_is_reported_and_the_grid_stays(store, codes, attributes, code):
    place(store, **attributes)
    meaning = store.read("/a")
    assert codes(meaning) == [code]
    assert meaning.grid is not None


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"spatial__transform_type": "rpc"}, "spatial.transform-type"),
        ({"spatial__transform": [1, 2, 3]}, "spatial.transform"),
        ({"spatial__transform": [10, 0, "0", 0, -10, 0]}, "spatial.transform"),
        ({"spatial__transform": [float("nan"), 0, 0, 0, -10, 0]}, "spatial.transform"),
        ({"spatial__transform": [0, 0, 0, 0, 0, 0]}, "spatial.transform-flat"),
        ({"spatial__transform": [1e200, 0, 0, 0, 1e200, 0]}, "spatial.transform-flat"),
        ({"spatial__dimensions": ["lat", "lon"]}, "spatial.dimensions-unknown"),
        ({"spatial__dimensions": ["y", "y"]}, "spatial.dimensions-unknown"),
        ({"spatial__dimensions": "yx"}, "spatial.dimensions-malformed"),
    ],
)
def test_what_cannot_be_understood_gives_no_grid_and_never_an_exception(store, codes, attributes, code):
    place(store, **attributes)
    meaning = store.read("/a")
    assert (meaning.grid, meaning.coords, codes(meaning)) == (None, (), [code])


def test_a_small_rounding_of_the_box_is_no_finding(store, codes):
    store.array(
        "/a",
        ("y", "x"),
        (18000, 36000),
        "spatial",
        spatial__dimensions=["y", "x"],
        spatial__transform=[0.0100000003, 0, -180, 0, -0.0100000003, 90],
        spatial__bbox=[-180, -90, 180, 90],
    )
    assert codes(store.read("/a")) == []


def test_a_box_with_turned_sides_agrees_with_a_transform_across_the_antimeridian(store, codes):
    place(store, spatial__transform=[4.0, 0, 170, 0, -5, 10], spatial__bbox=[170, -10, -170, 10])
    assert codes(store.read("/a")) == []


def test_older_forms_are_read_with_a_mild_finding(store, codes):
    place(store, spatial__transform=[*UTM, 0, 0, 1], spatial__dimensions=["z", "y", "x"])
    meaning = store.read("/a")
    assert meaning.grid.transform == tuple(UTM)
    assert codes(meaning, all=True) == ["spatial.dimensions-many", "spatial.transform-matrix"]
    store.array(
        "/b",
        ("y", "x"),
        (4, 5),
        "proj",
        proj__code="EPSG:32633",
        proj__transform=UTM,
        proj__spatial_dimensions=["y", "x"],
    )
    old = store.read("/b")
    assert old.grid.transform == tuple(UTM)
    assert codes(old, all=True) == ["proj.old-keys", "proj.code-only"]


def test_dimensions_that_are_not_declared_are_taken_from_plain_names(store, codes):
    store.array("/a", ("lat", "lon"), (4, 5), "spatial", spatial__transform=UTM)
    assert (store.read("/a").grid.dims, codes(store.read("/a"))) == (("lat", "lon"), ["spatial.dimensions-missing"])
    store.array("/b", ("rows", "cols"), (4, 5), "spatial", spatial__transform=UTM)
    assert (store.read("/b").grid, codes(store.read("/b"))) == (None, ["spatial.dimensions-missing"])


def test_names_of_dimensions_that_do_not_fit_the_shape_are_ignored(store, codes):
    store.array("/a", ("y", "x", "z"), (4, 5), "spatial", spatial__dimensions=["y", "x"], spatial__transform=UTM)
    meaning = store.read("/a")
    assert meaning.grid is None
    assert codes(meaning) == ["node.dimension-names", "spatial.dimensions-unknown"]


def test_the_words_of_the_axes_are_those_of_the_crs(store, coord):
    place(store, proj__wkt2="EPSG:4326")
    place(store)
    store.array(
        "/g",
        ("lat", "lon"),
        (4, 5),
        "spatial proj",
        spatial__dimensions=["lat", "lon"],
        spatial__transform=UTM,
        proj__code="EPSG:4326",
    )
    meaning = store.read("/g")
    assert coord(meaning, "lon").attributes["standard_name"] == "longitude"
    assert coord(meaning, "lat").attributes == {
        "axis": "Y",
        "standard_name": "latitude",
        "units": "degrees_north",
        "long_name": "latitude coordinate",
    }
    assert coord(store.read("/a"), "x").attributes == {"axis": "X"}


@pytest.mark.parametrize(
    ("box", "code"),
    [
        ([500005.0, 4999965.0, 500045.0, 4999995.0], ["spatial.bbox-half-pixel"]),
        ([500000.0, 4999960.0, 500050.0, 5000000.0], []),
        ([0.0, 0.0, 1.0, 1.0], ["spatial.bbox-differs"]),
    ],
)
def test_the_box_of_a_group_is_compared_with_its_grid_or_its_pyramid(store, codes, box, code):
    place = {"spatial__dimensions": ["y", "x"], "spatial__bbox": box}
    store.group("/g", "spatial", **place, spatial__transform=UTM, spatial__shape=[4, 5])
    assert codes(store.read("/g")) == code
    layout = [{"asset": "0", "spatial:transform": UTM}]
    store.group("/p", "spatial multiscales", **place, multiscales={"layout": layout})
    store.array("/p/0/b", ("y", "x"), (4, 5))
    assert codes(store.read("/p")) == code
    assert codes(store.read("/p/0/b")) == []


def test_the_footprint_of_a_group_is_no_grid_of_its_arrays(store, codes):
    store.group("/", "spatial", spatial__bbox=[0, 0, 100, 100])
    store.array("/a", ("y", "x"), (4, 5))
    assert (store.read("/a").grid, codes(store.read("/a"), all=True)) == (None, [])
    store.group("/", "spatial", spatial__bbox=[0, 0, 100, 100], spatial__dimensions=["y", "x"])
    assert store.read("/a").grid.transform == (20, 0, 0, 0, -25, 100)
    assert codes(store.read("/a")) == ["spatial.transform-from-bbox"]
