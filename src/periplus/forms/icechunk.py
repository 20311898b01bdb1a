"""Icechunk repositories: the index is a snapshot of one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from periplus.errors import guided
from periplus.forms.form import FormResult, IndexForm, Opening, Writing
from periplus.policy import Policy
from periplus.table.stored_form import Content

if TYPE_CHECKING:
    from periplus.table import Table
    from periplus.zarr.description.metadata import Codecs

BRANCH = "refs/branch.main/ref.json"
"""In every repository of Icechunk's format 1."""
FORMAT_2 = "repo"
"""In every repository of Icechunk's format 2, which the reader refuses."""


def is_repository(content: Content) -> bool:
    """Whether there is a repository of format 1, or one of format 2, which the reader refuses."""
    return b'"snapshot"' in content.start(4096, name=BRANCH) or content.start(3, name=FORMAT_2) == b"ICE"


def _belongs(name: str) -> bool:
    """Whether a file may be what an interrupted creation of a repository left."""
    return name.startswith(("chunks/", "manifests/", "refs/", "snapshots/", "transactions/", "config.yaml"))


def open_repository(
    opening: Opening,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    skip_unsupported: bool | Collection[str] = (),
) -> Table:
    """The snapshot of a branch, a tag or an id."""
    from periplus.zarr.icechunk.read import read_icechunk

    return read_icechunk(
        opening.url,
        fetch=opening.fetch,
        limits=opening.limits,
        branch=branch,
        tag=tag,
        snapshot=snapshot,
        skip_unsupported=skip_unsupported,
    )


def write_repository(
    writing: Writing,
    *,
    branch: str = "main",
    append: bool = False,
    message: str | None = None,
    codecs: Codecs = "all",
    skip_unsupported: bool = False,
) -> FormResult:
    """Commit to a branch; chunks that Icechunk readers could not decode are copied."""
    with guided():
        from periplus.zarr.icechunk.write import write_icechunk
    from periplus.table.target import check_folder
    from periplus.zarr.icechunk.read import read_icechunk

    anywhere = writing.fetch.under(Policy.everything())
    check_folder(writing.url, "an Icechunk repository", is_repository, _belongs, fetch=anywhere)
    commit = write_icechunk(
        writing.table,
        writing.fetch,
        writing.url,
        limits=writing.limits,
        branch=branch,
        append=append,
        message=message,
        codecs=codecs,
        skip_unsupported=skip_unsupported,
    )
    table = read_icechunk(writing.url, fetch=anywhere, limits=writing.limits, snapshot=commit.snapshot)
    return FormResult(table, commit.skipped, commit)


REPOSITORY = IndexForm(
    name="icechunk",
    description="an Icechunk repository",
    endings=(".icechunk", ".icechunk/"),
    recognise=is_repository,
    open=open_repository,
    write=write_repository,
)
