"""Writing an index in any form, adding to a dataset, copying between forms; each is visible whole or not at all."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import ConflictError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch.stale import check_same
from periplus.limits import Limits
from periplus.model import Bundle, Catalog, Files, Refs, Source
from periplus.policy import Policy, canonical, is_local
from periplus.table.bundles import Bundled, apart
from periplus.table.columns import Columns, columns_for
from periplus.table.document import FILES_KEY, KEY, Document, document_for, dump, load
from periplus.table.families import Groups, gathered, kinds, members_of, unlike
from periplus.table.forms import DUCKDB, FILES_NAME, form_of, target_form
from periplus.table.groups import Blocks, Tally, row_groups
from periplus.table.leftovers import remove_unlocked
from periplus.table.lock import locked
from periplus.table.open import glance, open_table
from periplus.table.reach import at_rest
from periplus.table.schema import Layout, level_extra
from periplus.table.sinks import FlatSink, PartSink, embedded_files, files_parquet, sink
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
    catalog = _checked(catalog, files, limits)
    before = None if continues is None else continues.source
    if before is not None and before.url != (_folder(url) + FILES_NAME if form == "dataset" else url):
        before = None
    if form == "flat":
        _write_flat(url, catalog, blocks, files, fetch, before, create)
    elif form == "dataset":
        _write_dataset(url, catalog, blocks, files, fetch, before, create)
    elif form == "duckdb":
        from periplus.table.duckdb import write_duckdb

        write_duckdb(url, catalog, blocks, files, fetch=fetch, expect=before, create=create)
    else:
        raise FormatError(f"an index is written as flat, dataset or duckdb, not as {form!r}")
    # Its rows came from the caller, who may reach what they name.
    return open_table(url, fetch=fetch, limits=limits, trust=True, policy=Policy.everything())


def copy_table(
    table: Table, target_url: str, *, fetch: Fetch, form: str | None = None, limits: Limits | None = None
) -> Table:
    """The same index in another place or form, streamed; in its own place, a dataset's many parts become one."""
    blocks, files = table.blocks(), table.files
    return write_table(target_url, table.catalog, blocks, files, fetch=fetch, form=form, limits=limits, continues=table)


def _checked(catalog: Catalog, files: Files, limits: Limits) -> Catalog:
    """The catalog as it is stored, collections as groups; FormatError where opening would refuse it."""
    catalog = gathered(catalog, files, {})
    arrays = catalog.arrays
    members = (lambda: members_of(arrays, len(files))) if isinstance(arrays, Groups) else None
    load(dump(document_for(catalog)), limits=limits, members=members)
    return catalog


def _groups(catalog: Catalog) -> Groups | None:
    return catalog.arrays if isinstance(catalog.arrays, Groups) else None


def _layout(catalog: Catalog, columns: Columns, paths: list[str] | None) -> Layout:
    return Layout(columns=columns, extras=level_extra(kinds(catalog.arrays)), paths=paths)


def _write_flat(
    url: str, catalog: Catalog, blocks: Blocks, files: Files, fetch: Fetch, before: Source | None, create: bool
) -> None:
    paths = at_rest(files.path, url, fetch.keep_query)
    if len(set(paths)) != len(paths):
        raise FormatError("a flat index names files by their path, and the files table lists one twice")
    columns = columns_for(kinds(catalog.arrays))
    with sink(url, fetch, create=create, expect=before) as file:
        out = FlatSink(file, _layout(catalog, columns, paths), catalog.arrays)
        for group in row_groups(blocks, catalog, np.asarray(files.size)):
            out.write(group)
        parts = _multiple(out.tally.parts)
        catalog = gathered(catalog, files, parts)
        document = Document(catalog=catalog, columns=columns, parts=parts)
        embedded = embedded_files(files, paths, _groups(catalog))
        out.close({KEY.decode(): dump(document), FILES_KEY.decode(): embedded})


def _multiple(parts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in parts.items() if count > 1}


# --- datasets -------------------------------------------------------------------------------------------------------


def _folder(url: str) -> str:
    url = url.removesuffix(FILES_NAME)
    return url if url.endswith("/") else url + "/"


