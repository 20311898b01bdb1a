"""coords and dimensions: one uuid, two generations of keys; inline, interval and array descriptors."""

import numpy as np
import pytest
import xarray as xr

from periplus.conventions.meaning import Explicit, Regular


def read(store, descriptor, *, dims=("band",), shape=(3,), **more):
    store.array("/g/a", dims, shape, "dimensions", dimensions__axes={dims[0]: {"coords": descriptor, **more}})
    return store.read("/g/a")


def test_inline_values_with_their_words(store, codes, coord):
    meaning = read(store, {"type": "inline", "values": ["r", "g", "b"]}, unit="1", description="colour", axis="z")
    band = coord(meaning, "band")
    assert band.values == Explicit(("r", "g", "b"))
    assert dict(band.attributes) == {"units": "1", "long_name": "colour", "axis": "Z"}
    assert (meaning.principal, codes(meaning)) == (("dimensions",), [])


def test_the_older_keys_under_the_same_uuid(store, codes, coord):
    store.array(
        "/g/a", ("band",), (3,), "dimensions", coords__coordinates={"band": {"type": "inline", "values": [1, 2, 3]}}
    )
    meaning = store.read("/g/a")
    assert coord(meaning, "band").values.values().tolist() == [1, 2, 3]
    assert codes(meaning, all=True) == ["dimensions.old-keys"]


def test_groups_describe_the_dimensions_of_their_arrays(store, codes, coord):
    axes = {"band": {"coords": {"values": ["r", "g", "b"]}}, "time": {"coords": {"values": [1]}}}
    store.group("/g", "dimensions", dimensions__axes=axes)
    store.array("/g/a", ("band",), (3,))
    meaning = store.read("/g/a")
    assert [c.name for c in meaning.coords] == ["band"]
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("interval", "values"),
    [
        ({"start": 0, "end": 2, "step": 1}, [0, 1, 2]),
        ({"start": 0, "end": 3, "step": 1}, [0, 1, 2]),
        ({"start": 10.0, "step": -2.5}, [10, 7.5, 5]),
        ({"start": 0, "end": 1}, [0, 0.5, 1]),
    ],
)
def test_intervals_of_numbers(store, codes, coord, interval, values):
    meaning = read(store, {"type": "interval", **interval})
    assert coord(meaning, "band").values.values().tolist() == values
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        ("2020-02-27", "P1D", ["2020-02-27", "2020-02-28", "2020-02-29"]),
        ("2020-01-01T00:00:00Z", "PT6H", ["2020-01-01", "2020-01-01T06", "2020-01-01T12"]),
        ("2020-01-15", "P1M", ["2020-01-15", "2020-02-15", "2020-03-15"]),
        ("2019-01-01", "P1Y", ["2019-01-01", "2020-01-01", "2021-01-01"]),
        ("2019-01-01", "P2W", ["2019-01-01", "2019-01-15", "2019-01-29"]),
        ("2019-01-01", "PT0.5S", ["2019-01-01", "2019-01-01T00:00:00.5", "2019-01-01T00:00:01"]),
    ],
)
def test_intervals_of_times_decode_to_those_times(store, coord, start, step, expected):
    time = coord(read(store, {"type": "interval", "start": start, "step": step}), "band")
    words = {key: value for key, value in time.attributes.items() if key in ("units", "calendar")}
    decoded = xr.decode_cf(xr.Dataset({"t": ("band", time.values.values(), words)}))["t"].values
    np.testing.assert_array_equal(decoded.astype("datetime64[ms]"), np.array(expected, "datetime64[ms]"))


def test_other_arrays_and_coordinates_over_several_dimensions(store, codes, coord):
    store.array("/g/wl", ("n",), (3,))
    store.array("/g/lon", ("y", "x"), (4, 5))
    store.array(
        "/g/a",
        ("band", "y", "x"),
        (3, 4, 5),
        "dimensions",
        dimensions__axes={
            "band": {"coords": {"type": "array", "path": "../wl"}},
            "x": {"coords": {"type": "reference", "convention": "spatial"}},
        },
        dimensions__coordinates={
            "lon": {"indexed_by": ["y", "x"], "coords": {"type": "array", "path": "lon"}},
            "label": {"indexed_by": ["band"], "coords": {"values": ["a", "b", "c"]}},
        },
    )
    meaning = store.read("/g/a")
    assert {c.name: (c.role, c.dims) for c in meaning.coords} == {
        "band": ("axis", ("band",)),
        "lon": ("auxiliary", ("y", "x")),
        "label": ("auxiliary", ("band",)),
    }
    assert coord(meaning, "band").values.reference.path == "/g/wl"
    assert codes(meaning) == []


@pytest.mark.parametrize(
    ("descriptor", "code"),
    [
        (3, "dimensions.malformed"),
        ({"type": "inline", "values": [1, 2]}, "dimensions.length"),
        ({"type": "inline", "values": [1, "a", 3]}, "dimensions.length"),
        ({"type": "spiral"}, "dimensions.type"),
        ({"type": "interval"}, "dimensions.interval"),
        ({"type": "interval", "start": 0, "step": 0}, "dimensions.interval"),
        ({"type": "interval", "start": "yesterday", "step": "P1D"}, "dimensions.interval"),
        ({"type": "interval", "start": "2020-01-31", "step": "P1M"}, "dimensions.interval"),
        ({"type": "interval", "start": "2020-01-01", "step": "P0D"}, "dimensions.interval"),
        ({"type": "array", "path": "../none"}, "ref.missing"),
        ({"type": "array", "path": "../long"}, "dimensions.length"),
    ],
)
def test_what_is_wrong_is_reported(store, codes, descriptor, code):
    store.array("/g/long", ("n",), (9,))
    meaning = read(store, descriptor)
    assert meaning.coords == ()
    assert code in codes(meaning)


def test_an_end_that_does_not_fit_is_ignored_aloud(store, codes, coord):
    meaning = read(store, {"type": "interval", "start": 0, "end": 100, "step": 1})
    assert coord(meaning, "band").values == Regular(0, 1, 3)
    assert codes(meaning) == ["dimensions.interval"]


def test_it_composes_with_spatial_and_gives_way_to_cs(store, coord):
    store.array(
        "/g/a",
        ("band", "y", "x"),
        (3, 4, 5),
        "dimensions spatial",
        dimensions__axes={"band": {"coords": [1, 2, 3]}},
        spatial__dimensions=["y", "x"],
        spatial__transform=[1, 0, 0, 0, -1, 0],
    )
    meaning = store.read("/g/a")
    assert {c.name: c.convention for c in meaning.coords} == {"band": "dimensions", "y": "spatial", "x": "spatial"}
    store.array(
        "/g/b",
        ("band",),
        (3,),
        "dimensions cs",
        dimensions__axes={"band": {"coords": [1, 2, 3]}},
        cs={"crs": [{"axes": {"band": {}}}]},
    )
    assert [c.convention for c in store.read("/g/b").coords] == ["cs"]
