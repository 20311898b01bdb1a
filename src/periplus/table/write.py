"""Write an index in one of our own forms, or copy one; readers see all of it or nothing."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from periplus.errors import ConflictError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch.stale import check_same
from periplus.limits import Limits
from periplus.model import Bundle, Catalog, Files, Placements, Source
from periplus.policy import Policy, canonical, is_local
from periplus.table.access import stored_paths
from periplus.table.collection.build import gathered, members_of
from periplus.table.collection.groups import GroupedArrays, kinds
from periplus.table.document.columns import Columns, columns_for
from periplus.table.document.document import FILES_KEY, KEY, PLACEMENTS_KEY, IndexDocument, document_for, dump, load
from periplus.table.leftovers import FOLDERS, sweep_unfinished
from periplus.table.lock import locked
from periplus.table.open import glance, open_table
from periplus.table.parquet.files import files_to_arrow
from periplus.table.parquet.placements import write_placements
from periplus.table.parquet.ranges import arrow_errors
from periplus.table.parquet.row_groups import Blocks, RowTally, row_groups
from periplus.table.parquet.schema import RowSchema, level_extra
from periplus.table.parquet.sinks import FlatSink, PartSink, embedded_files, files_parquet, sink
from periplus.table.stored_form import DUCKDB, FILES_NAME, dataset_folder, form_of, target_form
from periplus.table.table import Table
from periplus.table.target import check_target

if TYPE_CHECKING:
    from periplus.fetch import Fetch


def write_table(
    target_url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    *,
    fetch: Fetch,
    placements: Placements | None = None,
    form: str | None = None,
    limits: Limits | None = None,
    continues: Table | None = None,
    create: bool = False,
) -> Table:
    """Write an index and open it; an index that was there stays until the new one is whole.

    Anything else at the target is an error and is not replaced, and neither is a file that the index refers to.

    `blocks` may come in any order and size; a bounded number of rows is in memory at a time. `form` is `flat` (one
    Parquet file), `dataset` (a folder) or `duckdb`, by default as the ending of the URL says. `continues` is the index
    that this one was made from: ConflictError where it lay there, and another writer has changed it meanwhile; with
    `create`, where another writer has made one.
    """
    limits = limits or Limits()
    url = canonical(target_url)
    form = form or target_form(target_url)
    if form != "duckdb" and form_of(url) == "duckdb":
        raise FormatError(f"only the name of a DuckDB index ends in {' or '.join(DUCKDB)}", url=url)
    check_target(url, form, fetch=fetch, sources=files)
    catalog = checked_catalog(catalog, files, limits, count=len(files))
    before = None if continues is None else continues.source
    if before is not None and before.url != (dataset_folder(url) + FILES_NAME if form == "dataset" else url):
        before = None
    if form in ("flat", "dataset"):
        folder = dataset_folder(url)
        paths = stored_paths(files, url if form == "flat" else folder[:-1], fetch.keep_query)

        def with_parts(parts: dict[str, int]) -> tuple[Catalog, pa.Table]:
            whole = gathered(catalog, files, parts)
            return whole, files_to_arrow(files, paths, groups_of(whole))

        new = NewContent(
            catalog=catalog,
            columns=columns_for(kinds(catalog.arrays)),
            groups=row_groups(blocks, catalog, np.asarray(files.size)),
            placements=placements,
            with_parts=with_parts,
        )
        if form == "flat":
            write_flat(url, new, paths, fetch, expect=before, create=create)
        else:
            _replace_dataset(folder, new, fetch, before, create)
    elif form == "duckdb":
        from periplus.table.duckdb.database import write_duckdb

        write_duckdb(url, catalog, blocks, files, placements=placements, fetch=fetch, expect=before, create=create)
    else:
        raise ValueError(f"form is flat, dataset or duckdb, not {form!r}")
    # Its rows came from the caller, who may access their sources.
    opened = "duckdb" if form == "duckdb" else "parquet"
    return open_table(url, fetch=fetch, limits=limits, trust=True, policy=Policy.everything(), form=opened)


def copy_table(
    table: Table, target_url: str, *, fetch: Fetch, form: str | None = None, limits: Limits | None = None
) -> Table:
    """The same index in another place or form, streamed; in its own place, a dataset's many parts become one."""
    return write_table(
        target_url,
        table.catalog,
        table.blocks(),
        table.files,
        placements=table.placements,
        fetch=fetch,
        form=form,
        limits=limits,
        continues=table,
    )


def checked_catalog(catalog: Catalog, files: Files, limits: Limits, *, count: int) -> Catalog:
    """The catalog as it is stored, collections as groups; FormatError where opening would refuse it."""
    catalog = gathered(catalog, files, {})
    arrays = catalog.arrays
    members = (lambda: members_of(arrays, count)) if isinstance(arrays, GroupedArrays) else None
    load(dump(document_for(catalog)), limits=limits, members=members)
    return catalog


def groups_of(catalog: Catalog) -> GroupedArrays | None:
    """The arrays of a collection; None for any other catalog."""
    return catalog.arrays if isinstance(catalog.arrays, GroupedArrays) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewContent:
    """What is written to one of the two Parquet forms; for an index that grows, what is added to it."""

    catalog: Catalog
    columns: Columns
    groups: Iterable[Bundle]
    """Row groups, verified and sorted."""
    placements: Placements | None
    with_parts: Callable[[dict[str, int]], tuple[Catalog, pa.Table]]
    """From the most byte ranges of a chunk, by array: the catalog that has them, and the files table."""
    before: IndexDocument | None = None
    """Of the index that grows."""

    def most_parts(self, tallies: Iterable[RowTally]) -> dict[str, int]:
        """Most byte ranges of a chunk, by array, where that is more than one."""
        most = {} if self.before is None else dict(self.before.parts)
        for tally in tallies:
            for name, count in tally.parts.items():
                most[name] = max(most.get(name, 1), count)
        return {name: count for name, count in most.items() if count > 1}


