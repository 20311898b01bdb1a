"""Which URLs may be accessed: one canonical spelling of every URL, and the prefixes an index may access."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from periplus.errors import DeniedError
from periplus.redaction import doubtful, is_secret, parameters

WEB = frozenset({"http", "https"})
BUCKETS = frozenset({"s3", "gs", "az", "abfs"})
ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfss": "abfs"}
SCHEMES = WEB | BUCKETS | {"file", "memory"}
DEFAULT_PORT = {"http": 80, "https": 443}
ALLOW_VARIABLE = "PERIPLUS_ALLOW"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PARAMETER = re.compile("[?;=]|%3[BD]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def scheme_of(url: str) -> str:
    """`http`, `s3`, `memory` ... in lower case, or `file` for a path of this machine."""
    found = _SCHEME.match(url)
    if found is None:
        return "file"
    name = ALIASES.get(found[1].lower(), found[1].lower())
    return name if "://" in url or name in SCHEMES else "file"


def is_local(url: str) -> bool:
    """Whether the URL is a file of this machine."""
    return scheme_of(url) == "file"


def canonical(url: str | os.PathLike[str]) -> str:
    """The one spelling of a URL: plain absolute paths for local files; no user name, no fragment, no dot segments."""
    text = os.fspath(url)
    return _canonical_path(text) if scheme_of(text) == "file" else _canonical_remote(text)


@lru_cache(maxsize=4096)
def _canonical_remote(text: str) -> str:
    scheme = scheme_of(text)
    if _CONTROL.search(text) or text != text.strip():
        raise DeniedError("the URL has control characters or blanks around it", url="<unreadable url>")
    if "\\" in text:
        raise DeniedError("the URL has a backslash", url=text)
    rest = text.partition(":")[2]
    if not rest.startswith("//"):
        raise DeniedError(f"a {scheme} URL begins with {scheme}://", url=text)
    if scheme in WEB:
        return _canonical_web(text, scheme)
    if scheme in BUCKETS:
        return _canonical_bucket(rest[2:], scheme, text)
    if scheme == "memory":
        return "memory://" + _checked_segments(rest[2:].lstrip("/"), text, empty=False)
    raise DeniedError(f"{scheme} is an unsupported kind of URL", url=text)


def _canonical_path(text: str) -> str:
    if text[:5].lower() == "file:":
        rest = text[5:]
        if rest.startswith("//"):
            host, slash, path = rest[2:].partition("/")
            if host.lower() not in ("", "localhost"):
                raise DeniedError("a file URL names another machine", url=text)
            rest = slash + path
        text = unquote(rest)
    if "\x00" in text:
        raise DeniedError("the path has a NUL character", url="<unreadable path>")
    if not text or (_SCHEME.match(text.lstrip()) and text[:1].isspace()):
        raise DeniedError("the path is empty, or a URL with blanks before it")
    folder = text.endswith(("/", os.sep))
    path = os.path.abspath(text)
    if path.startswith("//"):  # POSIX keeps two leading slashes apart; no file system of ours does
        path = "/" + path.lstrip("/")
    return path + "/" if folder and not path.endswith("/") else path


def _canonical_web(text: str, scheme: str) -> str:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise DeniedError("the URL's host or port is malformed", url="<unreadable url>") from None
    if not host:
        raise DeniedError("the URL has no host", url=text)
    host = _canonical_host(host, text)
    place = host if port in (None, DEFAULT_PORT[scheme]) else f"{host}:{port}"
    path = _ESCAPE.sub(_plain_escape, quote(parts.path or "/", safe="/%:@!$&'()*+,;=~"))
    _checked_segments(path, text, empty=True)
    query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?") if parts.query else ""
    return f"{scheme}://{place}{path}{query}"


def _plain_escape(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16))
    return letter if letter in _UNRESERVED else f"%{found[1].upper()}"


def _canonical_host(host: str, url: str) -> str:
    host = host.lower().removesuffix(".")
    if ":" in host:
        try:
            address = IPv6Address(host)
        except ValueError:
            raise DeniedError("the URL's IPv6 address is malformed", url=url) from None
        if address.scope_id is not None:
            raise DeniedError("the URL's IPv6 address names a zone", url=url)
        # An IPv4 address in IPv6 clothes is that IPv4 address.
        return f"[{address.compressed}]" if address.ipv4_mapped is None else str(address.ipv4_mapped)
    if _NUMERIC_HOST.fullmatch(host):
        try:  # decimal, octal and short forms all become four plain numbers
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError:
            raise DeniedError("the URL's numeric host is malformed", url=url) from None
    try:
        host = host.encode("idna").decode("ascii") if not host.isascii() else host
    except UnicodeError:
        raise DeniedError("the URL's host is malformed", url=url) from None
    if not _HOST.fullmatch(host):
        raise DeniedError("the URL's host is malformed", url=url)
    return host


def _canonical_bucket(rest: str, scheme: str, url: str) -> str:
    bucket, _, key = rest.partition("/")
    container, at, account = bucket.partition("@")
    if at and not (scheme == "abfs" and _BUCKET.fullmatch(account)):
        raise DeniedError("the URL holds credentials; pass them by storage_options", url=url)
    if not _BUCKET.fullmatch(container):
        raise DeniedError("the URL's bucket is malformed", url=url)
    return f"{scheme}://{bucket}/{_checked_segments(key, url, empty=False)}"


def _checked_segments(path: str, url: str, *, empty: bool) -> str:
    """`path`, or DeniedError where a segment is or decodes to `.` or `..`, or (unless `empty`) is empty."""
    segments = path.split("/")
    if not empty and "" in segments[:-1]:
        raise DeniedError("the URL has an empty path segment", url=url)
    plain = _decoded(path)
    if "\\" in plain or "\x00" in plain:
        raise DeniedError("the URL hides a backslash or NUL", url=url)
    if any(segment in (".", "..") for segment in plain.split("/")):
        raise DeniedError("the URL has a dot segment; write the plain address", url=url)
    return path


def without_secrets(url: str | os.PathLike[str]) -> str:
    """The canonical URL; DeniedError where it carries a signature or token."""
    plain = canonical(url)
    if _PARAMETER.search(plain) and not is_local(plain):
        path, _, query = plain.partition("://")[2].partition("?")
        if any(is_secret(name) for name, _ in parameters(path, query)):
            raise DeniedError(
                "the URL carries a signature or token, which must not be stored; pass the plain URL and "
                'storage_options={"signer": ...}, {"query": "..."} or {"headers": {...}} instead',
                url=plain,
            )
    return plain


def storable(url: str | os.PathLike[str], keep_query: Collection[str] = ()) -> str:
    """The canonical URL, fit to be stored; DeniedError where a parameter may be a secret.

    Those in `keep_query` are not, and neither are names that only say what is wanted: without such a parameter the URL
    would mean another file, so that none is dropped.
    """
    plain = without_secrets(url)
    if scheme_of(plain) in WEB and _PARAMETER.search(plain):
        path, _, query = plain.partition("://")[2].partition("?")
        name = doubtful(path, query, keep_query)
        if name is not None:
            raise DeniedError(
                f"the URL has the parameter {name!r}, which may be a secret and would be stored; if it only names the "
                f'file, pass keep_query="{name}", otherwise pass the URL without it and '
                'storage_options={"signer": ...}, {"query": "..."} or {"headers": {...}}',
                url=plain,
            )
    return plain


def folder_of(url: str) -> str:
    """The canonical folder of a URL, ending in a slash; a URL that ends in a slash is its own folder."""
    plain = canonical(url)
    if not is_local(plain):
        plain = plain.partition("?")[0] if scheme_of(plain) in WEB else plain
    return plain[: plain.rindex("/") + 1]


def resolve(base_url: str, path: str) -> str:
    """A reference at rest: an absolute URL as it is, a relative one against the folder of `base_url`."""
    if _SCHEME.match(path) and ("://" in path or scheme_of(path) in SCHEMES - {"file"} or path[:5].lower() == "file:"):
        return canonical(path)
    if "\\" in path or _CONTROL.search(path):
        raise DeniedError("the reference has a backslash or control character", url="<unreadable path>")
    if path.startswith("/"):
        if path.startswith("//"):
            raise DeniedError("the reference names another host without a scheme", url=path)
        return _canonical_path(path)
    if not path or any(segment in ("", ".", "..") for segment in _decoded(path).split("/")):
        raise DeniedError("the relative reference is empty or has a dot or empty segment", url=path)
    folder = folder_of(base_url)
    return folder + path if is_local(folder) else canonical(folder + path)


def _decoded(path: str) -> str:
    for _ in range(4):  # a server may decode more than once
        path, before = unquote(path), path
        if path == before:
            break
    return path


@dataclass(frozen=True, slots=True)
class Policy:
    """The prefixes that may be accessed. A prefix ends in a slash, or is one exact object; None allows everything."""

    prefixes: tuple[str, ...] | None = None

    @classmethod
    def everything(cls) -> Policy:
        """Everything may be accessed: for URLs that the user names."""
        return cls(None)

    @classmethod
    def beside(cls, index_url: str | os.PathLike[str], allow: Iterable[str | os.PathLike[str]] = ()) -> Policy:
        """The folder of the index, the prefixes the user allows, and those of the environment."""
        if isinstance(allow, str | Path):
            allow = (allow,)
        named = [*allow, *os.environ.get(ALLOW_VARIABLE, "").split()]
        return cls((folder_of(os.fspath(index_url)), *(_prefix(os.fspath(entry)) for entry in named)))

    def including(self, prefix: str) -> Policy:
        """This policy with one more prefix."""
        return self if self.prefixes is None else Policy((*self.prefixes, _prefix(prefix)))

    def check(self, url: str | os.PathLike[str]) -> str:
        """The canonical URL, or DeniedError where it may not be accessed."""
        plain = canonical(url)
        if self.prefixes is None:
            return plain
        text = os.fspath(url)
        if scheme_of(plain) in WEB and "@" in urlsplit(text).netloc:
            raise DeniedError("a reference may not carry credentials; pass them by storage_options", url=text)
        local = is_local(plain)
        # Symbolic links are followed before comparing, so none leads out of an allowed folder.
        place = os.path.realpath(plain) if local else plain
        for prefix in self.prefixes:
            if local != is_local(prefix):
                continue
            if prefix.endswith("/") and local:
                root = os.path.realpath(prefix)
                if place == root or place.startswith(root if root.endswith("/") else root + "/"):
                    return plain
            elif local:
                if place == os.path.realpath(prefix):
                    return plain
            elif place.startswith(prefix) if prefix.endswith("/") else place == prefix:
                return plain
        advice = f"if you trust it, pass allow=[prefix] or set {ALLOW_VARIABLE}"
        if any(plain.startswith(prefix + "/") for prefix in self.prefixes):
            advice = "end the prefix that is allowed with a slash: without, it names one object"
        linked = local and any(plain.startswith(prefix) for prefix in self.prefixes if prefix.endswith("/"))
        what = f"{place}, to which a link leads" if linked else "this place"
        raise DeniedError(f"the index may not access {what}; {advice}", url=plain)


def _prefix(entry: str) -> str:
    """An allowed entry in canonical form; `s3://` alone allows every bucket, a folder gets its slash."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://", entry) and scheme_of(entry) in SCHEMES - {"file", "memory"}:
        return scheme_of(entry) + "://"
    plain = canonical(entry)
    return plain + "/" if is_local(plain) and not plain.endswith("/") and os.path.isdir(plain) else plain
