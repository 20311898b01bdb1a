"""HTTP(S) ranges: every redirect checked, every length and Content-Range verified, failures retried in time."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from periplus.errors import DeniedError, FetchError, StaleError
from periplus.fetch.http.answers import PIECE, RangeRequest, content_range, facts_of, refusal, skip
from periplus.fetch.http.retry import Again, Gate, Patience, Pauses
from periplus.fetch.stale import strong
from periplus.model import Source
from periplus.policy import WEB, Policy, canonical

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
HOPS = 5
SKIP = 8 << 20
"""Bytes read and forgotten at most where a server ignores Range; beyond that it is an error."""
S3_ADDRESS = "https://{bucket}.s3.amazonaws.com/"
_REDIRECT = frozenset({301, 302, 303, 307, 308})


class Web:
    """One client session, made on first use; used and closed on one event loop."""

    def __init__(
        self, *, policy: Policy, options: Callable[[str], Mapping[str, Any]], gate: Gate, patience: Patience
    ) -> None:
        self._policy, self._options, self._gate, self._patience = policy, options, gate, patience
        self._session: ClientSession | None = None
        self._proxies = getproxies()
        self._names: dict[str, dict[str, str]] = {}
        """User names and passwords that came with URLs, by place: the facts we return no longer hold them."""

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def read(self, url: str, offset: int, length: int, *, expect: Source | None = None) -> tuple[bytes, Source]:
        """Bytes of a range cut at the object's end, and the facts of the object from the response."""
        want = RangeRequest(canonical(url), offset, offset + length, expect)
        return await self._persist(url, lambda: self._range(url, want), want)

    async def head(self, url: str) -> Source:
        """Size, entity tag and time of the object."""
        return await self._persist(url, lambda: self._head(url))

    async def tail(self, url: str, length: int) -> tuple[bytes, Source] | None:
        """The last bytes of an object in one request; None where the server does not know how."""
        plain = canonical(url)
        async with self._gate.pass_to(urlsplit(plain).netloc):
            try:
                async with (
                    asyncio.timeout(self._patience.deadline),
                    self._follow("GET", url, {"Range": f"bytes=-{length}"}) as response,
                ):
                    first, last, total = content_range(response)
                    if response.status != 206 or total is None or first != max(0, total - length) or last != total - 1:
                        return None
                    want = RangeRequest(plain, first, total)
                    want.learn(facts_of(plain, response, total))
                    await want.take(response, total - first)
                    return want.result()
            except (Again, TimeoutError):
                return None

    async def bucket_region(self, bucket: str) -> str | None:
        """The AWS region of a bucket, from a public request; None if that fails."""
        try:
            async with asyncio.timeout(10):
                response = await self._send("HEAD", S3_ADDRESS.format(bucket=bucket), {})
        except (Again, FetchError, DeniedError, TimeoutError):
            return None
        response.release()
        return response.headers.get("x-amz-bucket-region")

    async def _persist(
        self, url: str, attempt: Callable[[], Awaitable[T | None]], want: RangeRequest | None = None
    ) -> T:
        """Attempt until done; FetchError when patience ends."""
        plain = canonical(url)
        host = urlsplit(plain).netloc
        pauses = Pauses(self._patience, plain, None if want is None else want.offset)
        try:
            async with asyncio.timeout(None) as limit:
                while True:
                    had = 0 if want is None else want.have
                    try:
                        async with self._gate.pass_to(host):
                            if limit.when() is None:  # time spent waiting for a place is not the server's
                                limit.reschedule(pauses.begin())
                            done = await attempt()
                        if done is not None:
                            return done
                        continue  # a right answer to part of the question: ask for the rest at once
                    except Again as reason:
                        again = reason
                    if again.after is not None:
                        self._gate.hold(host, again.after)
                    if want is not None and want.have > had:
                        pauses.progress()
                    await pauses.wait(again)
        except TimeoutError:
            raise pauses.error(f"not done within {self._patience.deadline:g} s") from None

    async def _range(self, url: str, want: RangeRequest) -> tuple[bytes, Source] | None:
        """One request for what is still missing; the result when that completes it."""
        headers = {"Range": f"bytes={want.at}-{want.stop - 1}"}
        known = want.expect or want.facts
        tag = None if known is None else strong(known.etag)
        if tag is not None:
            headers["If-Match"] = tag
        async with self._follow("GET", url, headers) as response:
            if response.status == 206:
                return await self._partial(want, response)
            if response.status == 200:
                return await self._whole(want, response)
            if response.status == 416:
                return self._past_end(want, response)
            if response.status == 412 and want.expect is None:
                raise want.replaced()
            if response.status == 412:
                raise StaleError("the object changed after it was indexed", url=want.url, offset=want.offset)
            raise refusal(response, want.url, want.offset)

    async def _partial(self, want: RangeRequest, response: ClientResponse) -> tuple[bytes, Source] | None:
        first, last, total = content_range(response)
        start = want.at
        if first != start or last is None or not start <= last < want.stop or (total is not None and last >= total):
            raise Again(f"the server answers with another range ({response.headers.get('Content-Range', 'none'):.60})")
        if response.content_length is not None and response.content_length != last + 1 - start:
            raise Again("the server's Content-Range and Content-Length disagree")
        want.learn(facts_of(want.url, response, total))
        await want.take(response, last + 1 - start)
        return want.result() if last + 1 in (want.stop, total) else None

    async def _whole(self, want: RangeRequest, response: ClientResponse) -> tuple[bytes, Source]:
        """The server ignores Range: skip the bytes before the range, up to a limit."""
        size, start = response.content_length, want.at
        if size is None:
            raise Again("the server ignores Range and sends no length")
        want.learn(facts_of(want.url, response, size))
        if start > SKIP:
            raise FetchError(
                "the server ignores Range and sends whole objects; copy the file, or use a server with ranges",
                url=want.url,
                offset=want.offset,
            )
        if start < min(want.stop, size):
            await skip(response, start)
            await want.take(response, min(want.stop, size) - start)
        return want.result()

    def _past_end(self, want: RangeRequest, response: ClientResponse) -> tuple[bytes, Source]:
        _, _, total = content_range(response)
        if total is None or total > want.at:
            raise Again("the server refuses a range inside the object (HTTP 416)")
        want.learn(facts_of(want.url, response, total))
        return want.result()

    async def _head(self, url: str) -> Source | None:
        plain = canonical(url)
        async with self._follow("HEAD", url, {}) as response:
            length = response.headers.get("Content-Length", "")
            if response.status == 200 and length.isdigit():
                return facts_of(plain, response, int(length))
            if response.status not in (200, 403, 405, 501):
                raise refusal(response, plain)
        # Signed URLs and minimal servers refuse HEAD, and some HEADs have no length: read the first byte instead.
        done = await self._range(url, RangeRequest(plain, 0, 1))
        return None if done is None else done[1]

    @asynccontextmanager
    async def _follow(self, method: str, url: str, headers: Mapping[str, str]) -> AsyncIterator[ClientResponse]:
        """The response after at most HOPS redirects, each checked by policy; credentials go to their own host only."""
        start = at = self._policy.check(url)
        options = self._options(start)
        plain = {"Accept-Encoding": "identity", **headers}
        self._names.update({place(start): header} if (header := basic(url)) else {})
        own = {**plain, **self._names.get(place(start), {}), **_texts(options.get("headers"))}
        query = str(options.get("query") or "").lstrip("?&")
        for _ in range(HOPS + 1):
            if place(start) == place(at):
                target = f"{at}{'&' if '?' in at else '?'}{query}" if query else at
                response = await self._send(method, target, own)
            else:
                response = await self._send(method, at, plain)
            try:
                if response.status not in _REDIRECT:
                    encoding = response.headers.get("Content-Encoding", "identity").lower()
                    if encoding != "identity" and method == "GET" and response.status in (200, 206):
                        raise FetchError(f"the server sends the object {encoding:.20}-encoded", url=start)
                    yield response
                    return
                location = response.headers.get("Location", "")
            finally:
                response.release()
            if not location:
                raise FetchError("the server redirects to nowhere", url=start)
            at = self._policy.check(urljoin(at, location))
            if urlsplit(at).scheme not in WEB:
                raise DeniedError("a redirect leads out of the web", url=at)
        raise FetchError(f"more than {HOPS} redirects", url=start)

    async def _send(self, method: str, url: str, headers: Mapping[str, str]) -> ClientResponse:
        import aiohttp
        from yarl import URL

        try:
            return await self._connected().request(
                method,
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                proxy=proxy_for(url, self._proxies),
            )
        except aiohttp.ClientConnectorCertificateError:
            raise FetchError("the server's certificate is not trusted", url=url) from None
        except aiohttp.InvalidURL:
            raise DeniedError("the URL is malformed", url=url) from None
        except ValueError:
            raise FetchError("the headers in storage_options are malformed", url=url) from None
        except TimeoutError:
            raise Again("the server did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Again(f"no answer ({type(error).__name__})") from None

    def _connected(self) -> ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=self._patience.stall),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=PIECE,
                headers={"User-Agent": "periplus"},
            )
        return self._session


def basic(url: str) -> dict[str, str]:
    """The header for the user name and password in a URL that the user gave; none where there are none."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + b64encode(pair.encode()).decode()}


def place(url: str) -> str:
    """Scheme, host and port: what credentials belong to."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _texts(headers: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (headers or {}).items()}


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """The proxy for this URL; never one for this machine itself."""
    if not proxies:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return proxies.get(parts.scheme)
