"""One record file of a kerchunk Parquet index: its columns as NumPy has them, in and out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits, out_of_memory
from periplus.model import Inline, Source
from periplus.table.parquet.buffers import blobs, numbers, strings, to_inline, to_numpy, to_valid
from periplus.table.parquet.ranges import ParquetBytes
from periplus.zarr.kerchunk.extension import WRITE, DeclaredFiles

MOST_ROWS = 1 << 26
"""Rows of one record file; kerchunk writes 10,000 to 100,000."""
SEVERAL = "multirange://chunk-of-several-byte-ranges-needs-periplus-or-osml-imagery-io"
"""The `path` of rows of several byte ranges, which is not the URL of a file. fsspec ignores the columns of the ranges,
fails to open this, and shows it in its error. A null would be a missing chunk, which reads as the fill value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """Rows of chunks in C order; an empty row is a missing chunk."""

    paths: Sequence[str]
    """URLs as stored, each once."""
    path: NDArray[np.int32]
    """Row of `paths`; -1 where there is none."""
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    """Of byte ranges; of inline bytes too, for which record files have 0."""
    raw: Inline | None = None
    counts: NDArray[np.int64] | None = None
    """Byte ranges of rows that have several, 0 for all others."""
    offsets: NDArray[np.int64] | None = None
    sizes: NDArray[np.int64] | None = None
    """Byte ranges of these rows, one after the other."""
    starts: NDArray[np.int64] | None = None
    """Index of the first of them for each row; set for records that were read."""

    def __len__(self) -> int:
        return len(self.path)

    def raw_bytes(self, row: int) -> bytes | None:
        """The inline bytes of a row; None where it has none."""
        if self.raw is None or row >= len(self) or self.raw.at[row] < 0:
            return None
        at = int(self.raw.at[row])
        return self.raw.buffer[at : at + int(self.size[row])].tobytes()


# --- in -------------------------------------------------------------------------------------------------------------


def read_record(data: bytes, *, key: str, limits: Limits, declared: DeclaredFiles) -> Record:
    """The columns of a record file; FormatError names it where it is none, StaleError where it is of another write."""
    table = _read(data, key, limits, None, declared)
    paths, path, counts = _targets(table, key)
    offset, size = (_integers(table, name, key) for name in ("offset", "size"))
    raw = _bytes(table, key)
    if raw is not None:
        size = np.where(raw[0].held, raw[1], size)
    plain = Record(paths=paths, path=path, offset=offset, size=size, raw=None if raw is None else raw[0])
    if counts is None or not counts.any():
        return plain
    _, offsets, sizes = _lists(table, key)
    return replace(plain, counts=counts, offsets=offsets, sizes=sizes, starts=np.cumsum(counts) - counts)


def paths_in(data: bytes, *, key: str, limits: Limits, declared: DeclaredFiles) -> tuple[list[str], int, int]:
    """The distinct URLs of a record file, how many rows have one or are inline, and most byte ranges of one row."""
    table = _read(data, key, limits, ["path", "range_path", "raw", "offsets", "sizes"], declared)
    paths, path, counts = _targets(table, key)
    present = path >= 0
    raw = _bytes(table, key)
    if raw is not None:
        present |= raw[0].held
    return paths, int(present.sum()), 1 if counts is None else int(counts.max(initial=1))


def _targets(table: pa.Table, key: str) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64] | None]:
    """The URLs of a record file, which one each row has, and, where rows have several byte ranges, how many."""
    paths, path = _strings(table, "path", key)
    if "offsets" not in table.column_names:
        return paths, path, None
    counts = _lists(table, key)[0]
    range_paths, range_path = _strings(table, "range_path", key)
    several = counts > 0
    if (range_path[several] < 0).any():
        raise FormatError(f"{key}: a row has byte ranges but no range_path")
    # The path of such a row is a marker, or null as osml-imagery-io writes it; only paths that rows use are kept.
    path = np.where(several, range_path + np.int32(len(paths)), path)
    used, rows = np.unique(path, return_inverse=True)
    known = used[used >= 0]
    every = [*paths, *range_paths]
    return [every[row] for row in known.tolist()], (rows - (len(used) - len(known))).astype(np.int32), counts


def _read(data: bytes, key: str, limits: Limits, columns: list[str] | None, declared: DeclaredFiles) -> pa.Table:
    try:
        about = pq.read_metadata(io.BytesIO(data))
        declared.check(about.metadata, key)
        names = about.schema.to_arrow_schema().names
        strings = [name for name in ("path", "range_path") if name in names]
        file = pq.ParquetFile(io.BytesIO(data), metadata=about, read_dictionary=strings)
        limits.check(f"{key}: the number of rows", about.num_rows, MOST_ROWS)
        ParquetBytes(key, fetch=None, limits=limits, tail=(data, Source(url=key, size=len(data)))).check_whole()
        table = file.read(columns=None if columns is None else [name for name in columns if name in names])
        table.validate(full=True)  # also that no row has a string beyond the last
        return table
    except MemoryError as error:
        raise out_of_memory(f"the references in {key}") from error
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, PeriplusError):
            raise
        raise FormatError(f"{key}: not a Parquet file of references: {error}") from None


