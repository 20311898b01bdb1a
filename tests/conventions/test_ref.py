"""ref: every base and wrapping, nothing above the root, no circles, other stores only by those who open them."""

import pytest

from periplus.conventions.context import Reading
from periplus.conventions.node import Node, ancestors, join, parent, relative
from periplus.conventions.ref import follow, pointed, resolve, unwrapped
from periplus.errors import DeniedError, FetchError, FormatError


def at(store, value, path="/g/v", **options):
    """(path found or None, codes of all findings)."""
    reading = Reading(node=store.nodes[path], lookup=store.nodes.get, **options)
    target = resolve(reading, value, "here")
    return (None if target is None else target.node.path), [note.code for note in reading.notes]


@pytest.fixture
def nodes(store):
    store.array("/g/v", ("time",), (3,))
    store.array("/g/time", ("time",), (3,))
    store.array("/coords/time", ("time",), (3,))
    store.array("/only", ("x",), (3,))
    return store


@pytest.mark.parametrize(
    ("node", "found", "codes"),
    [
        ("../time", "/g/time", []),
        ("/coords/time", "/coords/time", []),
        ("../../coords/time", "/coords/time", []),
        ("time", "/g/time", ["ref.base"]),
        ("./time", "/g/time", ["ref.base"]),
        ("../coords/time", "/coords/time", ["ref.base"]),
        ("..", "/g", []),
        ("../..", "/", []),
        ("/", "/", []),
        ("../nowhere", None, ["ref.missing"]),
        ("/nowhere", None, ["ref.missing"]),
        ("../../../x", None, ["ref.path"]),
        ("/../x", None, ["ref.path"]),
        ("http://host/x", None, ["ref.path"]),
        ("a\\b", None, ["ref.path"]),
        ("a\0", None, ["ref.path"]),
    ],
)
def test_paths_count_from_the_node_then_from_its_group(nodes, node, found, codes):
    assert at(nodes, {"node": node}) == (found, codes)


def test_two_nodes_that_may_be_meant_are_reported_and_the_first_is_taken(nodes):
    nodes.array("/time", ("time",), (3,))
    assert at(nodes, {"node": "../time"}) == ("/g/time", ["ref.ambiguous"])


def test_what_the_pointer_does_not_fit_is_no_rival(nodes):
    nodes.group("/", crs={"a": {"axes": {}}})
    assert at(nodes, {"node": "..", "attribute": "/attributes/crs/a"}) == ("/", ["ref.base"])
    assert at(nodes, {"node": "..", "attribute": "/attributes/none"}) == (None, ["ref.missing"])


def test_an_array_is_preferred_where_values_are_meant(nodes):
    nodes.group("/g/lon")
    nodes.array("/lon", ("x",), (3,))
    reading = Reading(node=nodes.nodes["/g/v"], lookup=nodes.nodes.get)
    assert resolve(reading, {"node": "../lon"}, "here", array=True).node.path == "/lon"


@pytest.mark.parametrize(
    "value",
    [
        {"node": "../time"},
        {"ref": {"node": "../time"}},
        {"external": {"node": "../time"}},
        {"external": {"ref": {"node": "../time"}}},
        {"ref": {"external": {"node": "../time"}}},
    ],
)
def test_every_wrapping_is_seen_through(nodes, value):
    assert unwrapped(value)[0] == {"node": "../time"}
    assert at(nodes, value) == ("/g/time", [])


@pytest.mark.parametrize("value", [None, 3, [], {}, {"ref": 3}, {"node": 3}, {"node": "x", "uri": 4}])
def test_what_is_no_reference_is_reported(nodes, value):
    assert at(nodes, value) == (None, ["ref.malformed"])


def test_a_mere_text_and_odd_fields_are_mild(nodes):
    assert at(nodes, "../time") == ("/g/time", ["ref.text"])
    assert at(nodes, {"node": "../time", "path": "x"}) == ("/g/time", ["ref.extra-field"])


def test_pointers_follow_rfc_6901():
    document = {"attributes": {"a/b": [10, {"~": 1}], "": 5}}
    assert pointed(document, "") is document
    assert pointed(document, "/attributes/a~1b/0") == 10
    assert pointed(document, "/attributes/a~1b/1/~0") == 1
    assert pointed(document, "/attributes/") == 5
    for wrong in ("attributes", "/attributes/x", "/attributes/a~1b/2", "/attributes/a~1b/-1", "/attributes//x", "/"):
        with pytest.raises(KeyError):
            pointed(document, wrong)


