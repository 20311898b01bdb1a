"""periplus index: record where the bytes of an archive lie."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import asked, keep_query, kept_names, settings, storage_option
from periplus.cli.output.progress import bar
from periplus.cli.output.text import clean
from periplus.cli.secrets import scrub
from periplus.errors import redact

if TYPE_CHECKING:
    from periplus import Index


FAILED = "select path, error from files where error is not null"


@click.command("index")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="TARGET",
    help="Where the index goes: .parquet (one file), .duckdb, or a folder (a dataset that can grow).  "
    "[default: nowhere; only the summary is shown]",
)
@click.option(
    "--arrange",
    type=click.Choice(["auto", "collect", "stack", "mosaic"]),
    default="auto",
    show_default=True,
    help="collect: every file its own group. stack: one array with a new leading dimension. "
    "mosaic: images of one grid, or DTED cells, side by side as one array.",
)
@click.option("--dim", metavar="NAME", help="Name of the dimension a stack adds (stack only).  [default: time]")
@click.option(
    "--pattern",
    help="How to read file names: a template such as scene_{time:%Y%m%d} (* is any text), or a regular expression "
    "with a named group. A time becomes the datetime of each file, and the coordinate of a stack.",
)
@click.option(
    "--coordinate",
    type=click.Choice(["auto", "pattern", "datetime", "order"]),
    default="auto",
    show_default=True,
    help="Where the coordinate of a stack comes from (stack only): the pattern, the file's own time, its position in "
    "the list.",
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "first", "last", "first-valid", "last-valid", "keep"]),
    default="error",
    show_default=True,
    help="Files with the same coordinate, or that overlap: stop; take the last; keep each as a step (stack only); take "
    "the first, or the first or last pixels that are not nodata (mosaic only). Files that are left out are reported.",
)
@click.option(
    "--order",
    type=click.Choice(["given", "name", "time"]),
    default="given",
    show_default=True,
    help="What makes a file of a mosaic the first or the last (mosaic only).",
)
@click.option("--assets", metavar="NAME,...", help="Which assets of STAC items to index.")
@click.option(
    "--skip-misfits",
    is_flag=True,
    help="Leave out files that do not fit into the stack or mosaic, or do not match the pattern, in place of stopping.",
)
@click.option(
    "--append",
    is_flag=True,
    help="Keep the files the index has already, besides those named, in its arrangement: options of it that are not "
    "given (--arrange, --pattern, …) are those the index was made with.",
)
@click.option(
    "--refresh",
    type=click.Choice(["check", "never", "always"]),
    default="check",
    show_default=True,
    help="Files the index knows: ask whether they changed, trust it, or read them anew.",
)
@click.option(
    "--no-siblings",
    is_flag=True,
    help="Do not look beside files for those that belong to them: R-sets of NITF, world files of pictures.",
)
@click.option("--concurrency", type=click.IntRange(min=1), help="Headers in flight at once.")
@keep_query
@storage_option
@click.option("--quiet", "-q", is_flag=True, help="No progress bar, no summary.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on standard output.")
def command(
    urls: Sequence[str],
    output: str | None,
    arrange: str,
    assets: str | None,
    storage_options: Sequence[tuple[str, str]],
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Index files where they lie: headers are read, no pixel is copied.

    URL is a file, a glob, a folder, a text file of URLs, or STAC items (JSON or GeoParquet), on disk,
    over HTTP(S), or in S3, GCS or Azure; with - URLs are read from standard input, one a line. Files of
    other kinds in a folder are skipped. A file that cannot be indexed becomes a row with its error, and
    the exit code is 1. Run again after an interruption, or when files were added: what is known is not
    read again. The index then holds what was named this time, arranged by the options given this time;
    with --append also what it had, in the arrangement it has.

    \b
    periplus index 'archive/*.tif' -o archive.parquet
    find archive -name '*.ntf' -newer last | periplus index - -o archive.parquet --append
    periplus index 's3://bucket/2021/**/*.tif' -o 2021/ --arrange stack --pattern 'S2_{time:%Y%m%d}'
    """
    import periplus

    named = [line for url in urls for line in (listed(sys.stdin) if url == "-" else [url])]
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if given.pop("no_siblings", False):
        given["siblings"] = False
    if assets is not None:
        given["assets"] = [name.strip() for name in assets.split(",")]
    with bar("indexing", "files", quiet=quiet) as report, asked():

        def progress(done: int, total: int | None, failed: int) -> None:
            if report is not None:
                report(done, total, failed=failed)

        index = periplus.index(
            named,
            to=output,
            arrange=arrange,
            storage_options=settings(storage_options),
            keep_query=kept_names(),
            progress=None if report is None else progress,
            **given,
        )
    with index:
        return summarise(index, output, quiet=quiet, as_json=as_json)


def listed(file: Iterable[str]) -> list[str]:
    """URLs, one a line; `#` begins a comment."""
    lines = (line.strip() for line in file)
    return [line for line in lines if line and not line.startswith("#")]


def summarise(index: Index, output: str | None, *, quiet: bool, as_json: bool) -> int:
    """Say what was indexed and what failed; returns the exit code."""
    from periplus.cli.app import worded
    from periplus.cli.output.describe import failures, replacements

    summary = index.summary
    assert summary is not None
    if as_json:
        facts = {**asdict(summary), "index": None if output is None else redact(output)}
        # With those that have no row, since their URL must not be stored.
        more = [{"path": redact(url), "error": scrub(error)} for url, error in summary.errors]
        known = failures(index)
        facts |= {"errors": known + [one for one in more if one not in known], "replacements": replacements(index)}
        click.echo(json.dumps(facts, indent=2))
    elif not quiet:
        lines = worded(scrub(str(summary))).splitlines()
        if output is not None:
            lines[0] = f"{redact(output)}: {lines[0]}"
            if summary.failed > len(summary.errors) or summary.replaced > len(summary.replacements):
                lines.append(f'to see them all: periplus query {redact(output)} --sql "{FAILED}"')
        click.echo("\n".join(clean(line) for line in lines), err=True)
    return int(summary.failed > 0)
