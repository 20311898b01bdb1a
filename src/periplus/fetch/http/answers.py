"""HTTP responses: their range, the facts of the object, or the error; and a range from several responses."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from periplus.errors import DeniedError, FetchError, MissingError, PeriplusError, StaleError
from periplus.fetch.http.retry import Again, http_date, retry_after
from periplus.fetch.stale import check_same
from periplus.model import Source

if TYPE_CHECKING:
    from aiohttp import ClientResponse

PIECE = 1 << 20
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes\s+(?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)", re.IGNORECASE)


@dataclass(slots=True)
class RangeRequest:
    """The bytes [offset, stop) of an object, received in one or more responses."""

    url: str
    offset: int
    stop: int
    expect: Source | None = None
    parts: list[bytes] = field(default_factory=list)
    have: int = 0
    facts: Source | None = None

    @property
    def at(self) -> int:
        """Where the next answer must begin."""
        return self.offset + self.have

    def learn(self, facts: Source) -> None:
        """Take note of an answer's facts: they must be those of the index, and those of the answers before."""
        if self.expect is not None:
            check_same(self.expect, facts, offset=self.offset)
        if self.facts is not None and self.have:
            try:
                check_same(self.facts, facts)
            except StaleError:
                raise self.replaced() from None
        self.facts = facts

    def replaced(self) -> Again:
        """Forget what came: it belongs to an object that is no more."""
        self.parts.clear()
        self.have, self.facts = 0, None
        return Again("the object was replaced while it was read")

    async def take(self, response: ClientResponse, length: int) -> None:
        """Read exactly `length` body bytes; what came before a break is kept, the rest asked for again."""
        while length > 0:
            part = await _piece(response.content.readany())  # as it came, so that one copy is made in the end
            self.parts.append(part if len(part) <= length else part[:length])
            self.have += len(self.parts[-1])
            length -= len(part)

    def result(self) -> tuple[bytes, Source]:
        """The bytes and the facts of their object."""
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return data, self.facts or Source(url=self.url)


async def skip(response: ClientResponse, length: int) -> None:
    """Read body bytes, no more than these, and forget them."""
    while length > 0:
        length -= len(await _piece(response.content.read(min(length, PIECE))))


async def body(response: ClientResponse, limit: int) -> bytes:
    """The whole body, of `limit` bytes at most."""
    found = b""
    while len(found) <= limit and not response.content.at_eof():
        found += await _piece(response.content.readany(), end=True)
    if len(found) > limit:
        raise Again(f"the answer has more than {limit} bytes")
    return found


async def _piece(reading: Awaitable[bytes], *, end: bool = False) -> bytes:
    from aiohttp import ClientError

    try:
        part = await reading
    except TimeoutError:
        raise Again("the server stopped in the middle of its answer") from None
    except (ClientError, OSError) as error:
        raise Again(f"the connection broke in the middle of the answer ({type(error).__name__})") from None
    if not part and not end:
        raise Again("the answer ended early")
    return part


def refusal(response: ClientResponse, url: str, offset: int | None = None) -> PeriplusError | Again:
    """What a status that brings no bytes means."""
    status = response.status
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
    """First byte, last byte, total size, as far as Content-Range has them."""
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
    """The object as the headers describe it."""
    return Source(
        url=url,
        size=size,
        etag=response.headers.get("ETag"),
        last_modified=http_date(response.headers.get("Last-Modified")),
    )
