"""Deep checks: samples of every pyramid are compared between levels, and stored labels with the grids of arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.cf.grid_mapping import BY_GRID_MAPPING
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Pyramid, Regular
from periplus.conventions.node import ROOT, Node, join, parent
from periplus.conventions.spatial.transform import labels_differ, labels_finding
from periplus.validation.checks import StoreMeaning

WINDOWS = 12
"""Windows looked at for each array of a level."""
SIDE = 16
"""Pixels along a side of a window."""
SLACK = 0.05
"""How far a pixel may exceed the values it was computed from, as a fraction of their range: cubic filters overshoot."""
METHODS = {
    **dict.fromkeys(("average", "avg", "mean", "median", "mode", "majority", "nearest", "nearestneighbor"), "range"),
    **dict.fromkeys(("nearestneighbour", "near", "max", "maximum", "min", "minimum", "q1", "q3", "bilinear"), "range"),
    **dict.fromkeys(("linear", "cubic", "bicubic", "cubicspline", "lanczos", "gauss", "gaussian", "area"), "range"),
    **dict.fromkeys(("sum", "total"), "sum"),
    **dict.fromkeys(("rms", "rootmeansquare", "quadraticmean"), "rms"),
}
"""What pixels may be by each resampling method, its name without spaces and signs: within the range of the pixels that
they cover, their sum, or within the range of their magnitudes."""
SOME, MANY = 0.01, 0.1
"""Shares of pixels that disagree: from the first on it is a warning, from the second an error."""


MOST_LABELS = 1 << 24
"""Labels of one axis that are read."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError)


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
    yield from _labels(store, root)


def _labels(store: StoreMeaning, root: Any) -> Iterator[Diagnostic]:
    """Stored labels that are not those of a grid along their dimension."""
    seen: set[tuple[str, Regular]] = set()
    for path, meaning in store.arrays.items():
        for coord in meaning.coords if meaning.grid is not None else ():
            node = store.nodes.get(join(parent(path) or ROOT, coord.name))
            values = coord.values
            if node is None or not isinstance(values, Regular) or node.dims != coord.dims or node.dims != (node.name,):
                continue
            packed = {"scale_factor", "add_offset"} & node.attributes.keys()
            if node.shape != (values.count,) or packed or (node.path, values) in seen:
                continue
            seen.add((node.path, values))
            try:
                differ = values.count <= MOST_LABELS and labels_differ(root[node.path.strip("/")][:], values)
            except UNREADABLE as error:
                yield _unreadable(node.path, error)
                continue
            if differ:
                declared = coord.convention != BY_GRID_MAPPING
                used = "some readers use either" if declared else "the stored ones are used"
                yield labels_finding(path, coord.name, declared=declared, used=used)


def _unreadable(path: str, error: Exception) -> Diagnostic:
    message = f"its values cannot be read: {type(error).__name__}: {str(error)[:200]}"
    return Diagnostic("deep.unreadable", "error", path, "", message)


def _pyramid(store: StoreMeaning, pyramid: Pyramid, root: Any) -> Iterator[Diagnostic]:
    by_path = {level.path: level for level in pyramid.levels}
    for level in pyramid.levels:
        next_finer = next((one for one in pyramid.levels if one.order == level.order - 1), None)
        finer = by_path.get(level.derived_from or "") or next_finer
        if finer is None:
            continue
        method = level.resampling or pyramid.resampling or "average"
        rule = METHODS.get("".join(filter(str.isalnum, method.lower())))
        if rule is None:
            message = f"the resampling method {method[:80]!r} is unknown, so values are not compared with {finer.path}"
            yield Diagnostic("deep.method", "info", pyramid.path, "multiscales", message)
        for name in sorted(level.arrays.keys() & finer.arrays.keys()):
            coarse, fine = store.nodes[level.arrays[name]], store.nodes[finer.arrays[name]]
            yield from _level(store, coarse, fine, root, rule)


def _level(store: StoreMeaning, coarse: Node, fine: Node, root: Any, rule: str | None) -> Iterator[Diagnostic]:
    axes = _axes(store, coarse)
    if axes is None or len(coarse.shape) != len(fine.shape) or 0 in coarse.shape or 0 in fine.shape:
        return
    try:
        upper, lower = root[coarse.path.strip("/")], root[fine.path.strip("/")]
        tally = _compared(upper, lower, axes, rule, seed=zlib.crc32(coarse.path.encode()))
    except UNREADABLE as error:
        yield _unreadable(coarse.path, error)
        return
    if not tally.seen:
        return
    beyond, holes = tally.beyond / tally.seen, tally.holes / tally.seen
    if holes > SOME:
        message = f"{holes:.0%} of the pixels looked at have no data where {fine.path} has: chunks are missing"
        yield Diagnostic("deep.hole", "error", coarse.path, "", message)
    if beyond > SOME:
        message = f"{beyond:.0%} of the sampled pixels do not follow from the values of {fine.path} that they cover"
        yield Diagnostic("deep.disagree", "error" if beyond > MANY else "warning", coarse.path, "", message)


