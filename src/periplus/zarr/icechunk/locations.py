"""Locations of virtual chunks: our URLs as Icechunk stores them, and back."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote, urlsplit

from periplus.errors import FormatError
from periplus.policy import BUCKETS, WEB, canonical, is_local, scheme_of

SAFE = "/!$&'()*+,;=:@[]~"
"""What needs no percent-encoding in the path of a location."""


def located(url: str) -> str:
    """The location of a source: its URL, percent-encoded; FormatError where Icechunk would read something else.

    Icechunk parses a location as a URL, drops port, query, fragment and empty segments, and decodes the path once.
    """
    scheme, root, path = _parts(url)
    if scheme not in WEB:
        return root + quote(path, safe=SAFE)
    plain = canonical(url)
    parts = urlsplit(plain)
    ignored = {
        "the port of a URL": parts.port is not None,
        "the query of a URL": bool(parts.query),
        "empty or encoded segments of a URL": "//" in parts.path or "%2F" in parts.path.upper(),
    }
    for what, there in ignored.items():
        if there:
            raise FormatError(f"Icechunk ignores {what}, so it cannot refer to this one", url=plain)
    return plain


def url_of(location: str) -> str:
    """The URL of a source whose location is this."""
    if "?" in location or "#" in location:
        raise FormatError("the location of a virtual chunk has a query or a fragment", url=location)
    return canonical(unquote(location) if scheme_of(location) in BUCKETS else location)


def prefixes_of(urls: Iterable[str]) -> list[str]:
    """The deepest folders that hold all sources, one for each host or bucket: not encoded, and with a slash at the end.

    Icechunk compares them with locations that it has decoded.
    """
    folders: dict[str, list[str]] = {}
    for url in urls:
        _, root, path = _parts(url)
        folder = path.rpartition("/")[0].split("/")
        known = folders.get(root)
        folders[root] = folder if known is None else _shared(known, folder)
    return sorted(f"{root}/" + "".join(f"{part}/" for part in folder if part) for root, folder in folders.items())


def _parts(url: str) -> tuple[str, str, str]:
    """Scheme, scheme with host or bucket, and the plain path of a URL."""
    plain = canonical(url)
    if is_local(plain):
        return "file", "file://", plain
    scheme, _, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    if scheme in WEB:
        path = unquote(path.partition("?")[0])
    return scheme, f"{scheme}://{host}", slash + path


def _shared(left: list[str], right: list[str]) -> list[str]:
    count = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return left[:count]
