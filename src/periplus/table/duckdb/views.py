"""The views of an index in DuckDB: chunks, files, arrays and grid, and the macro footprint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from periplus.model import Array
from periplus.parse.zarr.dtypes import dtype_name
from periplus.table.collection.groups import GroupedArrays, kinds
from periplus.table.document.arrays import write_array
from periplus.table.document.columns import Columns, columns_for
from periplus.table.parquet.buffers import numbers, strings
from periplus.table.parquet.files import check_names_differ
from periplus.table.query.footprint import affine, around, spatial_axes

if TYPE_CHECKING:
    from periplus.table.table import Table

FOOTPRINT = """
create macro footprint(g, row_chunk, column_chunk) as (
    with edge as (select
        column_chunk * g.chunk_width as l, least((column_chunk + 1) * g.chunk_width, g.width) as r,
        row_chunk * g.chunk_height as t, least((row_chunk + 1) * g.chunk_height, g.height) as u)
    select {
        'xmin': least(g.a * l, g.a * r) + least(g.b * t, g.b * u) + g.c,
        'ymin': least(g.d * l, g.d * r) + least(g.e * t, g.e * u) + g.f,
        'xmax': greatest(g.a * l, g.a * r) + greatest(g.b * t, g.b * u) + g.c,
        'ymax': greatest(g.d * l, g.d * r) + greatest(g.e * t, g.e * u) + g.f} from edge)
"""


def chunk_columns(columns: Columns, written: Columns, only: Array | None) -> list[str]:
    """What `chunks` shows, whatever the columns are called at rest: our names, trivial columns included."""

    def role(name: str | None, otherwise: str) -> str:
        return otherwise if name is None else f"coalesce(c.{quoted(name)}, {otherwise})"

    array = literal(only.name) if columns.array is None and only else f"c.{quoted(columns.array or 'array')}"
    shown = [
        f'{array} as "array"',
        f"cast({role(columns.level, '0')} as utinyint) as level",
        *(f"cast(c.{quoted(columns.chunk[dim])} as integer) as {quoted(name)}" for dim, name in written.chunk.items()),
        f"cast({role(columns.part, '0')} as usmallint) as part",
    ]
    if columns.file_id is not None:
        shown += [f"c.{quoted(columns.file_id)} as file_id", "f.path as path"]
    elif columns.path is not None:
        shown.append(f"c.{quoted(columns.path)} as path")
    shown += [
        f'cast(c.{quoted(columns.offset)} as bigint) as "offset"',
        f"cast(c.{quoted(columns.length)} as bigint) as length",
        f"cast({role(columns.encoding, '0')} as usmallint) as encoding",
        f"cast({role(columns.crc32c, 'null')} as uinteger) as crc32c",
    ]
    return shown


def add_views(connection: Any, table: Table, source: str, columns: Columns) -> None:
    """The four views; `source` is what `chunks` selects from."""
    arrays = table.catalog.arrays
    files = table.files_table
    check_names_differ(files.column_names)
    connection.register("files", _queryable(files))
    describe_arrays(connection, arrays, "view")
    only = next(iter(arrays.values())) if len(arrays) == 1 else None
    shown = chunk_columns(columns, columns_for(kinds(arrays)), only)
    if columns.file_id is not None:
        source += f" as c left join files as f on c.{quoted(columns.file_id)} = f.file_id"
    else:
        source += " as c"
    where = "" if columns.present is None else f" where {quoted(columns.present)}"
    # Names are quoted and paths are literals, whatever they hold.
    connection.execute(f"create view chunks as select {', '.join(shown)} from {source}{where}")  # noqa: S608
    connection.execute(FOOTPRINT)


def insert(connection: Any, name: str, rows: pa.Table) -> None:
    """A table of these rows."""
    connection.register("incoming", _queryable(rows))
    connection.execute(f"create table {name} as from incoming")
    connection.unregister("incoming")


def _queryable(rows: pa.Table) -> pa.Table:
    """The rows with columns of types that DuckDB lacks as the next type that holds their values."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_float16(column.type) or pa.types.is_decimal256(column.type):
            wider = pa.float32() if pa.types.is_float16(column.type) else pa.string()
            rows = rows.set_column(place, column.name, rows.column(place).cast(wider))
    return rows


OF_GROUPS = {
    "arrays": """
        select g."group" || '/' || k.name as name, k.* exclude (name, family)
        from group_rows as g join kind_arrays as k on g.family = k.family""",
    "grid": """
        select g."group" || '/' || k."array" as "array", k.level,
            k.a, k.b, if(k.c is null, null, g.x) as c, k.d, k.e, if(k.c is null, null, g.y) as f,
            k.crs, k.row_dim, k.column_dim, k.height, k.chunk_height, k.width, k.chunk_width,
            k.xmin + if(k.c is null, 0, g.x) as xmin, k.ymin + if(k.c is null, 0, g.y) as ymin,
            k.xmax + if(k.c is null, 0, g.x) as xmax, k.ymax + if(k.c is null, 0, g.y) as ymax
        from group_rows as g join kind_grid as k on g.family = k.family
        where isfinite(xmin) and isfinite(ymin) and isfinite(xmax) and isfinite(ymax)""",
}
"""Rows for arrays of groups: those of their kind, with name and corner of the group."""


