"""Adding rows and files to an index, whatever its form: all of them are visible, or none."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import ConflictError, FormatError, StaleError
from periplus.limits import Limits
from periplus.model import Bundle, Catalog, Files, Placements, Refs
from periplus.policy import Policy, canonical
from periplus.table.access import stored_paths
from periplus.table.collection.build import gathered
from periplus.table.collection.bundles import Bundled, apart, bundles_of
from periplus.table.collection.groups import GroupedArrays, kinds, unlike
from periplus.table.document.columns import Columns, columns_for
from periplus.table.document.document import FILES_KEY, KEY, IndexDocument, dump
from periplus.table.location import FILES_NAME
from periplus.table.lock import locked
from periplus.table.open import glance, open_table
from periplus.table.parquet.buffers import to_strings
from periplus.table.parquet.files import check_flat, column_to_arrow, files_after, files_to_arrow
from periplus.table.parquet.placements import joined_placements, write_placements
from periplus.table.parquet.ranges import arrow_errors
from periplus.table.parquet.row_groups import Blocks, row_groups
from periplus.table.parquet.rows import ParquetRows
from periplus.table.parquet.schema import integers
from periplus.table.parquet.sinks import FlatSink, PartSink, embedded_files, files_parquet, sink
from periplus.table.table import Table
from periplus.table.write import (
    checked_catalog,
    dataset_folder,
    embedded_placements,
    groups_of,
    layout_for,
    most_parts,
    undo,
    write_table,
)

if TYPE_CHECKING:
    from periplus.fetch import Fetch


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
        growth = _growth(table, catalog, files, placements, before, fetch, limits)
        if before.document.pieces is None:
            _append_flat(url, growth, blocks, rows, before, fetch)
        else:
            _append_dataset(dataset_folder(url), growth, blocks, before, fetch, limits)
    return open_table(url, fetch=fetch, limits=limits, policy=Policy.everything())


def _is_ours(rows: ParquetRows) -> bool:
    """Whether the rows have the columns that we write, so that they can be passed on or left as they are."""
    if rows.document.pieces is not None:
        return True
    (part,) = rows.parts()
    columns = rows.document.columns
    known = {"array", "level", "part", "path", "offset", "length", "encoding", "data", *columns.chunk.values()}
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
    return write_table(url, catalog, rows, together, placements=placed, fetch=fetch, limits=limits, continues=before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """An index as it shall be: its catalog, and its files table with the new files at the end."""

    catalog: Catalog
    columns: Columns
    old: pa.Table
    new: pa.Table
    together: Files | None
    """Where the catalog is no collection of groups but may become one."""
    placements: Placements | None
    """Of the new files."""
    paths: list[str]
    """Of the new files, as they are stored."""
    sizes: NDArray[np.int64]

    def with_parts(self, parts: Mapping[str, int]) -> tuple[Catalog, pa.Table]:
        """The catalog with the most parts of its arrays, and the files table."""
        catalog = self.catalog
        if self.together is not None or isinstance(catalog.arrays, GroupedArrays):
            catalog = gathered(catalog, self.together or Files.of(()), parts)
        return catalog, files_after(self.old, self.new, groups_of(catalog))


def _growth(
    old: pa.Table,
    catalog: Catalog,
    files: Files,
    placements: Placements | None,
    before: Table,
    fetch: Fetch,
    limits: Limits,
) -> _Growth:
    home = before.url or ""
    collected = catalog.arrangement.get("kind") == "collect"
    if collected and "group" not in old.column_names:  # an older version has the groups of its files elsewhere
        group = before.stored_files.columns.get("group")
        if group is not None:
            old = old.append_column("group", column_to_arrow("group", group, old.num_rows))
    together = None
    if collected and not isinstance(catalog.arrays, GroupedArrays):
        together = Files.joined(before.stored_files, files)
    catalog = checked_catalog(catalog, together or Files.of(()), limits, count=old.num_rows + len(files))
    paths = stored_paths(files, home, fetch.keep_query)
    return _Growth(
        catalog=catalog,
        columns=columns_for(kinds(catalog.arrays), before.document.columns),
        old=old,
        new=files_to_arrow(files, paths),
        together=together,
        placements=placements,
        paths=paths,
        sizes=np.concatenate([_sizes(old), np.asarray(files.size, np.int64)]),
    )


def _sizes(files: pa.Table) -> NDArray[np.int64]:
    if "size" not in files.column_names:
        return np.full(files.num_rows, -1, np.int64)
    sizes: NDArray[np.int64] = integers(files["size"], np.int64, "size", null=-1)
    return sizes


def _append_flat(url: str, growth: _Growth, blocks: Blocks, rows: ParquetRows, before: Table, fetch: Fetch) -> None:
    (part,) = rows.parts()
    first = growth.old.num_rows
    paths = to_strings(growth.old["path"]) + growth.paths
    if len(set(paths)) != len(paths):
        raise FormatError("a flat index names files by their path, and the files table lists one twice")
    layout = layout_for(growth.catalog, growth.columns, paths)  # type: ignore[arg-type]
    with sink(url, fetch, expect=before.source) as file, FlatSink(file, layout, growth.catalog.arrays) as out:
        names = part.source.schema.names
        for _, table in part.source.read(range(part.source.groups), names):
            with arrow_errors("a row group cannot be written again", url):
                out.pass_on(table)
        for group in row_groups(_shifted(blocks, first), growth.catalog, growth.sizes):
            _check_new(before, group, growth.catalog)
            out.write(group)
        parts = most_parts(dict(before.document.parts), [out.tally])
        catalog, files = growth.with_parts(parts)
        document = IndexDocument(catalog=catalog, columns=growth.columns, parts=parts)
        placed = embedded_placements(_all_placements(before, growth.placements), catalog)
        out.close({KEY.decode(): dump(document), FILES_KEY.decode(): embedded_files(files), **placed})


def _append_dataset(folder: str, growth: _Growth, blocks: Blocks, before: Table, fetch: Fetch, limits: Limits) -> None:
    catalog = growth.catalog
    parts = PartSink(folder, layout_for(catalog, growth.columns, None), catalog.arrays, fetch)
    revision = secrets.token_hex(8)
    try:
        with parts:
            for group in row_groups(_shifted(blocks, growth.old.num_rows), catalog, growth.sizes):
                _check_new(before, group, catalog)
                parts.write(group)
        if growth.placements is not None:
            parts.write_placements(write_placements(growth.placements, catalog), len(growth.placements))
        most = most_parts(dict(before.document.parts), parts.tallies)
        catalog, files = growth.with_parts(most)
        document = IndexDocument(
            catalog=catalog,
            columns=growth.columns,
            parts=most,
            pieces=(*(before.document.pieces or ()), *parts.pieces),
            placements=(*before.document.placements, *parts.placements),
            revision=revision,
        )
        text = dump(document)
        with locked(folder, fetch) as held:
            if glance(folder, fetch=fetch, limits=limits).revision != before.document.revision:
                raise ConflictError("another writer changed the index meanwhile; nothing was added", url=folder)
            with sink(folder + FILES_NAME, fetch) as file:
                files_parquet(files, file, {KEY.decode(): text})
                held()
    except BaseException:
        undo(folder, parts, revision, fetch)
        raise
    finally:
        parts.release()


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
