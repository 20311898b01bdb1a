"""The encodings of an array, each numbered once however many files use it."""

from __future__ import annotations

from dataclasses import dataclass, field

from periplus.errors import LimitError
from periplus.model import Encoding

MOST_ENCODINGS = 1 << 16
"""A row of the table has 16 bits for the number of its encoding."""


@dataclass(slots=True, eq=False)
class Book:
    """Encodings and their numbers."""

    name: str
    """Of the array."""
    advice: str = ""
    """What a user may do where there are too many."""
    encodings: list[Encoding] = field(default_factory=list)
    _numbers: dict[Encoding, int] = field(default_factory=dict)

    def number(self, encoding: Encoding) -> int:
        """The number of an encoding; one not seen before is added."""
        found = self._numbers.get(encoding)
        if found is None:
            found = len(self.encodings)
            if found >= MOST_ENCODINGS:
                raise LimitError(f"{self.name} would have more than {MOST_ENCODINGS} encodings{self.advice}")
            self._numbers[encoding] = found
            self.encodings.append(encoding)
        return found


def mosaic_book(name: str) -> Book:
    """The book of an array whose files are cut at many places."""
    return Book(name, ": its files lie at too many places within the chunks of the mosaic; lay fewer of them into one")
