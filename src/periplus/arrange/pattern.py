"""Coordinates from file names: a regular expression with named groups, or a template such as `{time:%Y%m%d}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import instant
from periplus.errors import FormatError, redact

Value: TypeAlias = np.datetime64 | int | float | str

TIME_NAMES = frozenset({"time", "date", "datetime", "t"})
_CALENDAR = ("year", "month", "day", "hour", "minute", "second", "doy")
_FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_DIRECTIVES = {
    "Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}", "M": r"\d{2}", "S": r"\d{2}", "j": r"\d{3}",
    "y": r"\d{2}", "b": r"[A-Za-z]{3}", "B": r"[A-Za-z]+", "f": r"\d{1,6}", "z": r"(?:Z|[+-]\d{2}:?\d{2})",
    "p": r"[AaPp][Mm]", "I": r"\d{2}", "%": "%",
}  # fmt: skip
_NUMBERS = {"d": r"-?\d+", "f": r"-?\d+(?:\.\d+)?", "s": r"[^/]+?"}
_DIGITS = {14: "%Y%m%d%H%M%S", 12: "%Y%m%d%H%M", 10: "%Y%m%d%H", 8: "%Y%m%d", 7: "%Y%j", 6: "%Y%m", 4: "%Y"}
_USUAL = ("%Y%m%dT%H%M%S", "%Y-%m-%dT%H%M%S", "%Y%m%d_%H%M%S", "%Y-%m-%d", "%Y_%m_%d", "%Y%m%d", "%Y%j")
"""Forms of time that names of files often hold; where one is part of another, the longer comes first."""
_LOOKED_AT = 100
_COMPACT = re.compile(r"\d{8}T\d{2,6}(?:\.\d+)?Z?")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one coordinate out of a URL: `dim` is its dimension, `read` gives its value or None where none is found."""

    dim: str
    read: Callable[[str], Value | None]


def reader(pattern: str, *, dim: str | None = None) -> Reader:
    """The reader a pattern means. The dimension is `dim`, else `time` where it names that, else its first name."""
    regex, formats = _compiled(pattern)
    names = list(formats) if formats else list(regex.groupindex)
    if not names:
        raise FormatError(f"the pattern {pattern!r} names nothing: write (?P<time>...) or {{time:%Y%m%d}}")
    calendar = "year" in names and all(name in _CALENDAR for name in names if name != dim)
    wanted = dim if dim in names else "time" if calendar or "time" in names else names[0]
    if not calendar and dim is not None and dim not in names and len(names) > 1:
        raise FormatError(f"the pattern {pattern!r} names {', '.join(names)}, and none of them is {dim!r}")

    def read(url: str) -> Value | None:
        place = _place(url)
        # The file name first: a date in a folder's name usually means something else.
        found = regex.search(place.rpartition("/")[2]) or regex.search(place)
        if found is None:
            return None
        if calendar and wanted not in names:
            return _from_calendar(found.groupdict(), url)
        if wanted in formats:
            texts = [found[f"{wanted}_{k}"] for k in range(len(formats[wanted]))]
            return _typed(" ".join(texts), " ".join(formats[wanted]), wanted, url)
        text = found[wanted]
        return None if text is None else _typed(text, "", wanted, url)

    return Reader(dim=dim or wanted, read=read)


def suggested(urls: Sequence[str]) -> str | None:
    """A pattern under which each of these names (of the first hundred) holds a time of its own; None if none does."""
    some = urls[:_LOOKED_AT]
    for form in _USUAL:
        template = f"{{time:{form}}}"
        read = reader(template).read
        try:
            found = {read(url.rpartition("/")[2]) for url in some}
        except FormatError:
            continue
        if None not in found and len(found) == len(some) > 1:
            return template
    return None


