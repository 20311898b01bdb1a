"""Write the rows of a query as an aligned table, JSON, CSV or Parquet."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from periplus.cli.output.describe import plain
from periplus.cli.output.text import table

if TYPE_CHECKING:
    import pyarrow as pa

    from periplus.model import Files

_BLOCK = 65_536
"""Rows converted to Python objects at a time."""


def write(rows: pa.Table, file: BinaryIO, form: str) -> None:
    """Write the rows as a `table`, `json`, `csv` or `parquet`."""
    if form == "parquet":
        from pyarrow.parquet import write_table

        write_table(rows, file, compression="zstd")
    elif form == "csv":
        from pyarrow.csv import write_csv

        write_csv(_flat(rows), file)
    elif form == "json":
        _write_json(rows, file)
    else:
        body = [[_short(value) for value in row.values()] for row in rows.to_pylist()]
        file.write((table(rows.column_names, body) + "\n").encode())


def by_file(rows: pa.Table, files: Files) -> pa.Table:
    """One row for each file of the references: its properties, and the number and total length of its references."""
    import pyarrow as pa

    lengths = rows.select(["path", "length"]).unify_dictionaries().group_by("path")
    found = lengths.aggregate([("length", "count"), ("length", "sum")]).to_pylist()
    known = {path: number for number, path in enumerate(files.path)}
    sums = sorted((known[row["path"]], row["length_count"], row["length_sum"]) for row in found if row["path"] in known)
    numbers = [number for number, *_ in sums]
    return pa.table(
        {
            "path": [files.path[number] for number in numbers],
            "format": [files.format[number] for number in numbers],
            "datetime": pa.array(files.datetime[numbers], pa.timestamp("us", "UTC")),
            "size": files.size[numbers],
            "references": [count for _, count, _ in sums],
            "bytes": [total for *_, total in sums],
        }
    )


def _write_json(rows: pa.Table, file: BinaryIO) -> None:
    """One array with one object per line, for `head` and `grep`."""
    text = io.TextIOWrapper(file, encoding="utf-8")
    before = "[\n"
    for start in range(0, rows.num_rows, _BLOCK):
        for row in rows.slice(start, _BLOCK).to_pylist():
            text.write(before + json.dumps(plain(_dated(row)), allow_nan=False))
            before = ",\n"
    text.write("[]\n" if before == "[\n" else "\n]\n")
    text.detach()


def _dated(value: Any) -> Any:
    """Dates and bytes as text."""
    if isinstance(value, dict):
        return {key: _dated(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_dated(each) for each in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def _flat(rows: pa.Table) -> pa.Table:
    """Types for CSV: structs become columns; dictionaries, lists and binary become text."""
    import pyarrow as pa

    rows = rows.flatten()
    for i, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(i, field.name, rows[i].cast(field.type.value_type))
        elif pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = [None if value is None else json.dumps(plain(_dated(value))) for value in rows[i].to_pylist()]
            rows = rows.set_column(i, field.name, pa.array(texts, pa.string()))
    return rows


def _short(value: Any) -> Any:
    if isinstance(value, int | float) or value is None:
        return value
    return str(plain(_dated(value)))
