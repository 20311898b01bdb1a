"""Kinds of network addresses, and how far a redirect may lead: never from a public host into a private network."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

PUBLIC, PRIVATE, LOOPBACK, LINK_LOCAL = "public", "private", "loopback", "link-local"


class OutsideError(Exception):
    """A host whose addresses are all beyond where a redirect may lead."""


def kind(address: str) -> str:
    """Whether an address is public, private, of this machine, or link-local, as the metadata services of clouds are."""
    ip = ip_address(address.strip("[]").partition("%")[0])
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_link_local:
        return LINK_LOCAL
    if ip.is_loopback or ip.is_unspecified:
        return LOOPBACK
    return PUBLIC if ip.is_global and not ip.is_multicast else PRIVATE


def literal(host: str) -> bool:
    """Whether a host is an address, not a name."""
    try:
        kind(host)
    except ValueError:
        return False
    return True


def leads(start: str, to: str) -> bool:
    """Whether a host of the one kind may redirect to one of the other."""
    return to in (PUBLIC, start) or (start, to) == (LOOPBACK, PRIVATE)


async def kind_of(url: str) -> str:
    """The kind of a URL's host; of a name with several addresses, the most public; public where it is unknown."""
    host = urlsplit(url).hostname or ""
    if literal(host):
        return kind(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return PUBLIC
    kinds = {kind(str(address[0])) for *_, address in found}
    return next((one for one in (PUBLIC, PRIVATE, LOOPBACK) if one in kinds), LINK_LOCAL)


class BoundedResolver:
    """A resolver of aiohttp, for the addresses that a host of the kind `start` may redirect to."""

    def __init__(self, start: str) -> None:
        from aiohttp.resolver import DefaultResolver

        self._start = start
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Those addresses; OutsideError where the name has no such."""
        found = await self._resolver.resolve(host, port, family)
        inside = [one for one in found if leads(self._start, kind(one["host"]))]
        if found and not inside:
            raise OutsideError(host)
        return inside
