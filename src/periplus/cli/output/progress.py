"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[..., None]
"""report(done, total, **counts): `total` is None while unknown; counts are shown after the bar."""
PAUSE = 0.1
"""Seconds between two updates of the screen."""


@contextlib.contextmanager
def bar(label: str, unit: str, *, quiet: bool = False) -> Iterator[Progress | None]:
    """A function to report progress; None where no bar is shown."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, rate="", counts="")
        first: tuple[float, int] | None = None
        drawn = 0.0

        def report(done: int, total: int | None = None, **counts: int) -> None:
            nonlocal drawn, first
            now = time.monotonic()
            if now - drawn < PAUSE and done != total:
                return
            # Counted from the first report: before it, libraries are imported and listings started.
            began, before = first = first or (now, done)
            drawn = now
            rate = f"{(done - before) / (now - began):,.0f} {unit}/s" if done > before else ""
            shown = ", ".join(f"{value:,} {name}" for name, value in counts.items() if value)
            progress.update(task, completed=done, total=total, rate=rate, counts=shown)

        yield report
