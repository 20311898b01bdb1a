"""Names of files that belong to one by lying beside it: the same name with another, or with one more, extension."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from periplus.errors import DeniedError

_FOREIGN = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z][A-Za-z0-9+.-]*://")
"""Control characters, backslashes, and URLs of other places."""


class Name(NamedTuple):
    """The last part of a URL."""

    whole: str
    stem: str
    """Without the extension."""
    suffix: str
    """The extension with its dot; empty where there is none."""


def name_of(url: str) -> Name | None:
    """The name of a file; None where it has none, or a query that its neighbours would not share."""
    whole = url.rpartition("/")[2]
    if not whole or "?" in url or whole.endswith(":"):
        return None
    stem, dot, suffix = whole.rpartition(".")
    return Name(whole, stem, dot + suffix) if dot and stem else Name(whole, whole, "")


def beside(url: str, *, instead: Iterable[str] = (), after: Iterable[str] = ()) -> tuple[str, ...]:
    """Names with an extension `after` the file's own, and then with one `instead` of it.

    Where the file's own is in capitals, so are these: stores tell them apart.
    """
    name = name_of(url)
    if name is None:
        return ()
    loud = len(name.suffix) > 1 and name.suffix == name.suffix.upper() != name.suffix.lower()
    found = [name.whole + (each.upper() if loud else each) for each in after]
    found += [name.stem + (each.upper() if loud else each) for each in instead]
    return tuple(each for each in dict.fromkeys(found) if each != name.whole)


def check_name(name: str) -> str:
    """`name`, a path from the folder of the scanned file to one in it or below it; DeniedError for any other."""
    if not _is_inside(name):
        raise DeniedError(f"{name!r} is not the name of a file in the folder of this one")
    return name


def check_prefix(prefix: str) -> str:
    """`prefix` with a slash at its end, or empty; DeniedError for what is no folder below that of the scanned file."""
    if prefix and not _is_inside(prefix.removesuffix("/")):
        raise DeniedError(f"{prefix!r} is not a folder below that of this file")
    return prefix.removesuffix("/") + "/" if prefix else ""


def _is_inside(name: str) -> bool:
    """Whether a relative path stays below its folder; escapes that hide dots are refused by those who fetch."""
    return not _FOREIGN.search(name) and not any(part in ("", ".", "..") for part in name.split("/"))
