"""Atomic local writes: a temporary file beside the target, synced, then renamed; never half a file."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from periplus.errors import ConflictError
from periplus.fetch.door import mapped
from periplus.fetch.local import head
from periplus.model import Source

_MARK = ".periplus-"


def write_file(path: str, data: bytes | memoryview | Path, *, create: bool = False) -> Source:
    """Replace (or, with `create`, make) the file at once; the folder is made where it is missing."""
    with replacing(path, create=create) as file:
        if isinstance(data, Path):
            with mapped(str(data)):
                origin = data.open("rb", buffering=0)
            with origin:
                shutil.copyfileobj(origin, file, 1 << 20)
        else:
            file.write(memoryview(data).cast("B"))
    return head(path)


@contextmanager
def replacing(path: str, *, create: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that takes the target's name when the block ends well, and is gone when it does not."""
    with mapped(path):
        target = os.path.realpath(path)
        folder, name = os.path.split(target)
        os.makedirs(folder, exist_ok=True)
        if create and os.path.lexists(target):
            raise ConflictError("the file exists already", url=path)
        _remove_leftovers(folder, name)
        fd, temporary = _claim(folder, name)
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                yield file
            os.fsync(fd)
            if create:
                _publish_new(temporary, target)
            else:
                os.replace(temporary, target)
        except BaseException:
            _unlink(temporary)
            raise
        finally:
            os.close(fd)
        _sync_folder(folder)


def delete_file(path: str) -> None:
    """Remove a file, for good."""
    with mapped(path):
        os.unlink(path)
        _sync_folder(os.path.dirname(path))


def _claim(folder: str, name: str) -> tuple[int, str]:
    """A new temporary file, locked: the lock, which dies with its process, tells a living writer from a leftover."""
    while True:
        # The name is kept short: a long target name plus our ending could pass the file system's limit.
        temporary = os.path.join(folder, f".{name[:100]}{_MARK}{secrets.token_hex(8)}")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return fd, temporary
        except OSError:
            # A file system without locks: leftovers cannot be told apart there, so they are left alone.
            return fd, temporary
        os.close(fd)  # another writer took it for a leftover before it was locked


def _remove_leftovers(folder: str, name: str) -> None:
    """Remove what writers of this target that died left behind."""
    start = f".{name[:100]}{_MARK}"
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(start)]
    for leftover in found:
        _if_unlocked(leftover, _unlink)


def _if_unlocked(path: str, act: Callable[[str], None]) -> None:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return  # gone, or not ours to touch
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        act(path)
    except OSError:
        return  # its writer lives
    finally:
        os.close(fd)


def _publish_new(temporary: str, target: str) -> None:
    """Give the file its name unless the name is taken, in one step."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise ConflictError("the file exists already", url=target) from None
    except OSError:
        # No hard links here: reserve the name first, so that of two writers only one goes on.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise ConflictError("the file exists already", url=target) from None
        os.replace(temporary, target)
        return
    _unlink(temporary)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _sync_folder(folder: str) -> None:
    fd = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
