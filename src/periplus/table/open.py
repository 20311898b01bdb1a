"""Open an index: find its form, read its footer and check it. No row is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from periplus.errors import FormatError, MissingError
from periplus.limits import Limits
from periplus.policy import Policy, canonical, folder_of
from periplus.table.collection.groups import GroupColumns
from periplus.table.document.document import FILES_KEY, KEY, load, parse
from periplus.table.parquet.part import embedded, read_members
from periplus.table.parquet.ranges import ParquetBytes, read_tail
from periplus.table.parquet.rows import ParquetRows
from periplus.table.stored_form import FILES_NAME, form_of
from periplus.table.table import Table

if TYPE_CHECKING:
    from periplus.fetch import Fetch


class Glance(NamedTuple):
    """Identifies a commit of a dataset."""

    revision: str
    paths: frozenset[str]
    """Of its parts, relative to its folder."""


def open_table(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits | None = None,
    allow: Iterable[str] = (),
    trust: bool = False,
    document: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    form: str | None = None,
) -> Table:
    """An index at a URL, opened from its footer alone.

    It may access sources in its own folder and under the prefixes of `allow`; `policy` replaces that rule. A DuckDB
    file is opened only with `trust`. `document` replaces the footer document of a table written by another tool.
    `form` is `parquet` (flat or dataset) or `duckdb`, by default as the ending of the URL says.
    """
    plain = canonical(url)
    limits = limits or Limits()
    allowed = tuple(allow)
    reopen = partial(
        open_table,
        url,
        fetch=fetch,
        limits=limits,
        allow=allowed,
        trust=trust,
        document=document,
        policy=policy,
        form=form,
    )
    if (form or form_of(plain)) == "duckdb":
        from periplus.table.duckdb.database import open_duckdb

        return open_duckdb(
            plain, limits=limits, trust=trust, policy=policy or Policy.beside(plain, allow=allowed), reopen=reopen
        )
    base, folder = _base(plain, fetch, limits)
    plain = base.url
    text = base.keys.get(KEY) if document is None else document
    if text is None:
        raise FormatError(
            f"this Parquet file is not an index: its footer has no {KEY.decode()!r}. If it lists STAC items, "
            "periplus.index makes an index of them",
            url=plain,
        )
    stated = load(text, limits=limits, url=plain, members=lambda: _members(base, limits))
    if stated.pieces is not None:
        folder = folder or folder_of(plain)
    elif folder is not None:
        raise FormatError("this folder's files.parquet does not list the parts of an index", url=plain)
    rows = ParquetRows(stated, base, folder=folder or folder_of(plain), fetch=fetch, limits=limits)
    # The name of a dataset is its folder: like a flat index, it may access files in the folder that contains it.
    name = plain if folder is None else folder.removesuffix("/")
    rule = policy or Policy.beside(name, allow=allowed)
    return Table(stated, rows, url=name, policy=rule, limits=limits, reopen=reopen, source=base.source)


def _members(base: ParquetBytes, limits: Limits) -> GroupColumns:
    """The group columns of the files table that an index carries in its footer, or that it is."""
    if FILES_KEY in base.keys:
        return read_members(embedded(base.keys[FILES_KEY], limits, base.url), limits)
    if "path" not in base.schema.names or "offset" in base.schema.names:
        raise FormatError("this collection has no files table", url=base.url)
    return read_members(base, limits)


def glance(url: str, *, fetch: Fetch, limits: Limits) -> Glance:
    """Which commit of a dataset is at a URL, and its parts; their content is not read."""
    base, _ = _base(canonical(url), fetch, limits)
    text = base.keys.get(KEY)
    fields = {} if text is None else parse(text, limits)
    pieces, revision = (fields.get("chunks"), fields.get("revision")) if isinstance(fields, dict) else (None, None)
    if not isinstance(pieces, list) or not isinstance(revision, str):
        raise FormatError("this folder's files.parquet does not list the parts of an index", url=base.url)
    placed = fields.get("placements", [])
    pieces = [*pieces, *placed] if isinstance(placed, list) else pieces
    paths = [piece.get("path") if isinstance(piece, dict) else None for piece in pieces]
    return Glance(revision, frozenset(path for path in paths if isinstance(path, str)))


def _base(plain: str, fetch: Fetch, limits: Limits) -> tuple[ParquetBytes, str | None]:
    """The Parquet file whose footer describes the index, and the folder it is in where that folder is the index.

    The ending of the URL says what to try first; what is there decides.
    """
    folder = plain if plain.endswith("/") else plain + "/"
    places = [(plain.removesuffix("/"), None), (folder + FILES_NAME, folder)]
    if form_of(plain) == "dataset":
        places.reverse()
    for place, inside in places:
        try:
            tail = read_tail(place, fetch)
        except (MissingError, FormatError):
            continue  # nothing there, or a folder
        return ParquetBytes(place, fetch=fetch, limits=limits, tail=tail), inside
    raise MissingError(
        "there is no index: neither a Parquet file nor a folder with files.parquet; periplus.index makes one", url=plain
    )
