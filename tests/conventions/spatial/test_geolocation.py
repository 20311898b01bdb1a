"""geolocation: arrays of positions, whatever key and wrapping, attached where they fit."""

import pytest


def swath(store, value, dims=("time", "y", "x"), shape=(2, 3, 4), **attributes):
    store.array("/d/v", dims, shape, "geolocation ref", geolocation=value, **attributes)
    return store.read("/d/v")


@pytest.fixture
def positions(store):
    for name in ("lon", "lat"):
        store.array(f"/c/{name}", ("y", "x"), (3, 4))
        store.array(f"/d/{name}", ("y", "x"), (3, 4))
    for name in ("easting", "northing"):
        store.array(f"/c/{name}", ("rows", "cols"), (3, 4), units="km")
    return store


@pytest.mark.parametrize("wrap", [lambda path: {"node": path}, lambda path: {"ref": {"node": path}}])
@pytest.mark.parametrize("key", ["crs", "id"])
def test_both_wrappings_and_both_keys_of_the_crs_are_read(positions, coord, wrap, key):
    meaning = swath(
        positions, {"geodetic": {"x": wrap("/c/lon"), "y": wrap("/c/lat"), key: {"proj:code": "EPSG:4326"}}}
    )
    lon = coord(meaning, "lon" if not {"lon"} & set(positions.nodes["/d"].members) else "c_lon")
    assert (lon.dims, lon.role, lon.values.reference.path) == (("y", "x"), "geolocation", "/c/lon")
    words = {"standard_name": "longitude", "units": "degrees_east", "geolocation_role": "geodetic_longitude"}
    assert dict(lon.attributes) == words
    assert meaning.crs.code == "EPSG:4326"


def test_arrays_of_the_same_group_by_bare_name_or_by_path(positions, coord, codes):
    meaning = swath(positions, {"geodetic": {"x": {"node": "lon"}, "y": {"node": "../lat"}}})
    assert [c.values.reference.path for c in meaning.coords] == ["/d/lon", "/d/lat"]
    assert [c.name for c in meaning.coords] == ["lon", "lat"]
    assert codes(meaning) == ["principal.none"]


def test_geodetic_and_planar_stand_side_by_side_and_fit_by_size(positions, coord):
    value = {
        "geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}, "crs": {"proj:code": "EPSG:4326"}},
        "planar": {"x": {"node": "/c/easting"}, "y": {"node": "/c/northing"}, "crs": {"proj:code": "EPSG:25828"}},
    }
    meaning = swath(positions, value)
    assert [c.name for c in meaning.coords] == ["lon", "lat", "easting", "northing"]
    assert coord(meaning, "easting").dims == ("y", "x")
    words = {"standard_name": "projection_x_coordinate", "geolocation_role": "planar_easting"}
    assert dict(coord(meaning, "easting").attributes) == words
    assert meaning.crs.code == "EPSG:4326"


def test_arrays_that_do_not_fit_are_reported(positions, codes):
    meaning = swath(positions, {"geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}}}, ("y", "x"), (5, 6))
    assert meaning.coords == ()
    assert codes(meaning) == ["geolocation.shape", "geolocation.shape", "principal.none"]


def test_a_group_lends_them_to_those_arrays_they_fit(positions, codes):
    positions.group("/d", "geolocation", geolocation={"geodetic": {"x": {"node": "lon"}, "y": {"node": "lat"}}})
    positions.array("/d/v", ("y", "x"), (3, 4))
    positions.array("/d/other", ("z",), (7,))
    assert [c.name for c in positions.read("/d/v").coords] == ["lon", "lat"]
    assert positions.read("/d/other").coords == ()
    assert codes(positions.read("/d/other")) == ["principal.none"]


@pytest.mark.parametrize("value", [3, {}, {"geodetic": 3}, {"geodetic": {"x": {"node": "../lon"}}}, {"polar": {}}])
def test_malformed_objects_are_reported(positions, codes, value):
    meaning = swath(positions, value)
    assert meaning.coords == ()
    assert codes(meaning)[0] == "geolocation.malformed"


def test_one_missing_array_leaves_the_other(positions, codes):
    meaning = swath(positions, {"geodetic": {"x": {"node": "../none"}, "y": {"node": "../lat"}}})
    assert [c.name for c in meaning.coords] == ["lat"]
    assert codes(meaning) == ["ref.missing", "principal.none"]


GEODETIC = {"geodetic": {"x": {"node": "/c/lon"}, "y": {"node": "/c/lat"}, "crs": {"proj:code": "EPSG:4326"}}}


def axis_of(values):
    return {"coordinates": [{"unit": "degrees", "direction": "east", "values": {"regular": values}}]}


def test_the_crs_of_positions_is_not_that_of_a_grid_by_cs(positions, coord):
    rotated = {"crs": [{"axes": {"y": axis_of([-10.0, 0.5]), "x": axis_of([0, 1])}, "geolocation": GEODETIC}]}
    positions.array("/d/v", ("y", "x"), (3, 4), "cs geolocation ref", cs=rotated)
    meaning = positions.read("/d/v")
    assert coord(meaning, "c_lon").role == "geolocation"
    assert meaning.crs is None


def test_the_crs_of_positions_is_not_that_of_an_affine_grid_or_of_stored_labels(positions):
    place = {"spatial__dimensions": ["y", "x"], "spatial__transform": [2.0, 0.5, 0, 0.5, -2.0, 0]}
    positions.array("/d/v", ("y", "x"), (3, 4), "geolocation ref spatial", geolocation=GEODETIC, **place)
    assert positions.read("/d/v").crs is None
    positions.array("/d/w", ("y", "x"), (3, 4), "geolocation ref proj", geolocation=GEODETIC, proj__code="EPSG:3995")
    assert positions.read("/d/w").crs.code == "EPSG:3995"
    assert swath(positions, GEODETIC).crs.code == "EPSG:4326"
    positions.array("/d/x", ("x",), (4,))
    assert swath(positions, GEODETIC).crs is None


def test_a_swath_whose_axes_only_count_has_the_crs_of_its_positions(positions):
    counted = {"crs": [{"axes": {"y": {}, "x": {}}, "geolocation": GEODETIC}]}
    positions.array("/d/v", ("y", "x"), (3, 4), "cs geolocation ref", cs=counted)
    assert positions.read("/d/v").crs.code == "EPSG:4326"
