"""A progress bar on stderr, where a person is looking; nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Report = Callable[..., None]
"""report(done, total, **facts): `total` is None while it is not known; facts are shown after the bar."""


@contextlib.contextmanager
def bar(label: str, *, quiet: bool = False) -> Iterator[Report | None]:
    """A callable to report progress with; None where nobody would see it."""
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
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, rate="", facts="")

        def report(done: int, total: int | None = None, **facts: object) -> None:
            elapsed = progress.tasks[0].elapsed or 0.0
            rate = f"{done / elapsed:,.0f}/s" if elapsed > 0.2 else ""
            said = ", ".join(f"{value:,} {name}" for name, value in facts.items() if value)
            progress.update(task, completed=done, total=total, rate=rate, facts=said)

        yield report
