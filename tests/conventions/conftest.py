"""Stores as dictionaries of nodes, for conventions that know no other."""

from __future__ import annotations

import pytest

from periplus.conventions.node import Node
from periplus.conventions.read import Reader

UUIDS = {
    "multiscales": "d35379db-88df-4056-af3a-620245f8e347",
    "spatial": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
    "proj": "f17cb550-5864-4468-aeb7-f3180cfb622f",
    "cs": "e4dbf0b7-7a00-4ce6-b23e-484292014ab4",
    "ref": "d89b30cf-ed8c-43d5-9a16-b492f0cd8786",
    "uom": "3bbe438d-df37-49fe-8e2b-739296d46dfb",
    "geolocation": "bb9ee930-8c60-4c47-ad6b-8daa558987ed",
    "tessera": "e7f90d5f-019e-4a38-802f-9fa695e26c71",
    "geoemb": "61c12cc5-0e28-4056-999a-480cf3fb7e4c",
    "dimensions": "6ca4454a-658a-4348-a667-b39ced0e58cb",
    "CF": "77c308c7-4db2-4774-8b2d-aa37e9997db6",
}


class Store:
    """Nodes by path; groups appear around what is added."""

    def __init__(self):
        self.nodes = {"/": Node(path="/", kind="group", members=())}

    def group(self, path, conventions="", **attributes):
        return self._add(Node(path=path, kind="group", attributes=_attributes(conventions, attributes), members=()))

    def array(self, path, dims=(), shape=(), conventions="", dtype="float32", **attributes):
        attributes = _attributes(conventions, attributes)
        return self._add(
            Node(path=path, kind="array", attributes=attributes, dims=tuple(dims), shape=tuple(shape), dtype=dtype)
        )

    def _add(self, node):
        old = self.nodes.get(node.path)
        if node.kind == "group":
            members = () if old is None else old.members
            node = Node(path=node.path, kind="group", attributes=node.attributes, members=members)
        self.nodes[node.path] = node
        path = node.path
        while path != "/":
            up, _, name = path.rpartition("/")
            up = up or "/"
            around = self.nodes.get(up) or Node(path=up, kind="group", members=())
            if name not in around.members:
                members = (*around.members, name)
                self.nodes[up] = Node(path=up, kind="group", attributes=around.attributes, members=members)
            path = up
        return node

    def read(self, path, **options):
        """What the conventions say of a node."""
        reader = Reader(lookup=self.nodes.get, **options)
        node = self.nodes[path]
        return reader.array(node) if node.kind == "array" else reader.group(node)


def _attributes(conventions, attributes):
    declared = [{"uuid": UUIDS[name]} for name in conventions.split()]
    plain = {key.replace("__", ":"): value for key, value in attributes.items()}
    return {**({"zarr_conventions": declared} if declared else {}), **plain}


@pytest.fixture
def store():
    return Store()


@pytest.fixture(scope="session")
def codes():
    """Codes of findings, in order, without the mild ones unless asked for."""

    def of(meaning, *, all=False):
        return [d.code for d in meaning.diagnostics if all or d.severity != "info"]

    return of


@pytest.fixture(scope="session")
def coord():
    """The coordinate of that name."""

    def named(meaning, name):
        return {c.name: c for c in meaning.coords}[name]

    return named
