"""Values of the cs convention, in every wrapping: regular, explicit or external, to descriptions of a known length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus.conventions.context import Reading, mapping, number, numbers
from periplus.conventions.meaning import Explicit, External, Regular, Shifted
from periplus.conventions.node import Node
from periplus.conventions.ref import ReferenceTarget, resolve

MOST_ITEMS = 10_000_000
KINDS = ("regular", "explicit", "external")


def values_of(
    reading: Reading, value: Any, where: str, *, dim: str | None, count: int, defined_in: Node | None = None
) -> tuple[Regular | Explicit | External, ReferenceTarget | None] | None:
    """Values along a dimension of `count` items (`dim` None: a single value), and the node that stores them."""
    found = _kinds(reading, value, where)
    if found is None:
        return None
    kind, inner = found
    at = f"{where}.{kind}"
    if kind == "regular":
        pair = numbers(inner, 2)
        if pair is None or pair[1] == 0:
            reading.note("cs.regular", "error", at, "regular values are a start and an increment that is not 0")
            return None
        return Regular(pair[0], pair[1], count), None
    if kind == "explicit":
        return _explicit(reading, inner, at, dim, count)
    target = resolve(reading, inner, at, defined_in=defined_in, array=True)
    if target is None:
        return None
    return _external(reading, target, at, dim, count)


def _kinds(reading: Reading, value: Any, where: str) -> tuple[str, Any] | None:
    """Which kind of values it is, and its content."""
    if isinstance(value, list | tuple):
        reading.note("cs.values-bare", "warning", where, "values are a mere list", 'write {"explicit": […]}')
        return "explicit", value
    found = mapping(value)
    if found is None:
        reading.note("cs.values", "error", where, "values are an object: regular, external or explicit")
        return None
    given = [kind for kind in KINDS if kind in found]
    if len(given) > 1:
        reading.note("cs.values-many", "warning", where, f"of {given} the first is taken; exactly one is allowed")
    if given:
        inner = found[given[0]]
        if given[0] == "external" and "ref" not in (mapping(inner) or {"ref": 1}):
            message = "the reference is not wrapped in `ref`"
            reading.note("cs.external-bare", "info", f"{where}.external", message, 'write {"external": {"ref": …}}')
        return given[0], inner
    if "ref" in found or "node" in found:
        hint = 'write {"external": {"ref": {"node": …}}}'
        reading.note("cs.external-swapped", "info", where, "`external` is within `ref`, or missing", hint)
        return "external", found
    reading.note("cs.values", "error", where, "values are one of regular, external and explicit")
    return None


def _explicit(
    reading: Reading, inner: Any, where: str, dim: str | None, count: int
) -> tuple[Explicit, ReferenceTarget | None] | None:
    items = list(inner) if isinstance(inner, list | tuple) else [inner]
    if not isinstance(inner, list | tuple):
        reading.note("cs.explicit-scalar", "info", where, "explicit values are a list", "write […]")
    fine = all(isinstance(item, str) for item in items) or all(number(item) is not None for item in items)
    if not fine or len(items) > MOST_ITEMS:
        reading.note("cs.explicit", "error", where, "explicit values are all numbers or all texts")
        return None
    if len(items) != count:
        name = "a scalar coordinate" if dim is None else f"the dimension {dim!r}"
        reading.note("cs.length", "error", where, f"{len(items)} values for {name} of {count}")
        return None
    return Explicit(tuple(items)), None


def _external(
    reading: Reading, target: ReferenceTarget, where: str, dim: str | None, count: int
) -> tuple[External, ReferenceTarget] | None:
    node = target.node
    if node.kind != "array":
        reading.note("ref.kind", "error", where, f"{node.path} is a group and has no values")
        return None
    items = 1
    for size in node.shape:
        items *= size
    if len(node.shape) > 1 or items != count:
        name = "a scalar coordinate" if dim is None else f"the dimension {dim!r}"
        message = f"{node.path} of shape {list(node.shape)} does not fit {name} of {count}"
        reading.note("cs.length", "error", where, message)
        return None
    dims = () if dim is None or not node.shape else (dim,)
    return External(reference=target.reference, dims=dims, shape=node.shape), target


def bounds_of(
    reading: Reading,
    value: Any,
    where: str,
    *,
    base: Regular | Explicit | External,
    dim: str,
    count: int,
    defined_in: Node | None = None,
) -> Shifted | External | None:
    """Boundaries of a coordinate: two offsets, or another array of shape (2, n) or (n, 2)."""
    found = _kinds(reading, value, where)
    if found is None:
        return None
    kind, inner = found
    if kind == "regular":
        pair = numbers(inner, 2)
        if pair is None:
            reading.note("cs.bounds", "error", f"{where}.regular", "regular boundaries are two offsets")
            return None
        return Shifted(base, pair[0], pair[1])
    if kind == "explicit":
        reading.note("cs.bounds", "error", where, "boundaries are regular or external")
        return None
    target = resolve(reading, inner, f"{where}.external", defined_in=defined_in, array=True)
    if target is None:
        return None
    node = target.node
    if node.kind != "array" or node.shape not in ((2, count), (count, 2)):
        message = f"{node.path} of shape {list(node.shape)} is not (2, {count})"
        reading.note("cs.bounds", "error", f"{where}.external", message)
        return None
    transposed = node.shape == (2, count) and not (count == 2 and _named_first(node.dims, dim, base))
    if count == 2:
        which = "(2, n), as the specification requires" if transposed else "(n, 2), by the names of its dimensions"
        reading.note("cs.bounds-square", "info", f"{where}.external", f"{node.path} is taken for {which}")
    elif not transposed:
        reading.note(
            "cs.bounds-order",
            "info",
            f"{where}.external",
            f"{node.path} is (n, 2)",
            "the specification requires (2, n)",
        )
    dims = ("bnds", dim) if transposed else (dim, "bnds")
    return External(reference=target.reference, dims=dims, shape=node.shape, transpose=transposed)


def _named_first(dims: tuple[str | None, ...], dim: str, base: Regular | Explicit | External) -> bool:
    own = base.reference.path.rpartition("/")[2] if isinstance(base, External) else dim
    return len(dims) == 2 and dims[0] in (dim, own) and dims[1] not in (dim, own)


def term_dims(node: Node, array: Node) -> tuple[str, ...] | None:
    """Dimensions of a term for the array that uses it: those it names, if they fit; else those its sizes fit."""
    sizes: Mapping[str | None, int] = dict(zip(array.dims, array.shape, strict=False))
    if len(node.dims) == len(node.shape) and all(
        name is not None and sizes.get(name, size) == size for name, size in zip(node.dims, node.shape, strict=True)
    ):
        return tuple(str(name) for name in node.dims)
    trailing = array.dims[len(array.dims) - len(node.shape) :] if node.shape else ()
    if len(trailing) == len(node.shape) and all(
        name is not None and sizes[name] == size for name, size in zip(trailing, node.shape, strict=True)
    ):
        return tuple(str(name) for name in trailing)
    if len(node.shape) == 1:
        fitting = [name for name, size in sizes.items() if size == node.shape[0] and name is not None]
        return (str(fitting[0]),) if len(fitting) == 1 else None
    return None
