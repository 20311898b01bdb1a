"""Plain rows of a Parquet file that others made, such as a list of items; not an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, LimitError

if TYPE_CHECKING:
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
            size = sum(
                group.column(k).total_uncompressed_size
                for group in map(parquet.metadata.row_group, range(parquet.num_row_groups))
                for k in range(group.num_columns)
                if group.column(k).path_in_schema.partition(".")[0] in columns
            )
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


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
