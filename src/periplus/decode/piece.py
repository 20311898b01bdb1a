"""periplus.piece: a part of a stored chunk that is laid into a chunk of the array, over the pieces before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus import codecnames
from periplus.decode.settings import known
from periplus.errors import DecodeError, FormatError
from periplus.model import Pipeline, Shape

NAME = codecnames.PIECE
KEYS = frozenset({"shape", "from", "at", "size", "clear", "layer"})
"""`layer` only tells neighbours apart that would be the same otherwise: a run of rows of one encoding is one piece."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a stored chunk goes where."""

    shape: Shape
    """Of the chunk as it is stored."""
    first: Shape
    """Where the piece begins in the stored chunk."""
    at: Shape
    """Where it begins in the chunk of the array."""
    size: Shape
    clear: int | float | None = None
    """Values that do not cover what lies beneath; None where all cover it."""

    def lay(self, stored: NDArray[Any], into: NDArray[Any]) -> None:
        """Put the piece of a decoded chunk over what is there."""
        if stored.ndim != len(self.valid) or any(n < m for n, m in zip(stored.shape, self.valid, strict=True)):
            raise DecodeError(f"the stored chunk has shape {stored.shape}, and a piece of it reaches to {self.valid}")
        values = stored[tuple(slice(a, a + n) for a, n in zip(self.first, self.size, strict=True))]
        place = into[tuple(slice(a, a + n) for a, n in zip(self.at, self.size, strict=True))]
        if self.clear is None:
            place[...] = values
        else:
            np.copyto(place, values, where=~_equal(values, self.clear))

    @property
    def valid(self) -> Shape:
        """How much of the stored chunk must be there."""
        return tuple(a + n for a, n in zip(self.first, self.size, strict=True))


def piece_of(pipeline: Pipeline, chunks: Shape) -> Piece | None:
    """The piece a pipeline begins with, checked against the array's chunk; None where it begins otherwise."""
    if not pipeline or pipeline[0].get("name") != NAME:
        return None
    settings: Mapping[str, Any] = pipeline[0].get("configuration") or {}
    known(NAME, settings, KEYS)
    clear = settings.get("clear")
    if clear is not None and type(clear) not in (int, float):
        raise FormatError(f"codec {NAME}: clear is {clear!r}")

    def numbers(key: str, least: int) -> Shape:
        found = settings.get(key)
        if not isinstance(found, list) or not all(type(n) is int and n >= least for n in found):
            raise FormatError(f"codec {NAME}: {key} is {found!r}")
        if len(found) != len(chunks):
            raise FormatError(f"codec {NAME}: {key} is {found!r}, and chunks have {len(chunks)} dimensions")
        return tuple(found)

    piece = Piece(
        shape=numbers("shape", 1),
        first=numbers("from", 0),
        at=numbers("at", 0),
        size=numbers("size", 1),
        clear=clear,
    )
    inside = zip(piece.first, piece.at, piece.size, piece.shape, chunks, strict=True)
    if any(first + size > stored or at + size > chunk for first, at, size, stored, chunk in inside):
        raise FormatError(f"codec {NAME}: {dict(settings)} does not lie within chunks of shape {chunks}")
    return piece


def _equal(values: NDArray[Any], clear: float) -> NDArray[np.bool_]:
    try:
        same: NDArray[np.bool_] = np.isnan(values) if math.isnan(clear) else np.equal(values, clear)
    except OverflowError:  # a number that no value of this type can be
        same = np.zeros(values.shape, bool)
    return same
