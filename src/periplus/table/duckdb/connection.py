"""DuckDB: its module, loaded so that no interrupt ends the process, and connections that are closed while unused."""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any
from weakref import ref

from periplus.forks import nothing, quiet, renewed

MOST_CONNECTED = 8
"""Connections kept open, by all indexes of the process together: each has a thread for every core."""
SAFE: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
"""Nothing is downloaded, and no variable of the calling program is a table."""


def _loaded(name: str) -> ModuleType:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return import_module(name)  # interrupts reach only the main thread, and only handlers of Python
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        module = import_module(name)
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
    return module


duckdb = _loaded("duckdb")


def connect(attach: str | None = None) -> Any:
    """A connection in memory, to which the SQL in `attach` may add a file."""
    with quiet:  # DuckDB has a registry of its databases, and a lock for it
        # By itself DuckDB starts a thread for every core of the machine, of which a container may use but a few.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        connection = duckdb.connect(":memory:", config=SAFE | {"threads": cores})
        if attach is not None:
            connection.execute(attach)
        return connection


class Connected:
    """A connection made by `make` on first use, closed after many others were used, and then made again.

    A forked child makes its own: DuckDB's threads are not there.
    """

    _lock: threading.RLock
    _connection: Any

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        renewed(self, _lock=threading.RLock, _connection=nothing)

    def get(self) -> Any:
        """The connection; it stays open while the caller holds it."""
        with self._lock:
            if self._connection is None:
                self._connection = self._make()
            connection = self._connection
        _recent.touch(self)
        return connection

    def close(self) -> None:
        self._connection = None


class _Recent:
    """The connections used last."""

    _lock: threading.RLock

    def __init__(self) -> None:
        self._used: OrderedDict[ref[Connected], None] = OrderedDict()
        renewed(self, _lock=threading.RLock)

    def touch(self, used: Connected) -> None:
        with self._lock:
            self._used[ref(used)] = None
            self._used.move_to_end(ref(used))
            over = len(self._used) - MOST_CONNECTED
            idle = [self._used.popitem(last=False)[0]() for _ in range(over)]
        for one in idle:
            if one is not None:
                one.close()


_recent = _Recent()
