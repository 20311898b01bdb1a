"""The Arrow schema of chunks, the way from Refs to Arrow columns, and checks of columns as they come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Bundle, Refs
from periplus.table.document.columns import Columns
from periplus.table.parquet.buffers import blobs, numbers, strings, to_numpy, to_valid

EXTRAS = frozenset({"level", "part", "encoding", "data", "crc32c"})
NAMES = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchema:
    """Which columns a table of chunks has."""

    columns: Columns
    """Names of the columns we write, one for every dimension of every array."""
    extras: frozenset[str] = frozenset()
    """Those of `level`, `part`, `encoding`, `data`, `crc32c` that are not trivial and so are written."""
    paths: Sequence[str] | None = None
    """Path at rest of every file, for a table with a `path` column; None for one with `file_id`."""

    def schema(self) -> pa.Schema:
        fields = [pa.field("array", NAMES, nullable=False)]
        if "level" in self.extras:
            fields.append(pa.field("level", pa.uint8(), nullable=False))
        fields += [pa.field(name, pa.int32()) for name in self.columns.chunk.values()]
        if "part" in self.extras:
            fields.append(pa.field("part", pa.uint16(), nullable=False))
        fields.append(pa.field("file_id", pa.int32()) if self.paths is None else pa.field("path", NAMES))
        fields += [pa.field(name, pa.int64(), nullable=False) for name in ("offset", "length")]
        if "encoding" in self.extras:
            fields.append(pa.field("encoding", pa.uint16(), nullable=False))
        if "data" in self.extras:
            fields.append(pa.field("data", pa.binary()))
        if "crc32c" in self.extras:
            fields.append(pa.field("crc32c", pa.uint32()))
        return pa.schema(fields)


def level_extra(arrays: Iterable[Array]) -> frozenset[str]:
    """The `level` column, where there is more than full resolution."""
    return frozenset({"level"} if any(array.level for array in arrays) else ())


def extras_of(refs: Refs) -> frozenset[str]:
    """Which optional columns these rows need."""
    needs = set()
    if refs.part is not None and refs.part.any():
        needs.add("part")
    if refs.encoding is not None and refs.encoding.any():
        needs.add("encoding")
    if refs.inline is not None and refs.inline.held.any():
        needs.add("data")
    if refs.crc32c is not None and (refs.crc32c >= 0).any():
        needs.add("crc32c")
    return frozenset(needs)


def chunks_to_arrow(bundle: Bundle, layout: RowSchema) -> pa.Table:
    """Rows as an Arrow table, which shares memory with them."""
    refs, count = bundle.refs, len(bundle)
    columns: list[Any] = [pa.DictionaryArray.from_arrays(numbers(bundle.owner), strings(bundle.names))]
    if "level" in layout.extras:
        levels = np.zeros(len(bundle.names), np.uint8) if bundle.levels is None else bundle.levels
        columns.append(numbers(levels[bundle.owner]))
    columns += [_positions(bundle, dim) for dim in layout.columns.chunk]
    if "part" in layout.extras:
        columns.append(numbers(_or_zeros(refs.part, count, np.uint16)))
    file = _or_zeros(refs.file, count, np.int32)
    valid = file >= 0 if count and file.min() < 0 else None
    columns.append(numbers(file, valid=valid) if layout.paths is None else _named(file, valid, layout.paths))
    columns += [numbers(_or_zeros(refs.offset, count, np.int64)), numbers(_or_zeros(refs.length, count, np.int64))]
    if "encoding" in layout.extras:
        columns.append(numbers(_or_zeros(refs.encoding, count, np.uint16)))
    if "data" in layout.extras:
        columns.append(blobs(refs.inline, refs.length))
    if "crc32c" in layout.extras:
        known = np.zeros(count, bool) if refs.crc32c is None else refs.crc32c >= 0
        columns.append(numbers(_or_zeros(refs.crc32c, count, np.uint32), valid=None if known.all() else known))
    return pa.Table.from_arrays(columns, schema=layout.schema())


def _positions(bundle: Bundle, dim: str) -> pa.Array:
    """Positions along a dimension; null for arrays that lack it."""
    if dim not in bundle.dims:
        return pa.nulls(len(bundle), pa.int32())
    positions = np.ascontiguousarray(bundle.refs.chunk[bundle.dims.index(dim)], np.int32)
    lacking = len(bundle) > 0 and positions.min() < 0
    return numbers(positions, valid=positions >= 0 if lacking else None)


def _or_zeros(values: NDArray[Any] | None, count: int, dtype: type) -> NDArray[Any]:
    return np.zeros(count, dtype) if values is None else np.ascontiguousarray(values, dtype)


def _named(file: NDArray[np.int32], valid: NDArray[np.bool_] | None, paths: Sequence[str]) -> pa.DictionaryArray:
    """A dictionary of only the paths in use, since every row group stores its dictionary."""
    used = np.zeros(len(paths) + 1, bool)  # one more, for the -1 of inline rows
    used[file] = True
    ids = np.flatnonzero(used[:-1])
    code = np.zeros(len(paths) + 1, np.int32)
    code[ids] = np.arange(len(ids), dtype=np.int32)
    names = strings([paths[i] for i in ids.tolist()])
    return pa.DictionaryArray.from_arrays(numbers(code[file], valid=valid), names)


# --- columns as they come in ------------------------------------------------------------------------------------------


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds strings, as such or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a column holds byte strings, as such or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def integers(column: pa.ChunkedArray, dtype: Any, name: str, *, null: int | None = None) -> NDArray[Any]:
    """An integer column as NumPy in the given dtype; a null, where not given a value, or one too large is an error."""
    if not pa.types.is_integer(column.type):
        raise FormatError(f"the column {name!r} must hold integers, not {column.type}")
    if column.null_count and null is None:
        raise FormatError(f"the column {name!r} holds a null")
    values = to_numpy(column, null=0)
    if values.dtype != dtype:
        bounds = np.iinfo(dtype)
        if values.size and not (bounds.min <= int(values.min()) and int(values.max()) <= bounds.max):
            raise FormatError(f"the column {name!r} holds a value that does not fit {np.dtype(dtype)}")
        values = values.astype(dtype)
    if column.null_count and null:
        values = np.where(to_valid(column), values, np.dtype(dtype).type(null))
    return values


def check_columns(schema: pa.Schema, columns: Columns) -> None:
    """FormatError where a column in a role has a type that cannot play it."""
    others = (columns.part, columns.encoding, columns.level, columns.file_id, columns.crc32c)
    for name in (columns.offset, columns.length, *others):
        if name is not None and not pa.types.is_integer(schema.field(name).type):
            raise FormatError(f"the column {name!r} must hold integers, not {schema.field(name).type}")
    for name in columns.chunk.values():
        if not pa.types.is_integer(schema.field(name).type):
            raise FormatError(f"the column {name!r} must hold integers, not {schema.field(name).type}")
    for name in (columns.array, columns.path):
        if name is not None and not is_text(schema.field(name).type):
            raise FormatError(f"the column {name!r} must hold strings, not {schema.field(name).type}")
    if columns.data is not None and not is_bytes(schema.field(columns.data).type):
        raise FormatError(f"the column {columns.data!r} must hold bytes, not {schema.field(columns.data).type}")
    if columns.present is not None and not pa.types.is_boolean(schema.field(columns.present).type):
        raise FormatError(f"the column {columns.present!r} must be boolean")
    if columns.path is None and columns.file_id is None and columns.data is None:
        raise FormatError("the table names no source: it has neither path nor file_id nor data")
