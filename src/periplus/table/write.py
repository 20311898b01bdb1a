"""Write an index in one of our own forms, or copy one; readers see all of it or nothing."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from periplus.errors import ConflictError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch.stale import check_same
from periplus.limits import Limits
from periplus.model import Catalog, Files, Placements, Source
from periplus.policy import Policy, canonical, is_local
from periplus.table.access import stored_paths
from periplus.table.collection.build import gathered, members_of
from periplus.table.collection.groups import GroupedArrays, kinds
from periplus.table.document.columns import Columns, columns_for
from periplus.table.document.document import FILES_KEY, KEY, PLACEMENTS_KEY, IndexDocument, document_for, dump, load
from periplus.table.leftovers import FOLDERS, sweep_unfinished
from periplus.table.location import DUCKDB, FILES_NAME, form_of, target_form
from periplus.table.lock import locked
from periplus.table.open import glance, open_table
from periplus.table.parquet.files import files_to_arrow
from periplus.table.parquet.placements import write_placements
from periplus.table.parquet.row_groups import Blocks, RowTally, row_groups
from periplus.table.parquet.schema import RowSchema, level_extra
from periplus.table.parquet.sinks import FlatSink, PartSink, embedded_files, files_parquet, sink
from periplus.table.table import Table

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

    `blocks` may come in any order and size; a bounded number of rows is in memory at a time. `form` is `flat` (one
    Parquet file), `dataset` (a folder) or `duckdb`, by default as the ending of the URL says. `continues` is the index
    that this one was made from: ConflictError where it lay there, and another writer has changed it meanwhile; with
    `create`, where another writer has made one.
    """
    limits = limits or Limits()
    url = canonical(target_url)
    form = form or target_form(target_url)
    if (form == "duckdb") != (form_of(url) == "duckdb"):
        raise FormatError(f"the name of a DuckDB index, and of no other, ends in {' or '.join(DUCKDB)}", url=url)
    catalog = checked_catalog(catalog, files, limits, count=len(files))
    before = None if continues is None else continues.source
    if before is not None and before.url != (dataset_folder(url) + FILES_NAME if form == "dataset" else url):
        before = None
    if form == "flat":
        _write_flat(url, catalog, blocks, files, placements, fetch, before, create)
    elif form == "dataset":
        _write_dataset(url, catalog, blocks, files, placements, fetch, before, create)
    elif form == "duckdb":
        from periplus.table.duckdb.database import write_duckdb

        write_duckdb(url, catalog, blocks, files, placements=placements, fetch=fetch, expect=before, create=create)
    else:
        raise ValueError(f"form is flat, dataset or duckdb, not {form!r}")
    # Its rows came from the caller, who may access their sources.
    return open_table(url, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())


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


def layout_for(catalog: Catalog, columns: Columns, paths: list[str] | None) -> RowSchema:
    """The columns of chunks; `paths` at rest for a flat table, None for a dataset."""
    return RowSchema(columns=columns, extras=level_extra(kinds(catalog.arrays)), paths=paths)


def _write_flat(
    url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    placements: Placements | None,
    fetch: Fetch,
    before: Source | None,
    create: bool,
) -> None:
    paths = stored_paths(files, url, fetch.keep_query)
    if len(set(paths)) != len(paths):
        raise FormatError("a flat index names files by their path, and the files table lists one twice")
    columns = columns_for(kinds(catalog.arrays))
    layout = layout_for(catalog, columns, paths)
    with sink(url, fetch, create=create, expect=before) as file, FlatSink(file, layout, catalog.arrays) as out:
        for group in row_groups(blocks, catalog, np.asarray(files.size)):
            out.write(group)
        parts = most_parts({}, [out.tally])
        catalog = gathered(catalog, files, parts)
        document = IndexDocument(catalog=catalog, columns=columns, parts=parts)
        embedded = embedded_files(files_to_arrow(files, paths, groups_of(catalog)))
        out.close(
            {KEY.decode(): dump(document), FILES_KEY.decode(): embedded, **embedded_placements(placements, catalog)}
        )


def embedded_placements(placements: Placements | None, catalog: Catalog) -> dict[str, str]:
    """The key of a footer that holds placements; none where there are none."""
    if placements is None:
        return {}
    return {PLACEMENTS_KEY.decode(): base64.b64encode(write_placements(placements, catalog)).decode("ascii")}


# --- datasets -------------------------------------------------------------------------------------------------------


def dataset_folder(url: str) -> str:
    """The folder of a dataset, with a slash at its end, from its URL or that of its files table."""
    url = url.removesuffix(FILES_NAME)
    return url if url.endswith("/") else url + "/"


def _write_dataset(
    url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    placements: Placements | None,
    fetch: Fetch,
    before: Source | None,
    create: bool,
) -> None:
    folder = dataset_folder(url)
    paths = stored_paths(files, folder[:-1], fetch.keep_query)
    columns = columns_for(kinds(catalog.arrays))
    layout = layout_for(catalog, columns, None)
    parts = PartSink(folder, layout, catalog.arrays, fetch)
    revision = secrets.token_hex(8)
    try:
        with parts:
            for group in row_groups(blocks, catalog, np.asarray(files.size)):
                parts.write(group)
        if placements is not None:
            parts.write_placements(write_placements(placements, catalog), len(placements))
        most = most_parts({}, parts.tallies)
        catalog = gathered(catalog, files, most)
        document = IndexDocument(
            catalog=catalog,
            columns=columns,
            parts=most,
            pieces=tuple(parts.pieces),
            placements=tuple(parts.placements),
            revision=revision,
        )
        text = dump(document)
        with locked(folder, fetch) as held:
            # Parts of others that are here now belong to an index that ends with this commit; later ones do not.
            old = _parts_in(folder, fetch)
            _check_before(before, fetch)
            with sink(folder + FILES_NAME, fetch, create=create) as file:
                files_parquet(files_to_arrow(files, paths, groups_of(catalog)), file, {KEY.decode(): text})
                held()
    except BaseException:
        undo(folder, parts, revision, fetch)
        raise
    finally:
        parts.release()
    _discard(folder, old - set(parts.paths), fetch)
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


def most_parts(known: dict[str, int], tallies: Iterable[RowTally]) -> dict[str, int]:
    """Most byte ranges of a chunk, by array, where that is more than one."""
    most = dict(known)
    for tally in tallies:
        for name, count in tally.parts.items():
            most[name] = max(most.get(name, 1), count)
    return {name: count for name, count in most.items() if count > 1}


def undo(folder: str, parts: PartSink, revision: str, fetch: Fetch) -> None:
    """Remove the parts of a commit that did not come about; where an interrupt came just after it, it did."""
    try:
        now = glance(folder, fetch=fetch, limits=Limits()).revision
    except MissingError:
        now = None
    except PeriplusError:
        return  # unknown; the next writer removes what no index lists
    if now != revision:
        _discard(folder, parts.paths, fetch)


def _discard(folder: str, paths: Iterable[str], fetch: Fetch) -> None:
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
