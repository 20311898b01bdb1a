"""CF's references between variables: coordinates, bounds, grid_mapping, formula_terms and others, across groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from periplus.conventions.cf.search import coordinate_variable, find, is_cf
from periplus.conventions.context import Reading, texts
from periplus.conventions.coordinate_names import CoordinateNames
from periplus.conventions.cs.values import term_dims
from periplus.conventions.meaning import Coord, CrsText, External, Reference, Role
from periplus.conventions.node import ROOT, Node
from periplus.conventions.proj.crs import crs_from_cf
from periplus.errors import FormatError

_LISTS: dict[str, Role] = {
    "coordinates": "auxiliary",
    "ancillary_variables": "ancillary",
    "bounds": "bounds",
    "climatology": "bounds",
}
_PAIRS: dict[str, Role] = {"formula_terms": "term", "cell_measures": "ancillary"}
ATTRIBUTES = (*_LISTS, *_PAIRS, "grid_mapping")
_OF_COORDINATES = ("bounds", "climatology", "formula_terms")
_MOST_WORDS = 1000


@dataclass(slots=True, kw_only=True)
class CfReferences:
    """What the CF attributes of an array refer to."""

    coords: list[Coord] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    """With flat names in place of paths, where they differ."""
    crs: CrsText | None = None
    mapping: Node | None = None
    """The grid mapping of the array."""


@dataclass(slots=True, kw_only=True)
class _CfReading:
    """What every step of one reading needs."""

    reading: Reading
    names: CoordinateNames
    known: dict[str, Coord]
    """Coordinates the array has, by name."""
    made: CfReferences = field(default_factory=CfReferences)


def read_cf(reading: Reading, names: CoordinateNames, given: list[Coord]) -> CfReferences:
    """Arrays that CF attributes of the array being read name; `given` are the coordinates it has already."""
    work = _CfReading(reading=reading, names=names, known={coord.name: coord for coord in given})
    work.made.attributes = _rewritten(work, reading.node, ATTRIBUTES)
    if any(dim not in work.known for dim in reading.node.dims) and is_cf(reading, reading.node):
        _dimensions(work)
    return work.made


def split(attribute: str, text: str) -> list[str]:
    """Words of an attribute; keys, and grid mappings of the extended form, end with a colon."""
    keyed = attribute in _PAIRS or attribute == "grid_mapping"
    return (text.replace(":", ": ") if keyed else text).split()


def _rewritten(work: _CfReading, user: Node, attributes: tuple[str, ...]) -> dict[str, str]:
    """Attributes of `user` that change, with flat names; what they name is added on the way."""
    changed: dict[str, str] = {}
    for attribute in attributes:
        text = user.attributes.get(attribute)
        if (listed := texts(text)) is not None:
            work.reading.note("cf.list", "info", attribute, "a list of names, not one text", path=user.path)
            text = " ".join(listed)
        if not isinstance(text, str):
            continue
        before, after = split(attribute, text)[:_MOST_WORDS], list[str]()
        for word in before:
            if word.endswith(":") and attribute in _PAIRS:
                after.append(word)
                continue
            bare, colon = (word[:-1], ":") if word.endswith(":") else (word, "")
            role = _role(attribute, extended=any(other.endswith(":") for other in before), key=bool(colon))
            name = _linked(work, user, attribute, bare, role)
            if name is not None:
                after.append(name + colon)
            elif attribute in _PAIRS and after and after[-1].endswith(":"):
                after.pop()  # the key of a term that is missing
        if after and after != before:
            changed[attribute] = " ".join(after)
    return changed


def _role(attribute: str, *, extended: bool, key: bool) -> Role:
    if attribute == "grid_mapping":
        return "auxiliary" if extended and not key else "grid_mapping"
    return _LISTS.get(attribute) or _PAIRS[attribute]


def _linked(work: _CfReading, user: Node, attribute: str, word: str, role: Role) -> str | None:
    """The flat name of what a word means, after adding it as a coordinate; None where it means nothing."""
    reading, known, made = work.reading, work.known, work.made
    if "/" not in word and word in known and role == "auxiliary":
        return word  # a principal convention gives it
    if attribute == "cell_measures" and word in _external(reading):
        return word
    node = find(reading, user, word, attribute, coordinate=role == "auxiliary")
    if node is None:
        return None
    if node.path in (user.path, reading.node.path):
        return node.name
    dims = () if role == "grid_mapping" else term_dims(node, reading.node)
    if dims is None:
        message = f"{node.path} of shape {list(node.shape)} does not fit the dimensions of the array"
        reading.note("cf.dims", "warning", attribute, message, path=user.path)
        return None
    if dims == (node.name,) and node.name in known:
        return node.name
    reference = Reference(path=node.path)
    name = work.names.free(node.name, reference=reference, dims=dims)
    if role == "grid_mapping" and user.path == reading.node.path and made.crs is None:
        made.crs, made.mapping = _crs(reading, node), made.mapping or node
    if name not in known:
        if role == "auxiliary":
            role = "scalar" if not dims else "axis" if dims == (name,) and name in reading.node.dims else "auxiliary"
        _add(work, node, name, dims, role)
    return name


def _add(work: _CfReading, node: Node, name: str, dims: tuple[str, ...], role: Role) -> None:
    """A coordinate, and with it the boundaries and terms that its own node names."""
    values = External(reference=Reference(path=node.path), dims=dims, shape=node.shape)
    work.known[name] = coord = Coord(name=name, dims=dims, values=values, role=role, convention="CF")
    if role in ("auxiliary", "axis", "scalar"):
        words: dict[str, Any] = _rewritten(work, node, _OF_COORDINATES)
        work.known[name] = coord = replace(coord, attributes=words)
    work.made.coords.append(coord)


def _dimensions(work: _CfReading) -> None:
    """Coordinate variables of the dimensions of the array, in groups that contain its own."""
    node, group = work.reading.node, work.reading.group
    own = set(() if group is None else group.members)
    for dim, size in zip(node.dims, node.shape, strict=False):
        if dim is None or dim in work.known or dim in own:
            continue
        found = coordinate_variable(work.reading, node, dim, size)
        if found is not None:
            work.names.taken[dim] = (None, found.path)
            _add(work, found, dim, (dim,), "axis")


def _external(reading: Reading) -> frozenset[str]:
    """Names that the root declares as external variables, stored in other files."""
    root = reading.lookup(ROOT)
    text = "" if root is None else root.attributes.get("external_variables", "")
    return frozenset(text.split()) if isinstance(text, str) else frozenset()


def _crs(reading: Reading, node: Node) -> CrsText | None:
    try:
        text = crs_from_cf(node.attributes)
    except FormatError as error:
        reading.note("cf.grid-mapping", "warning", "grid_mapping", f"{node.path}: {error.message}")
        return None
    return None if text is None else CrsText(text=text, form="cf", origin=node.path)
