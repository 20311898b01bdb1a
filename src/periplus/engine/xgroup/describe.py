"""What a coordinate is, without its values: to tell whether two are the same, and to speak of one by another name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from periplus.conventions.meaning import Coord, External


def is_axis(coord: Coord) -> bool:
    """Whether it labels a dimension of its own name."""
    return coord.role == "axis" and len(coord.dims) == 1 and coord.name == coord.dims[0]


def described(coord: Coord) -> Any:
    """Equal for coordinates of the same values, as far as that is plain without reading them."""
    values = coord.values
    if isinstance(values, External):
        return ("path", values.reference.uri, values.reference.path)
    return values


def named(coord: Coord, name: str) -> Coord:
    """The coordinate by another name."""
    return replace(coord, name=name)


def elsewhere(coord: Coord, uri: str) -> Coord:
    """What a node of another store refers to lies in that store."""
    values = coord.values
    if not isinstance(values, External) or values.reference.uri is not None:
        return coord
    return replace(coord, values=replace(values, reference=replace(values.reference, uri=uri)))