def values(read: Sequence[Value]) -> NDArray[Any]:
    """Coordinate values as one column: moments, integers, floats, else text."""
    if all(isinstance(v, np.datetime64) for v in read):
        return np.array(read, dtype="datetime64[us]")
    if all(isinstance(v, int) for v in read):
        return np.array(read, dtype=np.int64)
    if all(isinstance(v, int | float) for v in read):
        return np.array(read, dtype=np.float64)
    return np.array([str(v) for v in read], dtype=np.str_)


def moment(text: str) -> np.datetime64 | None:
    """A moment written as digits (8: year, month, day; 7: year and day of year; 14: to the second) or in ISO 8601."""
    text = text.strip()
    try:
        if text.isdigit():
            form = _DIGITS.get(len(text))
            return None if form is None else instant(datetime.strptime(text, form))
        if _COMPACT.fullmatch(text):
            day, _, clock = text.removesuffix("Z").partition("T")
            clock, _, fraction = clock.partition(".")
            whole = datetime.strptime(day + clock, _DIGITS[8 + len(clock)])
            return instant(whole + timedelta(microseconds=int(fraction[:6].ljust(6, "0"))))
        return instant(datetime.fromisoformat(text.replace("_", "T")))
    except (ValueError, KeyError):
        return None


def _compiled(pattern: str) -> tuple[re.Pattern[str], dict[str, list[str]]]:
    """The regular expression, and for a template the formats of each of its names."""
    if "(?P<" in pattern or not _FIELD.search(pattern):
        try:
            return re.compile(pattern), {}
        except re.error as error:
            raise FormatError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    formats: dict[str, list[str]] = {}
    parts, end = [], 0
    for field in _FIELD.finditer(pattern):
        parts.append(_literal(pattern[end : field.start()]))
        name, form = field[1], field[2] or ("" if field[1] in TIME_NAMES else "s")
        seen = formats.setdefault(name, [])
        parts.append(f"(?P<{name}_{len(seen)}>{_expression(form, pattern)})")
        seen.append(form)
        end = field.end()
    parts.append(_literal(pattern[end:]))
    return re.compile("".join(parts)), formats


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\*", "[^/]*")


def _expression(form: str, pattern: str) -> str:
    if form in _NUMBERS:
        return _NUMBERS[form]
    if not form:
        return r"\d{4}[-\dT:_.]*Z?"
    parts, letters = [], iter(form)
    for letter in letters:
        if letter != "%":
            parts.append(re.escape(letter))
            continue
        directive = next(letters, "")
        if directive not in _DIRECTIVES:
            raise FormatError(f"the pattern {pattern!r} has the unknown directive %{directive}")
        parts.append(_DIRECTIVES[directive])
    return "".join(parts)


def _typed(text: str, form: str, name: str, url: str) -> Value:
    if "%" in form:
        try:
            return instant(datetime.strptime(text, form))
        except ValueError:
            raise FormatError(f"{text!r} is no moment of the form {form!r}", url=url) from None
    if not form and name in TIME_NAMES:
        found = moment(text)
        if found is None:
            raise FormatError(f"{text!r} is no moment; say its form with a template such as {{{name}:%Y%m%d}}", url=url)
        return found
    if form in ("", "d") and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if form in ("", "f") and re.fullmatch(r"-?\d+\.?\d*(?:[eE][+-]?\d+)?", text):
        return float(text)
    return text


def _from_calendar(found: dict[str, str | None], url: str) -> np.datetime64:
    part = {name: int(text) for name, text in found.items() if name in _CALENDAR and text is not None}
    try:
        if "doy" in part:
            day = datetime(part["year"], 1, 1) + timedelta(days=part["doy"] - 1)
        else:
            day = datetime(part["year"], part.get("month", 1), part.get("day", 1))
        clock = day.replace(hour=part.get("hour", 0), minute=part.get("minute", 0), second=part.get("second", 0))
    except (ValueError, KeyError, OverflowError):
        raise FormatError(f"{found} is no moment", url=url) from None
    return instant(clock)


def _place(url: str) -> str:
    """The part of a URL that is a path: no scheme, host or query."""
    if "://" not in url:
        return url
    return redact(url).partition("://")[2].partition("?")[0]
