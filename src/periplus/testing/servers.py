"""A real HTTP server for tests and benchmarks: ranges, conditions, latency, a log, and faults on demand."""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from periplus.testing.s3 import S3Server, s3_binary, s3_server

__all__ = ["FAULTS", "Fault", "RangeServer", "Request", "S3Server", "s3_binary", "s3_server"]

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the log."""

    method: str
    path: str
    range: tuple[int, int] | None
    """Half-open, as it was served or would have been."""
    status: int
    sent: int
    """Body bytes sent."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How the server misbehaves for a path. `kind` is one of FAULTS."""

    kind: str
    times: int = 1
    """Requests it happens to; -1 for all."""
    chance: float = 1.0
    """Of happening to a request, drawn from the server's seeded generator."""
    retry_after: str | None = None
    location: str = ""
    seconds: float = 0.0


FAULTS = {
    "status-503": "503, with Retry-After where one is given",
    "status-429": "429, with Retry-After where one is given",
    "status-500": "500",
    "status-403": "403",
    "reset": "the connection is reset before the answer",
    "reset-body": "the connection is reset in the middle of the body",
    "truncate": "half of the promised body, then the end",
    "short-range": "a correct answer to the first half of the range",
    "lie-start": "Content-Range names another first byte than asked for",
    "lie-length": "Content-Range and body are five bytes short of each other",
    "lie-total": "Content-Range states a total of five bytes less, and the body ends there",
    "no-total": "Content-Range with an unknown total",
    "ignore-range": "200 with the whole object",
    "ignore-if-match": "the condition is not looked at",
    "no-etag": "neither ETag nor Last-Modified",
    "no-head": "405 for HEAD",
    "gzip": "Content-Encoding: gzip, though it is not",
    "chunked": "the body in chunks without Content-Length",
    "redirect": "302 to `location`",
    "stall": "nothing for `seconds`, then the answer",
    "trickle": "half of the body, nothing for `seconds`, then the rest",
    "garbage": "not HTTP at all",
}


