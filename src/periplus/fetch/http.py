"""HTTP(S) ranges: every redirect checked, every length and Content-Range verified, failures retried in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from periplus.errors import DeniedError, FetchError, MissingError, PeriplusError, StaleError
from periplus.fetch.door import mapped
from periplus.fetch.gate import Gate
from periplus.fetch.retry import Again, Patience, Pauses, retry_after
from periplus.fetch.stale import check_same, strong
from periplus.model import Source
from periplus.policy import Policy, canonical

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
HOPS = 5
SKIP = 8 << 20
"""Bytes read and thrown away at most where a server ignores Range; beyond that it is an error."""
BUFFER = 1 << 20
_REDIRECT = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes\s+(?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)", re.IGNORECASE)


@dataclass(slots=True)
class Want:
    """A range being gathered: `stop` is None for "to the end"; parts are what has come so far."""

    url: str
    offset: int
    stop: int
    expect: Source | None = None
    parts: list[bytes] = field(default_factory=list)
    have: int = 0
    facts: Source | None = None

    def add(self, part: bytes) -> None:
        self.parts.append(part)
        self.have += len(part)

    def at(self) -> int:
        return self.offset + self.have

    def learn(self, facts: Source) -> None:
        """Facts of a response: checked against the index, and against earlier responses to the same read."""
        if self.expect is not None:
            check_same(self.expect, facts, offset=self.offset)
        if self.facts is not None and self.have:
            try:
                check_same(self.facts, facts, offset=self.offset)
            except StaleError:
                # Replaced between two parts of one read: what came before belongs to another object.
                self.parts.clear()
                self.have = 0
                self.facts = facts
                raise Again("the object was replaced while it was read") from None
        self.facts = facts

    def result(self) -> tuple[bytes, Source]:
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return data, self.facts or Source(url=self.url)


class Web:
    """One client session, made on first use; must be used and closed on one event loop."""

    def __init__(
        self, *, policy: Policy, options: Callable[[str], Mapping[str, Any]], gate: Gate, patience: Patience
    ) -> None:
        self._policy, self._options, self._gate, self._patience = policy, options, gate, patience
        self._session: ClientSession | None = None
        self._proxies = getproxies()

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def read(self, url: str, offset: int, length: int, *, expect: Source | None = None) -> tuple[bytes, Source]:
        """Bytes of a range cut at the object's end, and what the response says of the object."""
        want = Want(plain(url), offset, offset + length, expect)
        return await self._persist(url, offset, lambda: self._range(url, want), want)

    async def head(self, url: str) -> Source:
        return await self._persist(url, None, lambda: self._head(url), None)

    async def _persist(
        self, url: str, offset: int | None, attempt: Callable[[], Awaitable[T | None]], want: Want | None
    ) -> T:
        """Attempt until done; FetchError when patience ends."""
        pauses = Pauses(self._patience, plain(url), offset)
        try:
            async with asyncio.timeout(self._patience.deadline):
                while True:
                    had = want.have if want is not None else 0
                    try:
                        async with self._gate.pass_to(urlsplit(url).netloc):
                            done = await attempt()
                        if done is not None:
                            return done
                        again = Again("the server sends less than was asked for")
                    except Again as reason:
                        again = reason
                    if want is not None and want.have > had:
                        pauses.progress()
                    await pauses.wait(again)
        except TimeoutError:
            raise pauses.error(f"not done within {self._patience.deadline:g} s") from None

    async def _range(self, url: str, want: Want) -> tuple[bytes, Source] | None:
        """One request for what is still missing; the result when that completes it."""
        headers = {"Range": f"bytes={want.at()}-{want.stop - 1}"}
        tag = strong(want.expect.etag if want.expect is not None else want.facts.etag if want.facts else None)
        if tag is not None:
            headers["If-Match"] = tag
        async with self._follow("GET", url, headers) as response:
            status = response.status
            if status == 412:
                if want.expect is None:
                    want.parts.clear()
                    want.have, want.facts = 0, None
                    raise Again("the object was replaced while it was read")
                raise StaleError("the object changed after it was indexed", url=want.url, offset=want.offset)
            if status == 416:
                return self._past_end(want, response)
            if status == 206:
                return await self._partial(want, response)
            if status == 200:
                return await self._whole(want, response)
            raise refusal(status, response, want.url, want.offset)

    def _past_end(self, want: Want, response: ClientResponse) -> tuple[bytes, Source]:
        _, _, total = content_range(response)
        if total is None or total > want.at():
            raise Again("the server refuses a range that lies inside the object (HTTP 416)")
        want.learn(facts_of(want.url, response, total))
        return want.result()

    async def _partial(self, want: Want, response: ClientResponse) -> tuple[bytes, Source] | None:
        first, last, total = content_range(response)
        start = want.at()
        if first != start or last is None or not start <= last < want.stop or (total is not None and last >= total):
            raise Again(f"the server answers with another range ({response.headers.get('Content-Range')!r:.60})")
        if response.content_length is not None and response.content_length != last + 1 - start:
            raise Again("the server's Content-Range and Content-Length disagree")
        want.learn(facts_of(want.url, response, total))
        await take(response, last + 1 - start, want)
        if last + 1 == want.stop or (total is not None and last + 1 == total):
            return want.result()
        return None

    async def _whole(self, want: Want, response: ClientResponse) -> tuple[bytes, Source] | None:
        """The server ignores Range: read past what is not wanted, within reason."""
        size = response.content_length
        start = want.at()
        want.learn(facts_of(want.url, response, size))
        if start > SKIP:
            raise FetchError(
                "the server ignores Range and sends the whole object; copy the file, or use a server with ranges",
                url=want.url,
                offset=want.offset,
            )
        skipped = Want(want.url, 0, start)
        stop = want.stop if size is None else min(want.stop, size)
        if size is None:
            raise Again("the server ignores Range and does not say how long its answer is")
        if stop > start:
            await take(response, start, skipped, keep=False)
            await take(response, stop - start, want)
        return want.result()

    async def _head(self, url: str) -> Source | None:
        place = plain(url)
        async with self._follow("HEAD", url, {}) as response:
            if response.status == 200:
                length = response.headers.get("Content-Length", "")
                if length.isdigit():
                    return facts_of(place, response, int(length))
            elif response.status not in (403, 405, 501):
                raise refusal(response.status, response, place, None)
        # Signed and minimal servers know no HEAD, some HEADs no length: the first byte tells as much.
        want = Want(place, 0, 1)
        done = await self._range(url, want)
        return None if done is None else done[1]

    @asynccontextmanager
    async def _follow(self, method: str, url: str, headers: Mapping[str, str]) -> AsyncIterator[ClientResponse]:
        """The response after at most HOPS redirects, each checked by policy; no credentials leave their host."""
        session = self._connect()
        start = self._policy.check(url)
        extra = self._options(start)
        at, sent = start, dict(headers) | {"Accept-Encoding": "identity"}
        own = {str(k): str(v) for k, v in dict(extra.get("headers") or {}).items()}
        auth = credentials(url)
        query = str(extra.get("query") or "").lstrip("?&")
        for _ in range(HOPS + 1):
            home = same_place(start, at)
            response = await self._send(
                session, method, at, sent | own if home else sent, auth if home else None, query if home else ""
            )
            try:
                if response.status not in _REDIRECT:
                    encoding = response.headers.get("Content-Encoding", "identity").lower()
                    if encoding not in ("", "identity") and response.status in (200, 206) and method == "GET":
                        raise FetchError(f"the server sends the object {encoding}-encoded", url=plain(url))
                    yield response
                    return
                location = response.headers.get("Location")
            finally:
                response.release()
            if not location:
                raise FetchError("a redirect without a target", url=plain(url))
            at = self._policy.check(urljoin(at, location))
            if urlsplit(at).scheme not in ("http", "https"):
                raise DeniedError("a redirect leads out of the web", url=at)
        raise FetchError(f"more than {HOPS} redirects", url=plain(url))

    async def _send(
        self, session: ClientSession, method: str, url: str, headers: Mapping[str, str], auth: Any, query: str
    ) -> ClientResponse:
        import aiohttp
        from yarl import URL

        full = url if not query else f"{url}{'&' if '?' in url else '?'}{query}"
        try:
            return await session.request(
                method,
                URL(full, encoded=True),
                headers=headers,
                auth=auth,
                allow_redirects=False,
                proxy=proxy_for(url, self._proxies),
            )
        except aiohttp.ClientConnectorCertificateError:
            raise FetchError("the server's certificate is not trusted", url=plain(url)) from None
        except aiohttp.ClientConnectorDNSError:
            raise Again("the host's name is not known") from None
        except aiohttp.InvalidURL:
            raise DeniedError("the URL is malformed", url=plain(url)) from None
        except TimeoutError:
            raise Again("the server did not answer in time") from None
        except aiohttp.ServerDisconnectedError:
            raise Again("the server closed the connection") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Again(f"no answer ({type(error).__name__})") from None

    def _connect(self) -> ClientSession:
        if self._session is None:
            import aiohttp

            with mapped("http:"):
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=30),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=self._patience.stall),
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    read_bufsize=BUFFER,
                    headers={"User-Agent": "periplus"},
                )
        return self._session


