"""Groups and arrays as their metadata documents describe them, whichever version of Zarr these have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from periplus.model import Pipeline, Scalar, Shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupMetadata:
    """The metadata of a group."""

    zarr_format: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkKeys:
    """How the key of a chunk is made of its position: `c/0/1`, `c.0.1`, `0.1` or `0/1`."""

    prefix: str
    """`c`, or empty."""
    separator: str
    """A dot or a slash."""

    def key(self, position: Sequence[int]) -> str:
        """The key of the chunk at a position, below the path of its array."""
        numbers = [str(number) for number in position]
        if self.prefix:
            return self.separator.join([self.prefix, *numbers])
        return self.separator.join(numbers) or "0"

    def pattern(self, rank: int) -> re.Pattern[str]:
        """Matches the keys of an array with so many dimensions, below its path; its groups are the numbers."""
        prefix, separator = re.escape(self.prefix), re.escape(self.separator)
        if not rank:
            return re.compile(f"(?:{prefix}{separator})?0|{prefix}" if prefix else "0")
        return re.compile(separator.join([*([prefix] if prefix else []), *[r"(0|[1-9][0-9]{0,9})"] * rank]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayMetadata:
    """The metadata of an array."""

    zarr_format: int
    shape: Shape
    chunks: Shape
    """Shape of chunks; the largest along dimensions that have `edges`."""
    edges: tuple[tuple[int, ...] | None, ...] | None = None
    """Sizes of all chunks along each dimension of a rectilinear grid, None for a dimension whose chunks are regular;
    None for a regular grid. The last chunk may extend past the end of the array."""
    data_type: Any
    """As stored: `<f4`, `float32`, {"name": "numpy.datetime64", ...}."""
    dtype: np.dtype[Any] | None
    """In native byte order; None for types that our arrays do not have, such as strings of variable length."""
    fill_value: Scalar | None
    """Value of missing chunks; None where nothing is declared, or where `dtype` is None."""
    codecs: Pipeline
    """In the style of Zarr v3 and the order of encoding. Filters and the compressor of v2 have their v3 names."""
    chunk_keys: ChunkKeys
    dimension_names: tuple[str | None, ...] = ()
    """As declared: not necessarily one for each dimension."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """As stored, with `_ARRAY_DIMENSIONS` of v2."""
    storage_transformers: tuple[Mapping[str, Any], ...] = ()

    @property
    def dims(self) -> tuple[str | None, ...]:
        """The name of each dimension; None for one without a name, and for all if their number is wrong."""
        if len(self.dimension_names) != len(self.shape):
            return (None,) * len(self.shape)
        return tuple(name or None for name in self.dimension_names)

    @property
    def is_text(self) -> bool:
        """Whether values are strings of variable length."""
        return self.dtype is None and any(codec["name"] == "vlen-utf8" for codec in self.codecs[:1])
