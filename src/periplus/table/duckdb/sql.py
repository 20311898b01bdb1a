"""SQL over an index: one SELECT at a time, in a DuckDB that can access its views and nothing else."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from periplus.errors import FormatError, LimitError, MissingError, PeriplusError, StaleError
from periplus.fetch.errors import system_error, translate
from periplus.fetch.glob import Glob
from periplus.fetch.stale import check_same
from periplus.forks import renewed
from periplus.limits import Allowance, Limits
from periplus.model import Refs, Source
from periplus.policy import is_local
from periplus.table.collection.bundles import bundled
from periplus.table.document.columns import Columns
from periplus.table.duckdb.connection import Connected, connect, duckdb
from periplus.table.duckdb.views import add_views, literal
from periplus.table.parquet.schema import EXTRAS, RowSchema, chunks_to_arrow

if TYPE_CHECKING:
    from periplus.table.parquet.rows import ParquetRows
    from periplus.table.table import Table

BATCH_ROWS = 1 << 16
"""Rows of an answer that are taken over at a time."""
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
WRONG_QUERIES = (duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
"""What DuckDB reports for names that do not exist, types that do not fit, and access to files."""


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
        """The rows of one SELECT; values are passed as parameters, for `?` in the text.

        ValueError for a query that is wrong; FormatError where running it fails.
        """
        if not isinstance(text, str):
            raise TypeError(f"a query is the text of one SELECT, not {text!r}")
        with self._lock, sql_errors(self._url):
            try:
                connection = self._connected.get()  # its views look at the files of the index
            except duckdb.Error:
                self._fresh(False)
                raise
            try:
                statements = connection.extract_statements(text)
            except duckdb.ParserException as error:
                hint = '; the columns "array" and "offset" need their quotes' if _BARE.search(text) else ""
                raise ValueError(f"the query failed: {error}{hint}") from error
            kinds = duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN
            if len(statements) != 1 or statements[0].type not in kinds:
                raise ValueError("an index answers one SELECT at a time")
            if _QUALIFIED.search(text):
                raise ValueError("a query uses functions and tables by their plain names")
            if (wanted := len(statements[0].named_parameters)) != len(parameters):
                raise ValueError(f"the query has {wanted} parameters, and {len(parameters)} values were given")
            if _PLACEMENTS.search(text):
                self._show_placements(connection)
            answer = None
            try:
                with self._timed(connection):
                    answer = self._answer(connection, text, parameters)
            except WRONG_QUERIES as error:
                raise ValueError(f"the query failed: {error}") from error
            finally:
                self._fresh(answer is not None)
            return answer

    def _show_placements(self, connection: Any) -> None:
        """The view `placements`, which is made when a query names it: few do, and it takes reading."""
        from periplus.table.parquet.placements import placements_view

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
    """Lock the connection: no file that was not allowed before, bounded memory, no disk, and no way to change that."""
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


# --- for each form --------------------------------------------------------------------------------------------------


def memory_database(table: Table, refs: Mapping[str, Refs]) -> Database:
    """Rows in memory, registered as Arrow."""
    layout = RowSchema(columns=table.document.columns, extras=EXTRAS)
    items = [(table.array(name), one) for name, one in refs.items()]
    return _registered(table, chunks_to_arrow(bundled(items), layout))


def parquet_database(table: Table, rows: ParquetRows) -> Database:
    """Local files are read by DuckDB itself; remote ones through Arrow and our own ranges."""
    parts = rows.parts()
    if not parts:
        layout = RowSchema(columns=table.document.columns, extras=EXTRAS)
        return _registered(table, layout.schema().empty_table())
    paths = [part.source.url for part in parts]
    if not is_local(paths[0]) or any(map(Glob.is_glob, paths)):  # DuckDB takes names for patterns
        # Ranges are read on condition, so that only a failure needs an explanation.
        return _registered(table, _dataset(rows), lambda good: None if good else _same([rows.base.source], rows))
    for part in parts:
        part.source.check_strings([name for name in (part.columns.array, part.columns.path) if name is not None])
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
        raise StaleError("the index was rewritten after it was opened", url=rows.base.url) from None


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
