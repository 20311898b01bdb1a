"""Adding rows and files to an index, whatever its form: all of them are visible, or none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import ConflictError, StaleError
from periplus.limits import Limits
from periplus.model import Bundle, Catalog, Files, Placements, Refs
from periplus.policy import Policy, canonical
from periplus.table.access import stored_paths
from periplus.table.collection.build import gathered
from periplus.table.collection.bundles import Bundled, apart, bundles_of
from periplus.table.collection.groups import GroupedArrays, kinds, unlike
from periplus.table.document.columns import Columns, columns_for
from periplus.table.document.document import IndexDocument
from periplus.table.open import glance, open_table
from periplus.table.parquet.buffers import to_strings
from periplus.table.parquet.files import check_flat, column_to_arrow, files_after, files_to_arrow
from periplus.table.parquet.placements import joined_placements
from periplus.table.parquet.row_groups import Blocks, row_groups
from periplus.table.parquet.rows import ParquetRows
from periplus.table.parquet.schema import EXTRAS, integers
from periplus.table.stored_form import dataset_folder
from periplus.table.table import Table
from periplus.table.write import (
    NewContent,
    checked_catalog,
    commit_dataset,
    discard,
    groups_of,
    write_flat,
    write_table,
)

if TYPE_CHECKING:
    from periplus.fetch import Fetch

PLACEMENT_PARTS = 16
"""Parts of placements that a dataset may have; with more, an append joins them."""


def append_table(
    target_url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    *,
    placements: Placements | None = None,
    fetch: Fetch,
    limits: Limits | None = None,
    before: Table | None = None,
) -> Table:
    """Add rows to an index; ConflictError where another writer came first.

    A dataset gets another part. One Parquet file is rewritten, its rows unchanged; any other form is
    written as `write_table` does. `catalog` is the whole catalog as it shall be: every array of before, which may have
    grown, and new ones. `files` are the new files only, and the file numbers of blocks and `placements` count from 0 in
    them. `before` is the index as it was when the new catalog was made, where that is not now.
    """
    limits = limits or Limits()
    url = canonical(target_url)
    with _stale_is_conflict(url):
        before = before or open_table(url, fetch=fetch, limits=limits, policy=Policy.everything())
        _check_growth(before.catalog, catalog, url)
        if placements is not None:
            placements = replace(placements, file=placements.file + np.int32(len(before.stored_files)))
        rows = before.unverified
        table = rows.files_table() if isinstance(rows, ParquetRows) and _is_ours(rows) else None
        if table is None or not isinstance(rows, ParquetRows):
            return _write_longer(url, catalog, blocks, files, placements, before, fetch, limits)
        check_flat(table.schema, rows.nested_columns())
        _add(url, table, catalog, blocks, files, placements, before, fetch, limits)
    return open_table(url, fetch=fetch, limits=limits, policy=Policy.everything())


def _is_ours(rows: ParquetRows) -> bool:
    """Whether the rows have the columns that we write, so that they can be passed on or left as they are."""
    if rows.document.pieces is not None:
        return True
    (part,) = rows.parts()
    columns = rows.document.columns
    known = {"array", "path", "offset", "length", *EXTRAS, *columns.chunk.values()}
    named = replace(columns, chunk={}) == Columns() and part.columns.array is not None and part.columns.path is not None
    return named and known.issuperset(part.source.schema.names)


def _all_placements(before: Table, new: Placements | None) -> Placements | None:
    """The placements of an index and those that are added."""
    old = before.placements
    found = [each for each in (old, new) if each is not None]
    return joined_placements(found) if len(found) > 1 else found[0] if found else None


def _write_longer(
    url: str,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    placements: Placements | None,
    before: Table,
    fetch: Fetch,
    limits: Limits,
) -> Table:
    """The index rewritten, with its rows and more."""
    arrays = catalog.arrays

    def more() -> Iterator[Bundle]:
        for bundle in bundles_of(_shifted(blocks, len(before.files)), arrays):
            _check_new(before, bundle, catalog)
            yield bundle

    rows = Bundled(chain(bundles_of(before.blocks(), arrays), more()), arrays)
    together = Files.joined(before.files, files)
    placed = _all_placements(before, placements)
    return write_table(
        url,
        catalog,
        rows,
        together,
        placements=placed,
        fetch=fetch,
        form=before.form,
        limits=limits,
        continues=before,
    )


def _add(
    url: str,
    old: pa.Table,
    catalog: Catalog,
    blocks: Blocks,
    files: Files,
    placements: Placements | None,
    before: Table,
    fetch: Fetch,
    limits: Limits,
) -> None:
    """Add rows and files to an index of ours; `old` is its files table."""
    collected = catalog.arrangement.get("kind") == "collect"
    if collected and "group" not in old.column_names:  # an older version has the groups of its files elsewhere
        group = before.stored_files.columns.get("group")
        if group is not None:
            old = old.append_column("group", column_to_arrow("group", group, old.num_rows))
    known = Files.of(())
    if collected and not isinstance(catalog.arrays, GroupedArrays):  # it may become a collection of groups
        known = Files.joined(before.stored_files, files)
    catalog = checked_catalog(catalog, known, limits, count=old.num_rows + len(files))
    paths = stored_paths(files, before.url or "", fetch.keep_query)
    more = files_to_arrow(files, paths)

    def groups() -> Iterator[Bundle]:
        sizes = np.concatenate([_sizes(old), np.asarray(files.size, np.int64)])
        for group in row_groups(_shifted(blocks, old.num_rows), catalog, sizes):
            _check_new(before, group, catalog)
            yield group

    def with_parts(parts: dict[str, int]) -> tuple[Catalog, pa.Table]:
        whole = gathered(catalog, known, parts)
        return whole, files_after(old, more, groups_of(whole))

    new = NewContent(
        catalog=catalog,
        columns=columns_for(kinds(catalog.arrays), before.document.columns),
        groups=groups(),
        placements=placements,
        with_parts=with_parts,
        before=before.document,
    )
    if before.document.pieces is not None:
        folder = dataset_folder(url)
        placed = [piece.path for piece in before.document.placements]
        if len(placed) >= PLACEMENT_PARTS:  # an append reads all of them, so they become one
            whole = _all_placements(before, placements)
            new = replace(new, placements=whole, before=replace(before.document, placements=()))
        commit_dataset(folder, new, fetch, check=lambda: _check_revision(folder, before.document, fetch, limits))
        if len(placed) >= PLACEMENT_PARTS:
            discard(folder, [path for path in placed if path.startswith("placements/")], fetch)
        return
    rows = before.unverified
    assert isinstance(rows, ParquetRows)
    source = rows.parts()[0].source
    stored = (table for _, table in source.read(range(source.groups), source.schema.names))
    every: list[Any] = [*to_strings(old["path"]), *paths]
    new = replace(new, placements=_all_placements(before, placements))
    write_flat(url, new, every, fetch, expect=before.source, old=stored)


def _check_revision(folder: str, before: IndexDocument, fetch: Fetch, limits: Limits) -> None:
    if glance(folder, fetch=fetch, limits=limits).revision != before.revision:
        raise ConflictError("another writer changed the index meanwhile; nothing was added", url=folder)


def _sizes(files: pa.Table) -> NDArray[np.int64]:
    if "size" not in files.column_names:
        return np.full(files.num_rows, -1, np.int64)
    sizes: NDArray[np.int64] = integers(files["size"], np.int64, "size", null=-1)
    return sizes


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
    arrays = before.catalog.arrays
    if isinstance(arrays, GroupedArrays):
        arrays.look_up(group.names)
    known = {name for name in group.names if name in arrays}
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
