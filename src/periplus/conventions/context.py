"""The context in which one node is read: what it declares, how to look up other nodes, and the findings so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from periplus.conventions.diagnostic import Diagnostic, Severity
from periplus.conventions.identity import KEY, belongs, declared, names
from periplus.conventions.node import Node, NodeLookup, StoreLookup, parent

MOST_NOTES = 1000


@dataclass(slots=True, kw_only=True)
class Reading:
    """The node being read, and the findings; used for one call."""

    node: Node
    lookup: NodeLookup
    stores: StoreLookup | None = None
    strict: bool = True
    """Whether attributes of a convention that is not declared are ignored."""
    memo: dict[Any, Any] = field(default_factory=dict)
    """What is the same for all nodes of a store: declarations and pyramids by path. Shared between readings."""
    notes: list[Diagnostic] = field(default_factory=list)
    seen: set[Diagnostic] = field(default_factory=set)

    def note(
        self, code: str, severity: Severity, attribute: str, message: str, hint: str = "", *, path: str | None = None
    ) -> None:
        """Add a finding, once."""
        self.add(Diagnostic(code, severity, self.node.path if path is None else path, attribute, message, hint))

    def add(self, *found: Diagnostic) -> None:
        """Add findings, each once; their number is limited."""
        for one in found:
            if len(self.notes) < MOST_NOTES and one not in self.seen:
                self.seen.add(one)
                self.notes.append(one)

    def of(self, node: Node) -> Reading:
        """A reading of another node that shares everything but the findings."""
        return Reading(node=node, lookup=self.lookup, stores=self.stores, strict=self.strict, memo=self.memo)

    @property
    def group(self) -> Node | None:
        """The group that contains the node."""
        up = parent(self.node.path)
        return None if up is None else self.lookup(up)

    def declared_by(self, node: Node) -> frozenset[str]:
        """Names of the conventions a node itself declares."""
        key = ("declared", node.path)
        if key not in self.memo:
            raw = node.attributes.get(KEY)
            # Most nodes of a store declare the same; declarations without findings are shared.
            if raw is None or not same(raw, self.memo.get("declared", ((), ()))[0]):
                entries, notes = declared(node.attributes, node.path)
                self.memo[key] = (names(entries), notes)
                if raw is not None and not notes:
                    self.memo["declared"] = (raw, self.memo[key])
            else:
                self.memo[key] = self.memo["declared"][1]
        found: tuple[frozenset[str], tuple[Diagnostic, ...]] = self.memo[key]
        if node.path == self.node.path:
            self.add(*found[1])
        return found[0]

    def declares(self, node: Node, convention: str) -> bool:
        """Whether a node declares a convention; or, if not strict, uses its attributes without declaring it."""
        if convention in self.declared_by(node):
            return True
        used = [key for key in node.attributes if belongs(key, convention)]
        if not used:
            return False
        doing = "they are ignored" if self.strict else "they are used anyway"
        shown = ", ".join(str(key)[:80] for key in used[:4])
        # `ref` or `uom` may be an unrelated attribute of that name.
        plain = used[0] in ("cs", "crs", "ref", "uom", "geolocation") and mapping(node.attributes[used[0]]) is None
        self.note(
            f"{convention}.undeclared",
            "info" if plain else "warning",
            str(used[0])[:80],
            f"{convention} attributes without declaration ({shown}): {doing}",
            "add the convention to zarr_conventions",
            path=node.path,
        )
        return not self.strict


def shown(value: Any) -> str:
    """A value as a message may quote it: never long, and never as deep as a hostile document is."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**20 else "a huge number"
    return f"a {type(value).__name__}"


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; those too deep to be compared are not."""
    try:
        return bool(one == other)
    except RecursionError:
        return False


def mapping(value: Any) -> Mapping[str, Any] | None:
    """The value if it is a JSON object."""
    return value if isinstance(value, Mapping) else None


def number(value: Any) -> float | None:
    """The value if it is a finite number; whole numbers stay whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer too large for a float
        return None


def numbers(value: Any, *lengths: int) -> tuple[float, ...] | None:
    """The value if it is a list of finite numbers of one of these lengths (of any, where none is given)."""
    if not isinstance(value, list | tuple) or (lengths and len(value) not in lengths):
        return None
    found = tuple(number(item) for item in value)
    return None if any(item is None for item in found) else found  # type: ignore[return-value]


def whole(value: Any, *lengths: int) -> tuple[int, ...] | None:
    """The value if it is a list of whole numbers that are not negative."""
    found = numbers(value, *lengths)
    if found is None or any(item != int(item) or item < 0 for item in found):
        return None
    return tuple(int(item) for item in found)


def texts(value: Any) -> tuple[str, ...] | None:
    """The value if it is a list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)
