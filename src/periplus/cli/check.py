"""periplus check: are the sources still what was indexed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import access, open_index
from periplus.cli.progress import Report, bar
from periplus.cli.text import count, printable
from periplus.errors import PeriplusError, redact

if TYPE_CHECKING:
    from periplus import Index

IN_FLIGHT = 256
"""Questions asked at once."""
SHOWN = 20
"""Findings listed before the rest is only counted."""


@click.command("check", short_help="Compare every source with what was indexed.")
@click.argument("url", metavar="INDEX")
@access
@click.option("--json", "as_json", is_flag=True, help="Counts and every finding, as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar.")
def command(
    url: str,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
    as_json: bool,
    quiet: bool,
) -> int:
    """Ask every source for its size, entity tag and time, and compare them with the index.

    No data are read. Sources are ok, stale (changed), missing, denied (not under an allowed prefix) or
    unreachable; the exit code is 1 if any is not ok. Files that failed while indexing are not asked for.

    \b
    periplus check archive.parquet
    periplus check archive.parquet --allow s3://bucket/scenes/ --json
    """
    with open_index(url, allow=allow, trust=trust, storage_options=storage_options) as index:
        with bar("checking", "sources", quiet=quiet) as report:
            findings = index.fetch.run(verify(index, report))
        asked = sum(status == "ok" for status in index.files.status)
    counts = {"ok": asked - len(findings), "stale": 0, "missing": 0, "denied": 0, "unreachable": 0}
    for finding in findings:
        counts[finding["kind"]] += 1
    if as_json:
        click.echo(json.dumps({"index": redact(url), "counts": counts, "findings": findings}, indent=2))
        return int(bool(findings))
    from periplus.cli.app import worded

    for finding in findings[:SHOWN]:
        click.echo(f"{finding['kind']}: {printable(worded(finding['error']))}")
    if len(findings) > SHOWN:
        click.echo(f"… {len(findings) - SHOWN:,} more (--json shows all)")
    click.echo(
        f"{count(asked, 'source')}: " + ", ".join(f"{n:,} {kind}" for kind, n in counts.items() if n or kind == "ok")
    )
    return int(bool(findings))


async def verify(index: Index, report: Report | None) -> list[dict[str, Any]]:
    """What is not as it was: kind, path and error of each source, in the order of the files table."""
    from periplus.fetch.stale import check_same

    files = index.files
    wanted = [row for row, status in enumerate(files.status) if status == "ok"]
    waiting = iter(wanted)
    found: dict[int, dict[str, Any]] = {}
    done = 0

    async def ask() -> None:
        nonlocal done
        for row in waiting:
            expect = files.source(row)
            try:
                check_same(expect, await index.fetch.head(expect.url))
            except PeriplusError as error:
                kind = error.kind if error.kind in ("stale", "missing", "denied") else "unreachable"
                found[row] = {"kind": kind, "path": redact(expect.url), "error": str(error)}
            done += 1
            if report is not None:
                report(done, len(wanted), findings=len(found))

    await asyncio.gather(*(ask() for _ in range(min(IN_FLIGHT, len(wanted)))))
    return [found[row] for row in sorted(found)]
