"""periplus validate: the conventions of a whole store or index, and what can be put right."""

from __future__ import annotations

from collections.abc import Sequence

import click

from periplus.cli.options import access, asked, settings
from periplus.cli.output.text import count, printable
from periplus.errors import redact

SHOWN = 50
"""Findings listed before the rest is only counted."""
CODES = {"error": 2, "warning": 1}
"""Exit codes by the gravest finding."""
MARKS = {"error": "error  ", "warning": "warning", "info": "info   "}


@click.command("validate", short_help="Check a store against the GeoZarr conventions.")
@click.argument("url", metavar="STORE")
@click.option(
    "--profile",
    type=click.Choice(["spec", "gdal", "eopf", "embeddings"]),
    default="spec",
    show_default=True,
    help="What to ask for: the conventions as published, what GDAL reads, EOPF's rules, or embeddings.",
)
@click.option("--deep", is_flag=True, help="Compare samples of the values between the levels of pyramids, too.")
@click.option("--fix", is_flag=True, help="Repair what is safe to repair, and say what was done.")
@click.option("--dry-run", is_flag=True, help="With --fix: only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="The whole report, as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Errors and warnings only.")
@access
def command(
    url: str,
    profile: str,
    deep: bool,
    fix: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
) -> int:
    """Walk a Zarr store or an index and check what its metadata say against the conventions.

    STORE is a folder or URL of Zarr v2 or v3, an index of periplus, or an Icechunk repository. No chunk is read unless
    --deep asks for it. Every finding has a code that stays the same, a severity, a path and a hint. The exit code is 0
    where there is nothing worse than an info, 1 for warnings, 2 for errors.

    \b
    periplus validate pyramid.zarr
    periplus validate s3://bucket/product.zarr --profile eopf --json
    periplus validate pyramid.zarr --fix --dry-run
    """
    import periplus

    with asked():
        report = periplus.validate(
            url,
            profile=profile,
            deep=deep,
            fix=fix,
            dry_run=dry_run,
            allow=allow,
            trust=trust,
            storage_options=settings(storage_options),
        )
    code = CODES.get(report.worst or "", 0)
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
    said = ", ".join(f"{name} ({n:,})" for name, n in report.conventions.items()) or "none"
    click.echo(
        f"{redact(url)}: {count(report.groups, 'group')}, {count(report.arrays, 'array')}; conventions: {said}; "
        f"{counts or 'nothing wrong'} by profile {profile}"
    )
    return code
