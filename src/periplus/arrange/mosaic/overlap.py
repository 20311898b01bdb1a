"""Overlapping files of a mosaic: which overlap, in which order they cover each other, and which are hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import FileEntry
from periplus.errors import ConflictError
from periplus.model.files import instant

MOSAIC_DUPLICATES = ("error", "first", "last", "first-valid", "last-valid")
"""Whose pixels are taken where files overlap; the `valid` rules take those that are not nodata."""
MOSAIC_ORDERS = ("given", "name", "time")
"""What makes a file first or last."""
MOST_CELLS = 1 << 24
"""Cells between the edges of files that are searched for hidden files and gaps."""


class PixelBox(NamedTuple):
    """Pixels of a file in the mosaic, half-open."""

    top: int
    left: int
    bottom: int
    right: int


def rank_files(entries: Sequence[FileEntry], numbers: Sequence[int], order: str) -> dict[int, int]:
    """The rank of each file in `order`, from first to last; ties keep the order given."""
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


def overlay_order(ranks: Mapping[int, int], duplicates: str) -> dict[int, int]:
    """The order of each file in an overlay: higher numbers cover lower ones."""
    return {i: -n for i, n in ranks.items()} if duplicates.startswith("first") else dict(ranks)


def first_overlap(boxes: Mapping[int, PixelBox]) -> tuple[int, int] | None:
    """Two files that share a pixel, the later one first; None if no two do."""
    if len(boxes) < 2:
        return None
    height = int(np.median([box.bottom - box.top for box in boxes.values()]))
    width = int(np.median([box.right - box.left for box in boxes.values()]))
    bins: dict[tuple[int, int], list[int]] = {}
    for i, box in boxes.items():
        for y in range(box.top // height, (box.bottom - 1) // height + 1):
            for x in range(box.left // width, (box.right - 1) // width + 1):
                others = bins.setdefault((y, x), [])
                for other in others:
                    if _overlap(box, boxes[other]):
                        return i, other
                others.append(i)
    return None


def intersection(a: PixelBox, b: PixelBox) -> PixelBox:
    """The pixels that two overlapping boxes share."""
    return PixelBox(max(a.top, b.top), max(a.left, b.left), min(a.bottom, b.bottom), min(a.right, b.right))


def _overlap(a: PixelBox, b: PixelBox) -> bool:
    return a.top < b.bottom and b.top < a.bottom and a.left < b.right and b.left < a.right


class Coverage(NamedTuple):
    """What an overlay of files shows."""

    hidden: list[int]
    """Files that are completely covered by others."""
    gaps: bool
    """Whether some pixels have no file."""


def coverage(boxes: Mapping[int, PixelBox], order: Mapping[int, int]) -> Coverage | None:
    """What files show if they cover each other in that order; None if they have too many edges to search."""
    rows = np.unique([edge for box in boxes.values() for edge in (box.top, box.bottom)])
    columns = np.unique([edge for box in boxes.values() for edge in (box.left, box.right)])
    if len(rows) * len(columns) > MOST_CELLS:
        return None
    visible: NDArray[np.int32] = np.full((len(rows) - 1, len(columns) - 1), -1, np.int32)
    for i in sorted(boxes, key=order.__getitem__):
        box = boxes[i]
        top, bottom = np.searchsorted(rows, [box.top, box.bottom])
        left, right = np.searchsorted(columns, [box.left, box.right])
        visible[top:bottom, left:right] = i
    found = set(np.unique(visible).tolist())
    return Coverage([i for i in boxes if i not in found], -1 in found)
