"""Stored chunks larger than the array's, which has their first elements; and periplus.crop, the codec of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus.decode.settings import known
from periplus.errors import FormatError
from periplus.model import Shape, codecnames

NAME = codecnames.CROP


def stored_shape(configuration: Mapping[str, Any], chunks: Shape) -> Shape:
    """The shape of a chunk as it is stored; no dimension of it is smaller than that of the array's chunk."""
    known(NAME, configuration, frozenset({"shape"}))
    shape = configuration.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int for n in shape):
        raise FormatError(f"codec {NAME}: shape is {shape!r}")
    return within(tuple(shape), chunks)


def within(extent: Shape, chunks: Shape) -> Shape:
    """The extent of a stored chunk, checked to hold chunks of a shape."""
    if len(extent) != len(chunks) or any(n < m for n, m in zip(extent, chunks, strict=True)):
        raise FormatError(f"a stored chunk of shape {extent} does not hold chunks of shape {chunks}")
    return extent
