"""periplus check: find sources that changed since they were indexed; with --index, problems of the index."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from periplus.cli.options import access, open_index, usage_errors
from periplus.cli.output.progress import bar
from periplus.cli.output.text import count, printable
from periplus.errors import FormatError, redact

SHOWN = 20
"""Findings shown; the others are only counted."""


@click.command("check", short_help="Check whether the sources have changed, or whether the index is valid.")
@click.argument("url", metavar="INDEX")
@click.option("--index", "itself", is_flag=True, help="Check the index itself, without accessing the sources.")
@click.option("--deep", is_flag=True, help="Read all data and compare them with the checksums in the index.")
@click.option(
    "--resume", type=click.Path(dir_okay=False), help="Keep the state of --deep in this file; continue from it."
)
@access
@click.option("--json", "as_json", is_flag=True, help="Print the counts and all findings as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar.")
def command(
    url: str,
    itself: bool,
    deep: bool,
    resume: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check whether the sources have changed: compare their size, entity tag and time with the index.

    No data are read. A source is ok, stale (changed), missing, denied (not under an allowed prefix) or unreachable;
    the exit code is 1 if any is not ok. Files that failed while indexing are not checked.

    With --deep all data are read and compared with the checksums that `periplus index --checksums` recorded; a source
    with other bytes is damaged. A large archive can be checked in several runs: with --resume the state is kept in a
    file until all is checked.

    With --index the index itself is checked, without accessing the sources: every chunk is inside its grid and occurs
    once, byte ranges are inside their files, the parts of a dataset exist and are listed, counts and statistics are
    correct. The exit code is 1 if a problem was found, 2 if there is no index.

    \b
    periplus check archive.parquet
    periplus check archive.parquet --allow s3://bucket/scenes/ --json
    periplus check archive.parquet --index
    periplus check archive.parquet --deep --resume state.json
    """
    from periplus.cli.app import in_cli_words

    if itself and (deep or resume):
        raise click.UsageError("--index checks the index without its data: it has no --deep and no --resume.")
    if itself:
        return _check_index(url, as_json, quiet)
    with (
        open_index(url) as index,
        bar("checking", "byte ranges" if deep else "sources", quiet=quiet) as progress,
        usage_errors(),
    ):
        report = index.check(deep=deep, resume=resume, progress=progress)
    counts, findings = report.counts, report.findings
    if as_json:
        shown = [asdict(finding) for finding in findings]
        read = {"ranges": report.ranges, "bytes": report.bytes, "unchecked": report.unchecked} if deep else {}
        click.echo(json.dumps({"index": redact(url), "counts": counts, **read, "findings": shown}, indent=2))
        return int(not report.ok)
    for finding in findings[:SHOWN]:
        click.echo(f"{finding.kind}: {printable(in_cli_words(finding.error))}")
    if len(findings) > SHOWN:
        click.echo(f"… {len(findings) - SHOWN:,} more (--json shows all)")
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in counts.items() if n or kind == "ok")
    click.echo(f"{count(report.asked, 'source')}: {kinds}")
    if deep:
        click.echo(f"{count(report.ranges, 'byte range')} compared with checksums, {report.unchecked:,} have none")
    return int(not report.ok)


def _check_index(
    url: str,
    as_json: bool,
    quiet: bool,
) -> int:
    rows, more = 0, 0
    try:
        with open_index(url) as index, bar("checking", "rows", quiet=quiet) as progress:
            report = index.check_index(progress=progress)
        problems, rows, more = [asdict(problem) for problem in report.problems], report.rows, report.more
    except FormatError as error:  # it cannot be opened
        problems = [{"kind": "document", "message": error.message, "url": error.url}]
    if as_json:
        result = {"index": redact(url), "rows": rows, "ok": not problems, "problems": problems, "more": more}
        click.echo(json.dumps(result, indent=2))
        return int(bool(problems))
    for problem in problems[:SHOWN]:
        place = f" ({problem['url']})" if problem["url"] else ""
        click.echo(f"{problem['kind']}: {printable(problem['message'] + place)}")
    if len(problems) + more > SHOWN:
        click.echo(f"… {len(problems) + more - SHOWN:,} more (--json shows {'the first of them' if more else 'all'})")
    click.echo(f"{count(rows, 'row')}: {count(len(problems) + more, 'problem') if problems else 'ok'}")
    return int(bool(problems))
