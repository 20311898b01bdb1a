"""Our own conventions have the interface of handlers; tiers compose for each array."""

import periplus.conventions
from periplus.conventions.handlers import Handler, ask
from periplus.conventions.tiers import BUILT_IN

SPATIAL = {"spatial__dimensions": ["y", "x"], "spatial__transform": [10.0, 0, 0, 0, -10.0, 0]}


def heard(store, path):
    group = store.nodes[path.rpartition("/")[0] or "/"]
    return ask(BUILT_IN, path=path, root=store.nodes.get, group=group, array=store.nodes[path])


def test_every_convention_of_ours_is_a_handler():
    assert all(isinstance(one, Handler) for one in BUILT_IN)
    assert [one.name for one in BUILT_IN if one.tier == "principal"] == ["cs", "dimensions", "spatial"]
    assert {"proj", "ref", "uom", "geolocation", "multiscales", "CF"} <= {one.name for one in BUILT_IN}


def test_principal_and_service_tiers_compose(store):
    store.array("/g/lon", ("y", "x"), (4, 5))
    store.array("/g/lat", ("y", "x"), (4, 5))
    store.array("/g/q", ("time",), (3,))
    store.array(
        "/g/a",
        ("time", "y", "x"),
        (3, 4, 5),
        "cs spatial geolocation ref",
        **SPATIAL,
        cs={"crs": [{"axes": {"time": {}}}]},
        geolocation={"geodetic": {"x": {"node": "../lon"}, "y": {"node": "../lat"}}},
        coordinates="q",
    )
    answer = heard(store, "/g/a")
    assert {name: coord.convention for name, coord in answer.variables.items()} == {
        "time": "cs",
        "y": "spatial",
        "x": "spatial",
        "lon": "geolocation",
        "lat": "geolocation",
        "q": "CF",
    }
    assert answer.principal == ("cs", "spatial")
    assert answer.diagnostics == ()


def test_a_convention_that_nobody_declares_is_not_detected(store):
    store.array("/g/a", ("y", "x"), (4, 5))
    assert heard(store, "/g/a").variables == {}
    assert not any(
        one.detect(store.nodes.get, store.nodes["/g"], store.nodes["/g/a"])
        for one in BUILT_IN
        if one.tier == "principal"
    )


def test_what_a_group_declares_is_detected(store):
    store.group("/g", "spatial", **SPATIAL)
    store.array("/g/a", ("y", "x"), (4, 5))
    assert heard(store, "/g/a").principal == ("spatial",)


def test_the_room_offers_its_main_names():
    assert set(periplus.conventions.__all__) <= set(dir(periplus.conventions))
    for name in periplus.conventions.__all__:
        assert getattr(periplus.conventions, name).__name__ == name