class RangeServer:
    """An HTTP/1.1 server in a thread of its own: keep-alive, ranges, ETag, If-Match, a log, latency and faults.

    `content` is a folder or a mapping of names to bytes. `latency` is in seconds, before every answer.
    Change `files`, `faults` and `latency` at any time; `faults[path]` is a list, used up from the front,
    and `faults["*"]` holds for every path.
    """

    def __init__(
        self, content: str | Path | Mapping[str, bytes], *, latency: float = 0.0, seed: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.folder = None if isinstance(content, Mapping) else Path(content)
        self.files: dict[str, bytes] = dict(content) if isinstance(content, Mapping) else {}
        self.modified: dict[str, float] = {}
        self.latency = latency
        self.faults: dict[str, list[Fault]] = {}
        self.log: list[Request] = []
        self.open_connections = 0
        self._random = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._connections: set[_Connection] = set()
        self._tags: dict[tuple[str, int], str] = {}
        self._birth = float(int(time.time()))
        self.port = 0
        self._thread = threading.Thread(target=self._main, name="range-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    def start(self) -> RangeServer:
        """Listen on a free port."""
        self._thread.start()
        self._started.wait()
        return self

    def stop(self) -> None:
        """Close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> RangeServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Connection(self), self._host, 0, backlog=1024)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    def fault(self, path: str, method: str) -> Fault | None:
        """The fault that befalls this request, if any."""
        for key in (path, "*"):
            queue = self.faults.get(key)
            if not queue:
                continue
            fault = queue[0]
            if fault.kind == "no-head" and method != "HEAD":
                continue
            if fault.chance < 1.0:
                return self._random.choice(queue) if self._random.random() < fault.chance else None
            if fault.times > 0:
                queue[0:1] = [] if fault.times == 1 else [replace(fault, times=fault.times - 1)]
            return fault
        return None

    def look(self, path: str) -> tuple[bytes | None, int, str, float]:
        """(bytes where they are in memory, size, entity tag, modification time); size -1 where there is nothing."""
        name = unquote(path).lstrip("/")
        if self.folder is None:
            data = self.files.get(name)
            if data is None:
                return None, -1, "", 0.0
            key = (name, id(data))
            if key not in self._tags:
                self._tags[key] = hashlib.sha256(data).hexdigest()[:24]
            return data, len(data), f'"{self._tags[key]}"', self.modified.get(name, self._birth)
        try:
            status = (self.folder / name).stat()
        except OSError:
            return None, -1, "", 0.0
        if ".." in name.split("/") or not (self.folder / name).is_file():
            return None, -1, "", 0.0
        return None, status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"', status.st_mtime

    def slice(self, path: str, data: bytes | None, start: int, stop: int) -> bytes | memoryview:
        """Part of an object."""
        if data is not None:
            return memoryview(data)[start:stop]
        assert self.folder is not None
        with (self.folder / unquote(path).lstrip("/")).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), stop - start, start)


class _Connection(asyncio.Protocol):
    """One client; requests are answered in order."""

    def __init__(self, server: RangeServer) -> None:
        self.server = server
        self.buffer = b""
        self.busy = False
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server._connections.add(self)
        self.server.open_connections += 1
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.server._connections.discard(self)
        self.server.open_connections -= 1
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.busy and b"\r\n\r\n" in self.buffer:
            self.busy = True
            self.server._loop.create_task(self._serve())

    def abort(self) -> None:
        """Reset the connection, as a crashed host would."""
        self.transport.abort()

    async def _serve(self) -> None:
        try:
            while b"\r\n\r\n" in self.buffer and not self.transport.is_closing():
                head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                await self._answer(method, urlsplit(target).path, headers, target)
        finally:
            self.busy = False

    async def _answer(self, method: str, path: str, headers: dict[str, str], target: str) -> None:
        server = self.server
        fault = server.fault(path, method)
        kind = fault.kind if fault is not None else ""
        if server.latency:
            await asyncio.sleep(server.latency)
        if fault is not None and kind == "stall":
            await asyncio.sleep(fault.seconds)
        data, size, tag, modified = server.look(path)
        asked = _range(headers.get("range"), size)

        def log(status: int, sent: int = 0) -> None:
            server.log.append(
                Request(method=method, path=target, range=asked, status=status, sent=sent, headers=headers)
            )

        if kind == "reset":
            log(0)
            self._reset()
            return
        if kind == "garbage":
            log(0)
            self.transport.write(b"\x00\x01 nonsense\r\n\r\n")
            self.transport.close()
            return
        extra: list[str] = []
        status, body = 200, (0, size)
        if kind.startswith("status-"):
            status = int(kind[7:])
            if fault is not None and fault.retry_after is not None:
                extra.append(f"Retry-After: {fault.retry_after}")
        elif fault is not None and kind == "redirect":
            status = 302
            extra.append(f"Location: {fault.location}")
        elif kind == "no-head" or method not in ("GET", "HEAD"):
            status = 405
        elif size < 0:
            status = 404
        elif not _matches(headers.get("if-match"), tag) and kind != "ignore-if-match":
            status = 412
        elif "range" in headers and kind != "ignore-range" and method == "GET":
            if asked is None:
                status = 416
                extra.append(f"Content-Range: bytes */{size}")
            else:
                status, body = 206, asked
        if status not in (200, 206):
            log(status)
            self._head(status, [*extra, "Content-Length: 0"])
            return
        start, stop = body
        stated_start, total = start, str(size)
        if kind == "short-range" and status == 206:
            stop = start + max(1, (stop - start) // 2)
        elif kind == "lie-total":
            total, stop = str(size - 5), min(stop, size - 5)
        elif kind == "no-total":
            total = "*"
        elif kind == "lie-start":
            stated_start = start + 1
        stated_stop = stop - 5 if kind == "lie-length" else stop
        if status == 206:
            extra.append(f"Content-Range: bytes {stated_start}-{stated_stop - 1}/{total}")
        if kind != "no-etag":
            extra += [f"ETag: {tag}", f"Last-Modified: {email.utils.formatdate(modified, usegmt=True)}"]
        if kind == "gzip":
            extra.append("Content-Encoding: gzip")
        chunked = kind == "chunked"
        extra.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {stop - start}")
        log(status, stop - start if method == "GET" else 0)  # before the bytes go: whoever has them finds the line
        self._head(status, [*extra, "Accept-Ranges: bytes", "Content-Type: application/octet-stream"])
        if method != "GET":
            return
        line = server.log[-1]
        sent = await self._body(path, data, start, stop, fault, chunked=chunked)
        if sent != stop - start and line in server.log:
            server.log[server.log.index(line)] = replace(line, sent=sent)

    async def _body(
        self, path: str, data: bytes | None, start: int, stop: int, fault: Fault | None, *, chunked: bool
    ) -> int:
        kind = fault.kind if fault is not None else ""
        half = (start + stop) // 2
        at = start
        while at < stop and not self.transport.is_closing():
            to = min(at + _PIECE, stop)
            if kind in ("truncate", "reset-body", "trickle") and at < half:
                to = min(to, half)
            piece = self.server.slice(path, data, at, to)
            if chunked:
                piece = b"%x\r\n%b\r\n" % (len(piece), bytes(piece))
            self.transport.write(piece)
            at = to
            if at == half and kind in ("truncate", "reset-body", "trickle"):
                if fault is not None and kind == "trickle":
                    await asyncio.sleep(fault.seconds)
                    continue
                await asyncio.sleep(0.01)  # let the half arrive before the end does
                self.transport.close() if kind == "truncate" else self._reset()
                break
            await self.writable.wait()
        if chunked and not self.transport.is_closing():
            self.transport.write(b"0\r\n\r\n")
        return at - start

    def _head(self, status: int, lines: list[str]) -> None:
        if not self.transport.is_closing():
            self.transport.write("\r\n".join([f"HTTP/1.1 {status} x", *lines, "", ""]).encode("latin-1"))

    def _reset(self) -> None:
        # Linger zero makes the kernel send RST instead of FIN.
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        self.transport.abort()


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """The half-open range a header asks for, cut at the object's end; None where it cannot be met."""
    found = _RANGE.match(header or "")
    if found is None or size < 0 or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if last and first else size
    return (start, stop) if start < stop else None


def _matches(condition: str | None, tag: str) -> bool:
    return condition is None or condition.strip() == "*" or tag in [part.strip() for part in condition.split(",")]


def main() -> None:
    """Serve a folder from a process of its own, so that a benchmark's CPU time is the client's alone.

    `python -m periplus.testing.servers FOLDER [LATENCY]` prints its URL, and ends when its input does.
    """
    folder, latency = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    with RangeServer(folder, latency=latency) as server:
        print(server.url, flush=True)
        sys.stdin.read()
        print(json.dumps({"requests": len(server.log), "sent": sum(r.sent for r in server.log)}), flush=True)


if __name__ == "__main__":
    main()
