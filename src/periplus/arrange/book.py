"""The codec pipelines of an array, each numbered once however many files use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from periplus.arrange.packing import pipeline_key
from periplus.errors import LimitError
from periplus.model import Pipeline

MOST_PIPELINES = 1 << 16
"""A row of the table has 16 bits for the number of its pipeline."""


@dataclass(slots=True, eq=False)
class Book:
    """Pipelines and their numbers."""

    name: str
    """Of the array."""
    advice: str = ""
    """What a user may do where there are too many."""
    pipelines: list[Pipeline] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, pipeline: Pipeline) -> int:
        """The number of a pipeline; one not seen before is added."""
        key = pipeline_key(pipeline)
        if key not in self._numbers:
            if len(self.pipelines) >= MOST_PIPELINES:
                raise LimitError(f"{self.name} would have more than {MOST_PIPELINES} encodings{self.advice}")
            self._numbers[key] = len(self.pipelines)
            self.pipelines.append(pipeline)
        return self._numbers[key]

    @classmethod
    def of(cls, name: str, stored: Iterable[Pipeline]) -> Book:
        """The book of an array that is stored already."""
        book = cls(name)
        for code, pipeline in enumerate(stored):
            book.pipelines.append(pipeline)
            book._numbers[pipeline_key(pipeline)] = code
        return book


def mosaic_book(name: str) -> Book:
    """The book of an array whose files are cut at many places."""
    return Book(name, ": its files lie at too many places within the chunks of the mosaic; lay fewer of them into one")
