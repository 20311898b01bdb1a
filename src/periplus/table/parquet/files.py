"""The files table: its Arrow schema, and the way between Files and Arrow columns, both checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Allowance
from periplus.model import Files, TypedColumns
from periplus.parse.json import abbreviated
from periplus.table.collection.build import members_of
from periplus.table.collection.groups import GROUP_COLUMNS, GroupColumns, GroupedArrays
from periplus.table.parquet.buffers import (
    booleans,
    numbers,
    strings,
    to_numpy,
    to_strings,
    to_valid,
    without_dictionary,
)
from periplus.table.parquet.schema import integers, is_text

LONGEST_PATH = 1 << 14
MOMENT = pa.timestamp("us", tz="UTC")
FILES = pa.schema(
    [
        pa.field("file_id", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("last_modified", MOMENT),
        ("datetime", MOMENT),
        ("format", pa.string()),
        ("status", pa.string()),
        ("error", pa.string()),
    ]
)


def files_to_arrow(files: Files, paths: Sequence[str] | None = None, groups: GroupedArrays | None = None) -> pa.Table:
    """The files table with all its columns; `paths` replaces the paths by those at rest.

    The columns `family`, `x`, `y` and `note` are those of `groups`, the arrays of a collection.
    """
    size = np.asarray(files.size, np.int64)
    table = pa.Table.from_arrays(
        [
            numbers(np.arange(len(files), dtype=np.int32)),
            strings(files.path if paths is None else paths),
            numbers(size, valid=size >= 0),
            strings(files.etag),
            _moments(files.last_modified),
            _moments(files.datetime),
            strings(files.format),
            strings(files.status),
            strings(files.error),
        ],
        schema=FILES,
    )
    for name in files.columns:
        if name not in FILES.names:
            table = table.append_column(name, _stored_column(files, name))
    check_flat(table.schema, files.columns.nested if isinstance(files.columns, TypedColumns) else ())
    return _with_groups(table, groups)


def _stored_column(files: Files, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(files.columns, FileColumns):
        return files.columns.stored(name)
    return column_to_arrow(name, files.columns[name], len(files))


def user_columns(schema: pa.Schema) -> list[str]:
    """Columns of a files table that are those of users, and `group`.

    `family`, `x`, `y` and `note` describe the groups of a collection where `family` has integers; elsewhere they are
    columns of users.
    """
    names = set(schema.names)
    grouped = "group" in names and "family" in names and pa.types.is_integer(schema.field("family").type)
    reserved = {*FILES.names, *(GROUP_COLUMNS if grouped else ())} - {"group"}
    return [name for name in schema.names if name not in reserved]


def check_names_differ(names: Iterable[str]) -> None:
    """FormatError where two columns differ in case alone, which SQL does not tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise FormatError(
                f"the columns {other!r} and {name!r} of the files table differ in case alone, which SQL ignores: "
                "rename one of them"
            )


def check_flat(schema: pa.Schema, nested: Iterable[str] = ()) -> None:
    """FormatError where a column would be lost: of lists or structures, or of a name that SQL takes for another.

    `nested` are such that were not read.
    """
    check_names_differ(schema.names)
    found = [*nested, *(field.name for field in schema if pa.types.is_nested(field.type))]
    if found:
        raise FormatError(
            f"the column {found[0]!r} of the files table has lists or structures, which would be lost; store it as "
            "text (JSON), or remove it"
        )


def _with_groups(table: pa.Table, groups: GroupedArrays | None) -> pa.Table:
    """The files table of a collection with its group columns, those of users last."""
    columns = {name: table[name] for name in table.column_names if name in FILES.names or name == "group"}
    if groups is not None:
        taken = next((name for name in table.column_names if name in GROUP_COLUMNS and name != "group"), None)
        if taken is not None:
            raise FormatError(f"the column {taken!r} of the files table has a name that collections use: rename it")
        members = members_of(groups, table.num_rows)
        columns.setdefault("group", members.group)
        for name in ("family", "note"):
            columns[name] = numbers(getattr(members, name), valid=getattr(members, name) >= 0)
        for name in ("x", "y"):
            columns[name] = numbers(getattr(members, name), valid=~np.isnan(getattr(members, name)))
    columns |= {name: table[name] for name in table.column_names if name not in columns}
    return pa.table(list(columns.values()), schema=_files_schema(columns))


