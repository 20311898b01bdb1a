"""Deep checks: samples of every pyramid are compared, to find coarse levels that disagree with finer ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Level, Pyramid
from periplus.conventions.node import Node
from periplus.validation.checks import StoreMeaning

WINDOWS = 12
"""Windows looked at for each array of a level."""
SIDE = 16
"""Pixels along a side of a window."""
SLACK = 0.05
"""How far a pixel may exceed the values it was computed from, as a fraction of their range: cubic filters overshoot."""
SOME, MANY = 0.01, 0.1
"""Shares of pixels that disagree: from the first on it is a warning, from the second an error."""


@dataclass(slots=True)
class _ValueTally:
    seen: int = 0
    """Pixels compared."""
    beyond: int = 0
    """Pixels beyond the values they were made of."""
    holes: int = 0
    """Pixels without data where all they were made of is there."""


def look(store: StoreMeaning, root: Any) -> Iterator[Diagnostic]:
    """Findings from values; `root` is the store's root group as zarr-python opens it."""
    for meaning in store.groups.values():
        if meaning.pyramid is not None:
            yield from _pyramid(store, meaning.pyramid, root)


def _pyramid(store: StoreMeaning, pyramid: Pyramid, root: Any) -> Iterator[Diagnostic]:
    by_path = {level.path: level for level in pyramid.levels}
    for level in pyramid.levels:
        finer = by_path.get(level.derived_from or "") or _next_finer(pyramid, level)
        if finer is None:
            continue
        for name in sorted(level.arrays.keys() & finer.arrays.keys()):
            coarse, fine = store.nodes[level.arrays[name]], store.nodes[finer.arrays[name]]
            yield from _level(store, coarse, fine, root)


def _next_finer(pyramid: Pyramid, level: Level) -> Level | None:
    return next((one for one in pyramid.levels if one.order == level.order - 1), None)


def _level(store: StoreMeaning, coarse: Node, fine: Node, root: Any) -> Iterator[Diagnostic]:
    axes = _axes(store, coarse)
    if axes is None or len(coarse.shape) != len(fine.shape) or 0 in coarse.shape or 0 in fine.shape:
        return
    try:
        upper, lower = root[coarse.path.strip("/")], root[fine.path.strip("/")]
        tally = _compared(upper, lower, axes, seed=zlib.crc32(coarse.path.encode()))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        message = f"its values cannot be read: {type(error).__name__}: {str(error)[:200]}"
        yield Diagnostic("deep.unreadable", "error", coarse.path, "", message)
        return
    if not tally.seen:
        return
    beyond, holes = tally.beyond / tally.seen, tally.holes / tally.seen
    if holes > SOME:
        message = f"{holes:.0%} of the pixels looked at have no data where {fine.path} has: chunks are missing"
        yield Diagnostic("deep.hole", "error", coarse.path, "", message)
    if beyond > SOME:
        message = (
            f"{beyond:.0%} of the sampled pixels are outside the range of the values of {fine.path} that they cover"
        )
        yield Diagnostic("deep.disagree", "error" if beyond > MANY else "warning", coarse.path, "", message)


def _axes(store: StoreMeaning, node: Node) -> tuple[int, int] | None:
    """The dimensions y and x: those of the grid, else the last two."""
    grid = store.arrays[node.path].grid
    if grid is not None and all(dim in node.dims for dim in grid.dims):
        return node.dims.index(grid.dims[0]), node.dims.index(grid.dims[1])
    return (len(node.shape) - 2, len(node.shape) - 1) if len(node.shape) >= 2 else None


def _compared(upper: Any, lower: Any, axes: tuple[int, int], *, seed: int) -> _ValueTally:
    rng = np.random.default_rng(seed)
    tally = _ValueTally()
    missing = _missing(upper)
    ratio = [lower.shape[axis] / upper.shape[axis] for axis in axes]
    for _ in range(WINDOWS):
        start = [int(rng.integers(0, max(1, upper.shape[axis] - SIDE + 1))) for axis in axes]
        stop = [min(s + SIDE, upper.shape[axis]) for s, axis in zip(start, axes, strict=True)]
        others = {
            n: int(rng.integers(0, min(upper.shape[n], lower.shape[n]))) for n in range(upper.ndim) if n not in axes
        }
        made = _plane(upper, axes, others, list(zip(start, stop, strict=True)))
        # Half a coarse pixel around: filters look beyond the block.
        margin = [math.ceil(r / 2) for r in ratio]
        low = [max(0, math.floor(s * r) - m) for s, r, m in zip(start, ratio, margin, strict=True)]
        high = [
            min(lower.shape[axis], math.ceil(s * r) + m)
            for s, r, m, axis in zip(stop, ratio, margin, axes, strict=True)
        ]
        source = _plane(lower, axes, others, list(zip(low, high, strict=True)))
        _count(tally, made, source, start, low, ratio, margin, missing)
    return tally


def _plane(
    array: Any, axes: tuple[int, int], others: dict[int, int], window: list[tuple[int, int]]
) -> NDArray[np.float64]:
    """A window over y and x at one place along all other dimensions, rows first."""
    key: list[Any] = [others.get(n, slice(None)) for n in range(array.ndim)]
    for axis, (low, high) in zip(axes, window, strict=True):
        key[axis] = slice(low, high)
    values = np.asarray(array[tuple(key)])
    if axes[0] > axes[1]:
        values = values.T
    return np.abs(values).astype(np.float64) if values.dtype.kind == "c" else values.astype(np.float64)


def _missing(array: Any) -> list[float]:
    """Values that mean no data."""
    stated = [array.attrs.get("_FillValue"), array.attrs.get("missing_value")]
    return [float(value) for value in stated if isinstance(value, int | float) and not isinstance(value, bool)]


def _valid(values: NDArray[np.float64], missing: list[float]) -> NDArray[np.bool_]:
    there = np.isfinite(values)
    for value in missing:
        there &= values != value
    return there


def _count(
    tally: _ValueTally,
    made: NDArray[np.float64],
    source: NDArray[np.float64],
    start: list[int],
    low: list[int],
    ratio: list[float],
    margin: list[int],
    missing: list[float],
) -> None:
    has, had = _valid(made, missing), _valid(source, missing)
    for row in range(made.shape[0]):
        for column in range(made.shape[1]):
            box = []
            for place, s, l, r, m in zip((row, column), start, low, ratio, margin, strict=True):  # noqa: E741
                first, last = math.floor((s + place) * r) - m - l, math.ceil((s + place + 1) * r) + m - l
                box.append(slice(max(0, first), max(1, last)))
            block, there = source[tuple(box)], had[tuple(box)]
            if not there.any():
                continue
            if not has[row, column]:
                tally.seen += 1
                tally.holes += bool(there.all())
                continue
            tally.seen += 1
            values = block[there]
            slack = SLACK * (values.max() - values.min()) + 1e-6 * max(1.0, abs(float(values.max())))
            # Whole numbers are rounded, by whichever rule.
            slack += 1.0 if float(made[row, column]).is_integer() and np.all(values == np.floor(values)) else 0.0
            tally.beyond += not values.min() - slack <= made[row, column] <= values.max() + slack
