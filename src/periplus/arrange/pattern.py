"""Patterns of file names: a regular expression with named groups, or a template such as `{time:%Y%m%d}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model.files import instant

Value: TypeAlias = np.datetime64 | int | float | str

TIME_NAMES = frozenset({"time", "date", "datetime", "t"})
PARTS = {"year": r"\d{4}", "doy": r"\d{3}"} | dict.fromkeys(("month", "day", "hour", "minute", "second"), r"\d{1,2}")
"""Fields that are parts of a date, and the expression of each in a template."""
_FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_DIRECTIVES = {
    "Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}", "M": r"\d{2}", "S": r"\d{2}", "j": r"\d{3}",
    "y": r"\d{2}", "b": r"[A-Za-z]{3}", "B": r"[A-Za-z]+", "f": r"\d{1,6}", "z": r"(?:Z|[+-]\d{2}:?\d{2})",
    "p": r"[AaPp][Mm]", "I": r"\d{2}", "%": "%",
}  # fmt: skip
_NUMBERS = {"d": r"-?\d+", "f": r"-?\d+(?:\.\d+)?", "s": r"[^/]+?"}
_TEXT_END = r"(?=(?:\.[A-Za-z]\w*)?(?:/|$))"
"""A text field at the end of a template ends before the file extension."""
_DIGITS = {14: "%Y%m%d%H%M%S", 12: "%Y%m%d%H%M", 10: "%Y%m%d%H", 8: "%Y%m%d", 7: "%Y%j", 6: "%Y%m", 4: "%Y"}
_COMMON_FORMATS = ("%Y%m%dT%H%M%S", "%Y-%m-%dT%H%M%S", "%Y%m%d_%H%M%S", "%Y-%m-%d", "%Y_%m_%d", "%Y%m%d", "%Y%j")
"""Time formats that are common in file names; if one is part of another, the longer comes first."""
_ANY_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d(?:-\d\d-\d\d|\d{4}(?:[T_]\d{6})?)(?!\d)")
DATE_PATTERNS = (
    r"(?<!\d)(?P<time>(?:19|20)\d{6}(?:[T_]\d{6})?)(?!\d)",
    r"(?<!\d)(?P<time>(?:19|20)\d\d-\d\d-\d\d)(?!\d)",
)
"""Patterns by which dates in names are recognised without being asked for."""
_SAMPLED_NAMES = 100
_COMPACT = re.compile(r"\d{8}T\d{2,6}(?:\.\d+)?Z?")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A parsed pattern: its fields, and how each is read from a URL."""

    text: str
    fields: tuple[str, ...]
    """Names in the pattern, in order; the parts of a date (`year`, `month`, …) are one field, `time`."""
    time: str | None
    """The field with the time of the file; None if there is none."""
    regex: re.Pattern[str]
    formats: Mapping[str, Sequence[str]]
    """Formats of each name, for a template."""
    parts: tuple[str, ...]
    """Names of the parts of a date, if `time` consists of them."""

    def match(self, url: str) -> re.Match[str] | None:
        """The match in the file name, otherwise in the path (a date in a folder often has another meaning)."""
        path = _path(url)
        return self.regex.search(path.rpartition("/")[2]) or self.regex.search(path)

    def value(self, found: re.Match[str], field: str, url: str) -> Value | None:
        """The value of a field; None if it is not part of the match."""
        if field == "time" and self.parts:
            return _from_parts({name: self._text(found, name) for name in self.parts}, url)
        text = self._text(found, field)
        return None if text is None else _typed(text, " ".join(self.formats.get(field, ())), field, url)

    def label_field(self, dim: str | None) -> str:
        """The field that labels a new dimension: the one with its name, otherwise the time, otherwise the first."""
        if dim in self.fields or dim in self.parts:
            return str(dim)
        if dim is not None and len(self.fields) > 1:
            raise ValueError(
                f"the pattern {self.text!r} has the fields {', '.join(self.fields)}, none of which is {dim!r}"
            )
        return self.time or ("time" if "time" in self.fields else self.fields[0])

    def _text(self, found: re.Match[str], name: str) -> str | None:
        if name not in self.formats:
            return found[name]
        return " ".join(found[f"{name}_{k}"] for k in range(len(self.formats[name])))


def parse(text: str) -> NamePattern:
    """Parse a pattern; ValueError if it is malformed or has no field."""
    regex, formats = _compiled(text)
    names = list(formats) if formats else list(regex.groupindex)
    if not names:
        raise ValueError(f"the pattern {text!r} has no fields: write (?P<time>...) or {{time:%Y%m%d}}")
    parts = tuple(name for name in names if name in PARTS) if "year" in names and "time" not in names else ()
    fields = tuple(dict.fromkeys("time" if name in parts else name for name in names))
    moments = [name for name in fields if _is_time(name, formats.get(name, [""]))]
    time = "time" if parts or "time" in moments else next(iter(moments), None)
    return NamePattern(text=text, fields=fields, time=time, regex=regex, formats=formats, parts=parts)


