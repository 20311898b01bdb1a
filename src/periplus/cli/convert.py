"""periplus convert: the same index in another form."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from periplus.cli.options import access, open_index
from periplus.cli.text import count
from periplus.errors import redact


@click.command("convert", short_help="Write an index in another form.")
@click.argument("url", metavar="INDEX")
@click.argument("target", metavar="TARGET")
@click.option(
    "--form",
    type=click.Choice(["flat", "dataset", "duckdb", "icechunk"]),
    help="Default: by TARGET's name: .parquet is flat, .duckdb a database, .icechunk a repository, anything else a "
    "dataset folder.",
)
@click.option("--append", is_flag=True, help="Icechunk: keep what is there and add what is new.")
@access
def command(
    url: str,
    target: str,
    form: str | None,
    append: bool,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
) -> None:
    """Write an index anew: as one Parquet file, a dataset folder, a DuckDB database or an Icechunk repository.

    \b
    periplus convert archive.parquet archive.duckdb
    periplus convert archive.parquet s3://bucket/archive/
    periplus convert archive.parquet s3://bucket/archive.icechunk
    """
    os.environ.setdefault("ICECHUNK_LOG", "error")  # it would write its warnings to stdout
    with open_index(url, allow=allow, trust=trust, storage_options=storage_options) as index:
        written = index.write(target, form=form, **({"append": True} if append else {}))
        rows, files = written.table.rows, len(written.files)
        committed = index.written
    click.echo(f"{redact(target)}: {count(rows, 'reference')} to {count(files, 'file')}", err=True)
    if committed is not None:
        click.echo(redact(str(committed)), err=True)
