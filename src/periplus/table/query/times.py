"""Times as users write them (a day, an hour, a pair or a slice) as a closed range of microseconds. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.model import Array, Catalog, Coordinate

Moment: TypeAlias = str | date | datetime | np.datetime64
Range: TypeAlias = tuple[np.datetime64, np.datetime64]
EVER = (np.datetime64(-(1 << 63) + 1, "us"), np.datetime64((1 << 63) - 1, "us"))


def period(moment: Moment) -> Range:
    """First and last microsecond of a time, in UTC: `2021-03` is the whole month, a datetime one instant."""
    if isinstance(moment, datetime):
        moment = np.datetime64(moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment, "us")
    elif isinstance(moment, str):
        moment = _parsed(moment)
    elif isinstance(moment, date):
        moment = np.datetime64(moment, "D")
    if not isinstance(moment, np.datetime64) or np.isnat(moment):
        raise TypeError(f"{moment!r} is not a time: pass text such as 2021-03, a date or a datetime")
    start = moment.astype("datetime64[us]")
    if np.datetime_data(moment.dtype)[0] in ("us", "ns", "ps", "fs", "as"):
        return start, start
    return start, (moment + 1).astype("datetime64[us]") - np.timedelta64(1, "us")


def _parsed(text: str) -> np.datetime64:
    words = text.strip()
    try:
        if words[-1:] in "Zz" or "+" in words[10:] or "-" in words[10:]:
            aware = datetime.fromisoformat(words)
            seconds = np.datetime64(aware.astimezone(UTC).replace(tzinfo=None), "us")
            return seconds if "." in words else seconds.astype("datetime64[s]")
        return np.datetime64(words)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write 2021, 2021-03, 2021-03-04 or 2021-03-04T05:06:07") from None


def span(time: Any) -> Range:
    """A closed range: of one moment, a pair, or a slice; the end counts with all of its day or month.

    None or `..` is an open end.
    """
    if isinstance(time, slice):
        if time.step is not None:
            raise ValueError("a slice of time has no step")
        first, last = time.start, time.stop
    elif isinstance(time, tuple | list):
        if len(time) != 2:
            raise ValueError(f"time is one moment or a pair of them, not {len(time)}")
        first, last = time
    else:
        return period(time)
    low = EVER[0] if _open(first) else period(first)[0]
    high = EVER[1] if _open(last) else period(last)[1]
    if low > high:
        raise ValueError(f"the time range ends before it begins: {first} to {last}")
    return low, high


def _open(end: Any) -> bool:
    return end is None or (isinstance(end, str) and end.strip() == "..")


def within(values: NDArray[Any], time: Any) -> NDArray[np.bool_]:
    """Which of these times are in the range."""
    low, high = span(time)
    moments = values.astype("datetime64[us]")
    answer: NDArray[np.bool_] = (moments >= low) & (moments <= high)
    return answer


def time_coordinate(catalog: Catalog, array: Array) -> Coordinate | None:
    """The coordinate of times along one of the array's dimensions."""
    for coordinate in catalog.coordinates_of(array).values():
        if len(coordinate.dims) == 1 and coordinate.values.dtype.kind == "M":
            return coordinate
    return None