def _is_time(name: str, forms: Sequence[str]) -> bool:
    """Whether a field is a time: it has a format such as %Y%m%d, or no format and the name of a time."""
    return any("%" in form for form in forms) or (name in TIME_NAMES and not any(forms))


@dataclass(frozen=True, slots=True)
class LabelReader:
    """Reads the coordinate label of a file from its URL."""

    dim: str
    """The dimension that is labelled."""
    read: Callable[[str], Value | None]
    """Returns None if the URL does not match."""


def label_reader(pattern: str, *, dim: str | None = None) -> LabelReader:
    """The reader for a pattern; the dimension is `dim`, otherwise it has the name of the field."""
    parsed = parse(pattern)
    field = parsed.label_field(dim)

    def read(url: str) -> Value | None:
        found = parsed.match(url)
        return None if found is None else parsed.value(found, field, url)

    return LabelReader(dim=dim or field, read=read)


def suggest_pattern(urls: Sequence[str]) -> str | None:
    """A pattern that reads a different time from each of the first hundred names; None if there is none."""
    some = urls[:_SAMPLED_NAMES]
    for form in _COMMON_FORMATS:
        template = f"{{time:{form}}}"
        pattern = parse(template)
        names = [_path(url).rpartition("/")[2] for url in some]
        matches = [pattern.regex.search(name) for name in names]
        if any(match is None or _is_inside_a_number(match) for match in matches):
            continue
        try:
            found = {pattern.value(match, "time", match.string) for match in matches if match is not None}
        except FormatError:
            continue
        if None not in found and len(found) == len(some) > 1:
            return template
    return None


def date_pattern(urls: Sequence[str]) -> str | None:
    """The pattern of dates in names, where each name has exactly one and all are different; otherwise None."""
    names = [_path(url).rpartition("/")[2] for url in urls]
    for text in DATE_PATTERNS:
        pattern = parse(text)
        found = [list(_ANY_DATE.finditer(name)) for name in names]
        if len(names) < 2 or any(len(each) != 1 or not pattern.regex.fullmatch(each[0][0]) for each in found):
            continue
        times = {parse_time(each[0][0]) for each in found}
        if None not in times and len(times) == len(names):
            return text
    return None


def _is_inside_a_number(match: re.Match[str]) -> bool:
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return before.isdigit() or after.isdigit()


def label_column(read: Sequence[Value]) -> NDArray[Any]:
    """Labels as one column: of times, integers, floats, or otherwise text."""
    if all(isinstance(v, np.datetime64) for v in read):
        return np.array(read, dtype="datetime64[us]")
    if all(isinstance(v, int) for v in read):
        return np.array(read, dtype=np.int64)
    if all(isinstance(v, int | float) for v in read):
        return np.array(read, dtype=np.float64)
    return np.array([str(v) for v in read], dtype=np.str_)


def parse_time(text: str) -> np.datetime64 | None:
    """A time in digits (8: year, month, day; 7: year and day of year; 14: down to the second) or in ISO 8601."""
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
    """The regular expression, and the formats of each name if the pattern is a template."""
    if "(?P<" in pattern or not _FIELD.search(pattern):
        try:
            return re.compile(pattern), {}
        except re.error as error:
            raise ValueError(f"the pattern {pattern!r} is not a valid regular expression: {error}") from None
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
        raise ValueError(f"the pattern {pattern!r} cannot be used: {error}") from None


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\*", "[^/]*")


def _expression(form: str, pattern: str) -> str:
    if form in _NUMBERS:
        return _NUMBERS[form]
    if not form:
        return r"\d{4}[-\dT:_.]*Z?"
    if "%" not in form:
        raise ValueError(
            f"the pattern {pattern!r} has the unknown format {form!r}: write d, f, s or one such as %Y%m%d"
        )
    parts, letters = [], iter(form)
    for letter in letters:
        if letter != "%":
            parts.append(re.escape(letter))
            continue
        directive = next(letters, "")
        if directive not in _DIRECTIVES:
            raise ValueError(f"the pattern {pattern!r} has the unknown directive %{directive}")
        parts.append(_DIRECTIVES[directive])
    return "".join(parts)


def _typed(text: str, form: str, name: str, url: str) -> Value:
    if "%" in form:
        try:
            return instant(datetime.strptime(text, form))
        except ValueError:
            raise FormatError(f"{text!r} is not a time in the format {form!r}", url=url) from None
    if not form and name in TIME_NAMES:
        found = parse_time(text)
        if found is None:
            raise FormatError(
                f"{text!r} is not a time; give its format with a template such as {{{name}:%Y%m%d}}", url=url
            )
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
        raise FormatError(f"{dict(texts)} is not a time", url=url) from None
    return instant(clock)


def _path(url: str) -> str:
    """The URL without scheme, user and query."""
    if "://" not in url:
        return url
    host, slash, path = url.partition("://")[2].partition("?")[0].partition("/")
    return host.rpartition("@")[2] + slash + path
