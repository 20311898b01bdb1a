"""periplus convert: write an index in another form."""

from __future__ import annotations

import os

import click

from periplus.cli.options import access, open_index, usage_errors
from periplus.cli.output.text import count
from periplus.errors import redact, some


@click.command("convert", short_help="Write an index in another form.")
@click.argument("url", metavar="INDEX")
@click.argument("target", metavar="TARGET")
@click.option(
    "--form",
    type=click.Choice(["flat", "dataset", "duckdb", "icechunk", "kerchunk"]),
    help="Form of the result. Default, by the name of TARGET: .parquet flat, .duckdb duckdb, .icechunk icechunk, .json "
    "kerchunk, other names dataset. kerchunk with a name other than .json is a folder of Parquet files.",
)
@click.option(
    "--zarr-format",
    type=click.IntRange(2, 3),
    help="Kerchunk: version of the Zarr metadata; 3 for .json only. Default: 2.",
)
@click.option(
    "--codecs",
    type=click.Choice(["standard", "imagery", "all"]),
    help="Codecs that readers of the result support: those of Zarr and numcodecs (standard), also those of "
    "osml-imagery-io (imagery), or also those of periplus (all, the default).",
)
@click.option(
    "--portable", is_flag=True, help="Kerchunk: write URLs as {{base}}name, so that readers can set the base."
)
@click.option(
    "--skip-unsupported",
    is_flag=True,
    help="Skip arrays that the form cannot represent instead of stopping.",
)
@click.option("--append", is_flag=True, help="Icechunk: add to the existing repository.")
@access
def command(
    url: str,
    target: str,
    form: str | None,
    zarr_format: int | None,
    codecs: str | None,
    portable: bool,
    skip_unsupported: bool,
    append: bool,
) -> None:
    """Write an index as a Parquet file, a dataset folder, a DuckDB file, an Icechunk repository or kerchunk references.

    \b
    periplus convert archive.parquet archive.duckdb
    periplus convert archive.parquet s3://bucket/archive/
    periplus convert archive.parquet s3://bucket/archive.icechunk
    periplus convert archive.parquet archive.json --zarr-format 3
    """
    from periplus.cli.app import in_cli_words

    os.environ.setdefault("ICECHUNK_LOG", "error")  # it writes warnings to stdout
    with open_index(url) as index:
        options = {
            "zarr_format": zarr_format,
            "codecs": codecs,
            "portable": portable,
            "skip_unsupported": skip_unsupported,
            "append": append,
        }
        with usage_errors(tuple(options)):
            written = index.write(target, form=form, **{name: value for name, value in options.items() if value})
        rows, files = written.table.rows, len(written.files)
        report = written.report
    assert report is not None
    click.echo(f"{redact(target)}: {count(rows, 'reference')} to {count(files, 'file')}", err=True)
    if report.commit is not None:
        click.echo(redact(str(report.commit)), err=True)
    alike: dict[str, list[str]] = {}
    for name, why in report.skipped.items():
        alike.setdefault(why, []).append(name)
    for why, names in alike.items():
        click.echo(f"skipped: {some(names)}: {in_cli_words(why)}", err=True)
