"""How messages of this room call things: files, lists of names, coordinate reference systems."""

from __future__ import annotations

import re
from collections.abc import Sequence

from periplus.arrange.entry import Entry
from periplus.errors import redact

LONGEST_CRS = 60
LONGEST_DIFFERENCE = 80
_WORDS = re.compile(r"([_\-./\s])")


def file_name(entry: Entry) -> str:
    """The file by its name, or by its URL where that ends in none."""
    url = redact(entry.source.url)
    return url.partition("?")[0].rpartition("/")[2] or url


def two_files(one: Entry, other: Entry) -> tuple[str, str]:
    """Two files by their names, or by their URLs where names would not tell them apart."""
    left, right = (redact(entry.source.url).partition("?")[0].rstrip("/") for entry in (one, other))
    names = left.rpartition("/")[2], right.rpartition("/")[2]
    return (left, right) if names[0] == names[1] or not all(names) else names


def distinguished(one: Entry, other: Entry) -> str:
    """What sets the names of two files apart, as part of a sentence: `differ in 'B03' and 'B02'`."""
    names = [_WORDS.split(name) for name in two_files(one, other)]
    shortest = min(map(len, names))
    begin = next((k for k in range(shortest) if names[0][k] != names[1][k]), shortest)
    end = next((k for k in range(shortest - begin) if names[0][-1 - k] != names[1][-1 - k]), shortest - begin)
    left, right = ("".join(name[begin : len(name) - end]) for name in names)
    if not left.strip("_-. ") or not right.strip("_-. ") or len(left + right) > LONGEST_DIFFERENCE:
        return "differ in name"
    return f"differ in {left!r} and {right!r}"


def listed(names: Sequence[str]) -> str:
    """Names in brackets."""
    return "(" + ", ".join(names) + ")"


def brief(crs: str | None) -> str:
    """A CRS, cut where it is a long text."""
    text = crs or "none"
    return text if len(text) <= LONGEST_CRS else text[: LONGEST_CRS - 3] + "…"