def _strings(table: pa.Table, name: str, key: str) -> tuple[list[str], NDArray[np.int32]]:
    """The distinct strings of a column, and which one each row has."""
    if name not in table.column_names:
        raise FormatError(f"{key}: the column {name!r} is missing")
    column = table.column(name).combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_null(column.type) or pa.types.is_floating(column.type):  # only nulls, as some writers store them
        if column.null_count != len(column) and not all(item != item for item in column.drop_null().to_pylist()):
            raise FormatError(f"{key}: the column {name!r} holds numbers")
        return [], np.full(len(column), -1, np.int32)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    kind = column.type.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
        raise FormatError(f"{key}: the column {name!r} holds {kind}")
    rows = to_numpy(column.indices, null=-1).astype(np.int32)
    values = column.dictionary.to_pylist()
    if any(value is None for value in values):
        raise FormatError(f"{key}: the column {name!r} has null among its strings")
    return [value.decode() if isinstance(value, bytes) else value for value in values], rows


def _integers(table: pa.Table, name: str, key: str) -> NDArray[np.int64]:
    if name not in table.column_names:
        raise FormatError(f"{key}: the column {name!r} is missing")
    column = table.column(name)
    if not pa.types.is_integer(column.type):
        raise FormatError(f"{key}: the column {name!r} holds {column.type}")
    try:
        values: NDArray[np.int64] = to_numpy(_as_int64(column), null=0)
    except pa.ArrowInvalid:
        raise FormatError(f"{key}: a number of the column {name!r} overflows") from None
    if len(values) and int(values.min()) < 0:
        raise FormatError(f"{key}: row {int(np.argmin(values))} has a negative {name}")
    return values


def _as_int64(column: Any) -> Any:
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _bytes(table: pa.Table, key: str) -> tuple[Inline, NDArray[np.int64]] | None:
    """Inline bytes, and how many of each row; None where there are none."""
    if "raw" not in table.column_names:
        return None
    column = table.column("raw")
    if column.null_count == len(column) or pa.types.is_floating(column.type):
        return None
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) or _is_text(column.type)):
        raise FormatError(f"{key}: the column 'raw' holds {column.type}")
    return to_inline(column)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _lists(table: pa.Table, key: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ranges of each row, and all of them one after the other."""
    found = []
    for name in ("offsets", "sizes"):
        column = table.column(name).combine_chunks() if name in table.column_names else None
        if column is None or not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise FormatError(f"{key}: the column {name!r} is not a list of numbers")
        flat = column.flatten()
        if not pa.types.is_integer(flat.type) or flat.null_count:
            raise FormatError(f"{key}: the column {name!r} is not a list of numbers")
        lengths = np.diff(to_numpy(column.offsets).astype(np.int64))
        counts = np.where(to_valid(column), lengths, 0)
        values = to_numpy(_as_int64(flat))
        if len(values) and int(values.min()) < 0:
            raise FormatError(f"{key}: a number of the column {name!r} is negative")
        found.append((counts, values))
    (counts, offsets), (others, sizes) = found
    if not np.array_equal(counts, others):
        raise FormatError(f"{key}: offsets and sizes differ in number")
    return counts, offsets, sizes


# --- out ------------------------------------------------------------------------------------------------------------


def write_record(record: Record, write: str | None = None) -> bytes:
    """A record file as kerchunk and fsspec read it; columns for several byte ranges only where rows have them.

    Its footer holds the id of the write, if that has one.
    """
    several = None if record.counts is None else record.counts > 0
    single = record.path if several is None else np.where(several, np.int32(len(record.paths)), record.path)
    known = strings(record.paths)
    fields = {
        "path": _dictionary(single, known if several is None else strings([*record.paths, SEVERAL])),
        "offset": numbers(record.offset),
        "size": numbers(record.size if record.raw is None else np.where(record.raw.held, 0, record.size)),
        "raw": blobs(record.raw, record.size),
    }
    if several is not None and record.counts is not None:
        fields["range_path"] = _dictionary(np.where(several, record.path, np.int32(-1)), known)
        ends = np.concatenate([[0], np.cumsum(record.counts)]).astype(np.int32)
        for name, values in (("offsets", record.offsets), ("sizes", record.sizes)):
            # A null, not an empty list, where a chunk is one range.
            starts = numbers(ends, valid=np.append(several, True))
            fields[name] = pa.ListArray.from_arrays(starts, numbers(np.asarray(values, np.int64)))
    whole = {"offset", "size"}
    schema = pa.schema([pa.field(name, column.type, nullable=name not in whole) for name, column in fields.items()])
    target = io.BytesIO()
    with pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        use_dictionary=["path", "range_path"],
        # Without the number of nulls among them, fastparquet makes floats of integers.
        write_statistics=["offset", "size"],
        store_schema=False,
    ) as writer:
        writer.write_table(pa.table(list(fields.values()), schema=schema))
        if write:
            writer.add_key_value_metadata({WRITE: write})
    return target.getvalue()


def _dictionary(rows: NDArray[np.int32], strings: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(numbers(rows.astype(np.int32), valid=rows >= 0), strings)
