"""Local files: positional reads on checked descriptors, folders listed in order."""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from resource import RLIMIT_NOFILE, getrlimit

from periplus.errors import DeniedError, FetchError, FormatError, MissingError, StaleError
from periplus.fetch.errors import cause, translate
from periplus.fetch.glob import Glob
from periplus.fetch.stale import check_same
from periplus.forks import renewed
from periplus.limits import out_of_memory
from periplus.model import Source

MOST_OPEN = 128
"""Files kept open, by all indexes of the process together."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Non-blocking, so that opening a FIFO comes back at once and is then refused.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def source_of(path: str, status: os.stat_result) -> Source:
    """Facts of a regular file; FormatError for folders, FIFOs, sockets and devices."""
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise FormatError(f"this is {what}", url=path)
    return Source(url=path, size=status.st_size, last_modified=_EPOCH + timedelta(microseconds=_micros(status)))


def _micros(status: os.stat_result) -> int:
    return status.st_mtime_ns // 1000


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Identifies a file, to notice one that replaced it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def folders(path: str) -> list[str]:
    """Names of the folders directly inside one."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise _ours(error, path) from cause(error)


def head(path: str) -> Source:
    """Facts of the file at a path."""
    try:
        return source_of(path, os.stat(path))
    except (OSError, ValueError, MemoryError) as error:
        raise _ours(error, path) from cause(error)


