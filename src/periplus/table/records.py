"""Plain rows of a Parquet file that others made, such as a list of items; not an index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import RawIOBase
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, LimitError
from periplus.table.parquet.footer import ColumnChunk, Footer

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

    from periplus.fetch import Fetch

MOST_BYTES = 512 << 20


def read_records(url: str, *, fetch: Fetch, columns: Sequence[str], needed: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows as dictionaries, of those of `columns` that the file has; FormatError where one of `needed` is missing.

    Moments come back as `datetime`; what is null in a struct is left out of it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with fetch.open_file(url) as file:
            parquet = pq.ParquetFile(file)
            names = parquet.schema_arrow.names
            missing = [name for name in needed if name not in names]
            if missing:
                raise FormatError(
                    f"this Parquet file has no column {missing[0]!r}, so it is no list of STAC items "
                    "(an index is opened with periplus.open)",
                    url=url,
                )
            chunks = [chunk for chunk in _chunks(file, parquet) if chunk.path.partition(".")[0] in columns]
            size = sum(chunk.uncompressed for chunk in chunks)
            if size > MOST_BYTES:
                raise LimitError(f"the list of items is {size} bytes, over the limit of {MOST_BYTES}", url=url)
            table = parquet.read(columns=[name for name in columns if name in names])
        for k, column in enumerate(table.schema):
            if pa.types.is_timestamp(column.type):
                table = table.set_column(
                    k, column.name, table[column.name].cast(pa.timestamp("us", column.type.tz), safe=False)
                )
        return [_without_nulls(row) for row in table.to_pylist()]
    except pa.ArrowException as error:
        raise FormatError(f"this Parquet file cannot be read: {error}", url=url) from None


def _chunks(file: RawIOBase, parquet: ParquetFile) -> Iterator[ColumnChunk]:
    """Every column chunk that the footer lists."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4) or b"", "little")
    file.seek(-8 - length, os.SEEK_END)
    footer = Footer(file.read(length) or b"", parquet.metadata.num_columns)
    return (footer.chunk(group, k) for group in range(len(footer)) for k in range(parquet.metadata.num_columns))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
