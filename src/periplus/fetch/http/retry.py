"""When requests run: how many at once, how long to wait before asking again, and when to give up."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from periplus.errors import FetchError

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 15.0
LONGEST_HOLD = 10.0
"""Seconds a host may hold up requests for others of its objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much trouble one request may be."""

    retries: int = 10
    """Failures in a row, without one byte of progress, before giving up."""
    stall: float = 30.0
    """Seconds without a byte after which a response is given up and asked for again."""
    deadline: float = 180.0
    """Seconds for one read, all retries included."""


class Again(Exception):  # noqa: N818 - not an error: a request to try again
    """A failure that is worth a retry; `after` is the Retry-After of the server, in seconds."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after = reason, after


class Pauses:
    """Decorrelated jitter: every pause is drawn between the first and thrice the one before."""

    def __init__(self, patience: Patience, url: str, offset: int | None = None) -> None:
        self.patience, self.url, self.offset = patience, url, offset
        self.failures = 0
        self.last = FIRST_PAUSE
        self.reason = "no answer"
        self.until = math.inf

    def begin(self) -> float:
        """Start the clock; returns when it ends, in the loop's time."""
        self.until = asyncio.get_running_loop().time() + self.patience.deadline
        return self.until

    def progress(self) -> None:
        """Bytes arrived: reset the count of failures in a row."""
        self.failures = 0
        self.last = FIRST_PAUSE

    async def wait(self, again: Again) -> None:
        """Sleep before the next attempt, or FetchError where there is none left."""
        self.failures += 1
        self.reason = again.reason
        if self.failures > self.patience.retries:
            raise self.error(f"gave up after {self.failures} attempts")
        self.last = min(LONGEST_PAUSE, random.uniform(FIRST_PAUSE, self.last * 3))  # noqa: S311 - no secret
        pause = max(self.last, again.after or 0.0)
        if asyncio.get_running_loop().time() + pause > self.until:
            raise self.error("gave up before the deadline")
        await asyncio.sleep(pause)

    def error(self, what: str) -> FetchError:
        return FetchError(f"{what}: {self.reason}", url=self.url, offset=self.offset)


class Gate:
    """Two limits; waiting for a busy host holds no place in the limit for all. Used on one event loop."""

    def __init__(self, everywhere: int, each_host: int) -> None:
        self._all = asyncio.Semaphore(everywhere)
        self._each = each_host
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._until: dict[str, float] = {}

    @asynccontextmanager
    async def pass_to(self, host: str) -> AsyncIterator[None]:
        """A place for one request."""
        own = self._hosts.get(host)
        if own is None:
            own = self._hosts[host] = asyncio.Semaphore(self._each)
        async with own:
            pause = self._until.get(host, 0.0) - asyncio.get_running_loop().time()
            if pause > 0:
                await asyncio.sleep(pause)
            async with self._all:
                yield

    def hold(self, host: str, seconds: float) -> None:
        """Send nothing more to a host for a while: it reported that it is overloaded."""
        until = asyncio.get_running_loop().time() + min(seconds, LONGEST_HOLD)
        self._until[host] = max(until, self._until.get(host, 0.0))


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, given as seconds or as a date; None if it is unreadable."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    when = http_date(text)
    return None if when is None else max(0.0, (when - datetime.now(UTC)).total_seconds())


def http_date(text: str | None) -> datetime | None:
    """The time of a header; None if it is absent or unreadable."""
    try:
        when = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
