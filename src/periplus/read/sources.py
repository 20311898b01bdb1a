"""Ask every source of an index whether it is still what was indexed; no data are read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from periplus.errors import PeriplusError, redact
from periplus.fetch.stale import check_same
from periplus.table.templates import flags_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

KINDS = ("stale", "missing", "denied", "unreachable")
IN_FLIGHT = 256
"""Questions asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One source that is not what was indexed."""

    kind: str
    """`stale` (changed), `missing`, `denied` (outside of what the index may reach) or `unreachable`."""
    url: str
    """Without secrets."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What asking the sources of an index found."""

    asked: int
    """Sources asked; those that failed while indexing are not, nor are templates, which stand for many objects."""
    findings: tuple[Finding, ...]
    """In the order of the files table."""

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """How many sources are ok, and how many of each kind are not."""
        found = Counter(finding.kind for finding in self.findings)
        return {"ok": self.asked - len(self.findings), **{kind: found[kind] for kind in KINDS}}


def check_sources(table: Table, fetch: Fetch, *, progress: Callable[[int, int], None] | None = None) -> Report:
    """Compare size, entity tag and time of every source with the index; `progress` is told (asked, all)."""
    files = table.files
    many = flags_of(files)
    wanted = [row for row, status in enumerate(files.status) if status == "ok" and not (many is not None and many[row])]
    waiting = iter(wanted)
    found: dict[int, Finding] = {}
    done = 0

    async def ask() -> None:
        nonlocal done
        for row in waiting:
            expect = files.source(row)
            try:
                check_same(expect, await fetch.head(expect.url))
            except PeriplusError as error:
                kind = error.kind if error.kind in KINDS else "unreachable"
                found[row] = Finding(kind=kind, url=redact(expect.url), error=str(error))
            done += 1
            if progress is not None:
                progress(done, len(wanted))

    async def ask_all() -> None:
        await asyncio.gather(*(ask() for _ in range(min(IN_FLIGHT, len(wanted)))))

    fetch.run(ask_all())
    return Report(asked=len(wanted), findings=tuple(found[row] for row in sorted(found)))
