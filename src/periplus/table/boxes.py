"""One box, brought into the CRS of each array it is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from periplus.errors import FormatError
from periplus.model import Array, BBox
from periplus.table.footprint import affine, bounds

Reproject: TypeAlias = Callable[[BBox, str, str], BBox]
"""(box, from CRS, to CRS) -> box; FormatError where it has no place there."""


def own_boxes(
    arrays: Sequence[Array], bbox: BBox, crs: str | None, reproject: Reproject | None, *, strict: bool
) -> list[tuple[Array, BBox]]:
    """The arrays that may meet the box, each with the box in its own CRS.

    Without `crs` the box is in the CRS of the arrays, so they must share one. Arrays of which a box says nothing
    (no transform, or no CRS although the box has one) are left out, or with `strict` refused.
    """
    kept = [one for one in arrays if affine(one) is not None and (crs is None or _crs(one) is not None)]
    if arrays and (not kept or (strict and len(kept) != len(arrays))):
        first = next(one for one in arrays if not any(one is other for other in kept))
        lacks = "transform" if affine(first) is None else "CRS"
        raise FormatError(f"array {first.name!r} has no {lacks}, so a bbox says nothing of it")
    if crs is None:
        if len(found := dict.fromkeys(_crs(one) for one in kept)) > 1:
            raise FormatError(
                f"these arrays lie in {len(found)} CRSs ({_some(found)}): say by crs= which the bbox is in"
            )
        return [(one, bbox) for one in kept]
    boxes: dict[str, BBox | None] = {}
    placed = []
    for one in kept:
        to = _crs(one) or crs
        if to not in boxes:
            boxes[to] = _moved(bbox, crs, to, reproject)
        box = boxes[to] or _near(one, bbox, crs, to, reproject)
        if box is not None:
            placed.append((one, box))
    return placed


def _moved(bbox: BBox, crs: str, to: str, reproject: Reproject | None) -> BBox | None:
    """The box in another CRS; None where it is too large to have a place there."""
    if crs == to:
        return bbox
    if reproject is None:
        raise TypeError("a bbox in another CRS needs a way to reproject it")
    try:
        return reproject(bbox, crs, to)
    except FormatError:
        if bbox[0] > bbox[2] or bbox[1] > bbox[3]:
            raise  # turned around, or across the antimeridian: no part of it can be cut out
        return None


def _near(array: Array, bbox: BBox, crs: str, to: str, reproject: Reproject | None) -> BBox | None:
    """The part of a large box around the array, in the CRS of the array; None where the array lies elsewhere."""
    around = bounds(array)
    if reproject is None or around is None:
        return None
    (left, bottom, right, top), (xmin, ymin, xmax, ymax) = reproject(around, to, crs), bbox
    part = max(left, xmin), max(bottom, ymin), min(right, xmax), min(top, ymax)
    return None if part[0] > part[2] or part[1] > part[3] else reproject(part, crs, to)


def _crs(array: Array) -> str | None:
    return None if array.georeference is None else array.georeference.crs


def _some(names: Iterable[str | None]) -> str:
    shown = [name or "none" if len(name or "") <= 30 else f"{(name or '')[:29]}…" for name in names]
    return ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")
