"""File names, lists and coordinate reference systems as they appear in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from periplus.arrange.arrangement import FileEntry
from periplus.errors import redact

LONGEST_CRS = 60
LONGEST_DIFFERENCE = 80
_SEPARATORS = re.compile(r"([_\-./\s])")


def file_name(entry: FileEntry) -> str:
    """The name of the file, or its URL if that has no name at its end."""
    url = redact(entry.source.url)
    return url.partition("?")[0].rpartition("/")[2] or url


def file_names(one: FileEntry, other: FileEntry) -> tuple[str, str]:
    """The names of two files, or their URLs if the names are equal."""
    left, right = (redact(entry.source.url).partition("?")[0].rstrip("/") for entry in (one, other))
    names = left.rpartition("/")[2], right.rpartition("/")[2]
    return (left, right) if names[0] == names[1] or not all(names) else names


def name_difference(one: FileEntry, other: FileEntry) -> str:
    """How the names of two files differ, as part of a sentence: `differ in 'B03' and 'B02'`."""
    names = [_SEPARATORS.split(name) for name in file_names(one, other)]
    shortest = min(map(len, names))
    begin = next((k for k in range(shortest) if names[0][k] != names[1][k]), shortest)
    end = next((k for k in range(shortest - begin) if names[0][-1 - k] != names[1][-1 - k]), shortest - begin)
    left, right = ("".join(name[begin : len(name) - end]) for name in names)
    if not left.strip("_-. ") or not right.strip("_-. ") or len(left + right) > LONGEST_DIFFERENCE:
        return "differ in name"
    return f"differ in {left!r} and {right!r}"


def parenthesised(names: Sequence[str]) -> str:
    """Names as `(a, b)`."""
    return "(" + ", ".join(names) + ")"


def short_crs(crs: str | None) -> str:
    """A CRS, truncated if it is a long text."""
    text = crs or "none"
    return text if len(text) <= LONGEST_CRS else text[: LONGEST_CRS - 3] + "…"