def _axes(store: StoreMeaning, node: Node) -> tuple[int, int] | None:
    """The dimensions y and x: those of the grid, else the last two."""
    grid = store.arrays[node.path].grid
    if grid is not None and all(dim in node.dims for dim in grid.dims):
        return node.dims.index(grid.dims[0]), node.dims.index(grid.dims[1])
    return (len(node.shape) - 2, len(node.shape) - 1) if len(node.shape) >= 2 else None


def _compared(upper: Any, lower: Any, axes: tuple[int, int], rule: str | None, *, seed: int) -> _ValueTally:
    rng = np.random.default_rng(seed)
    tally = _ValueTally()
    missing = _missing(upper)
    ratio = [lower.shape[axis] / upper.shape[axis] for axis in axes]
    exact = rule == "sum" and all(one.is_integer() for one in ratio)
    for _ in range(WINDOWS):
        start = [int(rng.integers(0, max(1, upper.shape[axis] - SIDE + 1))) for axis in axes]
        pixels = [range(s, min(s + SIDE, upper.shape[axis])) for s, axis in zip(start, axes, strict=True)]
        others = {
            n: int(rng.integers(0, min(upper.shape[n], lower.shape[n]))) for n in range(upper.ndim) if n not in axes
        }
        cover = [
            [_covered(n, r, lower.shape[axis], margin=0 if exact else math.ceil(r / 2)) for n in along]
            for along, r, axis in zip(pixels, ratio, axes, strict=True)
        ]
        made = _plane(upper, axes, others, [slice(along.start, along.stop) for along in pixels])
        source = _plane(lower, axes, others, [slice(parts[0].start, parts[-1].stop) for parts in cover])
        rows, columns = ([slice(p.start - parts[0].start, p.stop - parts[0].start) for p in parts] for parts in cover)
        _count(tally, made, source, (rows, columns), missing, f"exact {rule}" if exact else rule)
    return tally


def _covered(n: int, ratio: float, size: int, *, margin: int) -> slice:
    """What a coarse pixel covers of the finer level, and a margin around: filters look beyond the block."""
    return slice(max(0, math.floor(n * ratio) - margin), min(size, math.ceil((n + 1) * ratio) + margin))


def _plane(array: Any, axes: tuple[int, int], others: dict[int, int], window: list[slice]) -> NDArray[np.float64]:
    """A window over y and x at one place along all other dimensions, rows first."""
    parts = {**others, **dict(zip(axes, window, strict=True))}
    values = np.asarray(array[tuple(parts[n] for n in range(array.ndim))])
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
    blocks: tuple[list[slice], list[slice]],
    missing: list[float],
    rule: str | None,
) -> None:
    """Compare pixels with the blocks of `source` that they cover, given as rows and columns of each."""
    has, had = _valid(made, missing), _valid(source, missing)
    some = _reduced(np.any, had, blocks)
    tally.seen += int(some.sum())
    tally.holes += int((some & ~has & _reduced(np.all, had, blocks)).sum())
    if rule is None:
        return
    low, high, slack = _bounds(rule, source, had, blocks)
    # Whole numbers are rounded, by whichever rule.
    slack += (made == np.floor(made)) & _reduced(np.all, ~had | (source == np.floor(source)), blocks)
    tally.beyond += int((some & has & ~((low - slack <= made) & (made <= high + slack))).sum())


def _bounds(
    rule: str, source: NDArray[np.float64], had: NDArray[np.bool_], blocks: tuple[list[slice], list[slice]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The least and the greatest value that a pixel may have, and by how much it may exceed them."""
    if rule.endswith("sum"):
        there = np.where(had, source, 0)
        parts = (there, there) if rule == "exact sum" else (np.minimum(there, 0), np.maximum(there, 0))
        low, high = (_reduced(np.sum, part, blocks) for part in parts)
        return low, high, 1e-5 * np.maximum(1.0, _reduced(np.sum, np.abs(there), blocks))
    values = np.abs(source) if rule == "rms" else source
    low = _reduced(np.min, np.where(had, values, np.inf), blocks)
    high = _reduced(np.max, np.where(had, values, -np.inf), blocks)
    with np.errstate(invalid="ignore"):  # blocks without data
        return low, high, SLACK * (high - low) + 1e-6 * np.maximum(1.0, np.abs(high))


def _reduced(how: Callable[..., Any], values: NDArray[Any], blocks: tuple[list[slice], list[slice]]) -> NDArray[Any]:
    """One value for each block."""
    rows, columns = blocks
    narrow = np.stack([how(values[part], axis=0) for part in rows])
    return np.stack([how(narrow[:, part], axis=1) for part in columns], axis=1)