def _files_schema(columns: Mapping[str, Any]) -> pa.Schema:
    return pa.schema(
        [FILES.field(name) if name in FILES.names else pa.field(name, column.type) for name, column in columns.items()]
    )


def files_after(old: pa.Table, new: pa.Table, groups: GroupedArrays | None) -> pa.Table:
    """A files table as it is stored with more rows; columns that one of the two lacks are null there.

    The group columns are those of `groups`; FormatError where a column has other types in the two.
    """
    columns = {}
    for name in dict.fromkeys((*FILES.names, *user_columns(old.schema), *user_columns(new.schema))):
        first, then = (
            None if name not in table.column_names else without_dictionary(table[name]) for table in (old, new)
        )
        kind = FILES.field(name).type if name in FILES.names else (then if first is None else first).type  # type: ignore[union-attr]
        try:
            pieces = [
                pa.chunked_array([pa.nulls(table.num_rows, kind)]) if column is None else column
                for table, column in ((old, first), (new, then))
            ]
            pieces = [piece if piece.type == kind else piece.cast(kind) for piece in pieces]
        except pa.ArrowException as error:
            raise FormatError(f"the column {name!r} of the files table cannot hold what is added: {error}") from None
        columns[name] = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], kind)
    columns["file_id"] = pa.chunked_array([numbers(np.arange(old.num_rows + new.num_rows, dtype=np.int32))])
    return _with_groups(pa.table(list(columns.values()), schema=_files_schema(columns)), groups)


def column_to_arrow(name: str, values: NDArray[Any], count: int) -> pa.Array:
    """A column of `Files.columns`; FormatError for values that Arrow has no type for."""
    if len(values) != count:
        raise FormatError(f"the column {name!r} has {len(values)} values where there are {count} files")
    if values.dtype.kind == "M":
        moments = np.asarray(values, "datetime64[us]")
        return _moments(moments)
    if values.dtype.kind == "b":
        return booleans(values)
    if values.dtype.kind in "iuf":
        return numbers(values)
    items = values.tolist()
    if all(item is None or isinstance(item, str) for item in items):
        return strings(items)
    try:
        return pa.array(items)
    except (pa.ArrowException, OverflowError) as error:
        raise FormatError(f"the column {name!r} cannot be stored: {error}") from None


