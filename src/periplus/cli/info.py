"""periplus info: show the content of an index or a file."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import click

from periplus.cli.options import access, open_any
from periplus.cli.output.text import count, extent, printable, size, table

SHOWN = 20
"""Arrays and failures shown; the others are only counted."""
PLACES = 4
"""Number of CRSs whose boxes are shown."""
WIDTH = 100
LONGEST = 1000
"""Characters of one attribute."""
LONGEST_PART = 160
"""Characters of one of several records of an attribute."""


@click.command("info", short_help="Show the content of an index or a file.")
@click.argument("url", metavar="INDEX_OR_FILE")
@access
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(url: str, as_json: bool) -> None:
    """Show the arrays, bounding boxes, times, encodings and failed files of an index.

    For a file that is not an index, such as a GeoTIFF, show the index of that file.

    \b
    periplus info archive.parquet
    periplus info https://example.com/scene.tif --json
    """
    from periplus.cli.output.describe import describe

    with open_any(url) as index:
        found = describe(index, url, most=None if as_json else SHOWN)
    click.echo(json.dumps(found, indent=2, allow_nan=False) if as_json else readable(found))


def readable(found: dict[str, Any]) -> str:
    """The description as text."""
    files, arrays = found["files"], found["arrays"]
    rows = [("index", found["index"]), ("references", f"{found['rows']:,}")]
    rows.append(("files", f"{files['count']:,}, {size(files['bytes'])}" + not_used(files)))
    rows.append(("formats", ", ".join(f"{name} {number:,}" for name, number in files["formats"].items()) or "none"))
    if kind := found["arrangement"].get("kind"):
        along = found["arrangement"].get("dim")
        rows.append(("arranged", f"{kind} along {along}" if along else str(kind)))
    for box in found["bbox"][:PLACES]:
        rows.append(("crs", short(box["crs"] or "not known")))
        rows.append(("bbox", ", ".join(f"{edge:.10g}" for edge in box["bbox"])))
    if (more := len(found["bbox"]) - PLACES) > 0:
        rows.append(("", f"… and boxes in {count(more, 'other CRS')} (--json shows all)"))
    if (taken := files["taken"])["count"] and not found["coordinates"]:
        span = taken["first"] if taken["first"] == taken["last"] else f"{taken['first']} to {taken['last']}"
        rows.append(("taken", f"{span}, {count(taken['count'], 'file')} with a date"))
    for name, values in found["coordinates"].items():
        rows.append((name, f"{values['first']} to {values['last']}, {count(values['count'], 'value')}"))
    lines = [f"{name:<11} {printable(str(value))}" for name, value in rows]
    lines += ["", table(("array", "dims", "shape", "dtype", "chunks", "nodata", "encoding"), map(row, arrays[:SHOWN]))]
    if found["array_count"] > SHOWN:
        lines.append(f"… {found['array_count'] - SHOWN:,} more arrays (--json shows all)")
    if files["count"] == 1 and arrays:
        lines += attributes(found)
    if files["errors"]:
        lines += ["", "failed files"]
        lines += [f"  {printable(each['path'])}: {printable(str(each['error']))}" for each in files["errors"][:SHOWN]]
        if files["failed"] > SHOWN:
            lines.append(f"  … {files['failed'] - SHOWN:,} more (--json shows all)")
    if files["replacements"]:
        lines += ["", "files that are not used because others replace them"]
        lines += [f"  {printable(row['path'])}: {printable(row['error'])}" for row in files["replacements"][:SHOWN]]
        if files["replaced"] > SHOWN:
            lines.append(f"  … {files['replaced'] - SHOWN:,} more (--json shows all)")
    return "\n".join(lines)


def attributes(found: dict[str, Any]) -> list[str]:
    """The attributes of a file and of its first image."""
    first = found["arrays"][0]
    lines = []
    for name, values in (("file", found["groups"].get("", {})), (first["name"], first["attributes"])):
        if values:
            lines += ["", name]
        for key, value in values.items():
            words = printable(in_words(value))
            more = "…" if len(words) > LONGEST else ""
            label = f"  {printable(key):<11} "
            lines += textwrap.wrap(label + words[:LONGEST] + more, WIDTH, subsequent_indent=" " * 14)
    return lines


def in_words(value: Any) -> str:
    """An attribute as text, without empty values."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {in_words(each)}" for key, each in value.items() if not _blank(each))
    if not isinstance(value, list):
        return str(value)
    # Each of many records is shown in part, rather than only the first.
    parts = [in_words(each) for each in value]
    return "; ".join(part if len(part) <= LONGEST_PART else part[: LONGEST_PART - 1] + "…" for part in parts)


def _blank(value: Any) -> bool:
    return all(map(_blank, value)) if isinstance(value, list) else value in ("", None, {})


def row(array: dict[str, Any]) -> tuple[Any, ...]:
    """One line of the table of arrays."""
    nodata = array["nodata"]
    return (
        array["name"],
        ", ".join(array["dims"]),
        extent(array["shape"]),
        array["dtype"],
        extent(array["chunks"]),
        "-" if nodata is None else str(nodata),
        "; ".join(array["encodings"]),
    )


def not_used(files: dict[str, Any]) -> str:
    """The number of files that failed or were replaced, if any."""
    return "".join(f", {files[what]:,} {what}" for what in ("failed", "replaced") if files[what])


def short(text: str) -> str:
    """A CRS on one line: its code, or the beginning of its text."""
    return text if len(text) <= 80 else text[:79] + "…"