async def take(response: ClientResponse, length: int, want: Want, *, keep: bool = True) -> None:
    """Read exactly `length` body bytes into `want`; what came before a break is kept, the rest asked for again."""
    import aiohttp

    while length > 0:
        try:
            part = await response.content.read(min(length, BUFFER))
        except TimeoutError:
            raise Again("the server stopped in the middle of its answer") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Again(f"the connection broke in the middle of the answer ({type(error).__name__})") from None
        if not part:
            raise Again("the answer ended early")
        length -= len(part)
        if keep:
            want.add(part)


def refusal(status: int, response: ClientResponse, url: str, offset: int | None) -> PeriplusError | Again:
    """What a status that carries no bytes means."""
    if status in (404, 410):
        return MissingError(f"no such object (HTTP {status})", url=url, offset=offset)
    if status in (401, 403, 407):
        return DeniedError(
            f"the server refuses access (HTTP {status}); credentials go into storage_options", url=url, offset=offset
        )
    if status in _TRANSIENT:
        return Again(f"HTTP {status}", retry_after(response.headers.get("Retry-After")))
    return FetchError(f"the server answers HTTP {status}", url=url, offset=offset)


def content_range(response: ClientResponse) -> tuple[int | None, int | None, int | None]:
    """First byte, last byte, total size, as far as the header says them."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if found is None:
        return None, None, None
    first, last, total = found.groups()
    return (
        None if first is None else int(first),
        None if last is None else int(last),
        None if total == "*" else int(total),
    )


def facts_of(url: str, response: ClientResponse, size: int | None) -> Source:
    """What the headers of a response say of the object."""
    modified: datetime | None = None
    text = response.headers.get("Last-Modified")
    if text:
        try:
            modified = parsedate_to_datetime(text)
        except ValueError:
            modified = None
    if modified is not None:
        modified = modified.replace(tzinfo=UTC) if modified.tzinfo is None else modified.astimezone(UTC)
    return Source(url=url, size=size, etag=response.headers.get("ETag"), last_modified=modified)


def plain(url: str) -> str:
    """The URL without user name and password."""
    return canonical(url)


def credentials(url: str) -> Any:
    """Basic authentication from the user part of a URL that the user gave, or None."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    from urllib.parse import unquote

    from aiohttp import BasicAuth

    return BasicAuth(unquote(parts.username), unquote(parts.password or ""))


def same_place(one: str, other: str) -> bool:
    """Whether credentials for one URL may go to the other: same scheme, host and port."""
    a, b = urlsplit(one), urlsplit(other)
    return (a.scheme, a.netloc) == (b.scheme, b.netloc)


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """The proxy for this URL; never one for this machine itself."""
    if not proxies:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return proxies.get(parts.scheme)
