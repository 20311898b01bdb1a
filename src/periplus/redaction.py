"""Secrets in URLs: what is never shown, and which parameters may be stored without asking."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from urllib.parse import unquote, urlsplit, urlunsplit

VERSIONS = frozenset({"versionid", "partnumber", "generation", "snapshot"})
"""Parameters that select a version of an object."""
HARMLESS = VERSIONS | {
    "alt", "band", "bands", "bbox", "collection", "coverage", "coverageid", "crs", "dataset", "date", "datetime", "day",
    "dl", "download", "file", "filename", "format", "height", "layer", "layers", "level", "month", "path", "product",
    "raw", "request", "service", "srs", "style", "styles", "tile", "time", "variable", "version", "width", "year",
}  # fmt: skip
"""Parameters that select data on servers of files, coverages and maps; no signing scheme uses them."""
_SECRETS = frozenset({
    "sig", "auth", "authorization", "jwt", "bearer", "key", "pwd", "passwd", "hdnea", "hdnts", "hdntl", "gda", "hmac",
    "keypairid", "googleaccessid", "jsessionid", "phpsessid", "sessionid",
})  # fmt: skip
_PARTS = ("token", "secret", "signature", "password", "credential", "apikey", "accesskey", "subscriptionkey")
_NAME = re.compile(r"[A-Za-z_.-]{1,32}[0-9]{0,2}")
"""What can be shown: a parameter of no value may be a secret itself."""
_PLAIN = re.compile(r"[\w .,:/+*()~!-]*")
_PATH_PARAMETER = re.compile(
    r"(?P<mark>;|%3B|(?<=/))(?P<name>(?:(?!%3B)[^;/=])*?)(?:=|%3D)(?P<value>[^;/]*)", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether a parameter of this name is a credential, whatever server it is for."""
    plain = re.sub("[^a-z]", "", name.lower())
    return plain in _SECRETS or plain.startswith(("xamz", "xgoog")) or any(part in plain for part in _PARTS)


def parameters(path: str, query: str) -> Iterator[tuple[str, str]]:
    """(name, value) of what a URL carries: its query, `;name=value` in its path, credentials as folders of the path."""
    for pair in re.split("[&;]", query):
        if pair:
            name, _, value = pair.partition("=")
            yield unquote(name), unquote(value)
    for found in _PATH_PARAMETER.finditer(path):
        if found["mark"] or is_secret(unquote(found["name"])):
            yield unquote(found["name"]), unquote(found["value"])


def doubtful(path: str, query: str, keep: Collection[str]) -> str | None:
    """The name of a parameter that may hold a secret, by which it can be shown; None where there is none."""
    for name, value in parameters(path, query):
        plain = name.lower() in HARMLESS and _PLAIN.fullmatch(value) and "://" not in value
        if not plain and name not in keep:
            return name if _showable(name, value) else "REDACTED"
    return None


def redact(url: str) -> str:
    """The URL without user names, passwords, signatures or tokens, fit for a log or an error."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "<unreadable url>"
    if not parts.scheme or "://" not in url:
        return url
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(_shown(*pair.partition("=")) for pair in parts.query.split("&") if pair)
    return urlunsplit((parts.scheme, host, _PATH_PARAMETER.sub(_shown_in_path, parts.path), query, ""))


def _shown(name: str, equals: str, value: str) -> str:
    if name.lower() in VERSIONS and ";" not in value:
        return name + equals + value
    return f"{name}=REDACTED" if equals and _showable(name, value) else "REDACTED"


def _shown_in_path(found: re.Match[str]) -> str:
    if not found["mark"] and not is_secret(unquote(found["name"])):
        return found[0]  # a folder such as date=2021-06-01
    return found["mark"] + _shown(found["name"], "=", found["value"])


def _showable(name: str, value: str) -> bool:
    return bool(value.strip("=")) and _NAME.fullmatch(name) is not None
