"""Arrays that differ in nothing that conventions use share one meaning, the same as if each is read alone."""

from dataclasses import replace

import pytest

from periplus.conventions.identity import metadata
from periplus.conventions.node import Node
from periplus.conventions.read import Reader, understand

PLACE = {
    "zarr_conventions": [metadata("spatial"), metadata("proj")],
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [10, 0, 500000, 0, -10, 5000000],
    "proj:code": "EPSG:32633",
}
CASES = {
    "alike": [{"units": "K"}, {"units": "m", "long_name": "height"}, {}],
    "other places": [{}, {**PLACE, "spatial:transform": [20, 0, 0, 0, -20, 0]}, {"spatial:transform": [1, 2]}],
    "references": [{"coordinates": "b"}, {"grid_mapping": "a"}, {"bounds": "none"}],
    "plain attributes": [{"note": "one"}, {"note": "two"}, {"note": ["a", "list"]}],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("group", [PLACE, {}, {**PLACE, "spatial:bbox": [0, 0, 1, 1]}])
def test_reading_many_is_reading_each(case, group):
    arrays = {
        f"/{name}": Node(
            path=f"/{name}", kind="array", attributes=attributes, dims=("y", "x"), shape=(4, 5), dtype="f4"
        )
        for name, attributes in zip("abc", CASES[case], strict=True)
    }
    arrays["/d"] = replace(arrays["/a"], path="/d", shape=(5, 4))
    nodes = {"/": Node(path="/", kind="group", attributes=group, members=tuple("abcd")), **arrays}
    reader = Reader(lookup=nodes.get)
    for path, node in arrays.items():
        assert reader.array(node) == understand(node, nodes.get), path


def test_principal_and_service_conventions_are_combined(store):
    store.array("/g/lon", ("y", "x"), (4, 5))
    store.array("/g/lat", ("y", "x"), (4, 5))
    store.array("/g/q", ("time",), (3,))
    store.array(
        "/g/a",
        ("time", "y", "x"),
        (3, 4, 5),
        "cs spatial geolocation ref",
        spatial__dimensions=["y", "x"],
        spatial__transform=[10.0, 0, 0, 0, -10.0, 0],
        cs={"crs": [{"axes": {"time": {}}}]},
        geolocation={"geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}}},
        coordinates="q",
    )
    meaning = store.read("/g/a")
    conventions = {coord.name: coord.convention for coord in meaning.coords}
    assert conventions == {
        "time": "cs",
        "y": "spatial",
        "x": "spatial",
        "lon": "geolocation",
        "lat": "geolocation",
        "q": "CF",
    }
    assert meaning.principal == ("cs", "spatial")
