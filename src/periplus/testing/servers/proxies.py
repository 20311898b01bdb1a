"""A proxy for an object store that fails the n-th request, or forwards it and drops the response."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from urllib.parse import urlsplit

KINDS = {
    "status-500": "500, not forwarded",
    "status-403": "403, not forwarded",
    "reset": "the connection is reset, not forwarded",
    "lost": "forwarded, but the connection is reset before the response",
}
WRITES = frozenset({"PUT", "POST", "DELETE"})


class FaultyProxy:
    """While it is entered, `endpoint` forwards requests to `target`; the `at`-th request of `methods` fails by `kind`.

    With at=0 none fails. With `lasting` every later one fails too. `log` lists the requests counted.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._ended = False
        self.set()
        self._thread = threading.Thread(target=self._main, name="faulty-proxy", daemon=True)

    def set(self, *, at: int = 0, kind: str = "reset", lasting: bool = False, methods: frozenset[str] = WRITES) -> None:
        """Choose the next fault; counting starts again."""
        self.at, self.kind, self.lasting, self.methods = at, kind, lasting, methods
        self.log: list[str] = []

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        socket.create_connection(self._listener.getsockname()).close()  # wakes the thread that accepts
        self._thread.join()
        self._listener.close()

    def _main(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._ended:
                client.close()
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _fault(self, method: str, target: str) -> str:
        with self._lock:
            if method not in self.methods:
                return ""
            self.log.append(f"{method} {target}")
            due = self.at and (len(self.log) == self.at or (self.lasting and len(self.log) > self.at))
            return self.kind if due else ""

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                request = _request(client)
                if request is None:
                    return
                head, body = request
                method, target, _ = head.decode("latin-1").split(" ", 2)
                fault = self._fault(method, target)
                if fault.startswith("status-"):
                    text = f"HTTP/1.1 {fault[7:]} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    client.sendall(text.encode())
                    return
                answer = b"" if fault == "reset" else self._forwarded(head, body)
                if fault:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    client.sendall(answer)
            except OSError:
                return  # the client closed the connection

    def _forwarded(self, head: bytes, body: bytes) -> bytes:
        """The complete response; each request has its own connection."""
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(self._upstream) as store:
            store.sendall(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
            pieces = []
            while piece := store.recv(1 << 16):
                pieces.append(piece)
        return b"".join(pieces)


def _request(client: socket.socket) -> tuple[bytes, bytes] | None:
    """Head and body of a request; None where the client closes the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(1 << 16)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        body += client.recv(1 << 16)
    return head, body
