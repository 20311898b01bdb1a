"""Files that do not fit into an arrangement: the first is an error, unless they are to be skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from periplus.arrange.entry import Entry
from periplus.errors import ConflictError


def judges(entries: Sequence[Entry], numbers: Sequence[int]) -> Sequence[int]:
    """The files that others must fit: those of the index that is added to, else all."""
    return [i for i in numbers if entries[i].held] or numbers


@dataclass(slots=True)
class Misfits:
    """Why files are left out, by the number of their entry."""

    entries: Sequence[Entry]
    skip: bool
    why: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, why: str) -> None:
        entry = self.entries[number]
        if entry.held and self.skip:
            raise ConflictError(
                f"{why}; the index has this file already, and append does not drop it: write a new index instead",
                url=entry.source.url,
            )
        if not self.skip:
            raise ConflictError(why, url=entry.source.url)
        self.why[number] = why

    def add_all(self, found: Mapping[int, str]) -> None:
        for number, why in found.items():
            self.add(number, why)

    @property
    def errors(self) -> dict[int, str]:
        """As the files table says them."""
        return {number: f"conflict: {why}" for number, why in self.why.items()}
