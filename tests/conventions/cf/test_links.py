"""CF: names and paths of other variables, found across groups by CF's own rules and rewritten to flat names."""

import pyproj
import pytest

from periplus.conventions.cf.links import split


@pytest.fixture
def ocean(store):
    """A hierarchy like that of an ocean model, all references across groups."""
    store.group("/", Conventions="CF-1.11")
    terms = "s: /grid/s_rho  C: /grid/Cs_r  eta: /ocean/zeta  h: /grid/h"
    store.array("/grid/s_rho", ("s_rho",), (5,), formula_terms=terms)
    store.array("/grid/Cs_r", ("s_rho",), (5,))
    store.array("/grid/h", ("eta", "xi"), (8, 10))
    store.array("/grid/lon", ("eta", "xi"), (8, 10))
    store.array("/grid/mask", ("eta", "xi"), (8, 10))
    store.array("/time/ocean_time", ("time",), (3,), bounds="ocean_time_bnds")
    store.array("/time/ocean_time_bnds", ("time", "nv"), (3, 2))
    store.array("/ocean/zeta", ("time", "eta", "xi"), (3, 8, 10))
    store.array(
        "/ocean/temp",
        ("time", "s_rho", "eta", "xi"),
        (3, 5, 8, 10),
        coordinates="/time/ocean_time /grid/s_rho ../grid/lon",
        ancillary_variables="/grid/mask",
    )
    return store


def test_paths_become_coordinates_with_flat_names(ocean, codes, coord):
    meaning = ocean.read("/ocean/temp")
    assert meaning.attributes == {"coordinates": "ocean_time s_rho lon", "ancillary_variables": "mask"}
    assert {c.name: (c.role, c.values.reference.path) for c in meaning.coords} == {
        "ocean_time": ("auxiliary", "/time/ocean_time"),
        "ocean_time_bnds": ("bounds", "/time/ocean_time_bnds"),
        "s_rho": ("axis", "/grid/s_rho"),
        "Cs_r": ("term", "/grid/Cs_r"),
        "zeta": ("term", "/ocean/zeta"),
        "h": ("term", "/grid/h"),
        "lon": ("auxiliary", "/grid/lon"),
        "mask": ("ancillary", "/grid/mask"),
    }
    assert coord(meaning, "s_rho").attributes["formula_terms"] == "s: s_rho C: Cs_r eta: zeta h: h"
    assert coord(meaning, "lon").dims == ("eta", "xi")
    assert codes(meaning) == ["principal.none"]


def test_a_missing_name_is_reported_and_the_others_stay(store, codes):
    store.array("/a", ("x",), (3,), coordinates="/lon /none ../up")
    store.array("/lon", ("x",), (3,))
    meaning = store.read("/a")
    assert meaning.attributes == {"coordinates": "lon"}
    assert [(d.code, d.attribute) for d in meaning.diagnostics][:2] == [
        ("ref.missing", "coordinates"),
        ("ref.path", "coordinates"),
    ]


def test_a_bare_name_is_looked_for_in_the_group_then_around_it(store):
    store.array("/lon", ("x",), (3,))
    store.array("/g/h/a", ("x",), (3,), coordinates="lon")
    assert store.read("/g/h/a").coords[0].values.reference.path == "/lon"
    store.array("/g/lon", ("x",), (3,))
    assert store.read("/g/h/a").coords[0].values.reference.path == "/g/lon"
    store.array("/g/h/lon", ("x",), (3,))
    assert store.read("/g/h/a").coords[0].values.reference.path == "/g/h/lon"


def test_a_coordinate_variable_is_found_laterally_nearest_first_if_the_store_is_cf(store, codes):
    store.array("/g/a", ("time",), (3,), coordinates="time")
    store.array("/far/deep/time", ("time",), (3,))
    assert "ref.missing" in codes(store.read("/g/a"))
    store.group("/", Conventions="CF-1.10, ACDD-1.3")
    assert store.read("/g/a").coords[0].values.reference.path == "/far/deep/time"
    assert "cf.lateral" in codes(store.read("/g/a"), all=True)
    store.array("/z/time", ("time",), (3,))
    assert store.read("/g/a").coords[0].values.reference.path == "/z/time"
    store.array("/g/sub/sub/time", ("time",), (3,))
    assert store.read("/g/a").coords[0].values.reference.path == "/g/sub/sub/time"


def test_dimensions_get_the_coordinate_variables_of_groups_around(store, coord):
    store.group("/", "CF")
    store.array("/time", ("time",), (3,), bounds="time_bnds")
    store.array("/time_bnds", ("time", "nv"), (3, 2))
    store.array("/lat", ("lat",), (9,))
    store.array("/g/a", ("time", "lat"), (3, 4))
    meaning = store.read("/g/a")
    assert coord(meaning, "time").values.reference.path == "/time"
    assert coord(meaning, "time_bnds").role == "bounds"
    assert "lat" not in {c.name for c in meaning.coords}