def describe_arrays(connection: Any, arrays: Mapping[str, Array], form: str) -> None:
    """`arrays` and `grid`, one row for each array; those of a collection as a `view`, or written out as a `table`."""
    if not isinstance(arrays, GroupedArrays):
        insert(connection, "arrays", arrays_rows(list(arrays.values())))
        insert(connection, "grid", grid_rows(list(arrays.values())))
        return
    known = [(number, array) for number, family in enumerate(arrays.families) for array in family.values()]
    family = numbers(np.array([number for number, _ in known], np.int32))
    placed = numbers(np.array([number for number, array in known if around(array) is not None], np.int32))
    alone, alike = list(arrays.plain.values()), [array for _, array in known]
    insert(connection, "plain_arrays", arrays_rows(alone))
    insert(connection, "plain_grid", grid_rows(alone))
    insert(connection, "kind_arrays", arrays_rows(alike).append_column("family", family))
    insert(connection, "kind_grid", grid_rows(alike).append_column("family", placed))
    columns = {"group": arrays.names, "family": numbers(arrays.family), "x": numbers(arrays.x), "y": numbers(arrays.y)}
    connection.register("group_rows", pa.table(columns))
    for name, others in OF_GROUPS.items():
        connection.execute(f"create {form} {name} as from plain_{name} union all {others}")
    if form == "table":
        connection.unregister("group_rows")
        for name in ("plain_arrays", "plain_grid", "kind_arrays", "kind_grid"):
            connection.execute(f"drop table {name}")


def arrays_rows(arrays: Sequence[Array]) -> pa.Table:
    """One row for each array of the catalog; encodings and attributes as JSON."""
    stated = [write_array(array, 1) for array in arrays]
    place = [array.georeference for array in arrays]
    columns = {
        "name": strings([array.name for array in arrays]),
        "level": numbers(np.array([array.level for array in arrays], np.uint8)),
        "dims": lists(pa.string(), [array.dims for array in arrays]),
        "shape": lists(pa.int64(), [array.shape for array in arrays]),
        "chunks": lists(pa.int64(), [array.chunks for array in arrays]),
        "grid": lists(pa.int64(), [array.grid for array in arrays]),
        "dtype": strings([dtype_name(array.dtype) for array in arrays]),
        "fill": strings([json.dumps(one["fill"]) for one in stated]),
        "crs": strings([None if one is None else one.crs for one in place]),
        "encodings": strings([json.dumps(one["encodings"]) for one in stated]),
        "attributes": strings([json.dumps(one.get("attributes", {})) for one in stated]),
    }
    return pa.table(columns)


def lists(kind: pa.DataType, values: Sequence[Sequence[Any]]) -> pa.Array:
    """An Arrow array of lists."""
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    flat = [item for value in values for item in value]
    inner = strings(flat) if kind == pa.string() else numbers(np.array(flat, np.int64))
    return pa.ListArray.from_arrays(numbers(ends), inner)


def grid_rows(arrays: Sequence[Array]) -> pa.Table:
    """One row for each georeferenced array: its affine, size, chunk size (null where chunks vary) and box.

    The affine is null where only control points or polynomials place an array.
    """
    found = [(array, where) for array in arrays if (where := around(array)) is not None]
    placed = [array for array, _ in found]
    axes = [spatial_axes(array) or (0, 0) for array in placed]
    exact = np.array([affine(array) is not None for array in placed], bool)
    transforms = np.array([affine(array) or (0.0,) * 6 for array in placed], np.float64).reshape(-1, 6)
    boxes = np.array([box for _, (box, _) in found], np.float64).reshape(-1, 4)
    columns: dict[str, pa.Array] = {
        "array": strings([array.name for array in placed]),
        "level": numbers(np.array([array.level for array in placed], np.uint8)),
        **{name: numbers(transforms[:, i], valid=exact) for i, name in enumerate("abcdef")},
        "crs": strings([crs for _, (_, crs) in found]),
        "row_dim": strings([array.dims[row] for array, (row, _) in zip(placed, axes, strict=True)]),
        "column_dim": strings([array.dims[column] for array, (_, column) in zip(placed, axes, strict=True)]),
    }
    for place, (size, chunk) in enumerate((("height", "chunk_height"), ("width", "chunk_width"))):
        pairs = [(array, axis[place]) for array, axis in zip(placed, axes, strict=True)]
        regular = [array.edges is None or array.edges[axis] is None for array, axis in pairs]
        columns[size] = numbers(np.array([array.shape[axis] for array, axis in pairs], np.int64))
        sizes = np.array([array.chunks[axis] for array, axis in pairs], np.int64)
        columns[chunk] = numbers(sizes, valid=np.array(regular, bool))
    columns |= {name: numbers(boxes[:, i]) for i, name in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    return pa.table(columns)


def literal(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'
