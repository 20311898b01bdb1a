"""cs: regular, explicit, external, ordinal, scalar, temporal and parametric axes, in every encoding of the wild."""

import cftime
import numpy as np
import pytest

from periplus.conventions.meaning import Explicit, External, Regular, Shifted


def axes(store, axes_, dims=("lat",), shape=(3,), path="/g/v", **crs):
    store.array(path, dims, shape, "cs ref uom", cs={"crs": [{"axes": axes_, **crs}]})
    return store.read(path)


def lat(**changes):
    return {"direction": "north", "unit": "degrees", "values": {"regular": [-89.5, 1]}, **changes}


def one(coordinates, **axis):
    return {"lat": {"abbreviation": "Y", "coordinates": [coordinates], **axis}}


def test_regular_values_have_an_exact_start_and_step(store, codes, coord):
    meaning = axes(store, one(lat()))
    assert coord(meaning, "lat").values == Regular(-89.5, 1, 3)
    assert coord(meaning, "lat").values.values().tolist() == [-89.5, -88.5, -87.5]
    assert dict(coord(meaning, "lat").attributes) == {"axis": "Y", "units": "degrees", "direction": "north"}
    assert (meaning.principal, codes(meaning, all=True)) == (("cs",), [])


def test_explicit_values_are_numbers_or_texts(store, coord):
    assert coord(axes(store, one(lat(values={"explicit": [1, 2.5, 4]}))), "lat").values == Explicit((1, 2.5, 4))
    texts = axes(store, {"lat": {"coordinates": [{"values": {"explicit": ["a", "b", "c"]}}]}})
    assert coord(texts, "lat").values.values().tolist() == ["a", "b", "c"]


def test_an_axis_without_coordinates_counts_from_zero(store, codes, coord):
    meaning = axes(store, {"lat": {}})
    assert coord(meaning, "lat").values.values().tolist() == [0, 1, 2]
    assert coord(meaning, "lat").values.values().dtype.kind == "i"
    assert codes(meaning) == []


def test_an_axis_that_is_no_dimension_is_a_scalar(store, codes, coord):
    both = one(lat()) | {
        "height": {"abbreviation": "Z", "coordinates": [{"direction": "up", "unit": "m", "values": {"explicit": [2]}}]}
    }
    meaning = axes(store, both)
    height = coord(meaning, "height")
    assert (height.dims, height.role, height.values) == ((), "scalar", Explicit((2,)))
    assert dict(height.attributes) == {"axis": "Z", "units": "m", "direction": "up", "positive": "up"}
    assert codes(meaning) == []
    store.array("/g/h", ("n",), (1,))
    outside = one(lat()) | {"height": {"coordinates": [{"values": {"external": {"ref": {"node": "../h"}}}}]}}
    assert coord(axes(store, outside), "height").values.shape == (1,)
    assert codes(axes(store, one(lat()) | {"height": {"coordinates": [lat(values={"explicit": [1, 2]})]}})) == [
        "cs.length"
    ]
    assert codes(axes(store, one(lat()) | {"height": {}})) == ["cs.axis-unknown"]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"external": {"ref": {"node": "../time"}}}, None),
        ({"external": {"node": "../time"}}, "cs.external-bare"),
        ({"ref": {"external": {"node": "../time"}}}, "cs.external-swapped"),
        ({"ref": {"node": "../time"}}, "cs.external-swapped"),
        ({"external": {"ref": {"node": "time"}}}, "ref.base"),
        ({"external": {"ref": {"node": "/g/time"}}}, None),
    ],
)
def test_external_values_in_every_wrapping(store, codes, coord, values, code):
    store.array("/g/time", ("time",), (3,))
    meaning = axes(store, one(lat(values=values)))
    found = coord(meaning, "lat").values
    assert isinstance(found, External)
    assert (found.reference.path, found.dims) == ("/g/time", ("lat",))
    assert codes(meaning, all=True) == ([] if code is None else [code])


@pytest.mark.parametrize(
    "form",
    [
        {"lat": {"abbreviation": "Y", "coordinates": [lat()]}},
        [{"name": "lat", "abbreviation": "Y", "coordinates": [lat()]}],
        [{"name": "lat", "abbreviation": "Y", "direction": "north", "coordinates": [lat(direction=None)]}],
        {"lat": {"abbreviation": "Y", "coordinates": lat()}},
    ],
)
def test_axes_by_name_or_in_a_list_mean_the_same(store, codes, coord, form):
    meaning = axes(store, form)
    assert coord(meaning, "lat").values == Regular(-89.5, 1, 3)
    assert dict(coord(meaning, "lat").attributes) == {"axis": "Y", "units": "degrees", "direction": "north"}
    assert codes(meaning) == []


