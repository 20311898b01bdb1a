"""The index as a DuckDB database: tables chunks, files, arrays and grid, and the document. For trusted files only."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from periplus.errors import DeniedError, FormatError, MissingError, PeriplusError
from periplus.fetch.local.files import head
from periplus.fetch.stale import check_same
from periplus.forks import cached_property, renewed
from periplus.limits import Limits
from periplus.model import Array, Bundle, Catalog, Files, Placements, Refs, Source
from periplus.parse.json import INT64
from periplus.policy import Policy, is_local
from periplus.table.access import stored_paths
from periplus.table.collection.build import gathered
from periplus.table.collection.bundles import Bundled, Kinds
from periplus.table.collection.groups import GroupColumns, GroupedArrays, kinds
from periplus.table.document.columns import Columns, columns_for
from periplus.table.document.document import IndexDocument, dump, load
from periplus.table.duckdb.connection import SAFE, Connected, connect, duckdb
from periplus.table.duckdb.others import carry_over
from periplus.table.duckdb.sql import Database, shut, sql_errors
from periplus.table.duckdb.views import FOOTPRINT, add_views, describe_arrays, insert, literal, quoted
from periplus.table.parquet.decoded import Group
from periplus.table.parquet.files import files_from_arrow, files_to_arrow, members_from_arrow
from periplus.table.parquet.part import decoded_group, file_bytes
from periplus.table.parquet.placements import (
    DESCRIPTIONS,
    dump_descriptions,
    placements_from_arrow,
    placements_to_arrow,
)
from periplus.table.parquet.row_groups import row_groups
from periplus.table.parquet.schema import RowSchema, level_extra
from periplus.table.parquet.sinks import FlatSink, spool_folder
from periplus.table.table import Table, Window

if TYPE_CHECKING:
    from periplus.fetch import Fetch

BATCH = 1 << 20
"""Rows read at a time for a copy."""


def write_duckdb(
    url: str,
    catalog: Catalog,
    blocks: Iterable[tuple[str, Refs]],
    files: Files,
    *,
    fetch: Fetch,
    placements: Placements | None = None,
    expect: Source | None = None,
    create: bool = False,
) -> None:
    """Write the database to a temporary file and move it to its target when it is complete.

    The rows go through a Parquet file: loading one at once costs a third of inserting block after block. Tables, views
    and macros of others in a database that is replaced are kept.
    """
    catalog = gathered(catalog, files, {})
    columns = columns_for(kinds(catalog.arrays))
    with spool_folder(url) as spool, sql_errors(url):
        rows, path = spool / "rows.parquet", spool / "index.duckdb"
        carried = carry_over(url, path)
        expect = expect or carried
        with rows.open("w+b") as file:
            out = FlatSink(file, RowSchema(columns=columns, extras=level_extra(kinds(catalog.arrays))), catalog.arrays)
            for group in row_groups(blocks, catalog, np.asarray(files.size)):
                out.write(group)
            parts = {name: count for name, count in out.tally.parts.items() if count > 1}
            out.close({})
        catalog = gathered(catalog, files, parts)
        groups = catalog.arrays if isinstance(catalog.arrays, GroupedArrays) else None
        document = IndexDocument(catalog=catalog, columns=columns, parts=parts)
        with duckdb.connect(str(path), config=SAFE) as connection:
            connection.execute(f"create table chunks as from read_parquet({literal(str(rows))})")
            insert(connection, "files", files_to_arrow(files, stored_paths(files, url, fetch.keep_query), groups))
            describe_arrays(connection, catalog.arrays, "table")
            connection.execute("create table document(key varchar, value varchar)")
            connection.execute("insert into document values ('array_references', ?)", [dump(document)])
            if placements is not None:
                insert(connection, "placements", placements_to_arrow(placements, catalog))
                described = dump_descriptions(placements)
                connection.execute("insert into document values (?, ?)", [DESCRIPTIONS, described])
            connection.execute(FOOTPRINT)
            connection.execute("checkpoint")
        fetch.run(fetch.write(url, path, create=create, expect=expect))


def open_duckdb(url: str, *, limits: Limits, trust: bool, policy: Policy, reopen: Callable[[], Table]) -> Table:
    """A DuckDB index of this machine, read only; DuckDB does not defend itself against made-up files."""
    if not trust:
        raise DeniedError(
            "a DuckDB file can harm the program that opens it; pass trust=True if you know who wrote it", url=url
        )
    if not is_local(url):
        raise FormatError(
            "a DuckDB index is opened on a local disk only; write it as Parquet to use it remotely", url=url
        )
    if not os.path.exists(url):
        raise MissingError("there is no such index", url=url)
    source = head(url)
    rows = DuckRows(url, limits, source)
    return Table(rows.document, rows, url=url, policy=policy, limits=limits, reopen=reopen, source=source)


class DuckRows:
    """Rows of a DuckDB file, attached read only to a database in memory that can access nothing else."""

    _lock: threading.RLock

    def __init__(self, url: str, limits: Limits, source: Source) -> None:
        self._url = url
        self._limits = limits
        self._source = source
        self._connected = Connected(partial(_attached, source))
        renewed(self, _lock=threading.RLock)
        with sql_errors(url):
            found = self._query("select value from kept.document where key = 'array_references'").to_pylist()
            if len(found) != 1 or not isinstance(found[0]["value"], str):
                raise FormatError("this DuckDB file is not an index: it has no document", url=url)
            self.document = load(found[0]["value"], limits=limits, url=url, members=partial(self._members, limits))
            names = self._query("from kept.chunks limit 0").column_names
            self._columns = self.document.columns.within(names)
            self.count = int(self._query("select count(*) as n from kept.chunks").to_pylist()[0]["n"])
        limits.check("the number of rows", self.count, limits.index_rows, url=url)
        if self.count > self.document.most_rows:
            raise FormatError(
                f"the index has {self.count} rows, but the declared grids allow only {self.document.most_rows}",
                url=url,
            )

    def _query(self, text: str, parameters: Sequence[Any] = ()) -> pa.Table:
        with self._lock, sql_errors(self._url):
            return self._connected.get().sql(text, params=list(parameters)).to_arrow_table()

    def _members(self, limits: Limits) -> GroupColumns:
        query = 'select "group", family, x, y, note from kept.files order by file_id'
        return members_from_arrow(self._query(query), file_bytes(limits, self._url))

    @cached_property
    def _files(self) -> Files:
        return files_from_arrow(self._query("select * from kept.files order by file_id"))

    @property
    def form(self) -> str:
        return "duckdb"

    def files(self) -> Files:
        return self._files

    def placements(self, catalog: Catalog, files: int) -> Placements | None:
        """The placements: their own table, and a text in the document."""
        found = self._query("select value from kept.document where key = ?", [DESCRIPTIONS]).to_pylist()
        if len(found) != 1 or not isinstance(found[0]["value"], str):
            return None
        rows = self._query("from kept.placements")
        try:
            return placements_from_arrow(rows, found[0]["value"], catalog, files, self._limits)
        except PeriplusError as error:
            raise error.at(url=self._url) from error.__cause__

    def find(self, array: Array, window: Window, *, most: int | None = None) -> Refs:
        capacity = math.prod(high - low for low, high in window) * self.document.parts.get(array.name, 1)
        capacity = capacity if most is None else min(capacity, most)
        if capacity == 0:
            return Refs.empty(array.ndim)
        tests, values = ['"array" = ?'], [array.name]
        for dim, (low, high), count in zip(array.dims, window, array.grid, strict=True):
            if (low, high) != (0, count):
                tests.append(f"{quoted(self.document.columns.chunk[dim])} between {low} and {high - 1}")
        roles = replace(self._columns, chunk={dim: self._columns.chunk[dim] for dim in array.dims}, array=None)
        group = self._group(roles, f"{' and '.join(tests)} limit {min(capacity, INT64 - 1) + 1}", values)
        return group.refs(array, np.arange(group.count))

    def _group(self, roles: Columns, where: str, values: Sequence[Any] = ()) -> Group:
        """Rows with the columns in some roles."""
        others = [roles.array, roles.file_id, roles.offset, roles.length, roles.part, roles.encoding, roles.data]
        others.append(roles.crc32c)
        wanted = [*roles.chunk.values(), *(name for name in others if name is not None)]
        # Names are quoted and come from the document; values are parameters.
        table = self._query(f"select {', '.join(map(quoted, wanted))} from kept.chunks where {where}", values)  # noqa: S608
        if roles.array is not None:
            column = table[roles.array].combine_chunks().dictionary_encode()
            table = table.set_column(wanted.index(roles.array), roles.array, column)
        return decoded_group(table, roles, {}, None)

    def blocks(self) -> Bundled:
        return Bundled(self._bundles(), self.document.catalog.arrays)

    def _bundles(self) -> Iterator[Bundle]:
        kinds = Kinds(self.document.catalog.arrays)
        for start in range(0, self.count, BATCH):
            group = self._group(self._columns, f"rowid >= {start} and rowid < {start + BATCH}")
            if group.array is None or group.array.nameless:
                raise FormatError("a row belongs to no array of the index", url=self._url)
            yield group.bundle(kinds)

    def close(self) -> None:
        self._connected.close()

    def database(self, table: Table) -> Database:
        def viewed() -> Any:
            connection = _attached(self._source)
            add_views(connection, table, "kept.chunks", self._columns)
            shut(connection, table.limits)
            return connection

        return Database(viewed, table)


def _attached(source: Source) -> Any:
    """A connection to the file that was opened; StaleError where another one took its place."""
    connection = connect(f"attach {literal(source.url)} as kept (read_only)")
    check_same(source, head(source.url))
    return connection
