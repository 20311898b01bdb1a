"""Archives that want more than a URL: signatures that expire, token endpoints, tokens, and logins on another host."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import parse_qs, quote, urlsplit

from periplus.testing.servers.http import RangeServer
from periplus.testing.servers.responses import Response


def refuse(status: int, *headers: str) -> Response:
    """A response without a body."""
    return Response(status=status, headers=[*headers, "Content-Length: 0"])


class SignedArchive:
    """A guard: 403 without a signature, or with one that has been used `uses` times.

    `sign` signs a URL, as a signer does; `token`, the query that does. The server sends such tokens itself below
    /token/, as the token endpoint of the Planetary Computer does.
    """

    def __init__(self, server: RangeServer, *, uses: int = 1 << 30, fields: str = "") -> None:
        self.server, self.uses, self.fields = server, uses, fields
        self.left: dict[str, int] = {}
        self.refused = 0
        server.guard = self

    def token(self) -> str:
        number = str(len(self.left))
        self.left[number] = self.uses
        return f"{self.fields}sig=s3cret{number}"

    def sign(self, url: str) -> str:
        return f"{url}?{self.token()}"

    def __call__(self, method: str, target: str, headers: Mapping[str, str]) -> Response | None:
        del method, headers
        path = urlsplit(target).path
        if path.startswith("/token/"):
            self.server.files[path[1:]] = json.dumps({"token": self.token()}).encode()
            return None
        number = parse_qs(urlsplit(target).query).get("sig", [""])[0].removeprefix("s3cret")
        if self.left.get(number, 0) <= 0:
            self.refused += 1
            return refuse(403)
        self.left[number] -= 1
        return None


class LoginArchive:
    """Guards of two servers: that of the data sends who has no session to the other, which wants a password.

    Who has it comes back with a code, for which the data's server gives a cookie, good for `uses` requests.
    """

    def __init__(self, data: RangeServer, login: RangeServer, *, uses: int = 1 << 30, page: bool = False) -> None:
        self.data, self.login, self.uses, self.page = data, login, uses, page
        self.left: dict[str, int] = {}
        self.password = "Basic " + b64encode(b"user:p4ssword").decode()
        data.guard, login.guard = self._data, self._login
        login.files["page"] = b"<html>user name: password:</html>"

    def _data(self, method: str, target: str, headers: Mapping[str, str]) -> Response | None:
        del method
        parts = urlsplit(target)
        asked = parse_qs(parts.query)
        if parts.path == "/login":
            session = str(len(self.left))
            self.left[session] = self.uses
            cookie = f"Set-Cookie: session=c00kie{session}; Path=/; Domain=127.0.0.1"
            return refuse(302, cookie, f"Location: {asked['state'][0]}")
        number = headers.get("cookie", "").removeprefix("session=c00kie")
        if self.left.get(number, 0) > 0:
            self.left[number] -= 1
            return None
        back = quote(f"{self.data.url}/login", safe="")
        return refuse(302, f"Location: {self.login.url}/oauth?redirect_uri={back}&state={quote(target, safe='')}")

    def _login(self, method: str, target: str, headers: Mapping[str, str]) -> Response | None:
        parts = urlsplit(target)
        if parts.path == "/page":
            size = len(self.login.files["page"])
            form = ["Content-Type: text/html", f"Content-Length: {size}"]
            return Response(status=200, headers=form, stop=0 if method == "HEAD" else size)
        asked = parse_qs(parts.query)
        if headers.get("authorization") == self.password:
            return refuse(
                302, f"Location: {asked['redirect_uri'][0]}?code=c0de&state={quote(asked['state'][0], safe='')}"
            )
        return refuse(302, "Location: /page") if self.page else refuse(401, 'WWW-Authenticate: Basic realm="login"')
