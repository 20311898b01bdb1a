"""The registry: every form of an index, and how to find the one that is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, MissingError
from periplus.forms.form import IndexForm, Opening, UnknownOptionError, WriteReport, Writing
from periplus.forms.icechunk import REPOSITORY
from periplus.forms.kerchunk import DIRECTORY, JSON
from periplus.forms.tables import DATASET, DUCKDB_DATABASE, FLAT_PARQUET
from periplus.limits import Limits
from periplus.policy import Policy, canonical, is_local
from periplus.table.stored_form import Content, check_parent, path_of, target_form

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

FORMS = (DATASET, FLAT_PARQUET, DUCKDB_DATABASE, JSON, DIRECTORY, REPOSITORY)
"""In the order in which they are tried; a dataset folder needs no ending, so it is the first."""
KERCHUNK = "kerchunk"
"""Either of the two kerchunk forms, by the ending of the target."""
NAMES = (*(form.name for form in FORMS), KERCHUNK)
"""Values of `form=`."""


def recognise(url: str, fetch: Fetch | None = None) -> IndexForm | None:
    """The form of the index at a location, by its content; None where there is no index.

    Remote locations are accessed through `fetch`; without it, nothing is known of them, and the answer is None.
    """
    content = Content(url, fetch)
    return next((form for form in _by_ending(url) if form.recognise(content)), None)


def is_index(url: str, fetch: Fetch | None = None) -> bool | None:
    """Whether a location is an index: a local one by its content, a remote one by its name.

    None for remote folders, names without an ending and, without `fetch`, JSON: opening recognises them.
    """
    if is_local(url):
        return recognise(url) is not None
    first = _by_ending(url)[0]
    if first is JSON:
        return None if fetch is None else JSON.recognise(Content(url, fetch))
    if first is not DATASET:
        return True
    name = path_of(url).rpartition("/")[2]
    return False if "." in name else None


def open_index(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits | None = None,
    allow: Iterable[str] = (),
    trust: bool = False,
    **options: Any,
) -> Table:
    """Open an index of any form. The form that its name suggests is tried first; its content decides."""
    if is_local(url):
        from periplus.fetch.local.folders import restore_folder

        restore_folder(canonical(url).removesuffix("/"))
    opening = Opening(url=url, fetch=fetch, limits=limits or Limits(), allow=tuple(allow), trust=trust)
    first, *others = _by_ending(url)
    try:
        first.check_options(first.open, options)
        return first.open(opening, **options)
    except (MissingError, FormatError, UnknownOptionError):
        content = Content(url, fetch)
        form = next((other for other in others if other.recognise(content)), None)
        if form is None or form.open is first.open:
            raise
    form.check_options(form.open, options)
    return form.open(opening, **options)


def write_index(
    table: Table, url: str, *, fetch: Fetch, limits: Limits, form: str | None = None, **options: Any
) -> tuple[Table, WriteReport]:
    """Write an index in the form named, or by the ending of `url`; return the index opened from there, and a report."""
    entry = _target(url, form)
    entry.check_options(entry.write, options)
    check_parent(url)
    first = _by_ending(url)[0]
    if (
        entry is DATASET
        and first is REPOSITORY
        and REPOSITORY.recognise(Content(url, fetch.under(Policy.everything())))
    ):
        # Also where a dataset is in it: a reader opens what the name suggests.
        raise FormatError("the target is an Icechunk repository; nothing was written: choose another name", url=url)
    written = entry.write(Writing(table=table, url=url, fetch=fetch, limits=limits), **options)
    report = WriteReport(
        url=url,
        form=entry.name,
        references=written.table.rows,
        files=written.table.file_count,
        skipped=written.skipped,
        commit=written.commit,
    )
    return written.table, report


def _target(url: str, form: str | None) -> IndexForm:
    named: Mapping[str, IndexForm] = {entry.name: entry for entry in FORMS}
    first = _by_ending(url)[0]
    if form == KERCHUNK:
        return JSON if first is JSON else DIRECTORY
    if form is None:
        return first if first in (JSON, REPOSITORY) else named[target_form(url)]
    if form not in named:
        raise ValueError(f"form is one of {', '.join(n for n in NAMES if not n.startswith('kerchunk-'))}, not {form!r}")
    return named[form]


def _by_ending(url: str) -> list[IndexForm]:
    """All forms, first the one that the ending of the name suggests."""
    path = path_of(url)
    return sorted(FORMS, key=lambda form: not path.endswith(form.endings))
