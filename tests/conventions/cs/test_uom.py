"""uom: the unit of an array, as CF's units, if it has none of its own."""

import pytest


@pytest.mark.parametrize(
    ("uom", "unit", "found"),
    [
        ({"ucum": {"unit": "m"}}, "m", []),
        ({"ucum": {}}, "1", []),
        ({"ucum": {"unit": "20 kg", "version": "2.2"}}, "20 kg", []),
        ({"unit": "m"}, "m", ["uom.unwrapped"]),
        ({"ucum": "m"}, "m", ["uom.unwrapped"]),
        ("m", "m", []),
        (3, None, ["uom.malformed"]),
        ({"ucum": {"unit": 3}}, None, ["uom.malformed"]),
    ],
)
def test_units_in_every_form(store, codes, uom, unit, found):
    store.array("/x", ("x",), (3,), "uom", uom=uom)
    meaning = store.read("/x")
    assert meaning.attributes.get("units") == unit
    assert codes(meaning) == found


def test_units_of_cf_stay(store, codes):
    store.array("/x", ("x",), (3,), "uom", uom={"ucum": {"unit": "m"}}, units="metres")
    assert dict(store.read("/x").attributes) == {}
    assert codes(store.read("/x"), all=True) == ["uom.units"]


def test_a_description_explains_arbitrary_units(store):
    store.array("/x", ("x",), (3,), "uom", uom={"ucum": {}, "description": "count of apples"})
    assert dict(store.read("/x").attributes) == {"units": "1", "units_description": "count of apples"}


def test_units_are_not_inherited_and_not_read_undeclared(store, codes):
    store.group("/", "uom", uom={"ucum": {"unit": "m"}})
    store.array("/x", ("x",), (3,))
    store.array("/y", ("y",), (3,), uom={"ucum": {"unit": "m"}})
    assert dict(store.read("/x").attributes) == dict(store.read("/y").attributes) == {}
    assert codes(store.read("/y")) == ["uom.undeclared"]
