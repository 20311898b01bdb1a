"""The conventions we know ourselves, by the interface that handlers of others have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from periplus.conventions.identity import CONVENTIONS, declared, names
from periplus.conventions.meaning import Coord
from periplus.conventions.node import Lookup, Node
from periplus.conventions.read import Reader

PRINCIPAL = ("cs", "dimensions", "spatial")
"""In the order in which they are heard: the first to speak of an axis gives its coordinates."""
SERVICE = ("proj", "ref", "uom", "geolocation", "multiscales", "CF", "tessera", "geoemb")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One convention of ours as a handler. `root` is the store's lookup; variables are descriptions, not arrays."""

    tier: Literal["principal", "service"]
    name: str
    uuid: str | None

    def detect(self, root: Lookup, group: Node | None, array: Node) -> bool:
        """Whether the array, or the group it inherits from, declares the convention, or it gives coordinates anyway."""
        nodes = [node for node in (array, group) if node is not None]
        if any(self.name in names(declared(node.attributes, node.path)[0]) for node in nodes):
            return True
        return bool(self.get_variables(array, group, root))

    def get_variables(self, array: Node, group: Node | None, root: Lookup) -> Mapping[str, Coord]:
        """The coordinates that this convention gives the array, by name."""
        del group  # found again through the root, as every other node is
        meaning = Reader(lookup=root).array(array)
        return {coord.name: coord for coord in meaning.coords if coord.convention == self.name}


BUILT_IN: tuple[BuiltIn, ...] = tuple(
    BuiltIn("principal" if name in PRINCIPAL else "service", name, CONVENTIONS[name].uuid)
    for name in PRINCIPAL + SERVICE
)
