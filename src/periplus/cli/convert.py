"""periplus convert: the same index in another form."""

from __future__ import annotations

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
    type=click.Choice(["flat", "dataset", "duckdb"]),
    help="Default: by TARGET's name: .parquet is flat, .duckdb a database, anything else a dataset folder.",
)
@access
def command(
    url: str,
    target: str,
    form: str | None,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
) -> None:
    """Write an index anew: as one Parquet file, as a dataset folder, or as a DuckDB database.

    \b
    periplus convert archive.parquet archive.duckdb
    periplus convert archive.parquet s3://bucket/archive/
    """
    with open_index(url, allow=allow, trust=trust, storage_options=storage_options) as index:
        written = index.write(target, form=form)
        rows, files = written.table.rows, len(written.files)
    click.echo(f"{redact(target)}: {count(rows, 'reference')} to {count(files, 'file')}", err=True)
