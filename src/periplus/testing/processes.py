"""Start Python programs that share loaded libraries: each runs in a fork of a process that imported them once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

LOADED = (
    "duckdb", "imagecodecs", "numpy", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyproj",
    "rich.progress", "periplus.cli.app", "periplus.cli.index", "periplus.cli.read", "periplus.harvest",
    "periplus.table.duckdb.database", "periplus.testing.writers", "periplus.zarr.kerchunk.write", __name__,
)  # fmt: skip
"""Imported once; nothing of it is used before a fork, so no thread is lost."""


class ForkedProgram:
    """A program as `python -c` runs it; its output is in files of `folder`."""

    def __init__(self, code: str, *arguments: str, folder: Path) -> None:
        self._output = folder / "stdout", folder / "stderr"
        context = get_context("forkserver")
        context.set_forkserver_preload(list(LOADED))
        ready, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(code, arguments, *map(str, self._output), theirs))
        self._process.start()
        theirs.close()
        with ready:
            ready.recv()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self._process.pid is not None and self._process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def end(self, timeout: float = 300) -> tuple[int, str, str]:
        """Wait for the end of the program: its exit code, its output and its errors."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise TimeoutError(f"still running after {timeout} s")
        out, err = (path.read_text() for path in self._output)
        return code, out, err


def _run(code: str, arguments: tuple[str, ...], out: str, err: str, ready: Connection) -> None:
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["-c", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ready.send(None)
    try:
        try:
            exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the code of a test
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program has ended; what follows is not its own
    except KeyboardInterrupt:  # as Python itself ends then
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
