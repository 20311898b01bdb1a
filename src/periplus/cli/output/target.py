"""The output of a command: a file that is written atomically, or a stream such as standard output for `-`."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from periplus.errors import MissingError
from periplus.fetch.errors import system_errors
from periplus.fetch.local.atomic import replacing

if TYPE_CHECKING:
    from periplus import Index

STDOUT = ("-", "/dev/stdout")


def is_stream(target: str) -> bool:
    """Whether a target is standard output, a pipe or a character device: it is written to, and not replaced."""
    if target in STDOUT:
        return True
    try:
        mode = os.stat(target).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def check_output(target: str, url: str, index: Index) -> None:
    """FormatError where the target is what is read: the index or file at `url`, or a source of the index."""
    from periplus.table.target import check_output

    if not is_stream(target):
        check_output(target, url, index.table)


@contextlib.contextmanager
def opened(target: str) -> Iterator[BinaryIO]:
    """A seekable binary file for `target`, which gets its name when the block ends without error."""
    if not is_stream(target):
        if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
            raise MissingError("the folder to write to does not exist", url=target)  # not created: it may be misspelled
        with replacing(target) as file:
            yield file  # type: ignore[misc]
        return
    with contextlib.ExitStack() as stack:
        with system_errors(tempfile.gettempdir()):  # large results are spooled there
            spool = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=1 << 26))
            yield spool  # type: ignore[misc]
            spool.seek(0)
        if target in STDOUT:
            shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
        else:
            with open(target, "wb") as stream:
                shutil.copyfileobj(spool, stream, 1 << 20)
