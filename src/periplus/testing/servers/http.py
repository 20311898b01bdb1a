"""A real HTTP server for tests and benchmarks: ranges, conditions, latency, a log, and faults on demand."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from periplus.testing.servers.responses import FAULTS, NONE, Fault, Response, respond
from periplus.testing.servers.s3 import S3Server, s3_binary, s3_server

__all__ = ["FAULTS", "Fault", "LoggedRequest", "RangeServer", "S3Server", "s3_binary", "s3_server"]

_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One line of the log."""

    method: str
    path: str
    range: tuple[int, int] | None
    """The half-open range requested."""
    status: int
    sent: int
    """Body bytes sent."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class RangeServer:
    """An HTTP/1.1 server in its own thread: keep-alive, ranges, ETag, If-Match, a log, latency and faults.

    `content` is a folder or a mapping of names to bytes. `latency` is in seconds, before every response.
    Change `files`, `faults` and `latency` at any time; `faults[path]` is a list, used up from the front,
    and `faults["*"]` holds for every path. `headers` are added to every response. `guard` is asked first: it gets the
    method, the target and the headers of a request, and its response, if it has one, is sent in place of the object.
    """

    def __init__(
        self, content: str | Path | Mapping[str, bytes], *, latency: float = 0.0, seed: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.folder = None if isinstance(content, Mapping) else Path(content)
        self.files: dict[str, bytes] = dict(content) if isinstance(content, Mapping) else {}
        self.modified: dict[str, float] = {}
        self.headers: list[str] = []
        self.guard: Callable[[str, str, Mapping[str, str]], Response | None] | None = None
        self.latency = latency
        self.faults: dict[str, list[Fault]] = {}
        self.log: list[LoggedRequest] = []
        self.open_connections = 0
        self.waiting = self.most_waiting = 0
        """Requests being served now, and the largest number at once so far."""
        self._random = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._connections: set[_Connection] = set()
        self._tags: dict[str, tuple[bytes, str]] = {}
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
        for _ in range(4):  # connections being accepted now are closed with the others
            self._loop.run_until_complete(asyncio.sleep(0))
        for connection in list(self._connections):
            connection.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    def fault(self, path: str, method: str) -> Fault:
        """The fault for this request, or NONE."""
        for key in (path, "*"):
            queue = self.faults.get(key)
            if not queue:
                continue
            fault = queue[0]
            if fault.kind == "no-head" and method != "HEAD":
                continue
            if fault.chance < 1.0:
                return self._random.choice(queue) if self._random.random() < fault.chance else NONE
            if fault.times > 0:
                queue[0:1] = [] if fault.times == 1 else [replace(fault, times=fault.times - 1)]
            return fault
        return NONE

    def look(self, path: str) -> tuple[bytes | None, int, str, float]:
        """(bytes where they are in memory, size, entity tag, modification time); size -1 where there is nothing."""
        name = unquote(path).lstrip("/")
        if self.folder is None:
            data = self.files.get(name)
            if data is None:
                return None, -1, "", 0.0
            known = self._tags.get(name)
            if known is None or known[0] is not data:
                known = self._tags[name] = (data, f'"{hashlib.sha256(data).hexdigest()[:24]}"')
            return data, len(data), known[1], self.modified.get(name, self._birth)
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
    """The connection of one client; requests are served in order."""

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
                await self._respond(method, urlsplit(target).path, headers, target)
        finally:
            self.busy = False

    async def _respond(self, method: str, path: str, headers: dict[str, str], target: str) -> None:
        server = self.server
        fault = server.fault(path, method)
        server.waiting += 1
        server.most_waiting = max(server.most_waiting, server.waiting)
        try:
            await asyncio.sleep(server.latency + (fault.seconds if fault.kind == "stall" else 0.0))
        finally:
            server.waiting -= 1
        guarded = None if server.guard is None else server.guard(method, target, headers)
        data, size, tag, modified = server.look(path)
        response = guarded or respond(method, headers, size, tag, modified, fault)
        line = LoggedRequest(method, target, response.asked, response.status, response.length, headers)
        server.log.append(line)  # before the body is sent, so that a client that has it finds the line
        if fault.kind == "reset":
            self._reset()
        elif fault.kind == "garbage":
            self.transport.write(b"\x00\x01 nonsense\r\n\r\n")
            self.transport.close()
        elif not self.transport.is_closing():
            self.transport.write(replace(response, headers=[*response.headers, *server.headers]).head())
            sent = await self._body(path, data, response, fault)
            if sent != response.length and line in server.log:
                server.log[server.log.index(line)] = replace(line, sent=sent)

    async def _body(self, path: str, data: bytes | None, response: Response, fault: Fault) -> int:
        breaks = fault.kind in ("truncate", "reset-body", "trickle")
        half = response.start + response.length // 2
        at = response.start
        while at < response.stop and not self.transport.is_closing():
            to = min(at + _BLOCK_BYTES, half if breaks and at < half else response.stop)
            block = self.server.slice(path, data, at, to)
            self.transport.write(b"%x\r\n%b\r\n" % (len(block), bytes(block)) if response.chunked else block)
            at = to
            if breaks and at == half:
                await asyncio.sleep(fault.seconds or 0.01)  # let the half arrive before the end does
                if fault.kind == "truncate":
                    self.transport.close()
                elif fault.kind == "reset-body":
                    self._reset()
            await self.writable.wait()
        if response.chunked and not self.transport.is_closing():
            self.transport.write(b"0\r\n\r\n")
        return at - response.start

    def _reset(self) -> None:
        # Linger zero makes the kernel send RST instead of FIN.
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        self.transport.abort()


def main() -> None:
    """Serve a folder from a separate process, so that the CPU time of a benchmark is that of the client alone.

    `python -m periplus.testing.servers.http FOLDER [LATENCY]` prints its URL, and ends when its input does.
    """
    folder, latency = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    with RangeServer(folder, latency=latency) as server:
        print(server.url, flush=True)
        sys.stdin.read()
        print(json.dumps({"requests": len(server.log), "sent": sum(r.sent for r in server.log)}), flush=True)


if __name__ == "__main__":
    main()
