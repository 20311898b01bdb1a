"""Which dimensions are rows and columns where nobody says: those of usual names, in capitals or not."""

from __future__ import annotations

from collections.abc import Iterable

PAIRS = (("y", "x"), ("lat", "lon"), ("latitude", "longitude"), ("northing", "easting"))


def usual_dims(names: Iterable[object]) -> tuple[str, str] | None:
    """(y, x) among names of dimensions, as they are spelled there."""
    spelled = {str(name).lower(): str(name) for name in names if name is not None}
    return next(((spelled[y], spelled[x]) for y, x in PAIRS if y in spelled and x in spelled), None)


def turned_around(y: str, x: str) -> bool:
    """Whether names that are said to be y and x look like x and y."""
    return (x.lower(), y.lower()) in PAIRS
