"""A disk that fails on demand: count the file system calls below a folder, and let the n-th of them fail."""

from __future__ import annotations

import _thread
import builtins
import errno
import fcntl
import io
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

_BY_PATH = ("mkdir", "replace", "rename", "link", "unlink", "remove", "rmdir", "utime", "chmod")
_BY_PATH_READ = ("stat", "lstat", "scandir", "listdir")
_BY_FD = ("fsync", "ftruncate", "dup")
_BY_FD_READ = ("fstat", "pread", "preadv")
WRITES = frozenset({"open", "write", "truncate", "close", "flock", *_BY_PATH, *_BY_FD})
"""Calls of a program that writes; of `close`, those of files opened for writing."""
READS = frozenset({"open", "read", "mmap", *_BY_PATH_READ, *_BY_FD_READ})
"""Calls of a program that reads."""
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EMFILE", "EACCES", "EDQUOT", "EFBIG")}
"""System errors of real disks."""
INTERRUPT, KILL, MEMORY = "interrupt", "kill", "memory"
KILLED = 137
"""Exit code of a process that KILL ended."""


class FailingDisk:
    """While it is entered, the `at`-th call on files below `folder` fails; with at=0 none does, and calls are counted.

    `fault` is a number of `errno`, or INTERRUPT (Ctrl-C reaches the main thread), MEMORY (MemoryError) or KILL (the
    process ends at once, as on SIGKILL). With `lasting` every later call of the same name fails too, as on a disk that
    stays full. `calls` chooses which calls count: WRITES, READS or any set of their names. A failing write has written
    half of its bytes. Only calls that Python makes are seen, from all threads, not those of native libraries.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        at: int = 0,
        fault: int | str = errno.EIO,
        lasting: bool = False,
        calls: frozenset[str] = WRITES,
    ) -> None:
        self.at, self.fault, self.lasting, self.calls = at, fault, lasting, calls
        self.log: list[str] = []
        """Names of the calls that counted, in order."""
        self.failed = ""
        """The name of the call that failed; empty where none did."""
        self._root = os.path.realpath(folder)
        self._lock = threading.Lock()
        self._fds: set[int] = set()
        self._written: set[int] = set()
        self._patches: list[Any] = [
            *(mock.patch.object(os, name, call) for name, call in self._os_calls().items()),
            mock.patch.object(io, "open", self._open(io.open)),
            mock.patch.object(builtins, "open", self._open(builtins.open)),
            mock.patch.object(fcntl, "flock", self._on_fd("flock", fcntl.flock)),
            mock.patch.object(mmap, "mmap", self._on_fd("mmap", mmap.mmap)),
        ]

    def __enter__(self) -> FailingDisk:
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for patch in reversed(self._patches):
            patch.stop()

    # --- counting and failing ----------------------------------------------------------------------------------------

    def count(self, name: str, what: str = "") -> BaseException | None:
        """Count a call; the error to raise, or None."""
        if name not in self.calls:
            return None
        with self._lock:
            self.log.append(name)
            due = len(self.log) == self.at or (self.lasting and name == self.failed)
            if due:
                self.failed = name
        return self._error(what) if due else None

    def _error(self, what: str) -> BaseException | None:
        if self.fault == KILL:
            os._exit(KILLED)
        if self.fault == MEMORY:
            return MemoryError()
        if self.fault == INTERRUPT:
            if threading.current_thread() is threading.main_thread():
                return KeyboardInterrupt()
            _thread.interrupt_main()  # as the system does: only the main thread gets it
            return None
        number = int(self.fault)
        return OSError(number, os.strerror(number), what or None)

    def _raise(self, name: str, what: str = "") -> None:
        error = self.count(name, what)
        if error is not None:
            raise error

    def _here(self, path: Any) -> bool:
        if isinstance(path, int):
            return path in self._fds
        text = os.fsdecode(path)
        # Not realpath, which would ask the disk.
        return (os.path.abspath(text) + "/").startswith(self._root + "/")

    # --- the calls ---------------------------------------------------------------------------------------------------

    def _os_calls(self) -> dict[str, Callable[..., Any]]:
        found: dict[str, Callable[..., Any]] = {"open": self._os_open(os.open), "close": self._os_close(os.close)}
        for name in (*_BY_PATH, *_BY_PATH_READ):
            found[name] = self._on_path(name, getattr(os, name))
        for name in (*_BY_FD, *_BY_FD_READ):
            found[name] = self._on_fd(name, getattr(os, name))
        return found

    def _on_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            path = args[0] if args else "."
            # A path relative to an open folder, as rmtree has them, belongs to that folder.
            if self._here(path) or options.get("dir_fd") in self._fds:
                self._raise(name, os.fsdecode(path) if not isinstance(path, int) else "")
            return real(*args, **options)

        return call

    def _on_fd(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: Any, *args: Any, **options: Any) -> Any:
            number = fd if isinstance(fd, int) else fd.fileno()
            if number in self._fds:
                self._raise(name)
            answer = real(fd, *args, **options)
            if name == "dup" and number in self._fds:
                self._fds.add(answer)
            return answer

        return call

    def _os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            ours = self._here(path) or options.get("dir_fd") in self._fds
            if ours:
                self._raise("open", os.fsdecode(path))
            fd = real(path, flags, *args, **options)
            if ours:
                self._fds.add(fd)
                self._written |= {fd} if flags & os.O_ACCMODE else set()
            return fd

        return call

    def _os_close(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            written = fd in self._written
            self._fds.discard(fd)
            self._written.discard(fd)
            error = self.count("close") if written else None
            real(fd)  # a descriptor is gone even where closing it fails
            if error is not None:
                raise error

        return call

    def _open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            if not self._here(file) or "opener" in options:
                return real(file, mode, buffering, *args, **options)
            if not isinstance(file, int):
                self._raise("open", os.fsdecode(file))
            plain = mode.replace("b", "").replace("t", "")
            raw = _Raw(file, plain, closefd=options.pop("closefd", True))
            raw.begin(self)
            if not isinstance(file, int):
                self._fds.add(raw.fileno())
            if buffering == 0:
                return raw
            buffered: Any
            if "+" in mode:
                buffered = io.BufferedRandom(raw)
            else:
                buffered = io.BufferedReader(raw) if plain == "r" else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **options)

        return call


class _Raw(io.FileIO):
    """A file whose reads, writes and truncations are counted, and may fail."""

    _disk: FailingDisk | None = None

    def begin(self, disk: FailingDisk) -> None:
        self._disk = disk

    def write(self, data: Any) -> int:
        error = None if self._disk is None else self._disk.count("write")
        if error is not None:
            view = memoryview(data).cast("B")
            super().write(view[: len(view) // 2])
            raise error
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        if self._disk is not None:
            self._disk._raise("truncate")
        return super().truncate(size)

    def readinto(self, into: Any) -> int:
        if self._disk is not None:
            self._disk._raise("read")
        return super().readinto(into)

    def readall(self) -> bytes:
        if self._disk is not None:
            self._disk._raise("read")
        return super().readall()

    def read(self, size: int | None = -1) -> bytes:
        if self._disk is not None:
            self._disk._raise("read")
        return super().read(size)

    def close(self) -> None:
        if self._disk is not None and not self.closed and self.closefd:
            self._disk._fds.discard(self.fileno())
        super().close()


@contextmanager
def count_calls(folder: str | os.PathLike[str], *, calls: frozenset[str] = WRITES) -> Iterator[list[str]]:
    """Record the names of the calls on files below a folder while the block runs."""
    with FailingDisk(folder, calls=calls) as disk:
        yield disk.log
