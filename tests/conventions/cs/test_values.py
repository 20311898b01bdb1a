"""Single faults of values, boundaries, times and terms, each with its code and nothing else lost."""

import pytest


def axis(store, coordinate, *, shape=(3,), **axis_):
    axes = {"t": {"coordinates": [coordinate], **axis_}}
    store.array("/g/v", ("t",), shape, "cs ref", cs={"crs": [{"axes": axes}]})
    return store.read("/g/v")


def regular(**more):
    return {"unit": "m", "direction": "up", "values": {"regular": [0, 1]}, **more}


@pytest.mark.parametrize(
    ("coordinate", "code"),
    [
        (regular(boundaries={"regular": [1]}), "cs.bounds"),
        (regular(boundaries={"explicit": [[0, 1]]}), "cs.bounds"),
        (regular(boundaries=3), "cs.values"),
        (regular(boundaries={"external": {"ref": {"node": "../none"}}}), "ref.missing"),
        (regular(boundaries={"external": {"ref": {"node": ".."}}}), "cs.bounds"),
        (regular(parametric=3), "cs.parametric"),
        (regular(parametric={"formula": "f", "terms": {}}), "cs.parametric"),
        (regular(parametric={"formula": "f", "terms": {"a": {"external": {"ref": {"node": "../far"}}}}}), "cs.term"),
        (regular(parametric={"formula": "f", "terms": {"a": {"explicit": [1, 2]}}}), "cs.length"),
        (regular(time=3), "cs.time"),
        (regular(time={"unit": "days"}), "cs.time"),
        (regular(time={"reference": "yesterday"}), "cs.time"),
        (regular(unit=[3]), "uom.malformed"),
    ],
)
def test_a_fault_outside_the_values_leaves_them(store, codes, coord, coordinate, code):
    store.array("/g/far", ("t", "m"), (9, 9))
    meaning = axis(store, coordinate)
    assert coord(meaning, "t").values.values().tolist() == [0, 1, 2]
    assert codes(meaning) == [code]


def test_external_values_of_another_length_are_reported(store, codes):
    store.array("/g/long", ("n",), (9,))
    store.array("/g/flat", ("n", "m"), (3, 1))
    for name in ("long", "flat"):
        meaning = axis(store, {"values": {"external": {"ref": {"node": f"../{name}"}}}})
        assert (meaning.coords, codes(meaning)) == ((), ["cs.length", *codes(meaning)[1:]])


def test_a_time_as_one_text_and_a_single_explicit_value_are_read(store, codes, coord):
    time = axis(store, {"time": "hours since 2000-01-01", "values": {"regular": [0, 6]}}, abbreviation="T")
    assert coord(time, "t").attributes["units"] == "hours since 2000-01-01"
    assert codes(time, all=True) == ["cs.time-reference"]
    one = axis(store, regular(values={"explicit": 5}), shape=(1,))
    assert coord(one, "t").values.items == (5,)
    assert codes(one, all=True) == ["cs.explicit-scalar"]


def test_a_unit_together_with_times_is_an_info(store, codes):
    meaning = axis(store, regular(time={"unit": "days", "epoch": "2000-01-01"}))
    assert codes(meaning, all=True) == ["cs.time-unit"]


def test_terms_fit_by_their_sizes_where_their_names_do_not(store, coord):
    store.array("/g/a", ("other",), (3,))
    store.array("/g/s", (), ())
    terms = {"a": {"external": {"ref": {"node": "../a"}}}, "s": {"ref": {"node": "../s"}}}
    for dims in (("other",), ()):
        store.array("/g/a", dims, (3,))
        meaning = axis(store, regular(parametric={"formula": "f", "terms": terms}))
        assert (coord(meaning, "s").dims, coord(meaning, "a").dims) == ((), ("t",))
    store.array("/g/a", ("y",), (7,))
    assert coord(axis(store, regular(parametric={"formula": "f", "terms": terms})), "a").dims == ("y",)


def test_two_axes_of_one_abbreviation_are_reported(store, codes):
    axes = {name: {"abbreviation": "X", "coordinates": [regular()]} for name in ("t", "u")}
    store.array("/v", ("t", "u"), (3, 3), "cs", cs={"crs": [{"axes": axes}]})
    assert codes(store.read("/v")) == ["cs.abbreviation"]


def test_an_array_without_names_cannot_have_axes(store, codes):
    store.array("/v", (), (3,), "cs", cs={"crs": [{"axes": {"t": {}}}]})
    assert codes(store.read("/v"))[:2] == ["cs.dimension-names", "cs.axis-unknown"]


def test_a_shared_crs_that_is_ambiguous_or_none_is_reported(store, codes):
    store.group("/", "cs", crs={"a": {"axes": {"t": {}}}, "b": {"axes": {"t": {}}}}, other=3)
    store.array("/v", ("t",), (3,), "cs ref", cs={"crs": [{"ref": {"node": "/"}}]})
    assert codes(store.read("/v"))[0] == "ref.missing"
    store.array("/v", ("t",), (3,), "cs ref", cs={"crs": [{"ref": {"node": "/", "attribute": "/attributes/other"}}]})
    assert codes(store.read("/v"))[0] == "cs.malformed"