def _write_dataset(
    url: str, catalog: Catalog, blocks: Blocks, files: Files, fetch: Fetch, before: Source | None, create: bool
) -> None:
    folder = _folder(url)
    paths = at_rest(files.path, folder[:-1], fetch.keep_query)
    columns = columns_for(kinds(catalog.arrays))
    layout = _layout(catalog, columns, None)
    parts = PartSink(folder, layout, catalog.arrays, fetch)
    revision = secrets.token_hex(8)
    try:
        with parts:
            for group in row_groups(blocks, catalog, np.asarray(files.size)):
                parts.write(group)
        most = _multiple(_most_parts({}, parts.tallies))
        catalog = gathered(catalog, files, most)
        document = Document(
            catalog=catalog,
            columns=columns,
            parts=most,
            pieces=tuple(parts.pieces),
            revision=revision,
        )
        text = dump(document)
        with locked(folder, fetch) as held:
            # Parts of others that are here now belong to an index that ends with this commit; later ones do not.
            old = _parts_in(folder, fetch)
            _check_before(before, fetch)
            with sink(folder + FILES_NAME, fetch, create=create) as file:
                files_parquet(files, paths, file, {KEY.decode(): text}, _groups(catalog))
                held()
    except BaseException:
        _undo(folder, parts, revision, fetch)
        raise
    finally:
        parts.release()
    _discard(folder, old - {piece.path for piece in parts.pieces}, fetch)
    if is_local(folder):
        with suppress(OSError):  # the index is written; the next writer sweeps what is left
            for left in Path(folder, "chunks").glob(".part-*"):
                remove_unlocked(left)


def _check_before(before: Source | None, fetch: Fetch) -> None:
    """ConflictError where the index that is to be replaced is another one by now."""
    if before is None:
        return
    try:
        check_same(before, fetch.run(fetch.head(before.url)))
    except (StaleError, MissingError):
        raise ConflictError("another writer changed the index meanwhile; nothing was written", url=before.url) from None


def _most_parts(known: dict[str, int], tallies: Iterable[Tally]) -> dict[str, int]:
    most = dict(known)
    for tally in tallies:
        for name, count in tally.parts.items():
            most[name] = max(most.get(name, 1), count)
    return most


def append_table(
    target_url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    *,
    fetch: Fetch,
    limits: Limits | None = None,
    before: Table | None = None,
) -> Table:
    """Add rows to a dataset without rewriting any; ConflictError where another writer came first.

    `catalog` is the whole catalog as it shall be: every array of before, which may have grown, and new ones. `files`
    are the new files only, and the blocks' file numbers count from 0 in them. `before` is the index as it was when the
    new catalog was made, where that is not now.
    """
    limits = limits or Limits()
    folder = _folder(canonical(target_url))
    with _stale_is_conflict(folder):
        before = before or open_table(folder, fetch=fetch, limits=limits, policy=Policy.everything())
        old = before.stored_files
    if before.document.pieces is None:
        raise ConflictError("only a dataset can be added to; copy the index into one first", url=folder)
    _check_growth(before.catalog, catalog, folder)
    columns = columns_for(kinds(catalog.arrays), before.document.columns)
    paths = [*old.path, *at_rest(files.path, folder[:-1], fetch.keep_query)]
    together = Files.joined(old, files)
    catalog = _checked(catalog, together, limits)
    parts = PartSink(folder, _layout(catalog, columns, None), catalog.arrays, fetch)
    revision = secrets.token_hex(8)
    try:
        with parts:
            for group in row_groups(_shifted(blocks, len(old)), catalog, np.asarray(together.size)):
                with _stale_is_conflict(folder):
                    _check_new(before, group, catalog)
                parts.write(group)
        most = _multiple(_most_parts(dict(before.document.parts), parts.tallies))
        catalog = gathered(catalog, together, most)
        document = Document(
            catalog=catalog,
            columns=columns,
            parts=most,
            pieces=(*before.document.pieces, *parts.pieces),
            revision=revision,
        )
        text = dump(document)
        with locked(folder, fetch) as held:
            if glance(folder, fetch=fetch, limits=limits).revision != before.document.revision:
                raise ConflictError("another writer changed the index meanwhile; nothing was added", url=folder)
            with sink(folder + FILES_NAME, fetch) as file:
                files_parquet(together, paths, file, {KEY.decode(): text}, _groups(catalog))
                held()
    except BaseException:
        _undo(folder, parts, revision, fetch)
        raise
    finally:
        parts.release()
    return open_table(folder, fetch=fetch, limits=limits, policy=Policy.everything())


