"""kerchunk references: a JSON file or a directory of Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from periplus.forms.form import FormResult, IndexForm, Opening, Writing
from periplus.policy import Policy
from periplus.table.stored_form import Content, is_json_references

if TYPE_CHECKING:
    from periplus.table import Table
    from periplus.zarr.description.metadata import Codecs

ZMETADATA = ".zmetadata"
RECORD_SIZE = b'"record_size"'
"""A key that the `.zmetadata` of a Zarr store does not have; written first or last."""


def is_directory(content: Content) -> bool:
    """Whether there is a Parquet directory, and not a Zarr store."""
    return RECORD_SIZE in content.end(4096, name=ZMETADATA) or RECORD_SIZE in content.start(4096, name=ZMETADATA)


def open_references(
    form: Literal["json", "parquet"],
    opening: Opening,
    *,
    template_overrides: Mapping[str, str] | None = None,
    skip_unsupported: bool | Collection[str] = (),
) -> Table:
    """References in JSON or in a Parquet directory."""
    from periplus.zarr.kerchunk.read import open_kerchunk

    return open_kerchunk(
        opening.url,
        fetch=opening.fetch,
        limits=opening.limits,
        allow=opening.allow,
        form=form,
        template_overrides=template_overrides,
        skip_unsupported=skip_unsupported,
    )


def write_json(
    writing: Writing,
    *,
    zarr_format: int = 2,
    codecs: Codecs = "all",
    portable: bool = False,
    base: str = "",
    skip_unsupported: bool | Collection[str] = (),
) -> FormResult:
    """One JSON file."""
    return _write(
        "json",
        writing,
        zarr_format=zarr_format,
        codecs=codecs,
        portable=portable,
        base=base,
        skip_unsupported=skip_unsupported,
    )


def write_directory(
    writing: Writing,
    *,
    zarr_format: int = 2,
    codecs: Codecs = "all",
    portable: bool = False,
    skip_unsupported: bool | Collection[str] = (),
    record_size: int = 100_000,
) -> FormResult:
    """A Parquet directory."""
    return _write(
        "parquet",
        writing,
        zarr_format=zarr_format,
        codecs=codecs,
        portable=portable,
        skip_unsupported=skip_unsupported,
        record_size=record_size,
    )


def _write(form: Literal["json", "parquet"], writing: Writing, **options: Any) -> FormResult:
    from periplus.zarr.kerchunk.read import open_kerchunk
    from periplus.zarr.kerchunk.write import write_kerchunk

    anywhere = writing.fetch.under(Policy.everything())
    written = write_kerchunk(writing.table, writing.url, fetch=anywhere, form=form, **options)
    table = open_kerchunk(
        writing.url,
        fetch=anywhere,
        limits=writing.limits,
        policy=Policy.everything(),
        form=form,
        template_overrides=written.overrides,
    )
    return FormResult(table, written.skipped)


JSON = IndexForm(
    name="kerchunk-json",
    description="kerchunk references in JSON",
    endings=(".json",),
    recognise=is_json_references,
    open=partial(open_references, "json"),
    write=write_json,
)
DIRECTORY = IndexForm(
    name="kerchunk-parquet",
    description="a kerchunk Parquet directory",
    endings=(),
    recognise=is_directory,
    open=partial(open_references, "parquet"),
    write=write_directory,
)
