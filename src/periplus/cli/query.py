"""periplus query: select rows of an index by SQL, or by bounding box, time and level."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import BBox, Point, Time, Window, access, box_of, open_any, usage_errors

if TYPE_CHECKING:
    from periplus import Index

FORMATS = ("table", "json", "csv", "parquet")
SHOWN = 40
"""Rows of a table by default."""


@click.command("query", short_help="Select rows of an index by bounding box, time or SQL.")
@click.argument("url", metavar="INDEX_OR_FILE")
@click.option(
    "--sql",
    help="A query in DuckDB's SQL over the views chunks, files, arrays, placements and grid. The column names "
    '"array" and "offset" need quotes.',
)
@click.option("--array", metavar="NAME", help="Only this array, for example 0/data.")
@click.option("--level", type=click.IntRange(min=0), help="Only this pyramid level; 0 is full resolution.")
@click.option("--bbox", type=BBox(), help="Only chunks that intersect this box, in --crs.")
@click.option("--point", type=Point(), help="Only the chunks at this point, in --crs; instead of --bbox.")
@click.option(
    "--crs",
    help="CRS of --bbox or --point, for example EPSG:4326.  [default: the CRS of the images, if all have the same]",
)
@click.option(
    "--time", type=Time(), help="Only this time (2021-06), or this range of times (2021-06/2021-08); .. is an open end."
)
@click.option("--window", type=Window(), help="Only these chunks (not pixels) along the last dimensions of --array.")
@click.option("--footprints", is_flag=True, help="Add the bounding box of every chunk.")
@click.option(
    "--files", is_flag=True, help="One row for each file instead of each chunk, with its format, time and size."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Maximum number of rows (by default a table shows {SHOWN}, other formats all).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Default: by the extension of -o, else a table.",
)
@click.option("-o", "--output", default="-", metavar="FILE", help="A file, or - for standard output.  [default: -]")
@access
def command(
    url: str,
    sql: str | None,
    files: bool,
    limit: int | None,
    form: str | None,
    output: str,
    **selection: Any,
) -> None:
    """Select rows of an index: one for each chunk, with its file, offset and length.

    \b
    periplus query archive.parquet --level 0 --bbox 500000,4190000,502000,4192000
    periplus query archive.parquet --bbox 14,47,15,48 --crs EPSG:4326 --time 2021-07 --files
    periplus query archive.parquet --sql "select path, sum(length) from chunks group by 1" --format csv
    """
    from periplus.cli.output.rows import by_file, write
    from periplus.cli.output.target import STDOUT, check_output, opened

    suffix = output.rpartition(".")[2].lower()
    form = form or (suffix if suffix in FORMATS else "table")
    if form == "parquet" and output in STDOUT and sys.stdout.isatty():
        raise click.UsageError("Parquet cannot be shown in a terminal: choose a file with -o.")
    if files and selection["footprints"]:
        raise click.UsageError("--footprints adds the boxes of chunks, so it has no effect with --files.")
    with open_any(url) as index:
        check_output(output, url, index)
        if sql is not None:
            filters = {**selection, "files": files}
            if given := [name for name, value in filters.items() if value is not None and value is not False]:
                raise click.UsageError(f"--sql stands alone: put {', '.join('--' + n for n in given)} into the query.")
            with usage_errors():
                rows = index.sql(sql)
        else:
            selection["bbox"] = box_of(selection["bbox"], selection.pop("point"))
            with usage_errors():
                rows = index.select(**{**selection, "window": full_window(index, selection)})
            rows = by_file(rows, index.files) if files else rows
    total = rows.num_rows
    most = limit or (SHOWN if form == "table" else total)
    with opened(output) as file:
        write(rows.slice(0, most), file, form)
    if total > most:
        click.echo(f"{total - most:,} more rows of {total:,} (--limit, or another --format)", err=True)


def full_window(index: Index, selection: dict[str, Any]) -> list[tuple[int, int]] | None:
    """The window with a range for every dimension of the array."""
    window, name = selection["window"], selection["array"]
    if window is None:
        return None
    if name is None:
        raise click.UsageError("--window selects chunks of one array: choose it with --array.")
    grid = index[name].array.grid
    if len(window) > len(grid):
        raise click.UsageError(f"--window has {len(window)} ranges, but {name} has {len(grid)} dimensions.")
    return [(0, n) for n in grid[: len(grid) - len(window)]] + list(window)
