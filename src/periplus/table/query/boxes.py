"""One box in the CRS of the arrays it is asked of: many at a time, where they differ in their corner alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError
from periplus.model import Array, BBox
from periplus.table.collection.groups import GroupedArrays
from periplus.table.query.footprint import (
    TURN,
    TURNS,
    WORLD,
    affine,
    around,
    meets,
    pixel_window,
    turns,
    upright,
)


class Reproject(Protocol):
    """Brings a box from one CRS to another."""

    def __call__(self, bbox: BBox, from_crs: str, to_crs: str, *, partly: bool = False) -> BBox:
        """FormatError where it has no place there, MissingError where no way leads there.

        With `partly` the box is around the part that has a place.
        """


InDegrees: TypeAlias = Callable[[str], bool]
"""Whether x of a CRS are longitudes in degrees."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayBatch:
    """Arrays of a collection that differ only in group and corner; or one array."""

    kind: Array
    """The array, or what describes all of them, with its corner at (0, 0)."""
    groups: GroupedArrays | None = None
    rows: NDArray[np.intp] | None = None
    """Of `groups`; None for one array."""
    degrees: bool = False
    """Whether x are longitudes in degrees, which repeat after a turn."""

    def __len__(self) -> int:
        return 1 if self.rows is None else len(self.rows)

    def take(self, which: NDArray[np.bool_]) -> ArrayBatch:
        return self if self.rows is None else replace(self, rows=self.rows[which])

    def array(self, number: int = 0) -> Array:
        if self.groups is None or self.rows is None:
            return self.kind
        return self.groups.array(int(self.rows[number]), self.kind.name)

    def around(self) -> tuple[NDArray[np.float64], str | None] | None:
        """(4, n): a box around each array, not finite if unknown; and their CRS. None if all are unknown."""
        found = around(self.kind)
        if found is None:
            return None
        boxes = np.repeat(np.array(found[0], float)[:, None], len(self), axis=1)
        if self.groups is not None and affine(self.kind) is not None:
            x, y = self.groups.x[self.rows], self.groups.y[self.rows]
            with np.errstate(over="ignore"):
                boxes += [x, y, x, y]
        return boxes, found[1]


def batches(arrays: Mapping[str, Array]) -> Iterator[ArrayBatch]:
    """All arrays, in the order of their first."""
    if not isinstance(arrays, GroupedArrays):
        yield from map(ArrayBatch, arrays.values())
        return
    yield from map(ArrayBatch, arrays.plain.values())
    held = [(arrays.of_family(number), family) for number, family in enumerate(arrays.families)]
    for rows, family in sorted((pair for pair in held if len(pair[0])), key=lambda pair: int(pair[0][0])):
        yield from (ArrayBatch(kind, arrays, rows) for kind in family.values())


Boxes = NDArray[np.float64]
"""(4, n): xmin, ymin, xmax, ymax."""


def own_boxes(
    chosen: Sequence[ArrayBatch],
    bbox: BBox,
    crs: str | None,
    reproject: Reproject | None,
    *,
    strict: bool,
    in_degrees: InDegrees | None = None,
) -> list[tuple[ArrayBatch, Boxes | None]]:
    """The arrays that may meet the box, with the box in their own CRS; None for those without a transform.

    Without `crs` the box is in the CRS of the arrays, so they must share one. Arrays that cannot be compared
    with the box (no georeference, no CRS although the box has one, a CRS of another body) are skipped, or with
    `strict` refused.
    """
    kept: list[tuple[ArrayBatch, Boxes, str | None]] = []
    first = None
    for batch in chosen:
        place = batch.around()
        there: Any = np.zeros(len(batch), bool) if place is None else np.isfinite(place[0]).all(axis=0)
        if place is not None and crs is not None and place[1] is None:
            there[:] = False
        if first is None and not there.all():
            lacks = "transform" if place is None or crs is None or place[1] is not None else "CRS"
            first = batch.array(int(np.argmin(there))).name, lacks
        if place is not None and there.any():
            kept.append((batch, *place) if there.all() else (batch.take(there), place[0][:, there], place[1]))
    if first is not None and (not kept or strict):
        raise FormatError(f"array {first[0]!r} has no {first[1]}, so it cannot be selected by a bbox")
    if crs is None and len(found := dict.fromkeys(own for *_, own in kept)) > 1:
        raise ValueError(f"these arrays have {len(found)} different CRSs ({_some(found)}): pass crs= of the bbox")
    degrees = in_degrees or WORLD.__eq__
    repeats = crs is not None and degrees(crs)
    boxes: dict[str | None, BBox | MissingError | None] = {}
    answer: list[tuple[ArrayBatch, Boxes | None]] = []
    for batch, wholes, own in kept:
        if own not in boxes:
            boxes[own] = _moved(bbox, crs, own, reproject)
        box = boxes[own]
        if isinstance(box, MissingError):
            continue
        each = np.repeat(np.array(box or (0.0,) * 4, float)[:, None], len(batch), axis=1)
        if box is None:
            if reproject is None:
                continue
            found_near = [
                _near(whole, bbox, str(crs), str(own), reproject, repeats)
                for whole in zip(*wholes.tolist(), strict=True)
            ]
            there = np.array([near is not None for near in found_near], bool)
            if not there.any():
                continue
            each = np.array([near for near in found_near if near is not None], float).T
            batch, wholes = batch.take(there), wholes[:, there]
        if own is not None and degrees(own):
            batch, each = replace(batch, degrees=True), _turned(each, wholes)
        answer += _met(batch, wholes, each)
    lost = [error for error in boxes.values() if isinstance(error, MissingError)]
    if lost and (strict or len(lost) == len(boxes)):
        raise lost[0]
    return answer


