"""Which files fit into one array: how the arrays of two files differ, and the files that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from periplus.arrange.arrangement import FileEntry
from periplus.arrange.messages import parenthesised, short_crs
from periplus.conventions.proj.crs import same_crs
from periplus.errors import ConflictError, FormatError
from periplus.model import Array, Georeference, Shape, Transform

TOLERANCE = 1e-6
"""Pixels by which the corners of two images may differ and still count as equal."""
MISFIT = "conflict: "
"""How the error of a file that does not fit begins."""


@dataclass(slots=True)
class Misfits:
    """Files that do not fit, by the number of their entry: skipped with a reason, or an error at the first."""

    entries: Sequence[FileEntry]
    skip: bool
    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, reason: str) -> None:
        entry = self.entries[number]
        if entry.indexed and self.skip:
            raise ConflictError(
                f"{reason}; this file is already in the index, and append does not drop it: write a new index instead",
                url=entry.source.url,
            )
        if not self.skip:
            raise ConflictError(reason, url=entry.source.url)
        self.reasons[number] = reason

    def add_all(self, reasons: Mapping[int, str]) -> None:
        for number, reason in reasons.items():
            self.add(number, reason)

    @property
    def errors(self) -> dict[int, str]:
        """For the files table."""
        return {number: f"{MISFIT}{reason}" for number, reason in self.reasons.items()}


def reference_files(entries: Sequence[FileEntry], numbers: Sequence[int]) -> Sequence[int]:
    """The files that others must fit: those already in the index if files are appended, otherwise all."""
    return [i for i in numbers if entries[i].indexed] or numbers


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """The first difference, for example `0/data has shape (1, 512, 512), not (1, 500, 512)`; None if there is none."""
    mine = {array.name: array for array in ours}
    other = {array.name: array for array in theirs}
    for name in other:
        if name not in mine:
            return f"it has no {name}"
    for name in mine:
        if name not in other:
            return f"it has {name} as well"
    for name, array in mine.items():
        found = _array_difference(array, other[name])
        if found is not None:
            return f"{name} {found}"
    return None


def structure_key(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Equal for files with the same structure; used to find the structure that most files have."""
    return tuple(
        (a.name, a.dims, a.shape, a.chunks, a.dtype.str, None if a.georeference is None else a.georeference.crs)
        for a in arrays
    )


def _array_difference(a: Array, b: Array) -> str | None:
    for noun, mine, other in (
        ("dimensions", parenthesised(a.dims), parenthesised(b.dims)),
        ("shape", a.shape, b.shape),
        ("chunks", a.chunks, b.chunks),
        ("type", a.dtype, b.dtype),
        ("level", a.level, b.level),
    ):
        if mine != other:
            return f"has {noun} {mine}, not {other}"
    if _irregular_edges(a) != _irregular_edges(b):
        return "has other chunk boundaries"
    bands = band_difference(a, b)
    return bands or _georeference_difference(a.georeference, b.georeference, a.shape[-2:])


def band_difference(a: Array, b: Array) -> str | None:
    """How the order of named bands differs; None if it does not. Other names may be synonyms and are no difference."""
    ours, theirs = (list(array.attributes.get("band_names") or ()) for array in (a, b))
    if ours != theirs and sorted(ours) == sorted(theirs):
        return f"has bands {parenthesised(ours)}, not {parenthesised(theirs)}"
    return None


def _irregular_edges(array: Array) -> tuple[tuple[int, ...] | None, ...] | None:
    edges = array.edges
    return None if edges is None or all(e is None for e in edges) else edges


def _georeference_difference(a: Georeference | None, b: Georeference | None, size: Shape) -> str | None:
    a, b = a or Georeference(), b or Georeference()
    if not equal_crs(a.crs, b.crs):
        return f"has the CRS {short_crs(a.crs)}, not {short_crs(b.crs)}"
    if (a.transform is None) != (b.transform is None):
        return "has " + ("no transform" if a.transform is None else "a transform")
    if a.transform is not None and b.transform is not None and not _equal_corners(a.transform, b.transform, size):
        return f"has the transform {a.transform}, not {b.transform}"
    if a.registration != b.registration:
        return f"has registration {a.registration}, not {b.registration}"
    if a.gcps != b.gcps:
        return "has other ground control points"
    if (dict(a.rpc) if a.rpc else None) != (dict(b.rpc) if b.rpc else None):
        return "has other rational polynomial coefficients"
    return None


def equal_crs(one: str | None, other: str | None) -> bool:
    """Whether two texts describe the same CRS; one that cannot be parsed equals only the same text."""
    if one == other or one is None or other is None:
        return one == other
    try:
        return same_crs(one, other)
    except FormatError:
        return False


def _equal_corners(a: Transform, b: Transform, size: Shape) -> bool:
    """Whether two transforms put the corners of an image of (rows, columns) at the same coordinates."""
    if a == b:
        return True
    rows, columns = size if len(size) == 2 else (1, 1)
    pixel = min(abs(b[0]) + abs(b[3]), abs(b[1]) + abs(b[4]))
    for column, row in ((0, 0), (columns, 0), (0, rows), (columns, rows)):
        for k in (0, 3):
            gap = (a[k] - b[k]) * column + (a[k + 1] - b[k + 1]) * row + (a[k + 2] - b[k + 2])
            if not abs(gap) <= TOLERANCE * pixel:
                return False
    return True
