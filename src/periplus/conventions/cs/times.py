"""Times of the cs and dimensions conventions to CF's units and calendars; decoding is the reader's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from periplus.conventions.context import Reading, mapping, shown

_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "µs": "microseconds",
    "ms": "milliseconds",
    "msec": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "secs": "seconds",
    "min": "minutes",
    "mins": "minutes",
    "h": "hours",
    "hr": "hours",
    "hrs": "hours",
    "d": "days",
}
CALENDARS = {
    "standard": "standard",
    "gregorian": "standard",
    "proleptic_gregorian": "proleptic_gregorian",
    "julian": "julian",
    "noleap": "noleap",
    "365_day": "noleap",
    "all_leap": "all_leap",
    "366_day": "all_leap",
    "360_day": "360_day",
}
"""Names as in cftime."""
_DURATION = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)


def time_attributes(reading: Reading, value: Any, where: str) -> dict[str, Any]:
    """`units` and `calendar` of a `time` object: {unit, epoch, calendar?}, or {reference: "days since …"}."""
    found = mapping(value)
    if isinstance(value, str):
        found = {"reference": value}
    if found is None:
        reading.note("cs.time", "error", where, "`time` is an object with unit and epoch")
        return {}
    unit, epoch = found.get("unit"), found.get("epoch")
    if not (isinstance(unit, str) and isinstance(epoch, str)):
        whole = next((found[key] for key in ("reference", "units", "unit") if isinstance(found.get(key), str)), None)
        if whole is None or " since " not in whole:
            reading.note("cs.time", "error", where, "`time` has no unit and epoch")
            return {}
        reading.note("cs.time-reference", "info", where, f"{whole[:80]!r} is one text", "write unit and epoch")
        unit, _, epoch = whole.partition(" since ")
    units = f"{_UNITS.get(unit.strip(), unit.strip())} since {epoch.strip()}"
    calendar = found.get("calendar", "standard")
    known = CALENDARS.get(calendar.lower()) if isinstance(calendar, str) else None
    if known is not None:
        return {"units": units, "calendar": known}
    name = calendar[:80] if isinstance(calendar, str) else shown(calendar)
    if name.lower() in ("utc", "tai"):
        # TAI has no leap seconds, so plain arithmetic is exact; UTC's are not in any calendar that decoders know.
        message = f"the calendar {name!r} is read as proleptic_gregorian, without leap seconds"
        reading.note("cs.calendar", "warning", where, message)
        return {"units": units, "calendar": "proleptic_gregorian"}
    reading.note("cs.calendar", "warning", where, f"the calendar {name!r} is not known; times stay numbers")
    return {"units": unit.strip(), "epoch": epoch.strip(), "calendar_name": name}


def duration(text: str) -> tuple[int, float] | None:
    """Months and seconds of an ISO 8601 duration such as P1D or PT6H; None where it is not valid."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        return None
    years, months, weeks, days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int(years * 12 + months), weeks * 604800 + days * 86400 + hours * 3600 + minutes * 60 + seconds


def instant(text: str) -> np.datetime64 | None:
    """An ISO 8601 date or time, in UTC; None where it is not valid."""
    plain = text.strip()
    if plain.endswith(("Z", "z")):
        plain = plain[:-1]
    elif plain.endswith(("+00:00", "+0000")):
        plain = plain[: plain.rindex("+")]
    if not re.fullmatch(r"[-+]?\d{4,6}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?)?", plain):
        return None
    try:
        return np.datetime64(plain)
    except ValueError:
        return None