def test_names_that_are_taken_get_their_folders_before_them(store):
    store.array("/g/lon", ("x",), (3,))
    store.array("/grid/lon", ("x",), (3,))
    store.array("/other/grid/lon", ("x",), (3,))
    store.array("/g/a", ("x",), (3,), coordinates="lon /grid/lon /other/grid/lon")
    assert store.read("/g/a").attributes["coordinates"] == "lon grid_lon other_grid_lon"


def test_a_variable_over_two_dimensions_never_takes_the_name_of_one(store):
    store.array("/grid/lat", ("lat", "lon"), (3, 4))
    store.array("/a", ("lat", "lon"), (3, 4), coordinates="/grid/lat")
    assert store.read("/a").attributes["coordinates"] == "grid_lat"


@pytest.mark.parametrize("text", ["crs", "/crs", "crs: x y", "crs: x y other: lat lon"])
def test_grid_mappings_in_both_forms_give_the_crs(store, codes, text):
    wkt = pyproj.CRS("EPSG:32632").to_wkt()
    store.array("/crs", attributes=None, crs_wkt=wkt, grid_mapping_name="transverse_mercator")
    store.array("/other", grid_mapping_name="latitude_longitude")
    for name in ("x", "y", "lat", "lon"):
        store.array(f"/{name}", ("y", "x"), (4, 5))
    store.array("/a", ("y", "x"), (4, 5), grid_mapping=text)
    meaning = store.read("/a")
    assert pyproj.CRS(meaning.crs.text) == pyproj.CRS("EPSG:32632")
    assert (meaning.crs.form, meaning.crs.origin) == ("cf", "/crs")
    assert next(c for c in meaning.coords if c.name == "crs").role == "grid_mapping"


def test_the_parameters_of_a_grid_mapping_are_enough_and_nonsense_is_reported(store, codes):
    parameters = pyproj.CRS("+proj=laea +lat_0=51 +lon_0=9 +ellps=WGS84").to_cf()
    parameters.pop("crs_wkt")
    store.array("/crs", **parameters)
    store.array("/a", ("y", "x"), (4, 5), grid_mapping="crs")
    operation = pyproj.CRS(store.read("/a").crs.text).coordinate_operation
    assert operation.method_name == "Lambert Azimuthal Equal Area"
    store.array("/crs", grid_mapping_name="wishful_thinking")
    assert store.read("/a").crs is None
    assert "cf.grid-mapping" in codes(store.read("/a"))


def test_proj_wins_over_a_grid_mapping(store):
    store.array("/crs", crs_wkt=pyproj.CRS("EPSG:32632").to_wkt())
    store.array("/a", ("y", "x"), (4, 5), "proj", grid_mapping="crs", proj__code="EPSG:32632")
    assert store.read("/a").crs.form == "code"


def test_measures_in_other_files_are_no_finding(store, codes):
    store.group("/", external_variables="area")
    store.array("/a", ("x",), (3,), cell_measures="area: area volume: vol")
    store.array("/vol", ("x",), (3,))
    meaning = store.read("/a")
    assert [c.name for c in meaning.coords] == ["vol"]
    assert codes(meaning) == ["principal.none"]


def test_dimensions_of_another_size_are_reported(store, codes):
    store.array("/grid/lon", ("x",), (7,))
    store.array("/a", ("x",), (3,), coordinates="/grid/lon")
    assert store.read("/a").coords == ()
    assert codes(store.read("/a")) == ["cf.dims", "principal.none"]


def test_what_a_principal_convention_gives_is_not_given_twice(store, codes):
    store.array("/lat", ("lat",), (4,))
    store.array(
        "/a",
        ("lat", "lon"),
        (4, 5),
        "CF spatial",
        coordinates="lat lon",
        spatial__dimensions=["lat", "lon"],
        spatial__transform=[0.25, 0, -180, 0, -0.25, 90],
    )
    meaning = store.read("/a")
    assert [c.name for c in meaning.coords] == ["lat", "lon"]
    assert codes(meaning) == []


def test_words_of_attributes():
    assert split("coordinates", " a  b ") == ["a", "b"]
    assert split("formula_terms", "a:x b: y") == ["a:", "x", "b:", "y"]
    assert split("grid_mapping", "crs: x y") == ["crs:", "x", "y"]


@pytest.mark.parametrize("value", [3, None, {}, [1], "", "..", ".", "a\\b", "/", "//", "x " * 300])
def test_odd_attributes_never_raise(store, value):
    store.array("/a", ("x",), (3,), **dict.fromkeys(("coordinates", "bounds", "grid_mapping", "formula_terms"), value))
    store.read("/a")


def test_a_list_of_names_is_read_with_a_mild_finding(store, codes):
    store.array("/g/lon", ("x",), (3,))
    store.array("/a", ("x",), (3,), coordinates=["/g/lon"])
    assert store.read("/a").attributes == {"coordinates": "lon"}
    assert "cf.list" in codes(store.read("/a"), all=True)
