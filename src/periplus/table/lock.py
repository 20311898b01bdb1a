"""One committer at a time: a lock that dies with its process on a disk, an object that exists once in a store."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from periplus.errors import ConflictError, MissingError, PeriplusError
from periplus.fetch.errors import system_errors
from periplus.policy import is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.model import Source

NAME = ".lock"
PATIENCE = 10.0
"""Seconds to wait for another committer; a commit is a few requests."""
LIFE = 900.0
"""Seconds after which a lock in a store is that of a dead committer, by the store's own clock."""
HELD = 600.0
"""Seconds after which a committer no longer writes: a write that begins before ends before the lock's life does."""

Held = Callable[[], None]
"""Called right before the write that commits; ConflictError where the lock may be another's by now."""


@contextmanager
def locked(folder: str, fetch: Fetch) -> Iterator[Held]:
    """Hold the right to replace the files table of a dataset; ConflictError where another keeps it."""
    with _local(folder) if is_local(folder) else _remote(folder, fetch) as held:
        yield held


@contextmanager
def _local(folder: str) -> Iterator[Held]:
    with system_errors(folder):
        os.makedirs(folder, exist_ok=True)
        fd = os.open(folder + NAME, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _wait(fd, folder)
            yield lambda: None
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
def _remote(folder: str, fetch: Fetch) -> Iterator[Held]:
    url = folder + NAME
    # Not the monotonic clock, which may stand still while a machine sleeps.
    _take(url, f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}", fetch)
    began = time.time()

    def held() -> None:
        if not 0 <= time.time() - began < HELD:
            raise ConflictError("the commit took so long that another writer may have begun", url=url)

    def release() -> None:
        if 0 <= time.time() - began < LIFE:  # later it may be another's
            fetch.run(fetch.delete(url))

    try:
        yield held
    except BaseException:
        with suppress(PeriplusError):  # what failed before is what to report
            release()
        raise
    try:
        release()
    except PeriplusError as error:
        after = f"the next writer can begin when you remove it, or after {LIFE / 60:g} minutes"
        error.message = f"the index was written, but its lock could not be removed; {after}: {error.message}"
        raise


def _take(url: str, owner: str, fetch: Fetch) -> None:
    """Make the lock, or take over that of a dead committer."""
    deadline, looked = time.monotonic() + PATIENCE, False
    while True:
        try:
            fetch.run(fetch.write(url, owner.encode(), create=True))
            return
        except ConflictError:
            dead = None if looked else _dead(url, fetch)
            looked = True
        if dead is not None:
            # Of several writers that see it, one replaces it; the others get a ConflictError.
            fetch.run(fetch.write(url, owner.encode(), expect=dead))
            return
        if time.monotonic() > deadline:
            raise ConflictError(
                f"another writer{_owner(url, fetch)} is committing to this index; if none is running, one died: "
                f"remove this lock, or wait until it is {LIFE / 60:g} minutes old",
                url=url,
            ) from None
        time.sleep(0.2)


def _dead(url: str, fetch: Fetch) -> Source | None:
    """The lock, where it is older than a commit can take; None where its committer may live, or it is gone."""
    probe = f"{url}-{secrets.token_hex(8)}"  # shows the time of the store; the local clock may be wrong
    try:
        left = fetch.run(fetch.head(url))
        fetch.run(fetch.write(probe, b"now"))
        try:
            now = fetch.run(fetch.head(probe))
        finally:
            fetch.run(fetch.delete(probe))
    except MissingError:
        return None
    if left.last_modified is None or now.last_modified is None:
        return None
    return left if (now.last_modified - left.last_modified).total_seconds() > LIFE else None


def _owner(url: str, fetch: Fetch) -> str:
    """Machine and process of a lock, for messages."""
    try:
        text, _ = fetch.run(fetch.read(url, 0, 100))
    except MissingError:
        return ""
    return f" ({re.sub('[^ -~]', '?', text.decode('latin-1'))})" if text else ""
