"""One box, brought into the CRS of each array it is asked of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from periplus.errors import FormatError, MissingError
from periplus.model import Array, BBox
from periplus.table.footprint import WORLD, affine, around, meets, turned, upright


class Reproject(Protocol):
    """Brings a box from one CRS to another."""

    def __call__(self, bbox: BBox, from_crs: str, to_crs: str, *, partly: bool = False) -> BBox:
        """FormatError where it has no place there, MissingError where no way leads there.

        With `partly` the box is around the part that has a place.
        """


def own_boxes(
    arrays: Sequence[Array],
    bbox: BBox,
    crs: str | None,
    reproject: Reproject | None,
    *,
    strict: bool,
) -> list[tuple[Array, BBox | None]]:
    """The arrays that may meet the box, each with the box in its own CRS; None for one without a transform.

    Without `crs` the box is in the CRS of the arrays, so they must share one. Arrays of which a box says nothing
    (no place, no CRS although the box has one, a CRS of another world) are left out, or with `strict` refused.
    """
    kept = [(one, *place) for one in arrays if (place := around(one)) and (crs is None or place[1] is not None)]
    if arrays and (not kept or (strict and len(kept) != len(arrays))):
        placed = {one.name for one, *_ in kept}
        first = next(one for one in arrays if one.name not in placed)
        lacks = "transform" if around(first) is None else "CRS"
        raise FormatError(f"array {first.name!r} has no {lacks}, so a bbox says nothing of it")
    if crs is None and len(found := dict.fromkeys(own for *_, own in kept)) > 1:
        raise FormatError(f"these arrays lie in {len(found)} CRSs ({_some(found)}): say by crs= which the bbox is in")
    boxes: dict[str | None, BBox | MissingError | None] = {}
    answer: list[tuple[Array, BBox | None]] = []
    for one, whole, own in kept:
        if own not in boxes:
            boxes[own] = _moved(bbox, crs, own, reproject)
        box = boxes[own]
        if isinstance(box, MissingError):
            continue
        if box is None and reproject is not None:
            box = _near(whole, bbox, str(crs), str(own), reproject)
        if box is None:
            continue
        if own == WORLD:
            box = turned(box, whole)
        if affine(one) is not None:
            answer.append((one, box))
        elif meets(np.array([whole], float).T, upright(box)).all():
            answer.append((one, None))
    lost = [error for error in boxes.values() if isinstance(error, MissingError)]
    if lost and (strict or len(lost) == len(boxes)):
        raise lost[0]
    return answer


def _moved(bbox: BBox, crs: str | None, to: str | None, reproject: Reproject | None) -> BBox | MissingError | None:
    """The box in another CRS; None where it is too large to have a place there, an error where no way leads there."""
    if crs is None or to is None or crs == to:
        return bbox
    if reproject is None:
        raise TypeError("a bbox in another CRS needs a way to reproject it")
    try:
        return reproject(bbox, crs, to)
    except MissingError as error:
        return error
    except FormatError:
        if bbox[0] > bbox[2] or bbox[1] > bbox[3]:
            raise  # turned around, or across the antimeridian: no part of it can be cut out
        return None


def _near(whole: BBox, bbox: BBox, crs: str, to: str, reproject: Reproject) -> BBox | None:
    """The part of a large box around an array's own, in the CRS of the array; None where the array lies elsewhere.

    Where that cannot be cut out, but the array may meet the box, it is all of the array.
    """
    try:
        if (part := _common(reproject(whole, to, crs), bbox)) is None:
            return None
        return reproject(part, crs, to)
    except FormatError:
        try:
            return None if _common(reproject(whole, to, crs, partly=True), bbox) is None else whole
        except MissingError:
            return None


def _common(one: BBox, other: BBox) -> BBox | None:
    xmin, ymin, xmax, ymax = (*map(max, one[:2], other[:2]), *map(min, one[2:], other[2:]))
    return None if xmin > xmax or ymin > ymax else (xmin, ymin, xmax, ymax)


def _some(names: Iterable[str | None]) -> str:
    shown = [name or "none" if len(name or "") <= 30 else f"{(name or '')[:29]}…" for name in names]
    return ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")
