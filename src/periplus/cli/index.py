"""periplus index: record where every chunk of the files is stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import keep_query, source_arguments, storage_option, usage_errors
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
    help="Where to write the index: name.parquet (one file), name.duckdb, or a folder (a dataset to which files can be "
    "added).  [default: not written, only the summary is shown]",
)
@click.option(
    "--arrange",
    type=click.Choice(["auto", "collect", "stack", "mosaic"]),
    default="auto",
    show_default=True,
    help="collect: one group for each file. stack: one array with a new first dimension, such as time. "
    "mosaic: one array of adjacent or overlapping images on one pixel grid, or of DTED cells.",
)
@click.option("--dim", metavar="NAME", help="stack: name of the new dimension.  [default: time]")
@click.option(
    "--pattern",
    help="How to parse file names: a template such as scene_{time:%Y%m%d} (* matches any text), or a regular "
    "expression with named groups. A time becomes the datetime of each file, and the coordinate of a stack.",
)
@click.option(
    "--coordinate",
    type=click.Choice(["auto", "pattern", "datetime", "order"]),
    default="auto",
    show_default=True,
    help="stack: the coordinate is taken from the --pattern, from the datetime in each file, or from the order of the "
    "files.",
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "first", "last", "first-valid", "last-valid", "keep"]),
    default="error",
    show_default=True,
    help="What to do with files that have the same coordinate (stack) or overlap (mosaic). error: stop. last: use the "
    "last file. first: use the first file (mosaic). first-valid, last-valid: use the first or last pixel that is not "
    "nodata (mosaic). keep: keep all as separate steps (stack). Files that are not used are reported.",
)
@click.option(
    "--order",
    type=click.Choice(["given", "name", "time"]),
    default="given",
    show_default=True,
    help="mosaic: the order of the files for --duplicates.",
)
@click.option("--assets", metavar="NAME,...", help="Assets of STAC items to index.")
@click.option(
    "--skip-misfits",
    is_flag=True,
    help="Skip files that do not fit into the stack or mosaic, or do not match the --pattern, instead of stopping.",
)
@click.option(
    "--append",
    is_flag=True,
    help="Add the files to those already in the index. Options that are not given (--arrange, --pattern, …) are those "
    "of the existing index.",
)
@click.option(
    "--refresh",
    type=click.Choice(["check", "never", "always"]),
    default="check",
    show_default=True,
    help="Files already in the index: read those that changed (check), none (never) or all (always) again.",
)
@click.option(
    "--no-sidecars",
    is_flag=True,
    help="Ignore sidecar files: reduced resolutions of NITF images (R-sets: .r1, .r2 …), world files, .aux.xml.",
)
@click.option(
    "--checksums",
    is_flag=True,
    help="Read all data once and record a checksum of each byte range, which reads and `check --deep` compare.",
)
@click.option("--concurrency", type=click.IntRange(min=1), help="Number of files read at the same time.")
@keep_query
@storage_option
@click.option("--quiet", "-q", is_flag=True, help="No progress bar, no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    urls: Sequence[str],
    output: str | None,
    arrange: str,
    assets: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Index files in place: only their metadata are read, and no data are copied.

    URL is a file, a glob, a folder, a text file with one URL per line, or STAC items (JSON or GeoParquet), on disk,
    over HTTP(S), or in S3, GCS or Azure. With - the URLs are read from standard input, one per line. Files of other
    formats in a folder are skipped. A file that cannot be indexed is recorded with its error, and the exit code is 1.

    Run the command again after an interruption or when there are new files: files already indexed are not read again.
    The new index contains exactly the files of this command, arranged by its options; with --append, they are added
    to the existing index; if standard input then names no files, the index stays as it is and the exit code is 0.

    \b
    periplus index 'archive/*.tif' -o archive.parquet
    find archive -name '*.ntf' -newer last | periplus index - -o archive.parquet --append
    periplus index 's3://bucket/2021/**/*.tif' -o 2021/ --arrange stack --pattern 'S2_{time:%Y%m%d}'
    """
    import periplus

    named = [line for url in urls for line in (listed(sys.stdin) if url == "-" else [url])]
    if not named and options["append"] and output is not None and (index := existing(output)) is not None:
        with index:
            return summarise(index, output, quiet=quiet, as_json=as_json)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if given.pop("no_sidecars", False):
        given["sidecars"] = False
    if assets is not None:
        given["assets"] = [name.strip() for name in assets.split(",")]
    with bar("indexing", "files", quiet=quiet) as report, usage_errors():

        def progress(done: int, total: int | None, failed: int) -> None:
            if report is not None:
                report(done, total, failed=failed)

        index = periplus.index(
            named,
            to=output,
            arrange=arrange,
            progress=None if report is None else progress,
            **source_arguments(),
            **given,
        )
    with index:
        return summarise(index, output, quiet=quiet, as_json=as_json)


def existing(output: str) -> Index | None:
    """The index there, with a summary that nothing was added; None where there is none."""
    import periplus

    try:
        index = periplus.open(output, trust=True, **source_arguments())  # as if files were added to it
    except periplus.MissingError:
        return None
    good = [max(size, 0) for size, status in zip(index.files.size, index.files.status, strict=True) if status == "ok"]
    index.summary = periplus.Summary(
        files=len(index.files),
        ok=len(good),
        reused=len(good),
        rows=index.table.rows,
        bytes=int(sum(good)),
        warnings=("there was nothing to add",),
    )
    return index


def listed(file: Iterable[str]) -> list[str]:
    """URLs, one per line; `#` starts a comment."""
    lines = (line.strip() for line in file)
    return [line for line in lines if line and not line.startswith("#")]


def summarise(index: Index, output: str | None, *, quiet: bool, as_json: bool) -> int:
    """Print what was indexed and what failed; returns the exit code."""
    from periplus.cli.app import in_cli_words
    from periplus.cli.output.describe import failures, replacements

    summary = index.summary
    assert summary is not None
    if as_json:
        facts = {**asdict(summary), "index": None if output is None else redact(output)}
        # Including files without a row, because their URL must not be stored.
        more = [{"path": redact(url), "error": scrub(error)} for url, error in summary.errors]
        known = failures(index)
        facts |= {"errors": known + [one for one in more if one not in known], "replacements": replacements(index)}
        click.echo(json.dumps(facts, indent=2))
    elif not quiet:
        lines = in_cli_words(scrub(str(summary))).splitlines()
        if output is not None:
            lines[0] = f"{redact(output)}: {lines[0]}"
            if summary.failed > len(summary.errors) or summary.replaced > len(summary.replacements):
                lines.append(f'to list all: periplus query {redact(output)} --sql "{FAILED}"')
        click.echo("\n".join(clean(line) for line in lines), err=True)
    return int(summary.failed > 0)
