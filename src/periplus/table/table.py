"""Table: one interface to references at rest in any form."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, LimitError, MissingError, redact, some
from periplus.forks import cached_property, renewed
from periplus.limits import Limits
from periplus.model import Array, Bundle, Catalog, Files, Placements, Refs, Source, TypedColumns
from periplus.policy import Policy
from periplus.table.access import Reach, resolved
from periplus.table.collection.bundles import Bundled, Kinds, verify_bundle
from periplus.table.document.document import IndexDocument
from periplus.table.parquet.order import c_order
from periplus.table.templates import COLUMN, expand, flags_of, spelled_paths
from periplus.table.verify import check_count, verify, verify_parts

if TYPE_CHECKING:
    import pyarrow as pa

    from periplus.table.duckdb.sql import Database

Window = Sequence[tuple[int, int]]


class RowSource(Protocol):
    """Where a table reads its rows; each form of an index implements it."""

    count: int

    @property
    def form(self) -> str:
        """`flat`, `dataset`, `duckdb` or `memory`."""

    def files(self) -> Files:
        """The files table, with paths as they are stored."""

    def placements(self, catalog: Catalog, files: int) -> Placements | None:
        """Where the arrays of files went, where that is stored."""

    def find(self, array: Array, window: Window, *, most: int | None = None) -> Refs:
        """Rows of one array inside a window of chunk positions, in any order, not yet verified.

        Rows that would be read are counted: LimitError as soon as they are more than `most`.
        """

    def blocks(self) -> Iterator[tuple[str, Refs]]:
        """All rows, a bounded number at a time, not yet verified; `Bundled` where it can give many arrays at once."""

    def database(self, table: Table) -> Database:
        """The rows as SQL views."""

    def close(self) -> None:
        """Close what is open, until it is needed again."""


@runtime_checkable
class Columnar(Protocol):
    """Rows of which many are found, and files given, without an object for each."""

    def files_table(self) -> pa.Table | None:
        """The files table as it is stored; None where there is none."""

    def file_count(self) -> int | None:
        """How many files it has; None where there is none."""

    def find_all(self, wanted: Sequence[tuple[Array, Window]], *, most: int | None = None) -> list[Refs]:
        """As `Rows.find`, for each array and its window; `most` counts all rows together."""


def _count(found: Sequence[Refs]) -> int:
    return sum(map(len, found))


def _reopened_under(reopen: Callable[[], Table], policy: Policy) -> Table:
    return reopen().under(policy)


class Table:
    """An index: what it describes (`catalog`), its sources (`files`) and their byte ranges (`refs`)."""

    _lock: threading.RLock

    def __init__(
        self,
        document: IndexDocument,
        rows: RowSource,
        *,
        url: str | None,
        policy: Policy,
        limits: Limits,
        reopen: Callable[[], Table] | None = None,
        source: Source | None = None,
    ) -> None:
        self.document = document
        self.url = url
        self.source = source
        """The file whose replacement makes it another index, as it was when this one was opened."""
        self.policy = policy
        self.limits = limits
        self._rows = rows
        self._reopen = reopen
        renewed(self, _lock=threading.RLock)

    def under(self, policy: Policy) -> Table:
        """The same index, which may only access what another policy allows."""
        reopen = None if self._reopen is None else partial(_reopened_under, self._reopen, policy)
        return Table(
            self.document,
            self._rows,
            url=self.url,
            policy=policy,
            limits=self.limits,
            reopen=reopen,
            source=self.source,
        )

    @property
    def catalog(self) -> Catalog:
        return self.document.catalog

    @property
    def rows(self) -> int:
        """How many byte ranges the index holds."""
        return self._rows.count

    @property
    def files(self) -> Files:
        """The sources, with absolute URLs; read when first asked for."""
        return self._sources[0]

    @property
    def form(self) -> str:
        """`flat`, `dataset`, `duckdb` or `memory`."""
        return self._rows.form

    @cached_property
    def placements(self) -> Placements | None:
        """Where the arrays of each file are in a stack or mosaic; None if the index has no placements.

        Read when first asked for. In a collection the group of each file says it.
        """
        with self._lock:
            return self._rows.placements(self.catalog, len(self._rows.files()))

    @property
    def file_count(self) -> int:
        """How many sources there are; they are not read for it where the index has their number."""
        known = self.known_file_count
        return len(self.files) if known is None else known

    @property
    def known_file_count(self) -> int | None:
        """How many sources there are; None where rows must be read to know it."""
        count = getattr(self._rows, "file_count", None)
        return None if count is None else count()

    def array(self, name: str) -> Array:
        """The array of that name."""
        try:
            return self.catalog.arrays[name]
        except KeyError:
            known = some(self.catalog.arrays, like=name)
            raise MissingError(f"no array {name!r}; this index has {known}", url=self.url) from None

    def refs(self, array: str, window: Window | None = None) -> Refs:
        """As `listed`, of sources that policy allows: DeniedError where one of them may not be touched."""
        found = self.listed(array, window)
        if found.file is not None:
            self._sources[1].check(found.file)
        elif len(found):
            self._sources[1].check(np.zeros(1, np.int32))
        return found

    def listed(self, array: str, window: Window | None = None, *, most: int | None = None) -> Refs:
        """Verified rows of an array whose chunk position is in the window, in C order of position, then part.

        `window` is a half-open range of chunk positions for each dimension. `Refs.file` counts rows of `files`. For
        those who only look: whoever fetches takes `refs`. More rows than `most` are a LimitError.
        """
        target = self.array(array)
        return self.listed_all([(target, clipped(target, window))], most=most)[0]

    def listed_all(self, wanted: Sequence[tuple[Array, Window]], *, most: int | None = None) -> list[Refs]:
        """As `listed`, for several arrays; windows are within their grids, and `most` counts all rows together."""
        found: list[Refs] = []
        try:
            if len(wanted) > 1 and isinstance(self._rows, Columnar):
                found = self._rows.find_all(wanted, most=most)
            else:
                for array, box in wanted:
                    found.append(self._rows.find(array, box, most=most if most is None else most - _count(found)))
            check_count(_count(found), most)
            return [self._verified(array, box, refs) for (array, box), refs in zip(wanted, found, strict=True)]
        except (FormatError, LimitError) as error:
            raise error.at(url=self.url) from error.__cause__

    def _verified(self, array: Array, box: Window, found: Refs) -> Refs:
        verify(array, found, sizes=self.files.size, window=box)
        capacity = math.prod(high - low for low, high in box) * self.document.parts.get(array.name, 1)
        if len(found) > capacity:
            raise FormatError(f"array {array.name!r}: {len(found)} rows, but the grid allows only {capacity}")
        order = c_order(found.chunk, found.part)
        found = found if order is None else found.take(order)
        verify_parts(array, found)
        return found

    def objects(self, array: Array, refs: Refs) -> tuple[Refs, Mapping[int, Source]]:
        """Rows of an array, and by their file numbers the sources that are no rows of `files`: objects of templates.

        DeniedError where policy does not allow one of these.
        """
        flags = self._templates
        if flags is None or not len(refs):
            return refs, {}
        try:
            return expand(self.files, flags, array, refs, self.policy.check)
        except FormatError as error:
            raise error.at(url=self.url) from None

    @cached_property
    def _templates(self) -> NDArray[np.bool_] | None:
        return flags_of(self.files)

    def blocks(self) -> Iterator[tuple[str, Refs]]:
        """All rows, verified, a bounded number at a time and in no promised order: for copies and exports.

        They are `Bundled` where the index can give those of many arrays at once.
        """
        blocks = self._rows.blocks()
        if isinstance(blocks, Bundled):
            return Bundled(self._bundles(blocks), self.catalog.arrays)
        return self._blocks(blocks)

    def _bundles(self, blocks: Bundled) -> Iterator[Bundle]:
        files, reach = self._sources
        kinds = Kinds(self.catalog.arrays)
        try:
            for bundle in blocks.bundles:
                verify_bundle(bundle, kinds, kinds.of(bundle.names), sizes=files.size)
                if bundle.refs.file is not None:
                    reach.check(bundle.refs.file)
                yield bundle
        except FormatError as error:
            raise error.at(url=self.url) from error.__cause__

    def _blocks(self, blocks: Iterator[tuple[str, Refs]]) -> Iterator[tuple[str, Refs]]:
        files, reach = self._sources
        for name, refs in blocks:
            try:
                verify(self.array(name), refs, sizes=files.size)
            except FormatError as error:
                raise error.at(url=self.url) from error.__cause__
            if refs.file is not None:
                reach.check(refs.file)
            yield name, refs

    @property
    def unverified(self) -> RowSource:
        """The rows at rest, for checks of the index."""
        return self._rows

    def select(self, **query: Any) -> pa.Table:
        """Rows as a readable Arrow table; see `periplus.table.query.select.select` for what may be asked."""
        from periplus.table.query.select import select

        return select(self, **query)

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The answer to one SELECT over the views `chunks`, `files`, `arrays` and `grid`."""
        return self._database.query(query, parameters)

    def close(self) -> None:
        """Close connections to databases; they are opened again when needed."""
        self.__dict__.pop("_database", None)
        self._rows.close()

    @cached_property
    def _sources(self) -> tuple[Files, Reach]:
        with self._lock:
            stored = self._rows.files()
            urls = resolved(stored.path, self.url)
            if self.url is not None:
                urls = spelled_paths(stored, urls, lambda path: resolved([path], self.url)[0])
            files = replace(stored, path=urls, columns=self._columns(stored))
            return files, Reach(self.policy, stored.path, urls, self.url)

    @cached_property
    def files_table(self) -> pa.Table:
        """The files as Arrow: every column, paths as they are stored, and `url`."""
        from periplus.table.access import resolved_column
        from periplus.table.parquet.files import files_to_arrow, whole_files

        with self._lock:
            found = self._rows.files_table() if isinstance(self._rows, Columnar) else None
            if found is None or "group" not in found.column_names:
                found = files_to_arrow(self.stored_files)
            else:
                found = whole_files(found)
            found = found.drop_columns([name for name in found.column_names if name.lower() == "url"])
            urls = self.url_column if COLUMN in found.column_names else resolved_column(found["path"], self.url)
            return found.append_column("url", urls)

    def _columns(self, stored: Files) -> Mapping[str, NDArray[Any]]:
        """Further columns of the files; indexes before version 3 have the groups of a collection elsewhere."""
        stated = self.catalog.arrangement
        groups = stated.get("groups") if stated.get("kind") == "collect" and "group" not in stored.columns else None
        if not isinstance(groups, list | tuple) or len(groups) > len(stored):
            return stored.columns
        group = np.full(len(stored), None, object)
        group[: len(groups)] = [one if isinstance(one, str) else None for one in groups]
        if isinstance(stored.columns, TypedColumns):
            return stored.columns.with_column("group", group)
        return {"group": group, **stored.columns}

    def with_columns(self, files: Files) -> Files:
        """Files with the columns of users that this index has for them, by their URLs; others have no value there."""
        columns = self.files.columns
        if not isinstance(columns, TypedColumns) or not (columns.nested or columns.keys() - {"group", "template"}):
            return files
        known = {url: row for row, url in enumerate(self.files.path)}
        found = columns.taken(np.array([known.get(url, -1) for url in files.path], np.intp))
        for name in ("group", "template"):
            found = found.without(name)
        for name, values in files.columns.items():
            found = found.with_column(name, values)
        return replace(files, columns=found)

    @property
    def stored_files(self) -> Files:
        """The sources with their paths as they are stored."""
        stored = self._rows.files()
        return replace(stored, columns=self._columns(stored))

    @cached_property
    def url_column(self) -> pa.Array:
        """The URLs of `files` as Arrow strings: the dictionary of every answer's paths."""
        from periplus.table.parquet.buffers import strings

        return strings(self.files.path)

    @cached_property
    def _database(self) -> Database:
        with self._lock:
            # Weak, so that a table goes, with its connections, when its last user does.
            return self._rows.database(weakref.proxy(self))

    def __repr__(self) -> str:
        return f"<Table of {len(self.catalog.arrays)} arrays, {self.rows} rows at {redact(self.url or 'memory')}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is not None:
            return self._reopen, ()
        make = partial(Table, url=self.url, policy=self.policy, limits=self.limits)
        return make, (self.document, self._rows)


def clipped(array: Array, window: Window | None) -> list[tuple[int, int]]:
    """A window of chunk positions, cut to the grid; without one, the whole grid."""
    if window is None:
        return [(0, count) for count in array.grid]
    if len(window) != array.ndim:
        raise ValueError(f"array {array.name!r} has {array.ndim} dimensions, the window {len(window)}")
    box = [
        (min(max(int(low), 0), count), min(max(int(high), 0), count))
        for (low, high), count in zip(window, array.grid, strict=True)
    ]
    return [(low, max(low, high)) for low, high in box]
