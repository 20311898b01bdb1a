"""Labels of an affine axis, computed and searched without being stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WINDOW = 5
"""Labels compared around a computed position: it is off by less than two, as `AffineAxis.of` requires steps well above
the rounding error of the labels."""


@dataclass(frozen=True, slots=True)
class AffineAxis:
    """Pixel centres along one axis: label = origin + position * step, for the positions of a range."""

    origin: float
    """Centre of pixel 0."""
    step: float
    positions: range

    @classmethod
    def of(cls, corner: float, step: float, size: int, offset: float = 0.5) -> AffineAxis | None:
        """The axis of `size` pixels, the first of which begins at `corner`; None where its labels would not all differ.

        `offset` is where in a pixel its label is: 0.5 for the centre, 0 for the corner.
        """
        # Grouped as affine libraries do, so that labels equal those of rioxarray to the last bit and align with them.
        axis = cls(step * offset + corner, float(step), range(size))
        reach = max(abs(axis.origin), abs(axis.origin + size * step))
        return axis if math.isfinite(reach) and abs(step) > 4 * np.spacing(reach) else None

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, part: slice) -> AffineAxis:
        return AffineAxis(self.origin, self.step, self.positions[part])

    @property
    def rises(self) -> bool:
        """Whether labels ascend; a single label does, as in pandas."""
        return len(self) < 2 or self.step * self.positions.step > 0

    def labels(self, at: Any = None) -> NDArray[np.float64]:
        """The labels at the given positions of this axis (bounds are not checked), or all of them."""
        places = np.arange(len(self)) if at is None else np.asarray(at)
        return np.asarray((self.positions.start + places * self.positions.step) * self.step + self.origin, np.float64)

    def place(self, labels: Any) -> NDArray[np.float64]:
        """Fractional positions of labels."""
        position = (np.asarray(labels, np.float64) - self.origin) / self.step
        return np.asarray((position - self.positions.start) / self.positions.step)

    def before(self, labels: Any, *, inclusive: bool) -> NDArray[np.int64]:
        """How many labels of this axis come before each of these (or are equal to it, when inclusive), in axis order.

        As `searchsorted` of the stored labels; NaN comes after everything.
        """
        sign = 1.0 if self.rises else -1.0
        with np.errstate(over="ignore"):
            guess = np.where(np.isnan(labels), np.inf, self.place(labels))
        first = np.clip(np.floor(guess) - 2, 0, max(len(self) - _WINDOW, 0)).astype(np.int64)
        count: NDArray[np.int64] = first.copy()
        for place in (first + k for k in range(_WINDOW)):
            difference = sign * (self.labels(place) - labels)
            count = count + ((place < len(self)) & ((difference <= 0) if inclusive else (difference < 0)))
        return count

    def locate(self, labels: Any, method: str | None = None, tolerance: Any = None) -> NDArray[np.int64]:
        """Positions of labels, -1 where there is none; `method` and `tolerance` are those of pandas."""
        wanted = np.asarray(labels, np.float64)
        size = len(self)
        ahead, upto = self.before(wanted, inclusive=False), self.before(wanted, inclusive=True)
        pad, fill = upto - 1, np.where(ahead < size, ahead, -1)
        if method is None:
            found = np.where(upto > ahead, ahead, -1)
        elif method in ("pad", "ffill"):
            found = pad
        elif method in ("backfill", "bfill"):
            found = fill
        elif method == "nearest":
            left, right = np.abs(wanted - self.labels(pad)), np.abs(self.labels(fill) - wanted)
            closer = left < right if self.rises else left <= right
            found = np.where((closer & (pad >= 0)) | (fill < 0), pad, fill)
        else:
            raise ValueError(f"method must be nearest, pad, ffill, backfill or bfill, not {method!r}")
        found = np.where(np.isnan(wanted), -1, found)
        if tolerance is not None:
            found = np.where(np.abs(self.labels(found) - wanted) <= np.asarray(tolerance), found, -1)
        return found.astype(np.int64)

    def window(self, labels: slice) -> slice:
        """Positions of a slice of labels, both ends included and in axis order (descending if it descends)."""
        step = 1 if labels.step is None else int(labels.step)
        first, last = (labels.start, labels.stop) if step > 0 else (labels.stop, labels.start)
        start = 0 if first is None else int(self.before(float(first), inclusive=False))
        stop = len(self) if last is None else int(self.before(float(last), inclusive=True))
        if step > 0:
            return slice(start, stop, labels.step)
        if stop <= start:
            return slice(0, 0, step)
        return slice(stop - 1, start - 1 if start else None, step)
