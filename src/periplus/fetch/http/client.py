"""HTTP(S) ranges: every redirect checked, every length and Content-Range verified, failures retried in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from periplus.errors import DeniedError, FetchError, StaleError
from periplus.fetch.http.answers import PIECE, RangeRequest, body, content_range, facts_of, refusal, skip
from periplus.fetch.http.credentials import Credentials, place
from periplus.fetch.http.hosts import PUBLIC, BoundedResolver, OutsideError, kind, kind_of, leads, literal
from periplus.fetch.http.retry import Again, Gate, Patience, Pauses
from periplus.fetch.http.signing import REFUSED, Signatures
from periplus.fetch.stale import strong
from periplus.model import Source
from periplus.policy import WEB, Policy, canonical

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
HOPS = 10
"""Redirects followed at most; a login takes four, and its answer may redirect to another store."""
SKIP = 8 << 20
"""Bytes read and forgotten at most where a server ignores Range; beyond that it is an error."""
S3_ADDRESS = "https://{bucket}.s3.amazonaws.com/"
ANSWER = 1 << 16
"""Bytes of the answer of a token endpoint at most."""
_REDIRECT = frozenset({301, 302, 303, 307, 308})


class Web:
    """One client session, made on first use; used and closed on one event loop."""

    def __init__(
        self, *, policy: Policy, options: Callable[[str], Mapping[str, Any]], gate: Gate, patience: Patience
    ) -> None:
        self._policy, self._options, self._gate, self._patience = policy, options, gate, patience
        self._sessions: dict[str | None, ClientSession] = {}
        """One for the hosts that the user names, others for those that hosts of a kind redirect to."""
        self._proxies = getproxies()
        self._credentials = Credentials()
        self._signatures = Signatures(self._answer)
        self._kinds: dict[str, str] = {}

    async def close(self) -> None:
        """Close every connection."""
        await self._signatures.close()
        while self._sessions:
            await self._sessions.popitem()[1].close()

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
        """The response, of a URL signed again where its signature is refused."""
        start = self._policy.check(url)
        options = self._options(start)
        self._credentials.learn(url, start)
        plain = {"Accept-Encoding": "identity", **headers}
        signer = options.get("signer")
        first, fresh = (start, True) if signer is None else await self._signed(signer, start)
        response, at = await self._redirected(method, start, first, plain, options)
        try:
            if not fresh and response.status in REFUSED:
                response.release()
                again, _ = await self._signed(signer, start, refused=first)
                response, at = await self._redirected(method, start, again, plain, options)
            _check_answer(method, start, at, response)
            yield response
        finally:
            response.release()

    async def _signed(self, signer: Any, start: str, refused: str | None = None) -> tuple[str, bool]:
        """The URL to ask for, and whether its signature is new.

        The policy need not name it where it is that of `start` but for its parameters.
        """
        signed, fresh = await self._signatures.sign(signer, start, refused)
        own = canonical(signed)
        return own if own.partition("?")[0] == start.partition("?")[0] else self._policy.check(signed), fresh

    async def _answer(self, address: str, headers: Mapping[str, str]) -> Any:
        """What a token endpoint answers, in JSON."""
        response = await self._send("GET", address, {"Accept-Encoding": "identity", **headers})
        try:
            if response.status != 200:
                raise refusal(response, address)
            return json.loads(await body(response, ANSWER))
        except ValueError:
            raise FetchError("the token endpoint sends no JSON", url=address) from None
        finally:
            response.release()

    async def _redirected(
        self, method: str, start: str, at: str, plain: Mapping[str, str], options: Mapping[str, Any]
    ) -> tuple[ClientResponse, str]:
        """The response after at most HOPS redirects, and its URL.

        Policy is asked before each, none leads from a public host into a private network, and credentials go to their
        own host only. One request at a time logs in; those that waited for it begin again with its cookies.
        """
        first, limit, seen = at, None, 0
        query = str(options.get("query") or "").lstrip("?&")
        async with AsyncExitStack() as login:
            waited = False
            for _ in range(HOPS + 1):
                lock = None if waited else self._credentials.login(start, at, options)
                if lock is not None:
                    waited = True
                    await login.enter_async_context(lock)
                    if self._credentials.kept(start) != seen:
                        await login.aclose()
                        at, limit = first, None
                before, own = self._credentials.kept(start), self._credentials.headers(start, at, options)
                target = f"{at}{'&' if '?' in at else '?'}{query}" if query and place(start) == place(at) else at
                response = await self._send(method, target, {**plain, **own}, limit)
                seen = before + self._credentials.keep(at, response, options)
                if response.status not in _REDIRECT:
                    return response, at
                location = response.headers.get("Location", "")
                response.release()
                if not location:
                    raise FetchError("the server redirects to nowhere", url=start)
                at = self._policy.check(urljoin(at, location))
                if urlsplit(at).scheme not in WEB:
                    raise DeniedError("a redirect leads out of the web", url=at)
                limit = await self._limit(start, at)
        raise FetchError(f"more than {HOPS} redirects", url=start)

    async def _limit(self, start: str, at: str) -> str | None:
        """The kind of host that redirects to another, None where it is the same; DeniedError where it may not."""
        host, other = urlsplit(start).hostname or "", urlsplit(at).hostname or ""
        if host == other:
            return None
        if host not in self._kinds:
            # Behind a proxy names are resolved elsewhere.
            self._kinds[host] = (
                PUBLIC if proxy_for(start, self._proxies) and not literal(host) else await kind_of(start)
            )
        if literal(other) and not leads(self._kinds[host], kind(other)):
            raise _outside(at)
        return self._kinds[host]

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], limit: str | None = None
    ) -> ClientResponse:
        import aiohttp
        from yarl import URL

        proxy = proxy_for(url, self._proxies)
        try:
            return await self._connected(None if proxy else limit).request(
                method, URL(url, encoded=True), headers=headers, allow_redirects=False, proxy=proxy
            )
        except OutsideError:
            raise _outside(url) from None
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

    def _connected(self, limit: str | None) -> ClientSession:
        """The session for hosts that the user names, or for those that a host of this kind may redirect to."""
        if limit not in self._sessions:
            import aiohttp

            resolver: Any = None if limit is None else BoundedResolver(limit)
            self._sessions[limit] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=30, resolver=resolver),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=self._patience.stall),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=PIECE,
                headers={"User-Agent": "periplus"},
            )
        return self._sessions[limit]


def _check_answer(method: str, start: str, at: str, response: ClientResponse) -> None:
    """Refuse a response that is not the object: one in another encoding, or the login page of another host."""
    host = urlsplit(at).hostname
    if place(start) != place(at) and (
        response.status == 401 or (response.status == 200 and response.content_type == "text/html")
    ):
        raise DeniedError(
            f"the server redirects to a login at {host}; pass netrc=True by storage_options, with a line for {host} in "
            "~/.netrc, or a bearer_token",
            url=start,
        )
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity" and method == "GET" and response.status in (200, 206):
        raise FetchError(f"the server sends the object {encoding:.20}-encoded", url=start)


def _outside(url: str) -> DeniedError:
    return DeniedError(
        "a redirect leads into a private network, to this machine or to a link-local address, from a server elsewhere",
        url=url,
    )


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """The proxy for this URL; never one for this machine itself."""
    if not proxies:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return proxies.get(parts.scheme)
