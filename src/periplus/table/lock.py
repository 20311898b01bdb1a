"""One committer at a time: a lock that dies with its process on a disk, an object that exists once in a store."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from periplus.errors import ConflictError
from periplus.fetch.door import mapped
from periplus.policy import is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch

NAME = ".lock"
PATIENCE = 10.0
"""Seconds to wait for another committer; a commit is a few requests."""


@contextmanager
def locked(folder: str, fetch: Fetch) -> Iterator[None]:
    """Hold the right to replace the files table of a dataset; ConflictError where another keeps it."""
    with _local(folder) if is_local(folder) else _remote(folder, fetch):
        yield


@contextmanager
def _local(folder: str) -> Iterator[None]:
    with mapped(folder):
        os.makedirs(folder, exist_ok=True)
        fd = os.open(folder + NAME, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with mapped(folder):
            _wait(fd, folder)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, folder: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConflictError("another writer is committing to this index", url=folder) from None
            time.sleep(0.01)


@contextmanager
def _remote(folder: str, fetch: Fetch) -> Iterator[None]:
    url, token = folder + NAME, secrets.token_hex(8).encode()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fetch.run(fetch.write(url, token, create=True))
            break
        except ConflictError:
            if time.monotonic() > deadline:
                raise ConflictError(
                    "another writer is committing to this index; if none is running, one died: remove this lock",
                    url=url,
                ) from None
            time.sleep(0.2)
    try:
        yield
    finally:
        fetch.run(fetch.delete(url))