def column_from_arrow(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as `Files.columns` has it."""
    kind = column.type
    if is_text(kind):
        items: list[Any] = to_strings(column)
    elif pa.types.is_timestamp(kind):
        return to_numpy(column, null=np.iinfo(np.int64).min).astype("datetime64[us]")
    elif pa.types.is_floating(kind):
        values = to_numpy(column)
        return np.where(to_valid(column), values, values.dtype.type(np.nan)) if column.null_count else values
    elif (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and not column.null_count:
        return to_numpy(column)
    else:
        items = column.to_pylist()
    answer = np.empty(len(items), object)
    answer[:] = items
    return answer


class FileColumns(TypedColumns):
    """Further columns of a files table, each made when it is asked for: a million strings are not made for nothing."""

    def __init__(self, table: pa.Table, nested: Sequence[str] = ()) -> None:
        self._table = table
        self.nested = tuple(nested)
        self._made: dict[str, NDArray[Any]] = {}

    def stored(self, name: str) -> pa.ChunkedArray:
        """A column with the type it has at rest."""
        return without_dictionary(self._table[name])

    def taken(self, rows: NDArray[np.intp]) -> FileColumns:
        """Those of some rows; null where a row is -1."""
        chosen = self._table.take(numbers(np.maximum(rows, 0), valid=rows >= 0))
        return FileColumns(chosen, self.nested)

    def joined(self, more: Mapping[str, NDArray[Any]], count: int) -> FileColumns:
        """Those of these rows and `count` more; null where one of the two lacks a column."""
        if isinstance(more, FileColumns):
            then = {name: more.stored(name) for name in more}
        else:
            then = {name: pa.chunked_array([column_to_arrow(name, more[name], count)]) for name in more}
        columns = {}
        for name in dict.fromkeys((*self, *then)):
            kind = self._table[name].type if name in self else then[name].type
            first = self.stored(name) if name in self else pa.chunked_array([pa.nulls(self._table.num_rows, kind)])
            last = then[name] if name in then else pa.chunked_array([pa.nulls(count, first.type)])
            try:
                last = last if last.type == first.type else last.cast(first.type)
            except pa.ArrowException as error:
                raise FormatError(f"the column {name!r} of the files cannot hold what is added: {error}") from None
            columns[name] = pa.chunked_array([*first.chunks, *last.chunks], first.type)
        return FileColumns(pa.table(columns), (*self.nested, *(more.nested if isinstance(more, TypedColumns) else ())))

    def without(self, name: str) -> FileColumns:
        """These without one."""
        return FileColumns(self._table.drop_columns([name]), self.nested) if name in self else self

    def with_column(self, name: str, values: NDArray[Any]) -> FileColumns:
        """These and one more, in place of any of that name."""
        others = self._table.drop_columns([name]) if name in self else self._table
        column = column_to_arrow(name, values, len(values))
        whole = others.append_column(name, column) if others.num_columns else pa.table({name: column})
        return FileColumns(whole, self.nested)

    def __contains__(self, name: object) -> bool:
        return name in self._table.column_names  # without making it

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._made:
            self._made[name] = column_from_arrow(self._table[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_columns)


def members_from_arrow(table: pa.Table, held: Allowance) -> GroupColumns:
    """The group columns of a files table; a wrong type is a FormatError, values are not judged."""
    lacking = [name for name in ("group", "family") if name not in table.column_names]
    if lacking:
        raise FormatError(f"the files table of this collection has no column {lacking[0]!r}")
    for name, kind in (("x", pa.float64()), ("y", pa.float64()), ("note", pa.int32())):  # which may be absent
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    for name in ("family", "note"):
        if pa.types.is_integer(table[name].type) and table.num_rows:
            least = int(to_numpy(table[name], null=0).min())
            if least < 0:
                raise FormatError(f"the files table has {name} {least}")
    if not is_text(table["group"].type):
        raise FormatError(f"the column 'group' must hold strings, not {table['group'].type}")

    def reals(name: str) -> NDArray[np.float64]:
        if not pa.types.is_floating(table[name].type):
            raise FormatError(f"the column {name!r} must hold numbers, not {table[name].type}")
        return column_from_arrow(table[name]).astype(np.float64, copy=False)

    return GroupColumns(
        group=_plain_strings(table["group"], held),
        family=integers(table["family"], np.int32, "family", null=-1),
        x=reals("x"),
        y=reals("y"),
        note=integers(table["note"], np.int32, "note", null=-1),
    )


def _plain_strings(column: pa.ChunkedArray, held: Allowance) -> pa.Array:
    """Strings in one piece; LimitError where repeated ones would take too much memory."""
    parts = []
    for piece in column.chunks:
        if pa.types.is_dictionary(piece.type):
            words = piece.dictionary.cast(pa.string())
            lengths = np.append(np.diff(np.frombuffer(words.buffers()[1], np.int32)), 0) if len(words) else np.zeros(1)
            held.take(int(lengths[to_numpy(piece.indices, null=len(words))].sum()))
            piece = pa.DictionaryArray.from_arrays(piece.indices, words).dictionary_decode()
        parts.append(piece.cast(pa.string()))
    if not parts:
        return strings([])
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _moments(values: NDArray[np.datetime64]) -> pa.Array:
    moments = np.asarray(values, "datetime64[us]")
    return numbers(moments.view(np.int64), valid=~np.isnat(moments), kind=MOMENT)


FIRST_TIME, LAST_TIME = np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31T23:59:59.999999", "us")
"""What Python's datetime can hold."""


def whole_files(table: pa.Table) -> pa.Table:
    """A files table as it is stored, with the columns that it lacks; FormatError if it does not identify rows."""
    count = table.num_rows
    if "path" not in table.column_names or not is_text(table["path"].type) or table["path"].null_count:
        raise FormatError("the files table needs a column 'path' of strings")
    check_ids(table)
    columns: dict[str, Any] = {
        field.name: table[field.name] if field.name in table.column_names else pa.nulls(count, field.type)
        for field in FILES
    }
    columns["file_id"] = numbers(np.arange(count, dtype=np.int32))
    return pa.table({**columns, **{name: table[name] for name in table.column_names if name not in columns}})


def check_ids(table: pa.Table) -> None:
    """FormatError where the file ids of a files table are not the numbers of its rows."""
    if "file_id" in table.column_names and not np.array_equal(
        integers(table["file_id"], np.int64, "file_id"), np.arange(table.num_rows)
    ):
        raise FormatError("file_id must count from 0 in the files table")


def files_from_arrow(table: pa.Table, nested: Sequence[str] = ()) -> Files:
    """The reverse; columns that are absent are unknown, wrong ones are a FormatError. `nested` were not read."""
    count = table.num_rows
    if "path" not in table.column_names:
        raise FormatError("the files table has no column 'path'")
    paths = _texts(table, "path", count)
    if table["path"].null_count:
        raise FormatError("the files table has a null path")
    longest = max(map(len, paths), default=0)
    if longest > LONGEST_PATH:
        raise FormatError(f"the files table has a path of {longest} characters")
    check_ids(table)
    size = np.full(count, -1, np.int64)
    if "size" in table.column_names:
        size = integers(table["size"], np.int64, "size", null=-1)
        if count and size.min() < -1:
            raise FormatError("the files table has a negative size")
    return Files(
        path=paths,
        size=size,
        etag=_texts(table, "etag", count),
        last_modified=_times(table, "last_modified", count),
        datetime=_times(table, "datetime", count),
        format=[text or "" for text in _texts(table, "format", count)],
        status=_statuses(table, count),
        error=_texts(table, "error", count),
        columns=FileColumns(table.select(user_columns(table.schema)), nested),
    )


def _statuses(table: pa.Table, count: int) -> list[str]:
    found = [text or "ok" for text in _texts(table, "status", count)]
    wrong = set(found) - {"ok", "error"}
    if wrong:
        raise FormatError(f"the status of a file is {abbreviated(min(wrong))}, not 'ok' or 'error'")
    return found


def _texts(table: pa.Table, name: str, count: int) -> list[Any]:
    if name not in table.column_names:
        return [None] * count
    column = table[name]
    if not is_text(column.type):
        raise FormatError(f"the column {name!r} must hold strings, not {column.type}")
    return to_strings(column)


def _times(table: pa.Table, name: str, count: int) -> NDArray[np.datetime64]:
    if name not in table.column_names:
        return np.full(count, "NaT", "datetime64[us]")
    column = table[name]
    if not pa.types.is_timestamp(column.type):
        raise FormatError(f"the column {name!r} must hold timestamps, not {column.type}")
    nothing = np.iinfo(np.int64).min  # NaT
    found: NDArray[np.datetime64] = to_numpy(column, null=nothing).astype("datetime64[us]")
    known = found[~np.isnat(found)]
    if known.size and not FIRST_TIME <= known.min() <= known.max() <= LAST_TIME:
        raise FormatError(f"the column {name!r} holds times before the year 1 or after 9999")
    return found
