"""Where results go: a file that appears whole or not at all, or standard output for `-`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def opened(target: str) -> Iterator[BinaryIO]:
    """A seekable binary file for `target`; it takes its name only when the block ends well."""
    if target == "-":
        with tempfile.SpooledTemporaryFile(max_size=1 << 26) as spool:
            yield spool  # type: ignore[misc]
            spool.seek(0)
            while block := spool.read(1 << 20):
                sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        return
    folder, name = os.path.split(os.path.abspath(target))
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=folder)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, target) from None  # not the name that nobody asked for
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