@pytest.mark.parametrize("wrap", [lambda ref: {"ref": ref}, lambda ref: ref])
def test_a_crs_shared_by_a_group_is_found_and_its_paths_count_from_the_user(store, codes, coord, wrap):
    time = {
        "time": {"reference": "days since 1900-01-01", "calendar": "standard"},
        "values": {"external": {"node": "time"}},
    }
    store.group(
        "/", "cs ref", crs={"calendar": {"axes": [{"name": "time", "abbreviation": "T", "coordinates": [time]}]}}
    )
    store.array("/g/time", ("time",), (3,))
    store.array("/time", ("time",), (4,))
    ref = wrap({"node": "/", "attribute": "/attributes/crs/calendar"})
    store.array("/g/v", ("time",), (3,), "cs ref", cs={"crs": [ref]})
    meaning = store.read("/g/v")
    assert coord(meaning, "time").values.reference.path == "/g/time"
    assert dict(coord(meaning, "time").attributes) == {
        "axis": "T",
        "units": "days since 1900-01-01",
        "calendar": "standard",
    }
    assert codes(meaning) == ["ref.ambiguous"]


def test_a_reference_without_a_pointer_takes_the_only_crs(store, codes, coord):
    store.group("/", "cs", crs={"one": {"axes": one(lat())}})
    store.array("/v", ("lat",), (3,), "cs ref", cs={"crs": [{"ref": {"node": "/"}}]})
    assert coord(store.read("/v"), "lat").values == Regular(-89.5, 1, 3)
    assert codes(store.read("/v")) == ["cs.ref-pointer"]


def test_boundaries_are_offsets_added_to_the_coordinate(store, coord):
    meaning = axes(store, one(lat(boundaries={"regular": [-0.5, 0.5]})))
    bounds = coord(meaning, "lat_bounds")
    assert (bounds.dims, bounds.role, bounds.values) == (
        ("lat", "bnds"),
        "bounds",
        Shifted(Regular(-89.5, 1, 3), -0.5, 0.5),
    )
    assert bounds.values.values().tolist() == [[-90, -89], [-89, -88], [-88, -87]]
    assert coord(meaning, "lat").attributes["bounds"] == "lat_bounds"


def test_boundaries_may_lie_in_another_array_of_either_order(store, codes, coord):
    store.array("/g/b", ("bnds", "lat"), (2, 3))
    meaning = axes(store, one(lat(boundaries={"external": {"ref": {"node": "../b"}}})))
    assert (coord(meaning, "b").values.transpose, coord(meaning, "b").dims) == (True, ("lat", "bnds"))
    store.array("/g/b", ("lat", "bnds"), (3, 2))
    turned = axes(store, one(lat(boundaries={"external": {"ref": {"node": "../b"}}})))
    assert coord(turned, "b").values.transpose is False
    assert codes(turned, all=True) == ["cs.bounds-order"]
    store.array("/g/b", ("lat", "bnds"), (3, 4))
    assert codes(axes(store, one(lat(boundaries={"external": {"ref": {"node": "../b"}}})))) == ["cs.bounds"]


def test_square_boundaries_are_recognised_by_names(store, codes, coord):
    ways = {("lat", "bnds"): False, ("bnds", "lat"): True, ("a", "b"): True}
    for dims, transposed in ways.items():
        store.array("/g/b", dims, (2, 2))
        meaning = axes(store, one(lat(boundaries={"external": {"ref": {"node": "../b"}}})), shape=(2,))
        assert coord(meaning, "b").values.transpose is transposed
        assert codes(meaning, all=True) == ["cs.bounds-square"]


def test_offsets_of_external_coordinates_wait_for_their_values(store, coord):
    store.array("/g/t", ("t",), (3,))
    values = {"external": {"ref": {"node": "../t"}}}
    bounds = coord(axes(store, one(lat(values=values, boundaries={"regular": [0, 1]}))), "lat_bounds").values
    assert bounds.values(np.array([1.0, 2, 4])).tolist() == [[1, 2], [2, 3], [4, 5]]
    with pytest.raises(TypeError):
        bounds.values()


