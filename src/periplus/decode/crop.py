"""periplus.crop: stored chunks that are larger than the array's, which has only their first rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus import codecnames
from periplus.decode.settings import known
from periplus.errors import FormatError
from periplus.model import Shape

NAME = codecnames.CROP


def stored_shape(configuration: Mapping[str, Any], chunks: Shape) -> Shape:
    """The shape of a chunk as it is stored; no dimension of it is smaller than that of the array's chunk."""
    known(NAME, configuration, frozenset({"shape"}))
    shape = configuration.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != len(chunks)
        or not all(type(n) is int and n >= m for n, m in zip(shape, chunks, strict=True))
    ):
        raise FormatError(f"codec {NAME}: shape is {shape!r}, which does not hold chunks of shape {chunks}")
    return tuple(shape)
