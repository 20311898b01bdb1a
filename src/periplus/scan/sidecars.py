"""Names of sidecars: files in the same folder with another extension, or with one more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from periplus.errors import DeniedError

_FOREIGN = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z][A-Za-z0-9+.-]*://")
"""Control characters, backslashes, and URLs of other places."""


class FileName(NamedTuple):
    """The last part of a URL."""

    whole: str
    stem: str
    """Without the extension."""
    suffix: str
    """The extension with its dot; empty if there is none."""


def name_of(url: str) -> FileName | None:
    """The name of a file; None if it has none, or a query, which would not apply to sidecars."""
    whole = url.rpartition("/")[2]
    if not whole or "?" in url or whole.endswith(":"):
        return None
    stem, dot, suffix = whole.rpartition(".")
    return FileName(whole, stem, dot + suffix) if dot and stem else FileName(whole, whole, "")


def sidecar_names(url: str, *, instead: Iterable[str] = (), after: Iterable[str] = ()) -> tuple[str, ...]:
    """Names with an extension `after` the file's own, and then with one `instead` of it.

    They are in capitals if the file's own is, because stores distinguish case.
    """
    name = name_of(url)
    if name is None:
        return ()
    capitals = len(name.suffix) > 1 and name.suffix == name.suffix.upper() != name.suffix.lower()
    found = [name.whole + (each.upper() if capitals else each) for each in after]
    found += [name.stem + (each.upper() if capitals else each) for each in instead]
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
    """Whether a relative path stays below its folder; escaped dots are refused when fetching."""
    return not _FOREIGN.search(name) and not any(part in ("", ".", "..") for part in name.split("/"))