@pytest.mark.parametrize(
    ("unit", "text"),
    [("m", "m"), ({"ucum": {"unit": "deg"}}, "deg"), ({"ucum": {}}, "1"), ({"uom": {"ucum": {"unit": "K"}}}, "K")],
)
def test_units_are_texts_or_uom_objects(store, codes, coord, unit, text):
    meaning = axes(store, one(lat(unit=unit)))
    assert coord(meaning, "lat").attributes["units"] == text
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("time", "units", "calendar"),
    [
        ({"unit": "days", "epoch": "1970-01-01"}, "days since 1970-01-01", "standard"),
        ({"unit": "ms", "epoch": "2024-03-15T06:12:00Z"}, "milliseconds since 2024-03-15T06:12:00Z", "standard"),
        ({"reference": "days since 1850-01-01", "calendar": "noleap"}, "days since 1850-01-01", "noleap"),
        ({"unit": "hours", "epoch": "2000-01-01", "calendar": "365_day"}, "hours since 2000-01-01", "noleap"),
        ({"unit": "d", "epoch": "2000-01-01", "calendar": "360_day"}, "days since 2000-01-01", "360_day"),
        ({"unit": "s", "epoch": "2000-01-01", "calendar": "gregorian"}, "seconds since 2000-01-01", "standard"),
        ({"unit": "s", "epoch": "2000-01-01", "calendar": "TAI"}, "seconds since 2000-01-01", "proleptic_gregorian"),
    ],
)
def test_times_become_units_and_calendars_that_cftime_knows(store, coord, time, units, calendar):
    meaning = axes(
        store, {"lat": {"abbreviation": "T", "coordinates": [{"time": time, "values": {"regular": [0, 1]}}]}}
    )
    words = coord(meaning, "lat").attributes
    assert (words["units"], words["calendar"]) == (units, calendar)
    first = cftime.num2date(0, words["units"], words["calendar"])
    assert first.year == int(units.split(" since ")[1][:4])


def test_an_unknown_calendar_leaves_numbers(store, codes, coord):
    time = {"unit": "sols", "epoch": "2000-01-01", "calendar": "darian"}
    meaning = axes(store, {"lat": {"coordinates": [{"time": time, "values": {"regular": [0, 1]}}]}})
    assert coord(meaning, "lat").attributes == {"units": "sols", "epoch": "2000-01-01", "calendar_name": "darian"}
    assert codes(meaning) == ["cs.calendar"]


def test_further_coordinates_of_an_axis_are_auxiliary(store, codes, coord):
    store.array("/g/names", ("lat",), (3,))
    listed = [
        lat(),
        lat(name="index", values={"regular": [0, 1]}),
        {"values": {"external": {"ref": {"node": "../names"}}}},
    ]
    meaning = axes(store, {"lat": {"abbreviation": "Y", "coordinates": listed}})
    assert [(c.name, c.role) for c in meaning.coords] == [
        ("lat", "axis"),
        ("index", "auxiliary"),
        ("names", "auxiliary"),
    ]
    assert "axis" not in coord(meaning, "index").attributes
    assert codes(meaning) == []


def test_a_parametric_axis_brings_its_terms(store, codes, coord):
    store.array("/g/a", ("lev",), (3,))
    store.array("/g/ps", ("time", "y"), (2, 4))
    terms = {
        "a": {"external": {"ref": {"node": "../a"}}},
        "b": {"explicit": [0.0, 0.5, 1.0]},
        "p0": {"explicit": [100000.0]},
        "ps": {"external": {"ref": {"node": "../ps"}}},
    }
    formula = "atmosphere_hybrid_sigma_pressure_coordinate"
    lev = lat(values={"regular": [1, 1]}, direction="down", parametric={"formula": formula, "terms": terms})
    meaning = axes(
        store,
        {"lev": {"abbreviation": "Z", "coordinates": [lev]}, "time": {}, "y": {}},
        ("time", "lev", "y"),
        (2, 3, 4),
    )
    words = coord(meaning, "lev").attributes
    assert (words["standard_name"], words["positive"]) == (formula, "down")
    assert words["formula_terms"] == "a: a b: b p0: p0 ps: ps"
    assert {c.name: c.dims for c in meaning.coords if c.role == "term"} == {
        "a": ("lev",),
        "b": ("lev",),
        "p0": (),
        "ps": ("time", "y"),
    }
    assert codes(meaning) == []