def test_a_pointer_counts_from_the_document_and_one_from_attributes_is_an_info(nodes):
    reading = Reading(node=nodes.nodes["/g/v"], lookup=nodes.nodes.get)
    assert resolve(reading, {"node": "../time", "attribute": "/shape/0"}, "x").value == 3
    nodes.array("/g/time", ("time",), (3,), units="days")
    assert resolve(reading, {"node": "../time", "attribute": "/units"}, "x").value == "days"
    assert [note.code for note in reading.notes] == ["ref.pointer"]


def test_references_that_lead_to_references_are_followed_and_circles_are_found(nodes):
    nodes.group(
        "/",
        a={"ref": {"node": "/g", "attribute": "/attributes/b"}},
        loop={"ref": {"node": "/", "attribute": "/attributes/loop"}},
    )
    nodes.group("/g", b={"end": 1})
    reading = Reading(node=nodes.nodes["/g/v"], lookup=nodes.nodes.get)
    value, target = follow(reading, {"ref": {"node": "/", "attribute": "/attributes/a"}}, "x")
    assert (value, target.node.path, reading.notes) == ({"end": 1}, "/g", [])
    assert follow(reading, {"ref": {"node": "/", "attribute": "/attributes/loop"}}, "x") == (None, None)
    assert [note.code for note in reading.notes] == ["ref.cycle"]


def test_another_store_is_opened_by_whoever_may(nodes):
    other = {"/year": Node(path="/year", kind="array", dims=("t",), shape=(3,))}
    assert at(nodes, {"uri": "https://h/s.zarr", "node": "/year"}) == (None, ["ref.store"])
    asked = []

    def stores(uri):
        asked.append(uri)
        return other.get

    assert at(nodes, {"uri": "https://h/s.zarr", "node": "/year"}, stores=stores) == ("/year", [])
    assert at(nodes, {"uri": "https://h/s.zarr", "node": "year"}, stores=stores) == ("/year", [])
    assert at(nodes, {"uri": "https://h/s.zarr", "node": "../x"}, stores=stores) == (None, ["ref.path"])
    assert at(nodes, {"uri": "https://h/s.zarr", "node": "/none"}, stores=stores) == (None, ["ref.missing"])
    assert set(asked) == {"https://h/s.zarr"}


@pytest.mark.parametrize(("error", "code"), [(DeniedError("no"), "ref.denied"), (FetchError("down"), "ref.store")])
def test_a_store_that_may_not_or_cannot_be_opened_is_a_finding_without_secrets(nodes, error, code):
    def stores(_):
        raise error

    reading = Reading(node=nodes.nodes["/g/v"], lookup=nodes.nodes.get, stores=stores)
    assert resolve(reading, {"uri": "https://me:pw@h/s.zarr?sig=abc", "node": "/x"}, "here") is None
    assert [note.code for note in reading.notes] == [code]
    assert not {"pw", "abc"} & set(reading.notes[0].message.replace("?", " ").replace("@", " ").split())


def test_a_reference_at_the_root_of_attributes_is_checked(nodes, codes):
    nodes.array("/g/v", ("time",), (3,), "ref", ref={"node": "../time"})
    assert not [code for code in codes(nodes.read("/g/v")) if code.startswith("ref.")]
    nodes.array("/g/v", ("time",), (3,), "ref", ref={"node": "."})
    assert "ref.cycle" in codes(nodes.read("/g/v"))


def test_paths_between_nodes():
    assert (parent("/"), parent("/a"), parent("/a/b")) == (None, "/", "/a")
    assert list(ancestors("/a/b/c")) == ["/a/b", "/a", "/"]
    assert join("/a", "b/./c//d/..") == "/a/b/c"
    assert (relative("/a/b", "/a"), relative("/a", "/"), relative("/a", "/a")) == ("b", "a", ".")
    with pytest.raises(FormatError):
        relative("/ab", "/a")


def test_a_group_that_refers_to_nothing_is_reported(store, codes):
    store.group("/g", "ref", ref={"node": "../none"})
    assert codes(store.read("/g")) == ["ref.missing"]
