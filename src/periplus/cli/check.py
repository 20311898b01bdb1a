"""periplus check: are the sources still what was indexed; with --index, is the index whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from periplus.cli.options import access, open_index
from periplus.cli.output.progress import bar
from periplus.cli.output.text import count, printable
from periplus.errors import FormatError, redact

SHOWN = 20
"""Findings listed before the rest is only counted."""


@click.command("check", short_help="Compare every source with what was indexed, or check the index itself.")
@click.argument("url", metavar="INDEX")
@click.option("--index", "itself", is_flag=True, help="Check the index itself; no source is accessed.")
@access
@click.option("--json", "as_json", is_flag=True, help="Counts and every finding, as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar.")
def command(
    url: str,
    itself: bool,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
    as_json: bool,
    quiet: bool,
) -> int:
    """Ask every source for its size, entity tag and time, and compare them with the index.

    No data are read. Sources are ok, stale (changed), missing, denied (not under an allowed prefix) or
    unreachable; the exit code is 1 if any is not ok. Files that failed while indexing are not asked for.

    With --index every row of the index is read and compared with what the index declares: chunks are inside their
    grid, none comes twice, byte ranges end inside their file, parts of a dataset are there and listed, counts and
    statistics are right. The exit code is 1 if a problem was found, 2 if there is no index to check.

    \b
    periplus check archive.parquet
    periplus check archive.parquet --allow s3://bucket/scenes/ --json
    periplus check archive.parquet --index
    """
    from periplus.cli.app import worded

    if itself:
        return _check_index(url, allow, trust, storage_options, as_json, quiet)
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


def _check_index(
    url: str,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
    as_json: bool,
    quiet: bool,
) -> int:
    rows, more = 0, 0
    try:
        opened = open_index(url, allow=allow, trust=trust, storage_options=storage_options)
        with opened as index, bar("checking", "rows", quiet=quiet) as progress:
            report = index.check_index(progress=progress)
        problems, rows, more = [asdict(problem) for problem in report.problems], report.rows, report.more
    except FormatError as error:  # it cannot even be opened
        problems = [{"kind": "document", "message": error.message, "url": error.url}]
    if as_json:
        said = {"index": redact(url), "rows": rows, "ok": not problems, "problems": problems, "more": more}
        click.echo(json.dumps(said, indent=2))
        return int(bool(problems))
    for problem in problems[:SHOWN]:
        place = f" ({problem['url']})" if problem["url"] else ""
        click.echo(f"{problem['kind']}: {printable(problem['message'] + place)}")
    if len(problems) + more > SHOWN:
        click.echo(f"… {len(problems) + more - SHOWN:,} more (--json shows {'the first of them' if more else 'all'})")
    click.echo(f"{count(rows, 'row')}: {count(len(problems) + more, 'problem') if problems else 'ok'}")
    return int(bool(problems))