def test_a_missing_term_leaves_the_others(store, codes, coord):
    terms = {"a": {"external": {"ref": {"node": "../none"}}}, "b": {"explicit": [0.0, 0.5, 1.0]}}
    meaning = axes(store, one(lat(parametric={"formula": "https://example.org/f", "terms": terms})))
    assert coord(meaning, "lat").attributes["formula_terms"] == "b: b"
    assert coord(meaning, "lat").attributes["formula"] == "https://example.org/f"
    assert codes(meaning) == ["ref.missing"]


def test_the_crs_is_that_of_its_id_and_the_whole_sets_wins(store):
    store.array("/v", ("lat",), (3,), "cs proj", cs={"crs": [{"axes": one(lat()), "id": {"proj:code": "EPSG:4326"}}]})
    assert store.read("/v").crs.code == "EPSG:4326"
    whole = {"crs": [{"axes": one(lat()), "id": {"proj:code": "EPSG:4326"}}], "id": {"proj:code": "EPSG:4258"}}
    store.array("/v", ("lat",), (3,), "cs proj", cs=whole)
    assert store.read("/v").crs.code == "EPSG:4258"
    vertical = {"crs": [{"type": "vertical", "axes": one(lat()), "id": {"proj:code": "EPSG:5773"}}]}
    store.array("/v", ("lat",), (3,), "cs proj", cs=vertical)
    assert store.read("/v").crs is None


def test_arrays_of_positions_inside_a_crs_are_attached(store, codes, coord):
    store.array("/g/lon", ("rlat", "rlon"), (3, 4))
    store.array("/g/lat", ("rlat", "rlon"), (3, 4))
    inside = {"geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}, "crs": {"proj:code": "EPSG:4326"}}}
    both = {name: {"coordinates": [lat()]} for name in ("rlat", "rlon")}
    meaning = axes(store, both, ("rlat", "rlon"), (3, 4), geolocation=inside)
    assert [(c.name, c.role) for c in meaning.coords] == [
        ("rlat", "axis"),
        ("rlon", "axis"),
        ("lon", "geolocation"),
        ("lat", "geolocation"),
    ]
    assert meaning.crs is None  # EPSG:4326 is the CRS of lon and lat, not of rlon and rlat
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (3, "cs.malformed"),
        ({}, "cs.malformed"),
        ({"crs": [3]}, "cs.malformed"),
        ({"crs": [{}]}, "cs.malformed"),
        ({"crs": [{"axes": {"lat": 3}}]}, "cs.malformed"),
        ({"crs": [{"axes": {"lat": {"coordinates": [3]}}}]}, "cs.malformed"),
        ({"crs": [{"axes": one(lat(values=3))}]}, "cs.values"),
        ({"crs": [{"axes": one(lat(values={}))}]}, "cs.values"),
        ({"crs": [{"axes": one(lat(values={"regular": [0, 0]}))}]}, "cs.regular"),
        ({"crs": [{"axes": one(lat(values={"regular": [0]}))}]}, "cs.regular"),
        ({"crs": [{"axes": one(lat(values={"explicit": [1, "a", 3]}))}]}, "cs.explicit"),
        ({"crs": [{"axes": one(lat(values={"explicit": [1, 2]}))}]}, "cs.length"),
        ({"crs": [{"axes": one(lat(values={"external": {"ref": {"node": "/"}}}))}]}, "ref.kind"),
        ({"crs": [{"axes": one(lat(values={"external": {"ref": {"node": "../../.."}}}))}]}, "ref.path"),
    ],
)
def test_what_is_malformed_is_reported_and_gives_no_coordinate(store, codes, value, code):
    store.array("/g/v", ("lat",), (3,), "cs ref", cs=value)
    meaning = store.read("/g/v")
    assert meaning.coords == ()
    assert code in codes(meaning)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"crs": {"axes": one(lat())}}, "cs.crs-bare"),
        ({"crs": [{"axes": one(lat(values=[1, 2, 3]))}]}, "cs.values-bare"),
        ({"crs": [{"axes": one(lat(values={"regular": [0, 1], "explicit": [1, 2, 3]}))}]}, "cs.values-many"),
        ({"crs": [{"axes": one(lat(), abbreviation="Q")}]}, "cs.abbreviation"),
        ({"crs": [{"axes": one(lat())}, {"axes": one(lat())}]}, "cs.axis-repeated"),
        ({"crs": [{"axes": one(lat(direction=4))}]}, "cs.direction"),
    ],
)
def test_what_is_merely_odd_is_reported_and_read(store, codes, value, code):
    store.array("/g/v", ("lat",), (3,), "cs ref", cs=value)
    meaning = store.read("/g/v")
    assert [c.name for c in meaning.coords] == ["lat"]
    assert codes(meaning) == [code]