class LocalFile:
    """An open regular file, checked against what was indexed; closed when nobody holds it any more."""

    __slots__ = ("_changed", "_fd", "_size", "identity", "source")

    def __init__(self, path: str, expect: Source | None = None) -> None:
        self._fd = -1
        try:
            self._fd = os.open(path, _FLAGS)
            status = os.fstat(self._fd)
            self.source = source_of(path, status)
        except (OSError, ValueError, MemoryError) as error:
            raise _ours(error, path) from cause(error)
        if expect is not None:
            check_same(expect, self.source)
        self._size, self._changed = status.st_size, status.st_mtime_ns
        self.identity = _identity(status)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, or StaleError where the file no longer holds what it held when it was opened."""
        data = self.read_until_end(offset, length)
        if len(data) != length:
            raise self._short(offset, length)
        return data

    def read_until_end(self, offset: int, length: int) -> bytes:
        """These bytes, cut at the end of the file."""
        length = min(length, self._size - offset)
        if length <= 0:
            return b""
        try:
            data = os.pread(self._fd, length, offset)
            if len(data) < length:
                data = self._rest(data, offset, length)
            # After the read: bytes written before or while it ran have moved the modification time by now.
            status = os.fstat(self._fd)
        except MemoryError as error:
            raise out_of_memory(f"{length} bytes", url=self.source.url, offset=offset) from error
        except OSError as error:
            raise translate(error, self.source.url, offset) or error from cause(error)
        if len(data) != length or status.st_mtime_ns != self._changed or status.st_size != self._size:
            raise StaleError("the file was changed while it was open", url=self.source.url, offset=offset)
        return data

    def fill(self, offset: int, into: memoryview) -> None:
        """As `read`, into memory that is used again: fresh memory costs more than reading what the system holds."""
        if offset + len(into) > self._size:
            raise self._short(offset, len(into))
        have = 0
        try:
            while have < len(into) and (more := os.preadv(self._fd, [into[have:]], offset + have)):
                have += more
            status = os.fstat(self._fd)  # after the read, as above
        except (OSError, MemoryError) as error:
            raise translate(error, self.source.url, offset) or error from cause(error)
        if have < len(into) or status.st_mtime_ns != self._changed or status.st_size != self._size:
            raise StaleError("the file was changed while it was open", url=self.source.url, offset=offset)

    def _short(self, offset: int, length: int) -> StaleError:
        message = f"expected {length} bytes, but the file ends after {self._size}"
        return StaleError(message, url=self.source.url, offset=offset)

    def _rest(self, data: bytes, offset: int, length: int) -> bytes:
        """One system call moves at most 2 GiB, and a signal may cut it short."""
        parts, have = [data], len(data)
        while have < length and parts[-1]:
            parts.append(os.pread(self._fd, length - have, offset + have))
            have += len(parts[-1])
        return b"".join(parts)


class OpenFiles:
    """The most recently used files of the process, kept open; thread safe.

    A file that is no longer among them closes when the last reader lets go of it, and is opened again when needed.
    """

    _lock: threading.Lock

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._files: OrderedDict[str, tuple[LocalFile, object]] = OrderedDict()
        self._gone: deque[object] = deque()
        """Users whose files are to be forgotten: by whoever holds the lock, if the collector cannot have it."""
        renewed(self, _lock=threading.Lock)

    def get(self, path: str, expect: Source | None = None, *, user: object = None) -> LocalFile:
        """The open file at `path`, reopened where another file took its place, checked against `expect`."""
        with self._lock:
            file, _ = self._files.get(path, (None, None))
        try:
            now = os.stat(path)
        except (OSError, ValueError) as error:
            raise _ours(error, path) from error
        fresh = file is None or file.identity != _identity(now)
        if file is None or fresh:
            source_of(path, now)  # refuses what must not be opened
            file = LocalFile(path)
        with self._lock:
            self._files[path] = file, user
            self._files.move_to_end(path)
            while fresh and len(self._files) > self._room():
                self._files.popitem(last=False)
        self._forget()
        if expect is not None:
            check_same(expect, file.source)
        return file

    def _room(self) -> int:
        """A part of what the process may have, since others need descriptors too; below zero it may have any number."""
        limit = getrlimit(RLIMIT_NOFILE)[0]
        return self._most if limit < 0 else max(1, min(self._most, limit // 4))

    def drop(self, user: object) -> None:
        """Forget the files that this user was the last to get; also from the garbage collector, so without waiting."""
        self._gone.append(user)
        self._forget()

    def _forget(self) -> None:
        while self._gone and self._lock.acquire(blocking=False):
            try:
                gone = {id(user): user for user in [self._gone.popleft() for _ in range(len(self._gone))]}
                for path in [path for path, (_, last) in self._files.items() if id(last) in gone]:
                    del self._files[path]
            finally:
                self._lock.release()


def find(path: str) -> Iterator[Source]:
    """A file, the files under a folder (path ends in a slash, or is a folder), or those that match a glob."""
    if os.path.isdir(path):
        yield from _walk(path, Glob(path.rstrip("/") + "/**"))
    elif os.path.lexists(path) or not Glob.is_glob(path):
        if path.endswith("/"):
            raise MissingError("no such folder", url=path)
        yield head(path)
    else:
        pattern = Glob(path)
        if not os.path.isdir(pattern.folder):
            raise MissingError("no such folder", url=pattern.folder)
        yield from _walk(pattern.folder, pattern)


def below(folder: str, *, deep: bool = True) -> Iterator[Source]:
    """Files below a folder in order of their paths, hidden ones too; none where there is no such folder.

    Unless `deep`, those directly in it, and its folders by a Source whose path ends in a slash. DeniedError where one
    of the folders may not be listed: whoever asks takes what is not listed for absent.
    """
    if not os.path.isdir(folder):
        return
    for source in _walk(folder, None, deep=deep):
        if source.size is None and not source.url.endswith("/"):
            raise DeniedError("the system refuses access", url=source.url)
        yield source


def _walk(folder: str, pattern: Glob | None, *, deep: bool = True) -> Iterator[Source]:
    """Files below a folder in order of their paths, all or those that match; none is entered again by way of a link."""
    seen: set[tuple[int, int]] = set()
    top = folder.rstrip("/") or "/"

    def inside(place: str) -> Iterator[Source]:
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as entries:
                found = sorted((entry.name + "/" if _is_folder(entry) else entry.name, entry) for entry in entries)
        except OSError as error:
            if isinstance(error, PermissionError) and place != top:
                yield Source(url=place)  # the listing continues; reading it raises DeniedError
                return
            raise _ours(error, place) from cause(error)
        for name, entry in found:
            if name.endswith("/"):
                if not deep:
                    yield Source(url=entry.path + "/")
                elif pattern is None or pattern.may_enter(entry.path):
                    yield from inside(entry.path)
            elif pattern is None or pattern.matches(entry.path):
                source = _regular(entry.path)
                if source is not None:
                    yield source

    yield from inside(top)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads round to itself


def _regular(path: str) -> Source | None:
    """Facts of a regular file; None for what a listing passes over: broken links, sockets, what vanished meanwhile."""
    try:
        return head(path)
    except (MissingError, FormatError):
        return None


def _ours(error: OSError | ValueError | MemoryError, path: str) -> Exception:
    return translate(error, path) or error


def require_size(source: Source) -> int:
    """The size, which every store states; FetchError where it did not."""
    if source.size is None:
        raise FetchError("the store does not report the size of the object", url=source.url)
    return source.size
