"""Atomic local writes: a temporary file in the same folder, synced, then renamed; never a partial file."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from periplus.errors import ConflictError, FormatError, MissingError, StaleError
from periplus.fetch.errors import mapped, system_errors
from periplus.fetch.local.files import head
from periplus.fetch.stale import check_same
from periplus.model import Source

_MARK = ".periplus-"


def write_file(
    path: str, data: bytes | memoryview | Path, *, create: bool = False, expect: Source | None = None
) -> Source:
    """Write the file at once; the folder is made where it is missing. Conditions as in `replacing`."""
    with replacing(path, create=create, expect=expect) as file:
        if isinstance(data, Path):
            with mapped(str(data)):
                origin = data.open("rb", buffering=0)
            with origin:
                shutil.copyfileobj(origin, file, 1 << 20)
        else:
            file.write(memoryview(data).cast("B"))
    return head(path)


def delete_file(path: str) -> None:
    """Remove a file, for good."""
    with mapped(path):
        os.unlink(path)
        sync(os.path.dirname(path))


@contextmanager
def replacing(path: str, *, create: bool = False, expect: Source | None = None) -> Iterator[IO[bytes]]:
    """A file to write that takes the target's name when the block ends well, and is gone when it does not.

    ConflictError where the target exists (`create`), or is no longer the one that is to be replaced (`expect`);
    FormatError for a folder, a pipe, a socket or a device, which are never replaced.
    """
    with system_errors(path):
        target = os.path.realpath(path)
        folder, name = os.path.split(target)
        make_folder(folder)
        _check(target, create=create, expect=expect)
        remove_leftovers(folder, name)
        fd, temporary = _claim(folder, name)
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                yield file
            os.fsync(fd)
            with folder_locked(folder):
                _check(target, create=create, expect=expect)
                if create:
                    _publish(temporary, target)
                else:
                    _move_on(temporary, target)
                    os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):  # gone already, or left to the next writer: what failed before is what to report
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        sync(folder)


def make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing; FormatError where something else has one of their names."""
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        above = folder
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        kind = "a link to nothing" if not os.path.exists(above) else "not a folder"
        raise FormatError(f"{above} is {kind}, so that nothing can be written below it", url=folder) from None


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder for what is too large for memory; gone at the end. Errors of the system name it."""
    with system_errors(tempfile.gettempdir()):
        folder = tempfile.TemporaryDirectory(prefix="periplus-", ignore_cleanup_errors=True)
    with folder as name, system_errors(name):
        yield Path(name)


def _check(target: str, *, create: bool, expect: Source | None) -> None:
    if create and os.path.lexists(target):
        raise ConflictError("the file exists already", url=target)
    with suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
            raise FormatError(f"the target is {kind}, not a file; choose another name", url=target)
    if expect is not None:
        try:
            check_same(expect, head(target))
        except (StaleError, MissingError):
            raise ConflictError("another writer replaced the file meanwhile", url=target) from None


def _publish(temporary: str, target: str) -> None:
    """Give the file its name unless the name is taken, in one step."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise ConflictError("the file exists already", url=target) from None
    except OSError:
        os.replace(temporary, target)  # no hard links here; the folder's lock has to do
    else:
        os.unlink(temporary)


def _move_on(temporary: str, target: str) -> None:
    """Give the new file a later modification time than the old one, whatever the clock's grain: readers compare it."""
    try:
        before = os.stat(target).st_mtime_ns
    except FileNotFoundError:
        return
    now = os.stat(temporary)
    if now.st_mtime_ns // 1000 <= before // 1000:
        later = (before // 1000 + 1) * 1000
        os.utime(temporary, ns=(now.st_atime_ns, later))


@contextmanager
def folder_locked(folder: str) -> Iterator[None]:
    """Hold the folder's lock, so that of all our writers one at a time compares and renames."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks; there the last writer wins
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _claim(folder: str, name: str) -> tuple[int, str]:
    """A new temporary file, locked: the lock ends with its process, so that leftovers can be recognised."""
    while True:
        # Part of the name only: a long one plus our ending could pass the file system's limit.
        temporary = os.path.join(folder, f".{name[:40]}{_MARK}{secrets.token_hex(8)}")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            return fd, temporary  # no locks here: leftovers cannot be recognised, and stay
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # another writer took it for a leftover before it was locked


def remove_leftovers(folder: str, name: str) -> None:
    """Remove what writers of this target that died left behind."""
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(f".{name[:40]}{_MARK}")]
    for leftover in found:
        with suppress(OSError):  # gone already, not ours, or its writer lives and holds the lock
            fd = os.open(leftover, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(leftover)
            finally:
                os.close(fd)


def sync(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