def _met(batch: ArrayBatch, wholes: Boxes, boxes: Boxes) -> Iterator[tuple[ArrayBatch, Boxes | None]]:
    """The arrays whose pixels the boxes may meet, give or take a pixel; a single array always: its rows decide."""
    transform = affine(batch.kind)
    for box in {tuple(box) for box in boxes.T[:: max(1, len(batch) - 1)].tolist()}:
        upright(box)
    if transform is None:
        there = np.array([meets(wholes[:, [n]], tuple(boxes[:, n])).all() for n in range(len(batch))], bool)
        if there.any():
            yield batch.take(there), None
        return
    if batch.rows is None:
        yield batch, boxes
        return
    pixel_window(transform, tuple(boxes[:, 0].tolist()))  # that there is a way from places to pixels
    a, b, _, d, e, _ = transform
    # Two pixels, and what arithmetic on large numbers loses.
    x = 2 * (abs(a) + abs(b)) + 16 * np.spacing(np.abs(wholes[[0, 2]]).max(axis=0) + np.abs(boxes[[0, 2]]).max(axis=0))
    y = 2 * (abs(d) + abs(e)) + 16 * np.spacing(np.abs(wholes[[1, 3]]).max(axis=0) + np.abs(boxes[[1, 3]]).max(axis=0))
    there = (wholes[0] - x <= boxes[2]) & (wholes[2] + x >= boxes[0])
    there &= (wholes[1] - y <= boxes[3]) & (wholes[3] + y >= boxes[1])
    yield batch.take(there), boxes[:, there]


def _turned(boxes: Boxes, wholes: Boxes) -> Boxes:
    """The first of `turns`, for many boxes at once."""
    if boxes.shape[1] == 1:
        whole: Any = wholes[:, 0].tolist()
        return np.array([turns(tuple(boxes[:, 0].tolist()), whole)[0]]).T
    left, right = boxes[0].copy(), boxes[2].copy()
    done = boxes[2] - boxes[0] >= TURN
    left[done], right[done] = np.minimum(left, wholes[0])[done], np.maximum(right, wholes[2])[done]
    for turn in TURNS:
        low, high = boxes[0] + turn, boxes[2] + turn
        fits = (low < wholes[2]) & (high > wholes[0])
        fits |= (low == high) & (wholes[0] <= low) & (high <= wholes[2])
        fits &= ~done
        left[fits], right[fits] = low[fits], high[fits]
        done = done | fits
    return np.stack([left, boxes[1], right, boxes[3]])


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


def _near(whole: BBox, bbox: BBox, crs: str, to: str, reproject: Reproject, repeats: bool) -> BBox | None:
    """The part of a large box around an array's own, in the CRS of the array; None if the array is elsewhere.

    Where that cannot be cut out, but the array may meet the box, it is all of the array. `repeats`: the box is in
    degrees.
    """
    try:
        if (part := _common(reproject(whole, to, crs), bbox, repeats)) is None:
            return None
        return reproject(part, crs, to)
    except FormatError:
        try:
            return None if _common(reproject(whole, to, crs, partly=True), bbox, repeats) is None else whole
        except MissingError:
            return None


def _common(one: BBox, other: BBox, repeats: bool) -> BBox | None:
    if repeats:
        other = turns(other, one)[0]
    xmin, ymin, xmax, ymax = (*map(max, one[:2], other[:2]), *map(min, one[2:], other[2:]))
    return None if xmin > xmax or ymin > ymax else (xmin, ymin, xmax, ymax)


def _some(names: Iterable[str | None]) -> str:
    shown = [name or "none" if len(name or "") <= 30 else f"{(name or '')[:29]}…" for name in names]
    return ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")
