"""How much larger the pixels of a level are: relative or cumulative scales, distinguished by shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from periplus.conventions.context import Reading
from periplus.conventions.multiscales.layout import LayoutItem
from periplus.model import Transform

Pair = tuple[float, float]
CLOSE = 5e-3
"""Relative, between a scale and what sizes give; published examples write 0.333 for a third."""


def pair(
    reading: Reading, item: LayoutItem, values: Sequence[float] | None, dims: Sequence[str | None], yx: tuple[str, str]
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
    item: LayoutItem,
    scale: Pair | None,
    *,
    finer: tuple[int, int] | None,
    shape: tuple[int, int] | None,
    base: tuple[int, int] | None,
    sofar: Pair,
    nodes: bool = False,
) -> Pair | None:
    """How much larger pixels are than those of the level it derives from (`finer`); None where it is unknown.

    `base` is the shape of the level without a source, `sofar` how much larger than its pixels those of `finer` are.
    `nodes`: the samples are nodes, of which n span n - 1 cells.
    """
    where = f"{item.where}.transform.scale"
    by_size = None if finer is None or shape is None else size_factors(finer, shape, nodes=nodes)
    if finer is None or shape is None or by_size is None:
        if scale is not None and min(sofar) > 1 and scale[0] > sofar[0] and scale[1] > sofar[1]:
            message = f"scale {list(scale)} may be relative to the base; it is read as relative to the level before"
            reading.note("multiscales.scale-ambiguous", "warning", where, message, "write spatial:shape")
        return scale
    if scale is None:
        return _by_size(reading, where, by_size, nodes)
    ratio = (finer[0] / shape[0], finer[1] / shape[1])
    relative = _misfit(finer, shape, scale, nodes)
    cumulative = math.inf if base is None else _misfit(base, shape, scale, nodes)
    if relative < 1 and relative <= cumulative:
        # Integer factors are exact; 1.98 for 101 and 51 pixels only repeats the sizes.
        repeated = _near(scale, ratio) and (not nodes or scale != _rounded(scale))
        return _by_size(reading, where, by_size, nodes) if repeated else scale
    if cumulative < 1 and scale != sofar:
        message = f"scale {list(scale)} is relative to the base, not to {item.derived_from}, according to the shapes"
        hint = f"write {[s / f for s, f in zip(scale, sofar, strict=True)]}"
        reading.note("multiscales.scale-cumulative", "info", where, message, hint)
        return scale[0] / sofar[0], scale[1] / sofar[1]
    message = f"scale {list(scale)} does not fit the sizes {list(finer)} and {list(shape)}; the sizes are taken"
    hint = f"write {list(by_size if nodes else ratio)}"
    reading.note("multiscales.scale-mismatch", "warning", where, message, hint)
    return by_size


def _by_size(reading: Reading, where: str, factors: Pair, nodes: bool) -> Pair:
    if is_open(factors, nodes=nodes):
        message = f"the sizes do not determine the scale; the ratio of cells, {list(factors)}, is used"
        reading.note("multiscales.scale-open", "warning", where, message, "write the scale or spatial:transform")
    return factors


def size_factors(finer: tuple[int, int], shape: tuple[int, int], *, nodes: bool = False) -> Pair | None:
    """How much larger the cells of a level are than those of the next finer one, (y, x), by the sizes of both.

    Readers and writers both use this, one level after the other, and multiply the factors. Pixels divide the same
    extent. Nodes (`nodes`) are samples of the finer nodes from the first on, so they may end before its last one. An
    axis whose own size leaves the factor open has that of the other axis, where it fits. None where an axis of one
    node has none; see `is_open` for factors that are no more than a guess.
    """
    if any(many < 1 or few < 1 for many, few in zip(finer, shape, strict=True)):
        return None
    factor, fits = (_node_factor, _node_fits) if nodes else (_pixel_factor, _pixel_fits)
    made = [factor(many, few) for many, few in zip(finer, shape, strict=True)]
    for n, (many, few) in enumerate(zip(finer, shape, strict=True)):
        own, other = made[n], made[1 - n]
        if (own is None or own % 1) and other is not None and not other % 1 and fits(many, few, other):
            made[n] = other
    down, across = made
    return None if down is None or across is None else (down, across)


def is_open(factors: Pair, *, nodes: bool) -> bool:
    """Whether sizes of nodes do not determine these factors: no single integer step gives them."""
    return nodes and factors != _rounded(factors)


def _pixel_factor(many: int, few: int) -> float:
    """A whole factor where an uneven size is one rounded up or down: 101 to 51 is a factor of 2, and not 1.98."""
    nearest = round(many / few)
    return float(nearest) if nearest >= 1 and _pixel_fits(many, few, nearest) else many / few


def _pixel_fits(many: int, few: int, factor: float) -> bool:
    return few in (math.floor(many / factor), math.ceil(many / factor))


def _node_factor(many: int, few: int) -> float | None:
    """The integer step that gives these sizes of nodes; the ratio of cells where there is none, or several.

    Several fit 9 and 3 nodes: every third one, or every fourth one. A power of two is preferred, so that halving in
    one step and in several give the same, then the step that hits the last node.
    """
    if many == few:
        return 1.0
    if 1 in (many, few):
        return None
    least, most = -(-many // few), (many - 1) // (few - 1)
    power = 1 << most.bit_length() - 1 if most else 0
    if 1 < least <= power:
        return float(power)
    return float(most) if least == most else (many - 1) / (few - 1)


def _node_fits(many: int, few: int, factor: float) -> bool:
    return math.ceil(many / factor) == few


def _rounded(scale: Pair) -> Pair:
    return float(round(scale[0])), float(round(scale[1]))


def check(
    reading: Reading, item: LayoutItem, scale: Pair | None, pixels: Pair, ratio: Pair | None, sofar: Pair
) -> None:
    """A finding where a scale is neither that of absolute transforms (`pixels`), nor the ratio of sizes."""
    if scale is None or _near(scale, pixels) or (ratio is not None and _near(scale, ratio)):
        return
    where = f"{item.where}.transform.scale"
    if _near(scale, (pixels[0] * sofar[0], pixels[1] * sofar[1])):
        message = f"scale {list(scale)} counts from the base, not from {item.derived_from}"
        reading.note("multiscales.scale-cumulative", "info", where, message, f"write {list(pixels)}")
    else:
        message = f"scale {list(scale)} is not how much larger pixels are by the transforms, {list(pixels)}"
        reading.note("multiscales.scale-mismatch", "warning", where, message)


def shift(reading: Reading, item: LayoutItem, translation: Pair | None, scale: Pair) -> Pair:
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


def _misfit(finer: tuple[int, int], shape: tuple[int, int], scale: Pair, nodes: bool) -> float:
    """By how many cells a level of this scale would be larger or smaller than it is."""
    less = 1 if nodes else 0
    return max(abs((n - less) / s - (m - less)) for n, s, m in zip(finer, scale, shape, strict=True))
