"""The transform of a grid from its labels; FormatError where no transform gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Grid, Regular
from periplus.conventions.spatial.grid import TOLERANCE
from periplus.errors import FormatError
from periplus.model import Transform
from periplus.model.affine import place, position, scaled, shifted

SLACK = 1e-3
"""Of a cell: labels stored as float32 are off by their rounding, and still of the same grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGrid:
    """The grid that attributes declare. Labels decide: it may be that of a larger array, of which they are a part."""

    grid: Grid
    shape: tuple[int, int] | None = None
    """(height, width) as declared; None where it is not."""

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether it may be the grid of an array of this shape."""
        return self.shape in (None, shape)


def samples_of(x: Any, y: Any, known: DeclaredGrid | None = None) -> Transform:
    """The transform of samples with these labels along x and y; FormatError where no transform gives them.

    The numbers of the declared grid are taken where the labels are some of its samples, and its steps where there is
    one label only.
    """
    if known is None:
        (c, a), (f, e) = _axis(x, "x"), _axis(y, "y")
        return a, 0.0, c, 0.0, e, f
    if not known.grid.upright:
        message = "the labels of x and y contradict the declared transform, which is rotated"
        raise FormatError(f"{message}; drop the labels or give the transform")
    a, _, c, _, e, f = known.grid.centre
    rows, columns = known.shape or (None, None)
    c, a = _axis(x, "x", (c, a), columns)
    f, e = _axis(y, "y", (f, e), rows)
    return a, 0.0, c, 0.0, e, f


def samples_of_part(part: Transform, known: DeclaredGrid | None, shape: tuple[int, int]) -> Transform:
    """A transform of samples by the numbers of the declared grid, where it gives samples of that."""
    made = None if known is None else _part(known.grid.centre, part)
    return made if made is not None and agrees(made, part, shape) else part


def samples_of_both(x: Any, y: Any, known: DeclaredGrid | None = None) -> Transform:
    """The transform of samples whose x and y are given for each, rows by columns; FormatError where there is none."""
    xs, ys = _numbers(x, "xc", 2), _numbers(y, "yc", 2)
    if xs.shape != ys.shape:
        raise FormatError(f"xc has the shape {xs.shape} and yc {ys.shape}")
    height, width = xs.shape
    first = (float(xs[0, 0]), float(ys[0, 0]))
    steps = []
    for n, (at, size) in enumerate((((-1, 0), height), ((0, -1), width))):
        if size > 1:
            steps.append(tuple((float(v[at]) - o) / (size - 1) for v, o in zip((xs, ys), first, strict=True)))
        elif known is not None:
            steps.append(_column(known.grid.centre, n))
        else:
            raise FormatError("a single row or column does not give the transform of a rotated grid; give it")
    (b, e), (a, d) = steps
    fitted = (a, b, first[0], d, e, first[1])
    for made in (samples_of_part(fitted, known, (height, width)), fitted):
        if _gives(made, xs, ys):
            return made
    raise FormatError("xc and yc are not those of an affine grid: no transform gives them")


def agrees(transform: Transform, other: Transform, shape: tuple[int, int]) -> bool:
    """Whether two transforms of samples give the same for every sample of a grid, within the rounding of labels."""
    height, width = shape
    cell = max(abs(v) for v in (*transform[:2], *transform[3:5]))
    ends = [(row, column) for row in (0, height - 1) for column in (0, width - 1)]
    apart = (np.subtract(place(transform, *end), place(other, *end)) for end in ends)
    return all(float(np.abs(one).max()) <= SLACK * cell for one in apart)


def labels_differ(labels: Any, grid: Regular, at: Any = slice(None)) -> bool:
    """Whether stored labels, those `at` some places, are not those of an axis, beyond the rounding of both."""
    values, right = np.asarray(labels), grid.values()[at]
    if values.dtype.kind not in "iuf" or values.shape != right.shape:
        return True
    rounding = np.spacing(np.abs(values).max(initial=0)) if values.dtype.kind == "f" else 0.0
    slack = max(abs(grid.step) * max(SLACK, TOLERANCE * grid.count), 2 * float(rounding))
    return not bool((np.abs(values.astype(np.float64) - right) <= slack).all())


def labels_finding(path: str, name: str, *, declared: bool, used: str, fault: str = "are not those of") -> Diagnostic:
    """The finding about stored labels of an array's axis; `declared`: by spatial, and not only by a GeoTransform."""
    message = f"the stored labels of {name} {fault} the transform; {used}"
    return Diagnostic(
        "spatial.labels-differ", "warning", path, "spatial:transform" if declared else "grid_mapping", message
    )


def _axis(
    labels: Any, name: str, known: tuple[float, float] | None = None, size: int | None = None
) -> tuple[float, float]:
    """First label and step of an even axis; `known` are those of the declared grid, of `size` samples."""
    values = _numbers(labels, name, 1)
    count = np.arange(len(values))
    if known is not None:
        origin, cell = known
        begins = round((float(values[0]) - origin) / cell)
        by = 1 if len(values) == 1 else round(float(values[-1] - values[0]) / (len(values) - 1) / cell)
        inside = len(values) > 1 or size is None or 0 <= begins < size
        even = origin + cell * (begins + by * count)
        if by and inside and float(np.abs(values - even).max()) <= SLACK * abs(cell):
            return origin + cell * begins, cell * by
    if len(values) == 1:
        raise FormatError(f"the single label of {name} does not give the pixel size; give the transform")
    step = float(values[-1] - values[0]) / (len(values) - 1)
    even = values[0] + step * count
    if step == 0 or float(np.abs(values - even).max()) > SLACK * abs(step):
        raise FormatError(f"the labels of {name} are uneven: no transform gives them")
    return float(values[0]), step


def _numbers(labels: Any, name: str, ndim: int) -> NDArray[np.float64]:
    values = np.asarray(labels)
    if values.ndim != ndim or not values.size or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise FormatError(f"the labels of {name} are not finite numbers along {ndim} dimension{'s' * (ndim > 1)}")
    return values.astype(np.float64)


def _column(transform: Transform, n: int) -> tuple[float, float]:
    """How far one row (0) or one column (1) moves x and y."""
    return (transform[1], transform[4]) if n == 0 else (transform[0], transform[3])


def _part(whole: Transform, part: Transform) -> Transform | None:
    """The transform of a part of a grid by the numbers of the whole, where its samples are some of the whole's."""
    ends = [position(whole, *place(part, row, column)) for row, column in ((0, 0), (1, 0), (0, 1))]
    if not all(math.isfinite(v) for end in ends for v in end):
        return None
    (row, column), down, across = ([round(v) for v in end] for end in ends)
    if down[1] != column or across[0] != row or down[0] == row or across[1] == column:
        return None
    return scaled(shifted(whole, row, column), down[0] - row, across[1] - column)


def _gives(transform: Transform, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> bool:
    a, b, c, d, e, f = transform
    area = a * e - b * d
    if not area or not math.isfinite(area):
        return False
    rows, columns = np.ogrid[: xs.shape[0], : xs.shape[1]]
    slack = SLACK * max(abs(v) for v in (a, b, d, e))
    return bool(
        np.abs(xs - (a * columns + b * rows + c)).max() <= slack
        and np.abs(ys - (d * columns + e * rows + f)).max() <= slack
    )
