"""periplus check: are the sources still what was indexed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from periplus.cli.options import access, open_index
from periplus.cli.progress import bar
from periplus.cli.text import count, printable
from periplus.errors import redact

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
    from periplus.cli.app import worded

    opened = open_index(url, allow=allow, trust=trust, storage_options=storage_options)
    with opened as index, bar("checking", "sources", quiet=quiet) as progress:
        report = index.check(progress=progress)
    counts, findings = report.counts, report.findings
    if as_json:
        shown = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"index": redact(url), "counts": counts, "findings": shown}, indent=2))
        return int(not report.ok)
    for finding in findings[:SHOWN]:
        click.echo(f"{finding.kind}: {printable(worded(finding.error))}")
    if len(findings) > SHOWN:
        click.echo(f"… {len(findings) - SHOWN:,} more (--json shows all)")
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in counts.items() if n or kind == "ok")
    click.echo(f"{count(report.asked, 'source')}: {kinds}")
    return int(not report.ok)
