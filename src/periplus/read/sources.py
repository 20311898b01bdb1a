"""Check that the sources of an index have not changed since they were indexed; no data are read."""

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

KINDS = ("stale", "missing", "denied", "unreachable", "damaged")
IN_FLIGHT = 256
"""Requests at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """One source that changed or cannot be accessed."""

    kind: str
    """`stale` (changed), `missing`, `denied` (not under a prefix that the index may access), `unreachable`, or
    `damaged` (bytes differ from their checksum)."""
    url: str
    """Without secrets."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """Result of a check of the sources of an index."""

    asked: int
    """Sources checked; not those that failed while indexing, nor templates, which stand for many objects."""
    findings: tuple[SourceFinding, ...]
    """In the order of the files table."""
    ranges: int = 0
    """Byte ranges that were read and compared with their checksums."""
    bytes: int = 0
    """Their bytes."""
    unchecked: int = 0
    """Byte ranges without a checksum in the index, which were not read."""

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """How many sources are ok, and how many of each kind are not."""
        found = Counter(finding.kind for finding in self.findings)
        return {"ok": self.asked - len(self.findings), **{kind: found[kind] for kind in KINDS}}


def kind_of(error: PeriplusError) -> str:
    """The kind of finding for a source that cannot be read."""
    return error.kind if error.kind in KINDS else "unreachable"


def check_sources(table: Table, fetch: Fetch, *, progress: Callable[[int, int], None] | None = None) -> SourceReport:
    """Compare size, entity tag and time of every source with the index; `progress` is called with (checked, all)."""
    files = table.files
    templates = flags_of(files)
    wanted = [
        row
        for row, status in enumerate(files.status)
        if status == "ok" and not (templates is not None and templates[row])
    ]
    waiting = iter(wanted)
    found: dict[int, SourceFinding] = {}
    done = 0

    async def check() -> None:
        nonlocal done
        for row in waiting:
            expect = files.source(row)
            try:
                check_same(expect, await fetch.head(expect.url))
            except PeriplusError as error:
                found[row] = SourceFinding(kind=kind_of(error), url=redact(expect.url), error=str(error))
            done += 1
            if progress is not None:
                progress(done, len(wanted))

    async def check_all() -> None:
        await asyncio.gather(*(check() for _ in range(min(IN_FLIGHT, len(wanted)))))

    fetch.run(check_all())
    return SourceReport(asked=len(wanted), findings=tuple(found[row] for row in sorted(found)))
