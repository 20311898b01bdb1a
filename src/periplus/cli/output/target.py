"""The output of a command: a file that is written atomically, or standard output for `-`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from periplus.errors import MissingError
from periplus.fetch.errors import system_errors
from periplus.fetch.local.atomic import replacing


@contextlib.contextmanager
def opened(target: str) -> Iterator[BinaryIO]:
    """A seekable binary file for `target`, which gets its name when the block ends without error."""
    if target != "-":
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
        while block := spool.read(1 << 20):
            sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
