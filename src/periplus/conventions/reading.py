"""One reading of one node: what it declares and inherits, who is asked about other nodes, what was found odd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from periplus.conventions.diagnostic import Diagnostic, Severity
from periplus.conventions.identity import belongs, declared, names
from periplus.conventions.node import Lookup, Node, Stores, parent


@dataclass(slots=False, kw_only=True)
class Reading:
    """Carries the node through the conventions, and collects findings; lives for one call of `understand`."""

    node: Node
    lookup: Lookup
    stores: Stores | None = None
    strict: bool = True
    """Whether attributes of a convention that is not declared are left alone."""
    notes: list[Diagnostic] = field(default_factory=list)

    def note(
        self, code: str, severity: Severity, attribute: str, message: str, hint: str = "", *, path: str | None = None
    ) -> None:
        """Add a finding, once."""
        found = Diagnostic(code, severity, self.node.path if path is None else path, attribute, message, hint)
        if found not in self.notes:
            self.notes.append(found)

    @cached_property
    def group(self) -> Node | None:
        """The group the node lies in."""
        up = parent(self.node.path)
        return None if up is None else self.lookup(up)

    def declares(self, node: Node, convention: str) -> bool:
        """Whether a node declares a convention; or, in a lenient reading, uses its attributes without declaring it."""
        if convention in self.declared_by(node):
            return True
        used = [key for key in node.attributes if belongs(key, convention)]
        if not used:
            return False
        doing = "they are left alone" if self.strict else "they are used all the same"
        self.note(
            f"{convention}.undeclared",
            "warning",
            used[0],
            f"{convention} attributes without declaration ({', '.join(used[:4])}): {doing}",
            "add the convention to zarr_conventions",
            path=node.path,
        )
        return not self.strict

    def declared_by(self, node: Node) -> frozenset[str]:
        """Names of the conventions a node itself declares."""
        known: dict[str, frozenset[str]] = self.__dict__.setdefault("_declared", {})
        if node.path not in known:
            entries, notes = declared(node.attributes, node.path)
            known[node.path] = names(entries)
            if node.path == self.node.path:
                self.notes.extend(note for note in notes if note not in self.notes)
        return known[node.path]


def mapping(value: Any) -> Mapping[str, Any] | None:
    """The value if it is a JSON object."""
    return value if isinstance(value, Mapping) else None
