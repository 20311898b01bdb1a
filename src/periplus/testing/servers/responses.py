"""Responses of the range server, correct ones and faults, computed from requests without sockets."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the server for a path. `kind` is one of FAULTS."""

    kind: str
    times: int = 1
    """Number of requests that fail; -1 for all."""
    chance: float = 1.0
    """Probability for each request, from the server's seeded generator."""
    retry_after: str | None = None
    location: str = ""
    seconds: float = 0.0


FAULTS = {
    "status-503": "503, with Retry-After where one is given",
    "status-429": "429, with Retry-After where one is given",
    "status-500": "500",
    "status-403": "403",
    "reset": "the connection is reset before the response",
    "reset-body": "the connection is reset in the middle of the body",
    "truncate": "half of the promised body, then the end",
    "short-range": "a correct response for the first half of the range",
    "lie-start": "Content-Range has another first byte than requested",
    "lie-length": "the length in Content-Range is five bytes less than that of the body",
    "lie-total": "Content-Range states a total of five bytes less, and the body ends there",
    "no-total": "Content-Range with an unknown total",
    "ignore-range": "200 with the whole object",
    "ignore-if-match": "If-Match is ignored",
    "no-etag": "neither ETag nor Last-Modified",
    "no-tag": "Last-Modified, but no ETag",
    "no-head": "405 for HEAD",
    "gzip": "Content-Encoding: gzip, but the body is not compressed",
    "chunked": "the body in chunks without Content-Length",
    "redirect": "302 to `location`",
    "stall": "nothing for `seconds`, then the response",
    "trickle": "half of the body, nothing for `seconds`, then the rest",
    "garbage": "not HTTP at all",
}
NONE = Fault(kind="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status, headers, and the bytes [start, stop) of the object as body."""

    status: int
    headers: list[str] = field(default_factory=list)
    asked: tuple[int, int] | None = None
    start: int = 0
    stop: int = 0
    chunked: bool = False

    @property
    def length(self) -> int:
        return self.stop - self.start

    def head(self) -> bytes:
        """The status line and headers as bytes."""
        return "\r\n".join([f"HTTP/1.1 {self.status} x", *self.headers, "", ""]).encode("latin-1")


def respond(
    method: str, headers: Mapping[str, str], size: int, tag: str, modified: float, fault: Fault = NONE
) -> Response:
    """The response to a request for an object of `size` bytes; size -1 where there is no such object."""
    asked = _range(headers.get("range"), size)
    status, extra = _status(method, headers, size, tag, asked, fault)
    if status not in (200, 206):
        return Response(status=status, headers=[*extra, "Content-Length: 0"], asked=asked)
    start, stop = asked if status == 206 and asked is not None else (0, size)
    first, total = start, str(size)
    if fault.kind == "short-range" and status == 206:
        stop = start + max(1, (stop - start) // 2)
    elif fault.kind == "lie-total":
        total, stop = str(size - 5), min(stop, size - 5)
    elif fault.kind == "no-total":
        total = "*"
    elif fault.kind == "lie-start":
        first = start + 1
    if status == 206:
        last = stop - 6 if fault.kind == "lie-length" else stop - 1
        extra.append(f"Content-Range: bytes {first}-{last}/{total}")
    if fault.kind != "no-etag":
        extra += [] if fault.kind == "no-tag" else [f"ETag: {tag}"]
        extra.append(f"Last-Modified: {email.utils.formatdate(modified, usegmt=True)}")
    if fault.kind == "gzip":
        extra.append("Content-Encoding: gzip")
    chunked = fault.kind == "chunked"
    extra.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {stop - start}")
    extra += ["Accept-Ranges: bytes", "Content-Type: application/octet-stream"]
    if method == "HEAD":
        stop, chunked = start, False
    return Response(status=status, headers=extra, asked=asked, start=start, stop=stop, chunked=chunked)


def _status(
    method: str, headers: Mapping[str, str], size: int, tag: str, asked: tuple[int, int] | None, fault: Fault
) -> tuple[int, list[str]]:
    if fault.kind.startswith("status-"):
        after = [] if fault.retry_after is None else [f"Retry-After: {fault.retry_after}"]
        return int(fault.kind.removeprefix("status-")), after
    if fault.kind == "redirect":
        return 302, [f"Location: {fault.location}"]
    if fault.kind == "no-head" or method not in ("GET", "HEAD"):
        return 405, []
    if size < 0:
        return 404, []
    if not _matches(headers.get("if-match"), tag) and fault.kind != "ignore-if-match":
        return 412, []
    if "range" not in headers or fault.kind == "ignore-range" or method == "HEAD":
        return 200, []
    return (416, [f"Content-Range: bytes */{size}"]) if asked is None else (206, [])


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """The half-open range that a Range header requests, cut at the end of the object; None where it is invalid."""
    found = _RANGE.match(header or "")
    if found is None or size < 0 or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if last and first else size
    return (start, stop) if start < stop else None


def _matches(condition: str | None, tag: str) -> bool:
    return condition is None or condition.strip() == "*" or tag in [part.strip() for part in condition.split(",")]
