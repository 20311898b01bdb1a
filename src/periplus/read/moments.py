"""Moments: which positions of a time coordinate a moment, a period or a range of them means. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import MissingError

_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
Span = tuple[np.datetime64, np.datetime64]
"""First microsecond, and the first one after; equal ends mean that exact moment."""


def period(moment: Any) -> Span:
    """What one moment covers: `2021-03` that month, `2021-03-05` or a date that day, a datetime just itself."""
    if isinstance(moment, str):
        text = moment.strip()
        if not (_ZONE.search(text) and "T" in text.upper().replace(" ", "T")):
            try:
                return period(np.datetime64(text))
            except ValueError:
                raise ValueError(
                    f"{moment!r} is no ISO 8601 moment such as 2021, 2021-03 or 2021-03-05T10:20"
                ) from None
        moment = datetime.fromisoformat(text)
    if isinstance(moment, datetime):
        plain = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        exact = np.datetime64(plain, "us")
        return exact, exact
    if isinstance(moment, date):
        moment = np.datetime64(moment, "D")
    if not isinstance(moment, np.datetime64) or np.isnat(moment):
        raise ValueError(f"{moment!r} is no moment; pass ISO 8601 text, a date or a datetime")
    unit = np.datetime_data(moment.dtype)[0]
    first = moment.astype("M8[us]")
    return (first, first) if unit in ("us", "ns", "ps", "fs", "as", "ms") else (first, (moment + 1).astype("M8[us]"))


def within(values: NDArray[Any], time: Any) -> NDArray[np.int64]:
    """Positions, in the order of the coordinate, that `time` means; MissingError where there is none.

    `time` is one moment, or a pair or slice of two with both ends included; None or `..` leaves an end open.
    """
    stamps = np.asarray(values).astype("M8[us]")
    if isinstance(time, slice):
        if time.step is not None:
            raise ValueError("a slice of time takes no step")
        time = (time.start, time.stop)
    if isinstance(time, tuple | list):
        if len(time) != 2:
            raise ValueError("a range of time is a pair: (first, last)")
        low, high = (None if end is None or end == ".." else period(end) for end in time)
    else:
        low = high = period(time)
    keep = ~np.isnat(stamps)
    if low is not None:
        keep &= stamps >= low[0]
    if high is not None:
        keep &= (stamps < high[1]) if high[1] > high[0] else (stamps <= high[0])
    found = np.flatnonzero(keep)
    if not found.size:
        known = stamps[~np.isnat(stamps)]
        reach = f"it reaches from {known.min()} to {known.max()}" if known.size else "it has no times"
        raise MissingError(f"nothing at time {_shown(time)}; {reach}")
    return found


def _shown(time: Any) -> str:
    return " to ".join(".." if t is None else str(t) for t in time) if isinstance(time, tuple | list) else str(time)
