"""NumPy arrays and Python strings to Arrow and back by their buffers.

pyarrow's own ways there import pandas, and its casts a module of 300 functions: half a second and 60 ms of CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import LimitError
from periplus.model import Inline


def numbers(
    values: NDArray[Any], *, valid: NDArray[np.bool_] | None = None, kind: pa.DataType | None = None
) -> pa.Array:
    """An Arrow array over the memory of a NumPy array; null where `valid` is false."""
    values = np.ascontiguousarray(values)
    if kind is None:
        kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(values)])


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    """An Arrow array of truth values."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bitmap(values)])


def strings(values: Sequence[str | None]) -> pa.Array:
    """An Arrow array of strings."""
    return _texts([None if value is None else value.encode() for value in values], pa.string())


def blobs(inline: Inline | None, length: NDArray[np.int64]) -> pa.Array:
    """An Arrow array of the inline bytes of rows, null where these are in files."""
    if inline is None:
        return pa.nulls(len(length), pa.binary())
    sizes = np.where(inline.held, length, 0)
    ends = _ends(sizes)
    return _binary(pa.binary(), inline.held, ends, inline.packed(length).buffer)


def _texts(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    valid = None
    if any(value is None for value in values):
        valid = np.array([value is not None for value in values], bool)
        values = [value or b"" for value in values]
    ends = _ends([len(value) for value in values])  # type: ignore[arg-type]
    return _binary(kind, valid, ends, b"".join(values))  # type: ignore[arg-type]


def _ends(sizes: Any) -> NDArray[np.int32]:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] >= 1 << 31:
        raise LimitError("more than 2 GiB of strings in one column")
    return ends.astype(np.int32)


def _binary(kind: pa.DataType, valid: NDArray[np.bool_] | None, ends: NDArray[np.int32], data: Any) -> pa.Array:
    return pa.Array.from_buffers(
        kind, len(ends) - 1, [_bitmap(valid), pa.py_buffer(ends), pa.py_buffer(np.frombuffer(data, np.uint8))]
    )


def _bitmap(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def pieces(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    """The contiguous arrays of a column."""
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose strings are read as a dictionary, as strings."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pa.chunked_array([piece.dictionary_decode() for piece in column.chunks], column.type.value_type)


def to_numpy(column: pa.ChunkedArray | pa.Array, *, null: int | None = None) -> NDArray[Any]:
    """A column of numbers, times or booleans; nulls become `null`. Shares memory where it is in one piece."""
    return _concatenated([_to_numpy(piece, null) for piece in pieces(column)], _dtype(column.type))


def to_valid(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Where a column is not null."""
    parts = [
        _bits(piece.buffers()[0], piece.offset, len(piece)) if piece.null_count else np.ones(len(piece), bool)
        for piece in pieces(column)
    ]
    return _concatenated(parts, np.dtype(bool))


def _to_numpy(piece: pa.Array, null: int | None) -> NDArray[Any]:
    count, first = len(piece), piece.offset
    bits, data = piece.buffers()
    values: NDArray[Any]
    if count == 0:
        values = np.empty(0, _dtype(piece.type))
    elif pa.types.is_boolean(piece.type):
        values = _bits(data, first, count)
    else:
        dtype = _dtype(piece.type)
        values = np.frombuffer(data, dtype, count=count, offset=first * dtype.itemsize)
    if piece.null_count and null is not None:
        values = np.where(_bits(bits, first, count), values, np.array(null).astype(values.dtype))
    return values


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    if pa.types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _bits(buffer: pa.Buffer, first: int, count: int) -> NDArray[np.bool_]:
    held = np.frombuffer(buffer, np.uint8)[first // 8 : (first + count + 7) // 8]
    return np.unpackbits(held, bitorder="little")[first % 8 : first % 8 + count].astype(bool)


def _concatenated(arrays: list[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def to_strings(column: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """Python strings; a dictionary gives one object for each distinct value."""
    answer: list[str | None] = []
    for piece in pieces(column):
        if pa.types.is_dictionary(piece.type):
            words = np.array([*to_strings(piece.dictionary), None], object)
            answer += words[to_numpy(piece.indices, null=len(words) - 1)].tolist()
        else:
            answer += _to_strings(piece if piece.type == pa.string() else piece.cast(pa.string()))
    return answer


def to_inline(column: pa.ChunkedArray | pa.Array) -> tuple[Inline, NDArray[np.int64]]:
    """Byte strings or text as inline bytes, over the column's memory, and how many bytes each row has."""
    found = [_to_inline(piece) for piece in pieces(column)]
    inline = Inline.joined([(one, len(sizes)) for one, sizes in found])
    sizes = _concatenated([sizes for _, sizes in found], np.dtype(np.int64))
    return inline or Inline(np.full(len(sizes), -1, np.int64), np.empty(0, np.uint8)), sizes


def _to_inline(piece: pa.Array) -> tuple[Inline, NDArray[np.int64]]:
    if pa.types.is_dictionary(piece.type):
        words, sizes = _to_inline(piece.dictionary)
        codes = to_numpy(piece.indices, null=len(words.at))
        return Inline(np.append(words.at, -1)[codes], words.buffer), np.append(sizes, 0)[codes]
    count, first = len(piece), piece.offset
    if not count or piece.null_count == count:
        return Inline(np.full(count, -1, np.int64), np.empty(0, np.uint8)), np.zeros(count, np.int64)
    _, ends, data = piece.buffers()
    wide = pa.types.is_large_binary(piece.type) or pa.types.is_large_string(piece.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    stops = np.frombuffer(ends, dtype, count=count + 1, offset=first * dtype.itemsize).astype(np.int64)
    buffer = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    valid = to_valid(piece)
    return Inline(np.where(valid, stops[:-1], -1), buffer), np.where(valid, np.diff(stops), 0)


def _to_strings(piece: pa.Array) -> list[str | None]:
    count, first = len(piece), piece.offset
    bits, ends, data = piece.buffers()
    if count == 0:
        return []
    stops = np.frombuffer(ends, np.int32, count=count + 1, offset=first * 4).tolist()
    held = b"" if data is None else data.to_pybytes()
    words: list[str | None]
    if held.isascii():  # then characters are bytes, and one decoding does for all
        whole = held.decode("ascii")
        words = [whole[a:b] for a, b in pairwise(stops)]
    else:
        words = [held[a:b].decode() for a, b in pairwise(stops)]
    if piece.null_count:
        words = [word if there else None for word, there in zip(words, _bits(bits, first, count).tolist(), strict=True)]
    return words


def arrow_table(columns: Mapping[str, Any]) -> pa.Table:
    """NumPy columns, masked or not, as an Arrow table; what is masked is null."""
    made = {}
    for name, values in columns.items():
        mask = np.ma.getmaskarray(np.ma.asarray(values))
        made[name] = pa.array(np.ma.getdata(values), mask=mask if mask.any() else None)
    return pa.table(made)
