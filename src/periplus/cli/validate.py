"""periplus validate: check a store or an index against the conventions, and repair what is safe to repair."""

from __future__ import annotations

from typing import Literal

import click

from periplus.cli.options import access, access_arguments, usage_errors
from periplus.cli.output.text import count, printable
from periplus.errors import redact

SHOWN = 50
"""Findings shown; the others are only counted."""
MARKS = {"error": "error  ", "warning": "warning", "info": "info   "}


@click.command("validate", short_help="Check a store against the GeoZarr conventions.")
@click.argument("url", metavar="STORE")
@click.option(
    "--profile",
    type=click.Choice(["spec", "gdal", "eopf", "embeddings"]),
    default="spec",
    show_default=True,
    help="Rules to check: the published conventions (spec), what GDAL reads (gdal), what ESA's EOPF products have "
    "(eopf), or what embeddings need (embeddings).",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Least severity of a finding for which the exit code is not 0.",
)
@click.option("--deep", is_flag=True, help="Also compare sampled values between the levels of pyramids.")
@click.option("--fix", is_flag=True, help="Repair what is safe to repair, and print the changes.")
@click.option("--dry-run", is_flag=True, help="With --fix: only print the changes.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Show errors and warnings only.")
@access
def command(
    url: str,
    profile: str,
    fail_on: Literal["error", "warning", "info"],
    deep: bool,
    fix: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check the metadata of a Zarr store or an index against the GeoZarr conventions.

    STORE is a Zarr store (v2 or v3), an index of periplus, kerchunk references or an Icechunk repository. No data are
    read without --deep. Every finding has a stable code, a severity, a path and a hint. The exit code is 0 without
    findings as severe as --fail-on; otherwise it is 2 if there are errors, and 1 if not.

    \b
    periplus validate pyramid.zarr
    periplus validate s3://bucket/product.zarr --profile eopf --json
    periplus validate pyramid.zarr --fail-on warning
    periplus validate pyramid.zarr --fix --dry-run
    """
    import periplus

    with usage_errors(("template_overrides",)):
        report = periplus.validate(
            url, profile=profile, fail_on=fail_on, deep=deep, fix=fix, dry_run=dry_run, **access_arguments()
        )
    code = 0 if report.ok else 2 if report.worst == "error" else 1
    if as_json:
        click.echo(report.to_json())
        return code
    shown = [one for one in report.findings if not quiet or one.severity != "info"]
    for finding in shown[:SHOWN]:
        where = f"{finding.path} {finding.attribute}".rstrip()
        click.echo(f"{MARKS[finding.severity]} {finding.code}  {printable(where)}")
        click.echo(f"        {printable(finding.message)}")
        if finding.hint:
            click.echo(f"        hint: {printable(finding.hint)}")
    if len(shown) > SHOWN:
        click.echo(f"… {len(shown) - SHOWN:,} more (--json shows all)")
    did = "repaired" if report.fixed else "can be repaired (--fix)"
    for repair in report.repairs:
        click.echo(f"{did}: {printable(f'{repair.path} {repair.attribute}')}: {printable(repair.message)}")
    counts = ", ".join(f"{count(report.count(kind), kind)}" for kind in ("error", "warning") if report.count(kind))
    declared = ", ".join(f"{name} ({n:,})" for name, n in report.conventions.items()) or "none"
    click.echo(
        f"{redact(url)}: {count(report.groups, 'group')}, {count(report.arrays, 'array')}; conventions: {declared}; "
        f"{counts or 'no errors or warnings'} by profile {profile}"
    )
    return code
