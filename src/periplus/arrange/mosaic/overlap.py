"""Files that lie over each other: in which order, whether at all, and which of them nobody can see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import Entry, instant
from periplus.errors import ConflictError, FormatError

RULES = ("error", "first", "last", "first-valid", "last-valid")
"""Whose pixels are taken where files overlap; `valid` ones are those that are not nodata."""
ORDERS = ("given", "name", "time")
"""What makes a file first or last."""
MOST_CELLS = 1 << 24
"""Places that are looked at one by one for files nobody can see, and for holes."""


class Box(NamedTuple):
    """Pixels of a file in the mosaic, half-open."""

    top: int
    left: int
    bottom: int
    right: int


def ranks(entries: Sequence[Entry], numbers: Sequence[int], order: str) -> dict[int, int]:
    """The place of each file in the order asked for, from the first to the last; ties are in the order given."""
    if order not in ORDERS:
        raise FormatError(f"order of a mosaic is one of {', '.join(ORDERS)}, not {order!r}")
    ordered = list(numbers)
    if order == "name":
        ordered.sort(key=lambda i: entries[i].source.url)
    elif order == "time":
        for i in numbers:
            if entries[i].datetime is None:
                raise ConflictError(
                    "order='time', and this file has no datetime; give a pattern= for its name",
                    url=entries[i].source.url,
                )
        ordered.sort(key=lambda i: instant(entries[i].datetime))
    return {i: rank for rank, i in enumerate(ordered)}


def painting(rank: Mapping[int, int], rule: str) -> dict[int, int]:
    """The order in which files are laid, each over those before it."""
    return {i: -n for i, n in rank.items()} if rule.startswith("first") else dict(rank)


def first_overlap(boxes: Mapping[int, Box]) -> tuple[int, int] | None:
    """Two files that share a pixel, the later given first; None where no two do."""
    if len(boxes) < 2:
        return None
    high = int(np.median([box.bottom - box.top for box in boxes.values()]))
    wide = int(np.median([box.right - box.left for box in boxes.values()]))
    shelves: dict[tuple[int, int], list[int]] = {}
    for i, box in boxes.items():
        for y in range(box.top // high, (box.bottom - 1) // high + 1):
            for x in range(box.left // wide, (box.right - 1) // wide + 1):
                shelf = shelves.setdefault((y, x), [])
                for other in shelf:
                    if _overlap(box, boxes[other]):
                        return i, other
                shelf.append(i)
    return None


def shared(a: Box, b: Box) -> Box:
    """The pixels two boxes share."""
    return Box(max(a.top, b.top), max(a.left, b.left), min(a.bottom, b.bottom), min(a.right, b.right))


def _overlap(a: Box, b: Box) -> bool:
    return a.top < b.bottom and b.top < a.bottom and a.left < b.right and b.left < a.right


class View(NamedTuple):
    """What is to be seen from above."""

    hidden: list[int]
    """Files that others cover altogether."""
    holes: bool
    """Whether some place has no file."""


def view(boxes: Mapping[int, Box], order: Mapping[int, int]) -> View | None:
    """Which files can be seen when they are laid in that order; None where there are too many edges to look at."""
    rows = np.unique([edge for box in boxes.values() for edge in (box.top, box.bottom)])
    columns = np.unique([edge for box in boxes.values() for edge in (box.left, box.right)])
    if len(rows) * len(columns) > MOST_CELLS:
        return None
    seen: NDArray[np.int32] = np.full((len(rows) - 1, len(columns) - 1), -1, np.int32)
    for i in sorted(boxes, key=order.__getitem__):
        box = boxes[i]
        top, bottom = np.searchsorted(rows, [box.top, box.bottom])
        left, right = np.searchsorted(columns, [box.left, box.right])
        seen[top:bottom, left:right] = i
    there = set(np.unique(seen).tolist())
    return View([i for i in boxes if i not in there], -1 in there)
