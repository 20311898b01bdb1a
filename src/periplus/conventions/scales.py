"""How much larger the pixels of a level are: relative or cumulative scales told apart by shapes, as only those can."""

from __future__ import annotations

import math
from collections.abc import Sequence

from periplus.conventions.layout import Item
from periplus.conventions.reading import Reading
from periplus.model import Transform

Pair = tuple[float, float]
CLOSE = 5e-3
"""Relative, between a scale and what sizes give; published examples write 0.333 for a third."""


def pair(
    reading: Reading, item: Item, values: Sequence[float] | None, dims: Sequence[str | None], yx: tuple[str, str]
) -> Pair | None:
    """The (y, x) entries of a scale or translation, which has one entry a dimension, or just those two."""
    if values is None:
        return None
    if len(values) == len(dims) and set(yx) <= set(dims):
        return values[list(dims).index(yx[0])], values[list(dims).index(yx[1])]
    if len(values) == 2:
        return values[0], values[1]
    if not dims and len(values) > 2:
        return values[-2], values[-1]
    message = f"{len(values)} numbers for an array of {len(dims)} dimensions; they are ignored"
    reading.note("multiscales.scale-rank", "warning", f"{item.where}.transform", message)
    return None


def sizes(transform: Transform) -> Pair:
    """Lengths of one step down and one step right."""
    a, b, _, d, e, _ = transform
    return math.hypot(b, e), math.hypot(a, d)


def growth(
    reading: Reading,
    item: Item,
    scale: Pair | None,
    *,
    finer: tuple[int, int] | None,
    shape: tuple[int, int] | None,
    base: tuple[int, int] | None,
    sofar: Pair,
) -> Pair | None:
    """How much larger pixels are than those of the level it derives from (`finer`); None where nothing tells.

    `base` is the shape of the level without a source, `sofar` how much larger than its pixels those of `finer` are.
    """
    where = f"{item.where}.transform.scale"
    if finer is None or shape is None or not all(shape) or not all(finer):
        if scale is not None and min(sofar) > 1 and scale[0] > sofar[0] and scale[1] > sofar[1]:
            message = f"scale {list(scale)} may count from the base; no shapes tell, so it counts from the level before"
            reading.note("multiscales.scale-ambiguous", "warning", where, message, "write spatial:shape")
        return scale
    ratio = (finer[0] / shape[0], finer[1] / shape[1])
    if scale is None:
        return whole_if_near(ratio, finer, shape)
    relative = _misfit(finer, shape, scale)
    cumulative = math.inf if base is None else _misfit(base, shape, scale)
    if relative < 1 and relative <= cumulative:
        return whole_if_near(scale, finer, shape) if _near(scale, ratio) else scale
    if cumulative < 1 and scale != sofar:
        message = f"scale {list(scale)} counts from the base, not from {item.derived_from}; so the shapes say"
        hint = f"write {[s / f for s, f in zip(scale, sofar, strict=True)]}"
        reading.note("multiscales.scale-cumulative", "info", where, message, hint)
        return scale[0] / sofar[0], scale[1] / sofar[1]
    message = f"scale {list(scale)} does not fit the sizes {list(finer)} and {list(shape)}; the sizes are taken"
    reading.note("multiscales.scale-mismatch", "warning", where, message, f"write {list(ratio)}")
    return whole_if_near(ratio, finer, shape)


def whole_if_near(ratio: Pair, finer: tuple[int, int], shape: tuple[int, int]) -> Pair:
    """A whole factor where an uneven size is one rounded up or down: 101 to 51 is a factor of 2, and not 1.98."""
    made = []
    for factor, many, few in zip(ratio, finer, shape, strict=True):
        nearest = round(factor)
        made.append(float(nearest) if nearest >= 1 and few in (many // nearest, -(-many // nearest)) else factor)
    return made[0], made[1]


def check(reading: Reading, item: Item, scale: Pair | None, pixels: Pair, ratio: Pair | None, sofar: Pair) -> None:
    """A finding where a scale is neither what absolute transforms say (`pixels`), nor the ratio of sizes."""
    if scale is None or _near(scale, pixels) or (ratio is not None and _near(scale, ratio)):
        return
    where = f"{item.where}.transform.scale"
    if _near(scale, (pixels[0] * sofar[0], pixels[1] * sofar[1])):
        message = f"scale {list(scale)} counts from the base, not from {item.derived_from}"
        reading.note("multiscales.scale-cumulative", "info", where, message, f"write {list(pixels)}")
    else:
        message = f"scale {list(scale)} is not how much larger pixels are by the transforms, {list(pixels)}"
        reading.note("multiscales.scale-mismatch", "warning", where, message)


def shift(reading: Reading, item: Item, translation: Pair | None, scale: Pair) -> Pair:
    """The translation in pixels of the finer level that counts: 0, or the half pixels of centres; others do not."""
    if translation is None or translation == (0.0, 0.0):
        return 0.0, 0.0
    centres = ((scale[0] - 1) / 2, (scale[1] - 1) / 2)
    where = f"{item.where}.transform.translation"
    # Some writers put (step - 1) / 2 where steps are relative, others 0.5 at every level.
    if _near(translation, centres, 1e-6) or translation == (0.5, 0.5):
        message = f"{list(translation)} is where the centre of the first pixel moves; its corner stays"
        reading.note("multiscales.translation-centre", "info", where, message, "write 0")
        return centres
    reading.note("multiscales.translation", "warning", where, f"the translation {list(translation)} is ignored")
    return 0.0, 0.0


def _near(one: Pair, other: Pair, slack: float = CLOSE) -> bool:
    return all(abs(a - b) <= slack * max(abs(a), abs(b), 1e-12) for a, b in zip(one, other, strict=True))


def _misfit(finer: tuple[int, int], shape: tuple[int, int], scale: Pair) -> float:
    return max(abs(n / s - m) for n, s, m in zip(finer, scale, shape, strict=True))
