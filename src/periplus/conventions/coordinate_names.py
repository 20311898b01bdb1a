"""Names of the coordinates of an array, different from those of all other variables of its group."""

from __future__ import annotations

from dataclasses import dataclass, field

from periplus.conventions.context import Reading
from periplus.conventions.meaning import Reference
from periplus.conventions.node import Node, parent
from periplus.conventions.ref import ReferenceTarget


@dataclass(slots=True)
class CoordinateNames:
    """Assigns names; a node keeps the name it was given."""

    array: Node
    members: frozenset[str]
    """Names in the group of the array, which are reserved for those nodes."""
    taken: dict[str, tuple[str | None, str] | None] = field(default_factory=dict)
    """Name to (uri, path) of the node that has it; None for values that are not in a node."""

    @classmethod
    def of(cls, reading: Reading) -> CoordinateNames:
        group = reading.group
        if group is None:
            return cls(reading.node, frozenset())
        key = "members", group.path  # once for all arrays of a group, which may be thousands
        if key not in reading.memo:
            reading.memo[key] = frozenset(group.members)
        return cls(reading.node, reading.memo[key])

    def axis(self, dim: str, target: ReferenceTarget | None = None) -> str:
        """A dimension coordinate has the name of its dimension, whatever else there is."""
        self.taken[dim] = None if target is None else (target.reference.uri, target.reference.path)
        return dim

    def free(
        self,
        wanted: str,
        target: ReferenceTarget | None = None,
        reference: Reference | None = None,
        dims: tuple[str, ...] | None = None,
    ) -> str:
        """The name itself if it is free; else prefixed with the groups of its node; else with a number.

        The name of a dimension is only for a variable along just that dimension (`dims`).
        """
        reference = reference if target is None else target.reference
        mark = None if reference is None else (reference.uri, reference.path)
        if mark is not None:
            for name, other in self.taken.items():
                if other == mark:
                    return name
        parts = [] if reference is None else [part for part in reference.path.split("/")[:-1] if part]
        tries = [wanted, *("_".join([*parts[-n:], wanted]) for n in range(1, len(parts) + 1))]
        number = 2
        while not self._is_free(tries[0], mark, dims):
            tries.pop(0)
            if not tries:
                tries.append(f"{wanted}_{number}")
                number += 1
        self.taken[tries[0]] = mark
        return tries[0]

    def _is_free(self, name: str, mark: tuple[str | None, str] | None, dims: tuple[str, ...] | None) -> bool:
        if name in self.taken or name == self.array.name:
            return False
        if (name in self.array.dims or name in (dims or ())) and dims != (name,):
            return False
        group = parent(self.array.path) or "/"
        return name not in self.members or mark == (None, f"{group.rstrip('/')}/{name}")
