"""Signed URLs: from the user's signer or a token endpoint, reused until they expire, made again once refused."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from periplus.errors import DeniedError, FetchError, PeriplusError
from periplus.fetch.errors import cause
from periplus.policy import WEB, canonical, scheme_of

Signer = str | Callable[[str], Any]
PLANETARY_COMPUTER = "planetary-computer"
SIGNERS = frozenset({PLANETARY_COMPUTER})
REFUSED = frozenset({400, 401, 403})
"""Answers to a signature that has expired: 400 from Google and for AWS session tokens, 403 from the others."""
LIFE = 0.9
"""The part of a signature's life in which it is used: clocks differ, and requests wait."""
KEPT = 10_000
"""Signatures kept at most, the least used dropped first."""
_SAS_URL = "https://planetarycomputer.microsoft.com/api/sas/v1/token"
_BLOBS = ".blob.core.windows.net"
_PUBLIC = frozenset({"ai4edatasetspublicassets"})
"""Accounts of the Planetary Computer that anyone may read, and for which it gives no token."""


@dataclass(slots=True)
class Signature:
    """One that is being made, or was; it expires at `until`, in seconds since 1970."""

    made: asyncio.Task[str]
    until: float | None = None


class Signatures:
    """The signatures of one client; `ask` fetches the answer of a token endpoint."""

    def __init__(self, ask: Callable[[str, Mapping[str, str]], Awaitable[Any]]) -> None:
        self._ask = ask
        self._known: OrderedDict[str, Signature] = OrderedDict()

    async def close(self) -> None:
        """Give up what is being signed."""
        tasks = [one.made for one in self._known.values() if not one.made.done()]
        self._known.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def sign(self, signer: Signer, url: str, refused: str | None = None) -> tuple[str, bool]:
        """The signed URL, another one than that which the server `refused`, and whether it was made just now."""
        key = url if callable(signer) else token_url(url)
        if key is None:
            return url, True
        known = self._known.get(key)
        fresh = (
            known is None or _failed(known) or _spent(known) or (refused is not None and _done(known, url) == refused)
        )
        if known is None or fresh:
            work = self._called(signer, url) if callable(signer) else self._token(key)
            known = self._known[key] = Signature(asyncio.create_task(work))
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        made = await asyncio.shield(known.made)  # others may wait for it, too
        if known.until is None:
            known.until = _until(made)
        return _joined(url, made), fresh

    async def _called(self, signer: Callable[[str], Any], url: str) -> str:
        try:
            signed = await asyncio.to_thread(signer, url)  # it may ask a server
            if inspect.isawaitable(signed):
                signed = await signed
        except PeriplusError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's own code
            raise FetchError(f"the signer failed ({type(error).__name__})", url=url) from cause(error)
        if not isinstance(signed, str):
            raise TypeError(f"a signer returns the signed URL as text, not {type(signed).__name__}")
        if scheme_of(canonical(signed)) not in WEB:
            raise DeniedError("the signer returns no http or https URL", url=url)
        return signed

    async def _token(self, address: str) -> str:
        key = os.environ.get("PC_SDK_SUBSCRIPTION_KEY")
        answer = await self._ask(address, {"Ocp-Apim-Subscription-Key": key} if key else {})
        token = answer.get("token") if isinstance(answer, Mapping) else None
        if not isinstance(token, str) or not token or "://" in token:
            raise FetchError("the token endpoint sends no token", url=address)
        return token.lstrip("?&")


def token_url(url: str) -> str | None:
    """Where the Planetary Computer gives the token for a blob's container; None for what it does not sign.

    The environment variables are those of its own library.
    """
    parts = urlsplit(url)
    host, container = parts.hostname or "", parts.path.split("/")[1]
    account = host.removesuffix(_BLOBS)
    if account == host or "." in account or account in _PUBLIC or not container:
        return None
    return f"{(os.environ.get('PC_SDK_SAS_URL') or _SAS_URL).rstrip('/')}/{account}/{container}"


def expiry(signed: str) -> float | None:
    """When a signed URL, or a token, expires, in seconds since 1970; None if it does not say so in a known way."""
    fields = {name.lower(): value for name, value in parse_qsl(signed.rpartition("?")[2])}
    try:
        if "se" in fields:  # Azure
            when = datetime.fromisoformat(fields["se"])
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        for cloud in ("x-amz", "x-goog"):
            if f"{cloud}-expires" in fields:
                begin = datetime.strptime(fields[f"{cloud}-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                return (begin + timedelta(seconds=int(fields[f"{cloud}-expires"]))).timestamp()
        return float(int(fields["expires"])) if "expires" in fields else None  # CloudFront, and older ones of the two
    except (ValueError, KeyError, OverflowError):
        return None


def _until(made: str) -> float:
    now, end = time.time(), expiry(made)
    return float("inf") if end is None else now + LIFE * (end - now)


def _failed(known: Signature) -> bool:
    return known.made.done() and (known.made.cancelled() or known.made.exception() is not None)


def _spent(known: Signature) -> bool:
    return known.until is not None and time.time() >= known.until


def _done(known: Signature, url: str) -> str | None:
    """The signed URL, where it has been made."""
    return canonical(_joined(url, known.made.result())) if known.made.done() else None


def _joined(url: str, made: str) -> str:
    """A signed URL as it is, a token as the query of the URL."""
    return made if "://" in made else f"{url}{'&' if '?' in url else '?'}{made}"