def test_dimensions_without_an_axis_are_reported(store, codes):
    store.array("/g/v", ("lat", "lon"), (3, 4), "cs", cs={"crs": [{"axes": one(lat())}]})
    assert codes(store.read("/g/v")) == ["cs.axis-missing"]


def test_cs_and_spatial_compose_and_cs_decides_on_common_axes(store, codes, coord):
    store.array(
        "/v",
        ("time", "lat", "lon"),
        (2, 3, 4),
        "cs spatial",
        cs={"crs": [{"axes": {"time": {}} | one(lat())}]},
        spatial__dimensions=["lat", "lon"],
        spatial__transform=[1.0, 0, 0, 0, -1, 0],
    )
    meaning = store.read("/v")
    assert meaning.principal == ("cs", "spatial")
    assert {c.name: c.convention for c in meaning.coords} == {"time": "cs", "lat": "cs", "lon": "spatial"}
    assert meaning.grid.shape == (3, 4)
    assert codes(meaning, all=True) == ["cs.axis-missing", "principal.both"]


def test_names_are_free_of_those_the_group_has(store, coord):
    store.array("/g/lat_bounds", ("z",), (9,))
    store.array("/g/a", ("z",), (9,))
    store.array("/other/a", ("lat",), (3,))
    terms = {"a": {"external": {"ref": {"node": "/other/a"}}}, "b": {"explicit": [1.0, 2.0, 3.0]}}
    meaning = axes(store, one(lat(boundaries={"regular": [-0.5, 0.5]}, parametric={"formula": "f", "terms": terms})))
    assert coord(meaning, "lat").attributes["bounds"] == "lat_bounds_2"
    assert coord(meaning, "lat").attributes["formula_terms"] == "a: other_a b: b"


@pytest.mark.parametrize("shared", [3, {}, {"a": 3}, {"a": {}}])
def test_a_shared_crs_that_is_none_is_reported_at_its_group(store, codes, shared):
    store.group("/", "cs", crs=shared)
    assert codes(store.read("/")) == ["cs.malformed"]
    store.group("/", "cs", crs={"a": {"axes": {}}})
    assert codes(store.read("/")) == []


def test_words_that_are_missing_or_too_many_are_mild(store, codes):
    bare = {"values": {"regular": [0, 1]}}
    assert codes(axes(store, {"lat": {"coordinates": [bare]}}), all=True) == ["cs.unit-missing", "cs.direction-missing"]
    texts = {"unit": "1", "values": {"explicit": ["a", "b", "c"]}}
    assert codes(axes(store, {"lat": {"coordinates": [texts]}}), all=True) == ["cs.unit-text"]


@pytest.mark.parametrize("term_first", [True, False])
def test_an_axis_that_is_a_term_of_a_formula_keeps_its_attributes(store, codes, coord, term_first):
    for name in ("s_rho", "Cs_r"):
        store.array(f"/g/{name}", ("s_rho",), (3,))
    terms = {name: {"external": {"ref": {"node": f"../{node}"}}} for name, node in (("s", "s_rho"), ("C", "Cs_r"))}
    described = {
        "direction": "up",
        "unit": "1",
        "values": {"external": {"ref": {"node": "../s_rho"}}},
        "parametric": {"formula": "ocean_s_coordinate_g2", "terms": terms},
    }
    vertical = {"s_rho": {"abbreviation": "Z", "coordinates": [described]}}
    # The array of one axis may be a term of another axis as well.
    sigma = lat(parametric={"formula": "f", "terms": {"s": terms["s"]}})
    both = (
        {"lat": {"coordinates": [sigma]}, **vertical} if term_first else {**vertical, "lat": {"coordinates": [sigma]}}
    )
    meaning = axes(store, both, ("s_rho", "lat"), (3, 3))
    assert sorted((c.name, c.role) for c in meaning.coords) == [("Cs_r", "term"), ("lat", "axis"), ("s_rho", "axis")]
    assert dict(coord(meaning, "s_rho").attributes) == {
        "axis": "Z",
        "direction": "up",
        "units": "1",
        "positive": "up",
        "standard_name": "ocean_s_coordinate_g2",
        "formula_terms": "s: s_rho C: Cs_r",
    }
    assert coord(meaning, "lat").attributes["formula_terms"] == "s: s_rho"
    assert codes(meaning) == []
