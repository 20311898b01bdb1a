"""ref: references to other nodes, by whatever wrapping and base they are written in, without leaving the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from periplus.conventions.context import Reading, mapping
from periplus.conventions.meaning import Reference
from periplus.conventions.node import Node, NodeLookup, join, parent
from periplus.errors import DeniedError, FormatError, PeriplusError, redact

_LONGEST_CHAIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTarget:
    """What a reference leads to."""

    reference: Reference
    node: Node
    value: Any = None
    """What its JSON pointer points at; None where it has none."""
    lookup: NodeLookup
    """Of the store that contains the node."""


def unwrapped(value: Any) -> tuple[dict[str, Any] | None, str]:
    """The object with `node` inside any wrapping seen in the wild, and which wrapping that was."""
    if isinstance(value, str):
        return {"node": value}, "text"
    wrapping: list[str] = []
    for _ in range(4):
        found = mapping(value)
        if found is None:
            break
        if "node" in found or "uri" in found:
            return dict(found), ".".join(wrapping)
        inner = next((key for key in ("ref", "external") if key in found), None)
        if inner is None:
            break
        wrapping.append(inner)
        value = found[inner]
    return None, ".".join(wrapping)


def resolve(
    reading: Reading, value: Any, where: str, *, defined_in: Node | None = None, array: bool = False
) -> ReferenceTarget | None:
    """The node a reference means, tried from the node that uses it, from its group, then from where it is defined.

    Where several nodes match, those that the pointer matches come first, and arrays if an `array` is expected.
    """
    found, wrapping = unwrapped(value)
    if found is None:
        reading.note("ref.malformed", "error", where, "a reference is an object with `node`")
        return None
    if wrapping == "text":
        reading.note("ref.text", "info", where, "a reference is given as a mere text", 'write {"node": …}')
    for key in found:
        if key not in ("uri", "node", "attribute"):
            reading.note("ref.extra-field", "info", where, f"the field {str(key)[:80]!r} is not a field of ref")
    uri, node, pointer = found.get("uri"), found.get("node", ""), found.get("attribute")
    if not isinstance(node, str) or not isinstance(uri, str | None) or not isinstance(pointer, str | None):
        reading.note("ref.malformed", "error", where, "`uri`, `node` and `attribute` of a reference are texts")
        return None
    if not (uri or node or pointer):
        reading.note("ref.malformed", "error", where, "`node` of a reference is empty")
        return None
    target = (
        _elsewhere(reading, uri, node, where)
        if uri
        else _here(reading, node, where, defined_in, _fitness(pointer, array))
    )
    if target is None or pointer is None:
        return target
    return _pointed(reading, target, pointer, where)


def follow(reading: Reading, value: Any, where: str) -> tuple[Any, ReferenceTarget | None]:
    """What a value is once references that lead to further references are followed; None where they break or circle.

    Also the target it was found at; None where the value was no reference.
    """
    seen: set[tuple[str | None, str, str | None]] = set()
    target: ReferenceTarget | None = None
    for _ in range(_LONGEST_CHAIN):
        if mapping(value) is None or not _is_reference(value):
            return value, target
        near = reading if target is None else _moved(reading, target)
        reached = resolve(near, value, where, defined_in=None if target is None else target.node)
        if near is not reading:
            reading.add(*near.notes)
        if reached is None:
            return None, None
        mark = (reached.reference.uri, reached.reference.path, reached.reference.attribute)
        if mark in seen:
            break
        seen.add(mark)
        target, value = reached, reached.value
    reading.note("ref.cycle", "error", where, "references lead in a circle")
    return None, None


def pointed(document: Any, pointer: str) -> Any:
    """The value a JSON pointer (RFC 6901) points at; KeyError where there is none."""
    if pointer == "":
        return document
    if not pointer.startswith("/"):
        raise KeyError(pointer)
    for token in pointer[1:].split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list | tuple):
            if not key.isascii() or not key.isdigit() or len(key) > 9 or int(key) >= len(document):
                raise KeyError(pointer)
            document = document[int(key)]
        else:
            inner = mapping(document)
            if inner is None or key not in inner:
                raise KeyError(pointer)
            document = inner[key]
    return document


def _is_reference(value: Any) -> bool:
    found = mapping(value) or {}
    return bool(found.keys() & {"node", "uri"}) or (len(found) == 1 and "ref" in found)


def _moved(reading: Reading, target: ReferenceTarget) -> Reading:
    """A reading in the store of a target, whose relative paths still count from the node that uses them."""
    inside = Reading(node=reading.node, lookup=target.lookup, strict=reading.strict, stores=reading.stores)
    if target.reference.uri is not None:
        inside.node = target.node
    return inside


def _bases(reading: Reading, defined_in: Node | None) -> list[tuple[str, str]]:
    """Each place a relative path may count from, and what that is."""
    bases = [("node", reading.node.path)]
    if (group := parent(reading.node.path)) is not None:
        bases.append(("group", group))
    if defined_in is not None:
        bases.append(("definition", defined_in.path))
        if (around := parent(defined_in.path)) is not None:
            bases.append(("definition", around))
    return bases


def _fitness(pointer: str | None, array: bool) -> Callable[[Node], bool]:
    """Whether a node can be the target."""

    def fits(node: Node) -> bool:
        if array and node.kind != "array":
            return False
        return pointer is None or any(_has(node, place) for place in _places(pointer))

    return fits


def _here(
    reading: Reading, path: str, where: str, defined_in: Node | None, fits: Callable[[Node], bool]
) -> ReferenceTarget | None:
    found: list[tuple[str, Node]] = []
    wrong: FormatError | None = None
    tried: list[str] = []
    for kind, base in _bases(reading, defined_in)[: 1 if path.startswith("/") else None]:
        try:
            place = join(base, path)
        except FormatError as error:
            # From the node itself a path must be valid; the other places are attempts to understand it.
            wrong = error if kind == "node" else wrong
            continue
        if place not in tried:
            tried.append(place)
            if (node := reading.lookup(place)) is not None:
                found.append((kind, node))
    if not found:
        _missing(reading, path, where, wrong, tried)
        return None
    # Nodes that cannot be the target do not make it ambiguous.
    found = [one for one in found if fits(one[1])] or found[:1]
    kind, node = found[0]
    if len(found) > 1 and set(path.split("/")) - {"", ".", ".."}:
        others = ", ".join(other.path for _, other in found[1:])
        message = f"{path[:200]!r} may mean {node.path} or {others}; the first is taken"
        reading.note("ref.ambiguous", "warning", where, message)
    elif kind != "node":
        hint = "paths start at the node that uses them: a node of the same group is ../name"
        reading.note("ref.base", "info", where, f"{path[:200]!r} is found from the {kind}, not from the node", hint)
    return ReferenceTarget(reference=Reference(path=node.path), node=node, lookup=reading.lookup)


def _missing(reading: Reading, path: str, where: str, wrong: FormatError | None, tried: list[str]) -> None:
    if wrong is not None and not tried:
        reading.note("ref.path", "error", where, wrong.message)
    elif wrong is not None:
        message = f"{wrong.message}, and there is no {' or '.join(tried)}"
        reading.note("ref.path", "error", where, message)
    else:
        reading.note("ref.missing", "error", where, f"{path[:200]!r} not found: there is no {' or '.join(tried)}")


def _elsewhere(reading: Reading, uri: str, path: str, where: str) -> ReferenceTarget | None:
    shown = redact(uri)[:300]
    if reading.stores is None:
        reading.note("ref.store", "warning", where, f"the store {shown} is not this one, and no other is opened")
        return None
    try:
        lookup = reading.stores(uri)
        place = join("/", path)
        node = lookup(place)
    except DeniedError as error:
        reading.note("ref.denied", "warning", where, f"the store {shown} may not be opened: {error.message}")
        return None
    except FormatError as error:
        reading.note("ref.path", "error", where, error.message)
        return None
    except PeriplusError as error:
        reading.note("ref.store", "error", where, f"the store {shown} cannot be opened: {error.message}")
        return None
    if node is None:
        reading.note("ref.missing", "error", where, f"there is no {place} in {shown}")
        return None
    return ReferenceTarget(reference=Reference(path=node.path, uri=uri), node=node, lookup=lookup)


def _places(pointer: str) -> tuple[str, str]:
    """A pointer as it should count, from the document, and as some let it count, from the attributes."""
    return pointer, "/attributes" + (pointer if pointer.startswith("/") else "/" + pointer)


def _has(node: Node, place: str) -> bool:
    try:
        pointed(node.document(), place)
    except KeyError:
        return False
    return True


def _pointed(reading: Reading, target: ReferenceTarget, pointer: str, where: str) -> ReferenceTarget | None:
    place = next((place for place in _places(pointer) if _has(target.node, place)), None)
    if place is None:
        reading.note("ref.missing", "error", where, f"{target.node.path} has nothing at {pointer[:200]!r}")
        return None
    if place != pointer:
        message = f"{pointer[:200]!r} counts from the attributes, not from the document"
        reading.note("ref.pointer", "info", where, message, f"write {place[:200]!r}")
    reference = Reference(path=target.node.path, uri=target.reference.uri, attribute=place)
    value = pointed(target.node.document(), place)
    return ReferenceTarget(reference=reference, node=target.node, value=value, lookup=target.lookup)
