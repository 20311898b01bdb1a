"""DuckDB's module, loaded without interruption: an interrupt while its C++ starts up would end the process."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from types import ModuleType


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
