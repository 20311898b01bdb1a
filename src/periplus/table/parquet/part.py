"""One Parquet file of an index: its rows, pruned by statistics and decoded by row group, or its files table."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Allowance, Limits
from periplus.model import Array, Files, Source
from periplus.table.collection.groups import GROUP_COLUMNS, GroupColumns, GroupedArrays, kinds
from periplus.table.document.columns import Columns
from periplus.table.document.document import IndexDocument, PartFile
from periplus.table.parquet.buffers import to_inline, to_numpy, to_strings, to_valid
from periplus.table.parquet.decoded import Group, Owners
from periplus.table.parquet.files import FILES, files_from_arrow, members_from_arrow
from periplus.table.parquet.ranges import ParquetBytes, arrow_errors
from periplus.table.parquet.schema import check_columns, integers, is_text
from periplus.table.verify import MORE

if TYPE_CHECKING:
    from periplus.table.table import Window

TEXT_BYTES = 49
"""Of a Python string, without its characters."""


class PartRows:
    """The rows of one Parquet file."""

    def __init__(self, source: ParquetBytes, document: IndexDocument, piece: PartFile | None) -> None:
        self.source = source
        self.piece = piece
        with arrow_errors("the columns of the table", source.url):
            self.columns: Columns = document.columns.within(source.schema.names)
            check_columns(source.schema, self.columns)
        arrays = document.catalog.arrays
        for array in kinds(arrays) if piece is None else [arrays[name] for name in piece.bounds]:
            for dim in array.dims:
                if dim not in self.columns.chunk:
                    raise FormatError(f"the table has no column {document.columns.chunk[dim]!r}", url=source.url)
        self.count = int(source.metadata.num_rows)
        if piece is not None and piece.rows != self.count:
            raise FormatError(f"a part has {self.count} rows, but the index declares {piece.rows}", url=source.url)
        self._arrays = document.catalog.arrays
        if self.columns.array is None and self.columns.level is None and len(self._arrays) > 1:
            raise FormatError("rows of several arrays need a column that names the array", url=source.url)

    def candidates(self, array: Array, window: Window) -> list[int]:
        """Row groups that may hold rows of the window."""
        keep = list(range(self.source.groups))
        tests: list[tuple[str | None, Any, Any]] = []
        if len(self._arrays) > 1:
            tests.append((self.columns.array, array.name, array.name))
        for dim, (low, high), count in zip(array.dims, window, array.grid, strict=True):
            if (low, high) != (0, count):
                tests.append((self.columns.chunk.get(dim), low, high - 1))
        for name, first, last in tests:
            if name is not None:
                keep = [number for number in keep if _overlaps(self.source.bounds(number, name), first, last)]
        return keep

    def bounds_of_arrays(self, number: int) -> tuple[str | None, str | None]:
        """First and last name of an array that has rows in a row group, where that is known."""
        name = self.columns.array
        low, high, _ = (None, None, False) if name is None else self.source.bounds(number, name)
        return (low, high) if isinstance(low, str) and isinstance(high, str) else (None, None)

    def decode(self, groups: Sequence[int], ids: dict[str, int] | None) -> Iterator[tuple[int, Group]]:
        """Decoded row groups; columns that statistics show to be constant are not read."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for number in groups:
            alike.setdefault(self._wanted(number), []).append(number)
        for names, members in alike.items():
            for number, table in self.source.read(members, names):
                with arrow_errors("a row group does not decode", self.source.url):
                    group = self.group(number, table, ids)
                self._check_owners(group)
                yield number, group

    def _constant(self, number: int, name: str) -> Any:
        low, high, full = self.source.bounds(number, name)
        return low if full and low == high else None

    def _wanted(self, number: int) -> tuple[str, ...]:
        roles = self.columns
        names = [name for name in roles.chunk.values() if self._constant(number, name) is None]
        if roles.array is not None and not self._single(number):
            names.append(roles.array)
        if roles.array is None and roles.level is not None:
            names.append(roles.level)
        sources = [roles.file_id] if roles.file_id is not None else [roles.path]
        others = [roles.part, roles.encoding, roles.data, roles.crc32c, roles.present]
        extra = [*sources, roles.offset, roles.length, *others]
        return (*names, *(name for name in extra if name is not None))

    def _single(self, number: int) -> bool:
        """Whether the index has one array and, by its statistics, the row group holds only that."""
        assert self.columns.array is not None
        return len(self._arrays) == 1 and self._constant(number, self.columns.array) in self._arrays

    @property
    def all_columns(self) -> list[str]:
        """Every column that has a role."""
        roles = self.columns
        extra = [roles.array, roles.level, roles.part, roles.encoding, roles.data, roles.crc32c, roles.present]
        source = roles.path if roles.file_id is None else roles.file_id
        named = [name for name in (*extra, source) if name is not None]
        return [*roles.chunk.values(), roles.offset, roles.length, *named]

    def group(self, number: int, table: pa.Table, ids: dict[str, int] | None) -> Group:
        """A row group decoded; columns that were not read are filled in from statistics."""
        absent = set(self.columns.chunk.values()).difference(table.column_names)
        constants = {name: int(self._constant(number, name)) for name in absent}
        return decoded_group(table, self.columns, constants, ids)

    def _check_owners(self, group: Group) -> None:
        """FormatError for rows of no array: they would be missing from the one that they are meant for."""
        if group.array is None:
            return
        arrays, names = self._arrays, group.array.names
        if isinstance(arrays, GroupedArrays):
            name = arrays.unknown(names)
        else:
            name = next((name for name in names if name not in arrays), None)
        if name is not None or group.array.nameless:
            raise FormatError(f"a row belongs to {name!r}, which is no array of the index", url=self.source.url)