def write_flat(
    url: str,
    new: NewContent,
    paths: list[str],
    fetch: Fetch,
    *,
    expect: Source | None,
    create: bool = False,
    old: Iterable[pa.Table] = (),
) -> None:
    """Write one Parquet file: the rows of `old` as they are, then the new ones. `paths` are those of all files."""
    if len(set(paths)) != len(paths):
        raise FormatError("a flat index names files by their path, and the files table lists one twice")
    layout = _layout(new, paths)
    with sink(url, fetch, create=create, expect=expect) as file, FlatSink(file, layout, new.catalog.arrays) as out:
        for table in old:
            with arrow_errors("a row group cannot be written again", url):
                out.pass_on(table)
        for group in new.groups:
            out.write(group)
        parts = new.most_parts([out.tally])
        catalog, files = new.with_parts(parts)
        document = IndexDocument(catalog=catalog, columns=new.columns, parts=parts)
        placed = _embedded_placements(new.placements, catalog)
        out.close({KEY.decode(): dump(document), FILES_KEY.decode(): embedded_files(files), **placed})


def _layout(new: NewContent, paths: list[str] | None) -> RowSchema:
    """The columns of chunks; `paths` at rest for a flat table, None for a dataset."""
    return RowSchema(columns=new.columns, extras=level_extra(kinds(new.catalog.arrays)), paths=paths)


def _embedded_placements(placements: Placements | None, catalog: Catalog) -> dict[str, str]:
    """The key of a footer that holds placements; none where there are none."""
    if placements is None:
        return {}
    return {PLACEMENTS_KEY.decode(): base64.b64encode(write_placements(placements, catalog)).decode("ascii")}


# --- datasets -------------------------------------------------------------------------------------------------------


def commit_dataset(
    folder: str, new: NewContent, fetch: Fetch, *, check: Callable[[], None], create: bool = False
) -> list[str]:
    """Write parts, then replace the files table under the lock, after `check`. Returns the paths of the parts."""
    parts = PartSink(folder, _layout(new, None), new.catalog.arrays, fetch)
    revision = secrets.token_hex(8)
    try:
        with parts:
            for group in new.groups:
                parts.write(group)
        if new.placements is not None:
            parts.write_placements(write_placements(new.placements, new.catalog), len(new.placements))
        most = new.most_parts(parts.tallies)
        catalog, files = new.with_parts(most)
        pieces, placed = ((), ()) if new.before is None else (new.before.pieces or (), new.before.placements)
        document = IndexDocument(
            catalog=catalog,
            columns=new.columns,
            parts=most,
            pieces=(*pieces, *parts.pieces),
            placements=(*placed, *parts.placements),
            revision=revision,
        )
        text = dump(document)
        with locked(folder, fetch) as held:
            check()
            with sink(folder + FILES_NAME, fetch, create=create) as file:
                files_parquet(files, file, {KEY.decode(): text})
                held()
    except BaseException:
        _undo(folder, parts, revision, fetch)
        raise
    finally:
        parts.release()
    return parts.paths


def _replace_dataset(folder: str, new: NewContent, fetch: Fetch, before: Source | None, create: bool) -> None:
    old: set[str] = set()

    def check() -> None:
        # Parts of others that are here now belong to an index that ends with this commit; later ones do not.
        old.update(_parts_in(folder, fetch))
        _check_before(before, fetch)

    written = commit_dataset(folder, new, fetch, check=check, create=create)
    discard(folder, old.difference(written), fetch)
    if is_local(folder):
        with suppress(OSError):  # the index is written; the next writer sweeps what is left
            sweep_unfinished(Path(folder))


def _check_before(before: Source | None, fetch: Fetch) -> None:
    """ConflictError where the index that is to be replaced is another one by now."""
    if before is None:
        return
    try:
        check_same(before, fetch.run(fetch.head(before.url)))
    except (StaleError, MissingError):
        raise ConflictError("another writer changed the index meanwhile; nothing was written", url=before.url) from None


def _undo(folder: str, parts: PartSink, revision: str, fetch: Fetch) -> None:
    """Remove the parts of a commit that did not come about; where an interrupt came just after it, it did."""
    try:
        now = glance(folder, fetch=fetch, limits=Limits()).revision
    except MissingError:
        now = None
    except PeriplusError:
        return  # unknown; the next writer removes what no index lists
    if now != revision:
        discard(folder, parts.paths, fetch)


def discard(folder: str, paths: Iterable[str], fetch: Fetch) -> None:
    """Remove parts that no index lists, as far as they can be: what is left does no harm, and a later writer tries."""
    for path in paths:
        with suppress(PeriplusError):
            fetch.run(fetch.delete(folder + path))


def _parts_in(folder: str, fetch: Fetch) -> set[str]:
    """Parts that are there, of the index or of writers that died or are not done."""

    async def below(name: str) -> list[str]:
        return [source.url.removeprefix(folder) async for source in fetch.find(f"{folder}{name}/")]

    paths: set[str] = set()
    for name in FOLDERS:
        with suppress(MissingError):
            paths |= {path for path in fetch.run(below(name)) if path.startswith(f"{name}/part-")}
    return paths