@contextmanager
def _stale_is_conflict(folder: str) -> Iterator[None]:
    """The index changed under our hands: another writer came first."""
    try:
        yield
    except StaleError:
        raise ConflictError("another writer changed the index meanwhile; nothing was added", url=folder) from None


def _shifted(blocks: Blocks, first: int) -> Blocks:
    """Rows whose files are counted from `first` on."""

    def moved(refs: Refs) -> Refs:
        file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
        return replace(refs, file=np.where(file < 0, file, file + np.int32(first)))

    if isinstance(blocks, Bundled):
        return Bundled((replace(bundle, refs=moved(bundle.refs)) for bundle in blocks.bundles), blocks.arrays)
    return ((name, moved(refs)) for name, refs in blocks)


def _check_growth(before: Catalog, after: Catalog, url: str) -> None:
    """Rows already written must mean the same under the new catalog."""
    for name in unlike(before.arrays, after.arrays):
        old, new = before.arrays[name], after.arrays.get(name)
        if new is None:
            raise ConflictError(f"the array {name!r} of the index is missing from what is added", url=url)
        for field in ("dims", "chunks", "dtype"):
            if getattr(old, field) != getattr(new, field):
                here, there = getattr(old, field), getattr(new, field)
                raise ConflictError(
                    f"array {name!r}: {field} is {here} in the index, {there} in what is added", url=url
                )
        if list(new.encodings[: len(old.encodings)]) != list(old.encodings):
            raise ConflictError(f"array {name!r}: the encodings of the index must come first, unchanged", url=url)
        if any(a > b for a, b in zip(old.grid, new.grid, strict=True)):
            raise ConflictError(f"array {name!r}: an array of an index may grow, not shrink", url=url)


def _check_new(before: Table, group: Bundle, catalog: Catalog) -> None:
    """ConflictError where a chunk to be added is in the index already."""
    known = {name for name in group.names if name in before.catalog.arrays}
    for name, refs in apart(group, catalog.arrays) if known else ():
        if name not in known:
            continue
        box = [(int(p.min()), int(p.max()) + 1) for p in refs.chunk]
        held = before.refs(name, box)
        if len(held) and np.isin(_places(held, box), _places(refs, box)).any():
            raise ConflictError(f"array {name!r}: a chunk to be added is in the index already", url=before.url)


def _places(refs: Refs, box: list[tuple[int, int]]) -> NDArray[Any]:
    """One number, or where the box is too large for that one string of bytes, for each row's position in the box."""
    if not box:
        return np.zeros(len(refs), np.int64)
    low = np.array([start for start, _ in box], np.int32)
    shape = [stop - start for start, stop in box]
    if math.prod(shape) < 1 << 62:
        numbers: NDArray[Any] = np.ravel_multi_index(tuple(refs.chunk - low[:, None]), shape)
        return numbers
    return np.ascontiguousarray(refs.chunk.T).view(f"S{4 * len(box)}").ravel()


def _undo(folder: str, parts: PartSink, revision: str, fetch: Fetch) -> None:
    """Remove the parts of a commit that did not come about; where an interrupt came just after it, it did."""
    try:
        now = glance(folder, fetch=fetch, limits=Limits()).revision
    except MissingError:
        now = None
    except PeriplusError:
        return  # it cannot be told; the next writer sweeps what no index lists
    if now != revision:
        _discard(folder, [piece.path for piece in parts.pieces], fetch)


def _discard(folder: str, paths: Iterable[str], fetch: Fetch) -> None:
    """Remove parts that no index lists, as far as they can be: what is left does no harm, and a later writer tries."""
    for path in paths:
        with suppress(PeriplusError):
            fetch.run(fetch.delete(folder + path))


def _parts_in(folder: str, fetch: Fetch) -> set[str]:
    """Parts that are there, of the index or of writers that died or are not done."""

    async def found() -> list[str]:
        return [source.url async for source in fetch.find(folder + "chunks/")]

    try:
        paths = {url.removeprefix(folder) for url in fetch.run(found())}
    except MissingError:
        return set()
    return {path for path in paths if path.startswith("chunks/part-")}