def decoded_group(table: pa.Table, roles: Columns, constants: Mapping[str, int], ids: dict[str, int] | None) -> Group:
    """Rows in NumPy; `constants` are the values of columns of positions that were not read, `ids` the files by path."""
    held = set(table.column_names)
    # A dimension that an array lacks is null there; -1 is in no window.
    place: dict[str, NDArray[np.int32] | int] = {
        dim: constants[name] if name in constants else integers(table[name], np.int32, name, null=-1)
        for dim, name in roles.chunk.items()
    }
    columns = {
        "offset": integers(table[roles.offset], np.int64, roles.offset, null=0 if roles.data else None),
        "length": integers(table[roles.length], np.int64, roles.length),
    }
    columns["file"], known = _files(table, roles, ids)
    optional = {"level": np.uint8, "part": np.uint16, "encoding": np.uint16, "crc32c": np.uint32}
    for role, dtype in optional.items():
        name = getattr(roles, role)
        if name is not None and name in held:
            columns[role] = integers(table[name], dtype, name, null=0)
            if role == "crc32c":
                columns[role] = np.where(to_valid(table[name]), columns[role], np.int64(-1))
    array = None
    if roles.array is not None and roles.array in held:
        column = table[roles.array].unify_dictionaries().combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        codes = integers(pa.chunked_array([column.indices]), np.int32, roles.array, null=-1)
        array = Owners(to_strings(column.dictionary), codes)
    present = None if roles.present is None else to_numpy(table[roles.present], null=0)
    inline, sizes = (None, None) if roles.data is None else to_inline(table[roles.data])
    return Group(table.num_rows, array, place, columns, known, inline, sizes, present)


def _files(
    table: pa.Table, roles: Columns, ids: dict[str, int] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32] | None]:
    if roles.file_id is not None:
        return integers(table[roles.file_id], np.int32, roles.file_id, null=-1), None
    if roles.path is None:
        return np.full(table.num_rows, -1, np.int32), None
    assert ids is not None
    column = table[roles.path].unify_dictionaries()
    names = to_strings(column.chunk(0).dictionary) if column.num_chunks else []
    codes = pa.chunked_array([piece.indices for piece in column.chunks], pa.int32())
    known = np.array([*(-2 if name is None else ids.get(name, -2) for name in names), -1], np.int32)
    return integers(codes, np.int32, roles.path, null=len(names)), known


def read_embedded(raw: bytes, limits: Limits, url: str) -> tuple[Files, dict[bytes, bytes]]:
    """A files table that an index carries as the bytes of a Parquet file, and the keys of its footer."""
    with arrow_errors("the files table", url):
        source = ParquetBytes(url, fetch=None, limits=limits, tail=(raw, Source(url=url, size=len(raw))))
        return read_files(source, limits), source.keys


def read_files(source: ParquetBytes, limits: Limits) -> Files:
    """A files table with every column that is not nested."""
    return files_from_arrow(read_files_table(source, limits), nested_columns(source))


def nested_columns(source: ParquetBytes) -> list[str]:
    """Columns of lists and structures."""
    return [field.name for field in source.schema if pa.types.is_nested(field.type)]


def read_files_table(source: ParquetBytes, limits: Limits) -> pa.Table:
    """A files table as it is stored, row group by row group, so that no more is decoded than may be held."""
    names = [name for name in source.schema.names if not pa.types.is_nested(source.schema.field(name).type)]
    held = file_bytes(limits, source.url)
    known = [name for name in names if name in FILES.names]
    held.take(int(source.metadata.num_rows) * 8 * max(1, len(known)))
    tables = []
    for _, table in source.read(range(source.groups), names, as_stored=True):
        held.take(sum(_text_bytes(table[name]) for name in known))
        held.take(sum(int(table[name].nbytes) for name in names if name not in FILES.names))
        tables.append(table)
    return pa.concat_tables(tables) if tables else source.schema.empty_table()


def read_members(source: ParquetBytes, limits: Limits) -> GroupColumns:
    """The group columns of a files table; no other is read."""
    held = file_bytes(limits, source.url)
    held.take(int(source.metadata.num_rows) * 8 * len(GROUP_COLUMNS))
    names = [name for name in GROUP_COLUMNS if name in source.schema.names]
    with arrow_errors("the files table", source.url):
        tables = [table for _, table in source.read(range(source.groups), names, as_stored=True)]
        table = pa.concat_tables(tables) if tables else source.schema.empty_table().select(names)
        return members_from_arrow(table, held)


def embedded(raw: bytes, limits: Limits, url: str) -> ParquetBytes:
    """A files table that an index carries in its footer, as Parquet in base64."""
    try:
        table = base64.b64decode(raw, validate=True)
    except binascii.Error as error:
        raise FormatError(f"the embedded files table is not base64: {error}", url=url) from None
    return ParquetBytes(url, fetch=None, limits=limits, tail=(table, Source(url=url, size=len(table))))


def file_bytes(limits: Limits, url: str) -> Allowance:
    """What a files table may take in memory."""
    return Allowance("the files table", limits.memory_bytes // 4, advice=MORE, url=url)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes that the distinct strings of a column take as Python has them."""
    if is_text(column.type) and not pa.types.is_dictionary(column.type):
        return int(column.nbytes) + TEXT_BYTES * len(column)
    words = [piece.dictionary for piece in column.chunks if pa.types.is_dictionary(piece.type)]
    return sum(piece.nbytes + TEXT_BYTES * len(piece) for piece in words)


def _overlaps(bounds: tuple[Any, Any, bool], first: Any, last: Any) -> bool:
    low, high, _ = bounds
    return low is None or type(low) is not type(first) or (low <= last and high >= first)
