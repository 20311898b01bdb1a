"""CF's rules for finding a variable by name in a hierarchy: by path, by proximity, then laterally."""

from __future__ import annotations

from collections import deque

from periplus.conventions.context import Reading
from periplus.conventions.node import ROOT, Node, ancestors, join, parent
from periplus.errors import FormatError

MOST_NODES = 5_000
"""Visited by a lateral search, of one store, once."""


def is_cf(reading: Reading, node: Node) -> bool:
    """Whether a node, or a group that contains it, declares that it follows CF."""
    for path in (node.path, *ancestors(node.path)):
        here = node if path == node.path else reading.lookup(path)
        if here is None:
            continue
        stated = next((here.attributes[key] for key in ("Conventions", "conventions") if key in here.attributes), "")
        if "CF" in reading.declared_by(here) or (isinstance(stated, str) and "CF-" in stated):
            return True
    return False


def find(reading: Reading, user: Node, word: str, attribute: str, *, coordinate: bool) -> Node | None:
    """The array that a word in an attribute of `user` refers to; None, with a finding, where there is none.

    A path counts from the group of the user. A bare name is looked for there, then in the groups around it, the nearest
    first; one of a coordinate, at last, among the coordinate variables of the groups below those.
    """
    group = parent(user.path) or ROOT
    if "/" in word or word in (".", ".."):
        try:
            node = reading.lookup(join(group, word))
        except FormatError as error:
            reading.note("ref.path", "warning", attribute, error.message, path=user.path)
            return None
    else:
        node = _near(reading, group, word)
        if node is None and coordinate and is_cf(reading, user):
            node = _lateral(reading, user, word)
            if node is not None:
                message = f"{word!r} is found laterally, at {node.path}"
                reading.note("cf.lateral", "info", attribute, message, f"write {node.path}", path=user.path)
    if node is None or node.kind != "array":
        reading.note("ref.missing", "warning", attribute, f"{word[:200]!r} not found: no such array", path=user.path)
        return None
    return node


def coordinate_variable(reading: Reading, node: Node, dim: str, size: int) -> Node | None:
    """The coordinate variable of a dimension that a group around the array's own has."""
    for path in ancestors(parent(node.path) or ROOT):
        found = reading.lookup(join(path, dim)) if _plain(dim) else None
        if found is not None and _names_itself(found) and found.shape == (size,):
            return found
    return None


def _near(reading: Reading, group: str, word: str) -> Node | None:
    if not _plain(word):
        return None
    for path in (group, *ancestors(group)):
        node = reading.lookup(join(path, word))
        if node is not None and node.kind == "array":
            return node
    return None


def _plain(word: str) -> bool:
    return bool(word) and "/" not in word and "\\" not in word and "\0" not in word and word not in (".", "..")


def _names_itself(node: Node) -> bool:
    return node.kind == "array" and len(node.shape) == 1 and node.dims == (node.name,)


def _lateral(reading: Reading, user: Node, word: str) -> Node | None:
    if not _plain(word):
        return None
    paths = _coordinate_variables(reading).get(word, ())
    for apex in ancestors(user.path):
        below = [path for path in paths if path.startswith(apex.rstrip("/") + "/")]
        if below:
            return reading.lookup(min(below, key=lambda path: path.count("/")))
    return None


def _coordinate_variables(reading: Reading) -> dict[str, list[str]]:
    """Paths of all coordinate variables of the store by name, level by level from the root."""
    key = "coordinate variables"
    if key not in reading.memo:
        found: dict[str, list[str]] = {}
        queue, visited = deque([ROOT]), 0
        while queue and visited < MOST_NODES:
            visited += 1
            node = reading.lookup(queue.popleft())
            if node is None:
                continue
            if _names_itself(node):
                found.setdefault(node.name, []).append(node.path)
            queue.extend(join(node.path, name) for name in node.members if _plain(name))
        reading.memo[key] = found
    return reading.memo[key]  # type: ignore[no-any-return]
