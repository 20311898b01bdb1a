"""What else users keep in the database of an index: their tables, views and macros stay when the index is replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from periplus.errors import ConflictError, FormatError
from periplus.fetch.errors import mapped
from periplus.fetch.local.files import head
from periplus.model import Source
from periplus.policy import canonical, is_local
from periplus.table.duckdb.connection import SAFE, connect, duckdb
from periplus.table.duckdb.views import literal
from periplus.table.parquet.placements import DESCRIPTIONS

TABLES = ("chunks", "files", "arrays", "grid", "document")
PLACEMENTS = "placements"
"""A table of ours where the document has its descriptions."""
MACRO = "footprint"
_LISTED = """
    select schema_name, table_name as name from duckdb_tables() where database_name = 'kept'
    union all select schema_name, function_name from duckdb_functions()
        where database_name = 'kept' and not internal and function_type like '%macro'
    union all select schema_name, view_name from duckdb_views() where database_name = 'kept' and not internal
    union all select schema_name, sequence_name from duckdb_sequences() where database_name = 'kept'
    union all select schema_name, type_name from duckdb_types() where database_name = 'kept' and not internal
    union all select schema_name, '' from duckdb_schemas() where database_name = 'kept' and not internal
"""


def carry_over(url: str, path: Path) -> Source | None:
    """Copy the database at `url` to `path` without its index, if there is anything else in it; what was copied.

    ConflictError where another program is writing to it.
    """
    target = canonical(url)
    if not is_local(target) or not os.path.isfile(target) or not os.path.getsize(target):
        return None
    if os.path.exists(target + ".wal"):
        raise ConflictError(
            "the database has changes that are still in its .wal file: close the program that has it open, or open it "
            "once with DuckDB",
            url=target,
        )
    source = head(target)
    tables = _tables_of_index(target)
    if tables is None:
        return None
    with mapped(target):
        shutil.copyfile(target, path)
    with duckdb.connect(str(path), config=SAFE) as connection:
        for table in tables:
            connection.execute(f"drop table if exists main.{table}")
        connection.execute(f"drop macro if exists main.{MACRO}")
        connection.execute("checkpoint")  # so that the space is used again
    return source


def _tables_of_index(target: str) -> tuple[str, ...] | None:
    """The tables of the index in a database that has other things, too; None where it has nothing else."""
    try:
        connection: Any = connect(f"attach {literal(target)} as kept (read_only)")
        with connection:
            listed = set(connection.execute(_LISTED).fetchall())
            described = ("main", "document") in listed and connection.execute(
                "select 1 from kept.main.document where key = ?", [DESCRIPTIONS]
            ).fetchall()
    except (duckdb.ResourceInUseException, duckdb.IOException) as error:
        if "lock" not in str(error) and "conflict" not in str(error):
            raise _unreadable(target) from error
        raise ConflictError("the database is open in another program or connection: close it", url=target) from error
    except duckdb.Error as error:
        raise _unreadable(target) from error
    tables = (*TABLES, PLACEMENTS) if described else TABLES
    return tables if listed - {("main", name) for name in (*tables, MACRO)} else None


def _unreadable(target: str) -> FormatError:
    return FormatError(
        "the target is a DuckDB file that cannot be opened, so that tables of others in it would be lost; nothing was "
        "written: choose another name, or delete what is there",
        url=target,
    )
