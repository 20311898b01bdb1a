"""Credentials of web servers: what is sent to which host, and to no other."""

from __future__ import annotations

import asyncio
import netrc
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from periplus.errors import FormatError
from periplus.fetch.http.hosts import LOOPBACK, kind, literal

if TYPE_CHECKING:
    from aiohttp import ClientResponse, CookieJar


class Credentials:
    """What one client knows about its user: names in URLs, netrc files, and cookies of logins."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}
        """User names and passwords that came with URLs, by place: the facts we return no longer hold them."""
        self._files: dict[Path, netrc.netrc] = {}
        self._cookies: dict[str, CookieJar] = {}
        """By place, so that no host gets the cookies of another, whatever domain they are for."""
        self._logins: dict[str, asyncio.Lock] = {}
        self._kept: dict[str, int] = {}

    def learn(self, url: str, start: str) -> None:
        """Remember the user name and password of a URL that the user gave, canonical in `start`."""
        if header := basic(url):
            self._names[place(start)] = header

    def headers(self, start: str, at: str, options: Mapping[str, Any]) -> dict[str, str]:
        """The headers for a request to `at`, to which the server of `start`, with these options, redirected."""
        found = self._machine(start, at, options)
        if place(start) == place(at):
            found |= self._names.get(place(at), {})
            if options.get("bearer_token"):
                found["Authorization"] = f"Bearer {options['bearer_token']}"
            given = {str(name): str(value) for name, value in (options.get("headers") or {}).items()}
            if any(name.lower() == "authorization" for name in given):
                found.pop("Authorization", None)
            found |= given
        jar = self._cookies.get(place(at)) if self._cookies else None
        if jar is not None and not any(name.lower() == "cookie" for name in found):
            from yarl import URL

            cookies = [f"{one.key}={one.coded_value}" for one in jar.filter_cookies(URL(at, encoded=True)).values()]
            found.update({"Cookie": "; ".join(cookies)} if cookies else {})
        return found

    def kept(self, url: str) -> int:
        """How often cookies of this place were kept."""
        return self._kept.get(place(url), 0)

    def keep(self, at: str, response: ClientResponse, options: Mapping[str, Any]) -> bool:
        """Keep the cookies of a response, for its own host, where the options allow to log in; whether it has any."""
        if options.get("netrc") is None or not response.cookies:
            return False
        from aiohttp import CookieJar
        from yarl import URL

        jar = self._cookies.get(place(at))
        if jar is None:
            jar = self._cookies[place(at)] = CookieJar(unsafe=True)  # which is: also for hosts that are addresses
        for one in response.cookies.values():
            one["domain"] = ""
        jar.update_cookies(response.cookies, URL(at, encoded=True))
        self._kept[place(at)] = self.kept(at) + 1
        return True

    def login(self, start: str, at: str, options: Mapping[str, Any]) -> asyncio.Lock | None:
        """Where `at` is another host, to which we log in for `start`: the lock of those who do; None elsewhere."""
        if options.get("netrc") is None or place(start) == place(at) or not self._machine(start, at, options):
            return None
        return self._logins.setdefault(place(start), asyncio.Lock())

    def _machine(self, start: str, at: str, options: Mapping[str, Any]) -> dict[str, str]:
        """The header for what a netrc file has for this very host; its `default` is for any host, so it is not used."""
        path = options.get("netrc")
        if path is None:
            return {}
        parts = urlsplit(at)
        host = parts.hostname or ""
        # Never in the clear, unless the user's own URL says so, or nobody can listen.
        if not (parts.scheme == "https" or place(start) == place(at) or _here(host)):
            return {}
        if path not in self._files:
            self._files[path] = _read(path)
        user, account, password = self._files[path].hosts.get(host) or ("", "", "")
        return _basic(user or account, password) if user or account or password else {}


def basic(url: str) -> dict[str, str]:
    """The header for the user name and password in a URL that the user gave; none where there are none."""
    parts = urlsplit(url)
    return {} if parts.username is None else _basic(unquote(parts.username), unquote(parts.password or ""))


@lru_cache(maxsize=4096)
def place(url: str) -> str:
    """Scheme, host and port: what credentials belong to."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _basic(user: str, password: str | None) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password or ''}".encode()).decode()}


def _read(path: Path) -> netrc.netrc:
    try:
        return netrc.netrc(str(path))
    except FileNotFoundError:
        raise FormatError(
            "there is no such netrc file, which the storage option netrc asks for", url=str(path)
        ) from None
    except (netrc.NetrcParseError, UnicodeDecodeError, OSError):
        raise FormatError("the netrc file cannot be read", url=str(path)) from None


def _here(host: str) -> bool:
    return host == "localhost" or (literal(host) and kind(host) == LOOPBACK)
