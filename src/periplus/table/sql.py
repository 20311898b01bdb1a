"""SQL over an index: views chunks, files, arrays and grid in a DuckDB that can reach nothing else."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from periplus.errors import FormatError, LimitError, MissingError, PeriplusError, StaleError
from periplus.fetch.door import system_error, translate
from periplus.fetch.glob import Pattern
from periplus.fetch.stale import check_same
from periplus.forks import renewed
from periplus.limits import Allowance, Limits
from periplus.model import Array, Refs, Source
from periplus.policy import is_local
from periplus.table.arrays import write_array
from periplus.table.buffers import numbers, strings
from periplus.table.bundles import bundled
from periplus.table.columns import Columns
from periplus.table.dtypes import dtype_name
from periplus.table.duck import Connected, connect, duckdb
from periplus.table.families import Groups, kinds
from periplus.table.footprint import affine, around, spatial_axes
from periplus.table.schema import EXTRAS, Layout, chunks_to_arrow

if TYPE_CHECKING:
    from periplus.table.rows import ParquetRows
    from periplus.table.table import Table

BATCH_ROWS = 1 << 16
"""Rows of an answer that are taken over at a time."""
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


LONGEST = 1 << 16
"""Characters, or items, that one call of `repeat` and the like may make. DuckDB does not count them against its memory
limit, and makes 2,048 at a time."""
TOO_LONG = "repeat, lpad, rpad, bitstring, range and generate_series make at most 65,536 characters or items at a time"
TOO_MUCH = f"error('{TOO_LONG}')"
_PAD = (("s, n, p", "s, %s, p", "n", "n"),)
_SERIES = (("a", "%s", "a", "a"), ("a, b", "a, %s", "b - a", "b"), ("a, b, c", "a, %s, c", "(b - a) / c", "b"))
GUARDED: dict[str, Sequence[tuple[str, str, str, str]]] = {
    "repeat": (("s, n", "s, %s", "length(s) * n", "n"),),
    "lpad": _PAD,
    "rpad": _PAD,
    "bitstring": (("s, n", "s, %s", "n", "n"),),
    "range": _SERIES,
    "generate_series": _SERIES,
}
"""By name: parameters, arguments with a place for the checked one, the length of what is made, and the argument. The
table functions of these names are not meant."""
_QUALIFIED = re.compile(r"""["']?\b(system|pg_catalog)\b["']?\s*\.""", re.IGNORECASE)
"""A name that would go around the guarded functions."""
_PLACEMENTS = re.compile(r"\bplacements\b", re.IGNORECASE)
_BARE = re.compile(r"""(?<!["'\w.])(array|offset)(?!["'\w(\[])""", re.IGNORECASE)
"""Names of columns that are words of SQL too, without quotes."""


@contextmanager
def sql_errors(url: str | None) -> Iterator[None]:
    """What DuckDB reports becomes ours here: errors of the system, a lack of memory, else a FormatError."""
    try:
        yield
    except PeriplusError:
        raise
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        # What DuckDB advises, a directory to spill to, is not available here.
        message = (
            "the query needs more memory than Limits.sql_memory_bytes allows; select fewer rows or columns, or raise it"
        )
        raise LimitError(f"{message}: {(str(error).splitlines() or ['no memory'])[0]}", url=url) from error
    except duckdb.Error as error:
        known = system_error(str(error))
        if known is not None:
            raise translate(known, url or "") or known from error
        kind = LimitError if TOO_LONG in str(error) else FormatError
        raise kind(f"the query failed: {error}", url=url) from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
            raise KeyboardInterrupt from None
        raise


Fresh = Callable[[bool], None]
"""Called after a query with whether there is an answer: StaleError where it may be of, or failed for, other files."""


class Database:
    """A DuckDB connection with the views of one index; answers SELECT and nothing else."""

    _lock: threading.Lock

    def __init__(
        self,
        make: Callable[[], Any],
        table: Table,
        fresh: Fresh = lambda _: None,
    ) -> None:
        """`make` opens the connection, again where it was closed meanwhile."""
        url, limits = table.url, table.limits
        self._table = table
        self._connected = Connected(make)
        self._limits = limits
        self._url = url
        self._fresh = fresh
        renewed(self, _lock=threading.Lock)

    def query(self, text: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The rows of one SELECT; values are passed as parameters, for `?` in the text."""
        with self._lock, sql_errors(self._url):
            connection = self._connected.get()
            try:
                statements = connection.extract_statements(text)
            except duckdb.ParserException as error:
                hint = '; the columns "array" and "offset" need their quotes' if _BARE.search(text) else ""
                raise FormatError(f"the query failed: {error}{hint}", url=self._url) from error
            kinds = duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN
            if len(statements) != 1 or statements[0].type not in kinds:
                raise FormatError("an index answers one SELECT at a time", url=self._url)
            if _QUALIFIED.search(text):
                raise FormatError("a query uses functions and tables by their plain names", url=self._url)
            if _PLACEMENTS.search(text):
                self._show_placements(connection)
            answer = None
            try:
                with self._timed(connection):
                    answer = self._answer(connection, text, parameters)
            finally:
                self._fresh(answer is not None)
            return answer

    def _show_placements(self, connection: Any) -> None:
        """The view `placements`, which is made when a query names it: few do, and it takes reading."""
        from periplus.table.placements import placements_view

        if not connection.execute("select 1 from duckdb_views() where view_name = 'placements'").fetchall():
            connection.register("placements", placements_view(self._table))

    def _answer(self, connection: Any, text: str, parameters: Sequence[Any]) -> pa.Table:
        """The rows, batch by batch, so that no more are made than may be held."""
        held = Allowance(
            "the answer of the query",
            self._limits.sql_result_bytes,
            advice="aggregate, or limit the rows, or pass limits=periplus.Limits(sql_result_bytes=...) to allow more",
            url=self._url,
        )
        reader = connection.sql(text, params=list(parameters)).to_arrow_reader(BATCH_ROWS)
        batches = []
        for batch in reader:
            held.take(batch.nbytes)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)

    @contextmanager
    def _timed(self, connection: Any) -> Iterator[None]:
        """Interrupt the query when its time is over."""
        over = threading.Event()

        def stop() -> None:
            over.set()
            connection.interrupt()

        timer = threading.Timer(self._limits.sql_seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (duckdb.Error, RuntimeError, pa.ArrowException, OSError) as error:
            if over.is_set() and not isinstance(error, PeriplusError):
                seconds = self._limits.sql_seconds
                advice = "ask for less, or pass limits=periplus.Limits(sql_seconds=...) to allow more"
                raise LimitError(f"the query takes more than {seconds:g} seconds; {advice}", url=self._url) from None
            raise
        finally:
            timer.cancel()
            timer.join()  # or it would be the last to hold the connection, and close it while the process ends


def viewing(table: Table, source: str, columns: Columns, *, rows: Any = None, paths: Sequence[str] = ()) -> Any:
    """A connection with the views of a table; it may open these local files and nothing else.

    `source` is what `chunks` selects from: a call, or `chunk_rows` for Arrow `rows`.
    """
    with sql_errors(table.url):
        connection = connect()
        if paths:
            connection.execute(f"set allowed_paths = [{', '.join(map(literal, paths))}]")
        if rows is not None:
            connection.register("chunk_rows", rows)
        add_views(connection, table, source, columns)
        shut(connection, table.limits)
        return connection


def shut(connection: Any, limits: Limits) -> None:
    """Close the door: no file that was not allowed before, bounded memory, no disk, and no way to change that."""
    for name, bodies in GUARDED.items():
        # The check is in the argument: a constant call is made while the query is planned, wherever it stands.
        guarded = []
        for names, call, length, last in bodies:
            checked = f"case when {length} > {LONGEST} then {TOO_MUCH} else {last} end"
            guarded.append(f"({names}) as system.main.{name}({call % checked})")
        connection.execute(f"create macro {name}{', '.join(guarded)}")
    connection.execute(f"set memory_limit = '{limits.sql_memory_bytes} B'")
    connection.execute("set temp_directory = ''")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def literal(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


# --- the views ------------------------------------------------------------------------------------------------------


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
    ]
    return shown


def add_views(connection: Any, table: Table, source: str, columns: Columns) -> None:
    """The four views; `source` is what `chunks` selects from."""
    from periplus.table.columns import columns_for

    arrays = table.catalog.arrays
    connection.register("files", table.files_table)
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
    connection.register("incoming", rows)
    connection.execute(f"create table {name} as from incoming")
    connection.unregister("incoming")


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
    if not isinstance(arrays, Groups):
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
    """One row for each array: what the catalog says of it; encodings and attributes as JSON."""
    said = [write_array(array, 1) for array in arrays]
    place = [array.georeference for array in arrays]
    columns = {
        "name": strings([array.name for array in arrays]),
        "level": numbers(np.array([array.level for array in arrays], np.uint8)),
        "dims": lists(pa.string(), [array.dims for array in arrays]),
        "shape": lists(pa.int64(), [array.shape for array in arrays]),
        "chunks": lists(pa.int64(), [array.chunks for array in arrays]),
        "grid": lists(pa.int64(), [array.grid for array in arrays]),
        "dtype": strings([dtype_name(array.dtype) for array in arrays]),
        "fill": strings([json.dumps(one["fill"]) for one in said]),
        "crs": strings([None if one is None else one.crs for one in place]),
        "encodings": strings([json.dumps(one["encodings"]) for one in said]),
        "attributes": strings([json.dumps(one.get("attributes", {})) for one in said]),
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


# --- for each form --------------------------------------------------------------------------------------------------


def memory_database(table: Table, refs: Mapping[str, Refs]) -> Database:
    """Rows in memory, registered as Arrow."""
    layout = Layout(columns=table.document.columns, extras=EXTRAS)
    items = [(table.array(name), one) for name, one in refs.items()]
    return _registered(table, chunks_to_arrow(bundled(items), layout))


def parquet_database(table: Table, rows: ParquetRows) -> Database:
    """Local files are read by DuckDB itself; remote ones through Arrow and our own ranges."""
    parts = rows.parts()
    if not parts:
        layout = Layout(columns=table.document.columns, extras=EXTRAS)
        return _registered(table, layout.schema().empty_table())
    paths = [part.source.url for part in parts]
    if not is_local(paths[0]) or any(map(Pattern.is_glob, paths)):  # DuckDB takes names for patterns
        # Ranges are read on condition, so that only a failure needs an explanation.
        return _registered(table, _dataset(rows), lambda good: None if good else _same([rows.base.source], rows))
    names = list(dict.fromkeys(name for part in parts for name in part.source.schema.names))
    listed = ", ".join(map(literal, paths))
    source = f"read_parquet([{listed}], union_by_name = {'true' if len(paths) > 1 else 'false'})"
    opened = [part.source.source for part in parts]
    columns = table.document.columns.within(names)
    return Database(lambda: viewing(table, source, columns, paths=paths), table, lambda _: _same(opened, rows))


def _same(sources: Sequence[Source], rows: ParquetRows) -> None:
    """StaleError where one of the files of an index is another one by now."""

    async def checked() -> None:
        for source in sources:
            check_same(source, await rows.fetch.head(source.url))

    try:
        rows.fetch.run(checked())
    except (StaleError, MissingError):
        raise StaleError("the index was written anew after it was opened", url=rows.base.url) from None


def _registered(table: Table, rows: Any, fresh: Fresh = lambda _: None) -> Database:
    columns = table.document.columns.within(rows.schema.names)
    return Database(lambda: viewing(table, "chunk_rows", columns, rows=rows), table, fresh)


def _dataset(rows: ParquetRows) -> Any:
    import pyarrow.dataset as ds

    form = ds.ParquetFileFormat()
    fragments = []
    for part in rows.parts():
        source = part.source
        file = rows.fetch.open_file(source.url, expect=source.source)
        file.seed(source.size - len(source.tail), source.tail)
        fragments.append(form.make_fragment(pa.PythonFile(file, "r")))
    schema = pa.unify_schemas([part.source.schema for part in rows.parts()])
    return ds.FileSystemDataset(fragments, schema, form)
