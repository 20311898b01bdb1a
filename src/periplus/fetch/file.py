"""A seekable read-only file over byte ranges, with a cache of blocks, for libraries that want a file."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from periplus.errors import FormatError
from periplus.forks import renewed

KIB = 1 << 10
MIB = 1 << 20


class RangeFile(io.RawIOBase):
    """Reads by whole blocks; missing neighbours come in one request; a sequential reader gets ever more ahead.

    `read_range(offset, length)` returns exactly these bytes. Thread safe.
    """

    _lock: threading.RLock

    def __init__(
        self,
        read_range: Callable[[int, int], bytes],
        size: int,
        *,
        name: str,
        block: int = 64 * KIB,
        cache_bytes: int = 32 * MIB,
        ahead: int = 4 * MIB,
    ) -> None:
        super().__init__()
        self._read_range, self._size, self.name = read_range, size, name
        self._block, self._most, self._ahead = block, max(4, cache_bytes // block), max(1, ahead // block)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        renewed(self, _lock=threading.RLock)
        self._position = 0
        self._next = -1
        self._run = 0

    def __repr__(self) -> str:
        return f"<RangeFile {self.name} ({self._size} bytes)>"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Bytes of the whole object."""
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise FormatError("a seek before the beginning of the file", url=self.name)
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        with self._lock:
            data = self.read_at(self._position, len(view))
            self._position += len(data)
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        with self._lock:
            length = self._size - self._position if size is None or size < 0 else size
            data = self.read_at(self._position, max(0, length))
            self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def seed(self, offset: int, data: bytes) -> None:
        """Put bytes that are known already into the cache; whole blocks only."""
        first = -(-offset // self._block)
        with self._lock:
            for number in range(first, -(-self._size // self._block)):
                begin = number * self._block - offset
                end = min((number + 1) * self._block, self._size) - offset
                if begin < 0 or end > len(data):
                    break
                self._keep(number, data[begin:end])

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes at a place, cut at the end of the file; does not move the position."""
        if self.closed:
            raise ValueError("read of a closed file")
        stop = min(offset + length, self._size)
        if offset >= stop:
            return b""
        with self._lock:
            if stop - offset >= self._most * self._block:
                return self._read_range(offset, stop - offset)  # larger than the cache: straight through
            first, last = offset // self._block, (stop - 1) // self._block
            parts = self._have(first, last)
        parts[-1] = parts[-1][: stop - last * self._block]
        parts[0] = parts[0][offset - first * self._block :]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _have(self, first: int, last: int) -> list[bytes]:
        """These blocks, from the cache and by at most one request, which also reads ahead."""
        found = {number: self._blocks[number] for number in range(first, last + 1) if number in self._blocks}
        sequential = first in (self._next, self._next - 1)
        self._run = min(self._ahead, max(1, self._run * 2)) if sequential else 0
        self._next = last + 1
        for number in found:
            self._blocks.move_to_end(number)
        missing = [number for number in range(first, last + 1) if number not in found]
        if missing:
            low, high = missing[0], missing[-1] + 1
            if high == last + 1:
                high = min(high + self._run, -(-self._size // self._block))
            start = low * self._block
            data = memoryview(self._read_range(start, min(high * self._block, self._size) - start))
            for number in range(low, high):
                begin = (number - low) * self._block
                found[number] = bytes(data[begin : begin + self._block])
                self._keep(number, found[number])
        return [found[number] for number in range(first, last + 1)]

    def _keep(self, number: int, data: bytes) -> None:
        self._blocks[number] = data
        self._blocks.move_to_end(number)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)

    def close(self) -> None:
        if not self.closed:
            self._blocks.clear()
        super().close()
