"""Coordinates from file names: a regular expression with named groups, or a template such as `{time:%Y%m%d}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import instant
from periplus.errors import FormatError

Value: TypeAlias = np.datetime64 | int | float | str

TIME_NAMES = frozenset({"time", "date", "datetime", "t"})
PARTS = {"year": r"\d{4}", "doy": r"\d{3}"} | dict.fromkeys(("month", "day", "hour", "minute", "second"), r"\d{1,2}")
"""Parts of a date that fields may be named after, and how a template reads each."""
_FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_DIRECTIVES = {
    "Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}", "M": r"\d{2}", "S": r"\d{2}", "j": r"\d{3}",
    "y": r"\d{2}", "b": r"[A-Za-z]{3}", "B": r"[A-Za-z]+", "f": r"\d{1,6}", "z": r"(?:Z|[+-]\d{2}:?\d{2})",
    "p": r"[AaPp][Mm]", "I": r"\d{2}", "%": "%",
}  # fmt: skip
_NUMBERS = {"d": r"-?\d+", "f": r"-?\d+(?:\.\d+)?", "s": r"[^/]+?"}
_TEXT_END = r"(?=(?:\.[A-Za-z]\w*)?(?:/|$))"
"""Text at the end of a template reaches to the suffix of a name."""
_DIGITS = {14: "%Y%m%d%H%M%S", 12: "%Y%m%d%H%M", 10: "%Y%m%d%H", 8: "%Y%m%d", 7: "%Y%j", 6: "%Y%m", 4: "%Y"}
_USUAL = ("%Y%m%dT%H%M%S", "%Y-%m-%dT%H%M%S", "%Y%m%d_%H%M%S", "%Y-%m-%d", "%Y_%m_%d", "%Y%m%d", "%Y%j")
"""Forms of time that names of files often hold; where one is part of another, the longer comes first."""
_LOOKED_AT = 100
_COMPACT = re.compile(r"\d{8}T\d{2,6}(?:\.\d+)?Z?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that was parsed: its fields, and how each is read out of a URL."""

    text: str
    fields: tuple[str, ...]
    """Names in the pattern, in order; parts of a date (`year`, `month`, ...) are one field, `time`."""
    time: str | None
    """The field that is the time of a file; None where no field is."""
    regex: re.Pattern[str]
    formats: Mapping[str, Sequence[str]]
    """Formats of each name of a template."""
    parts: tuple[str, ...]
    """Names of parts of a date, where these make up `time`."""

    def match(self, url: str) -> re.Match[str] | None:
        """Where the pattern occurs: in the file name, else in the path (a date in a folder often means another)."""
        path = _path(url)
        return self.regex.search(path.rpartition("/")[2]) or self.regex.search(path)

    def value(self, found: re.Match[str], field: str, url: str) -> Value | None:
        """The value of a field; None where it takes no part in the match."""
        if field == "time" and self.parts:
            return _from_parts({name: self._text(found, name) for name in self.parts}, url)
        text = self._text(found, field)
        return None if text is None else _typed(text, " ".join(self.formats.get(field, ())), field, url)

    def along(self, dim: str | None) -> str:
        """The field that labels a new dimension: that of its name, else the time, else the first."""
        if dim in self.fields or dim in self.parts:
            return str(dim)
        if dim is not None and len(self.fields) > 1:
            raise FormatError(f"the pattern {self.text!r} names {', '.join(self.fields)}, and none of them is {dim!r}")
        return self.time or ("time" if "time" in self.fields else self.fields[0])

    def _text(self, found: re.Match[str], name: str) -> str | None:
        if name not in self.formats:
            return found[name]
        return " ".join(found[f"{name}_{k}"] for k in range(len(self.formats[name])))


def parse(text: str) -> Pattern:
    """Parse a pattern; FormatError where it is malformed or has no field."""
    regex, formats = _compiled(text)
    names = list(formats) if formats else list(regex.groupindex)
    if not names:
        raise FormatError(f"the pattern {text!r} names nothing: write (?P<time>...) or {{time:%Y%m%d}}")
    parts = tuple(name for name in names if name in PARTS) if "year" in names and "time" not in names else ()
    fields = tuple(dict.fromkeys("time" if name in parts else name for name in names))
    moments = [name for name in fields if _is_time(name, formats.get(name, [""]))]
    time = "time" if parts or "time" in moments else next(iter(moments), None)
    return Pattern(text=text, fields=fields, time=time, regex=regex, formats=formats, parts=parts)


def _is_time(name: str, forms: Sequence[str]) -> bool:
    """Whether a field is a time: by a format such as %Y%m%d, or by its name where it has no format."""
    return any("%" in form for form in forms) or (name in TIME_NAMES and not any(forms))


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one coordinate out of a URL: `dim` is its dimension, `read` gives its value or None where none is found."""

    dim: str
    read: Callable[[str], Value | None]


def reader(pattern: str, *, dim: str | None = None) -> Reader:
    """The reader a pattern means. The dimension is `dim`, else `time` where it names that, else its first name."""
    parsed = parse(pattern)
    field = parsed.along(dim)

    def read(url: str) -> Value | None:
        found = parsed.match(url)
        return None if found is None else parsed.value(found, field, url)

    return Reader(dim=dim or field, read=read)


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
    expression, end = "", 0
    found = list(_FIELD.finditer(pattern))
    dated = "year" in (names := {field[1] for field in found}) and "time" not in names
    for field in found:
        expression += _literal(pattern[end : field.start()])
        end = field.end()
        name, part = field[1], PARTS.get(field[1]) if dated else None
        form = field[2] or ("" if part or name in TIME_NAMES else "s")
        seen = formats.setdefault(name, [])
        if seen and form in _NUMBERS:  # the same text again
            expression += f"(?P={name}_0)"
            continue
        expression += f"(?P<{name}_{len(seen)}>{part if part and not form else _expression(form, pattern)})"
        seen.append(form)
    expression += _literal(pattern[end:])
    if end == len(pattern) and form == "s":
        expression += _TEXT_END
    try:
        return re.compile(expression), formats
    except re.error as error:
        raise FormatError(f"the pattern {pattern!r} cannot be used: {error}") from None


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\*", "[^/]*")


def _expression(form: str, pattern: str) -> str:
    if form in _NUMBERS:
        return _NUMBERS[form]
    if not form:
        return r"\d{4}[-\dT:_.]*Z?"
    if "%" not in form:
        raise FormatError(
            f"the pattern {pattern!r} has the unknown format {form!r}: write d, f, s or one such as %Y%m%d"
        )
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


def _from_parts(texts: Mapping[str, str | None], url: str) -> np.datetime64:
    try:
        part = {name: int(text) for name, text in texts.items() if text is not None}
        if "doy" in part:
            day = datetime(part["year"], 1, 1) + timedelta(days=part["doy"] - 1)
        else:
            day = datetime(part["year"], part.get("month", 1), part.get("day", 1))
        clock = day.replace(hour=part.get("hour", 0), minute=part.get("minute", 0), second=part.get("second", 0))
    except (ValueError, KeyError, OverflowError):
        raise FormatError(f"{dict(texts)} is no moment", url=url) from None
    return instant(clock)


def _path(url: str) -> str:
    """The part of a URL that names a file: no scheme, user or query."""
    if "://" not in url:
        return url
    host, slash, path = url.partition("://")[2].partition("?")[0].partition("/")
    return host.rpartition("@")[2] + slash + path
