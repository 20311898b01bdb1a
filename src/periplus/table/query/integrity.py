"""Integrity of an index: every row is read and compared with what the index declares; no source is accessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import MissingError, PeriplusError, redact
from periplus.model import Array, Refs
from periplus.table.parquet.order import flat_positions
from periplus.table.parquet.part import PartRows
from periplus.table.parquet.ranges import arrow_errors
from periplus.table.parquet.rows import ParquetRows
from periplus.table.verify import faults

if TYPE_CHECKING:
    import pyarrow as pa

    from periplus.table.document.document import PartFile
    from periplus.table.parquet.decoded import Group
    from periplus.table.table import Table

LISTED = 1000
"""Problems that a report lists; the rest is counted."""
KEY_BYTES = 32
"""Memory for one row while chunks that come twice are looked for: its key, once more while keys are joined, and as
much again to spare."""
PARTS = 1 << 16
STEP = 1 << 20
"""Sorted rows looked at together."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing in an index that contradicts another."""

    kind: str
    """`document`, `files`, `part`, `orphan`, `unreadable`, `array`, `level`, `position`, `range`, `encoding`, `file`,
    `inline`, `duplicate`, `sequence`, `count`, `bounds` or `statistics`."""
    message: str
    url: str | None = None
    """The file of the index it is in, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What reading all rows of an index found."""

    rows: int
    """Rows that were read."""
    problems: tuple[Problem, ...]
    more: int = 0
    """Problems beyond those listed."""

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _ProblemList:
    url: str | None
    problems: list[Problem] = field(default_factory=list)
    more: int = 0

    def add(self, kind: str, message: str, url: str | None = None) -> None:
        if len(self.problems) < LISTED:
            place = url or self.url
            self.problems.append(Problem(kind=kind, message=message, url=None if place is None else redact(place)))
        else:
            self.more += 1

    def error(self, kind: str, error: PeriplusError) -> None:
        self.add(kind, error.message, error.url)


def check_table(table: Table, *, progress: Progress | None = None) -> IndexReport:
    """Read every row, a bounded number at a time, and report all that contradicts the document or the files table."""
    notes, seen = _ProblemList(table.url), 0
    try:
        sizes = np.asarray(table.files.size)
        failed = np.array([status != "ok" for status in table.files.status], bool)
    except PeriplusError as error:
        notes.error("files", error)
        return IndexReport(rows=0, problems=tuple(notes.problems))
    try:
        _ = table.placements
    except PeriplusError as error:
        notes.error("placements", error)
    # Chunks that come twice are found by sorting: in several passes where all keys at once would not fit.
    passes = max(1, -(-table.rows * KEY_BYTES // table.limits.memory_bytes))
    for turn in range(passes):
        first = turn == 0
        places = _Places(turn, passes)
        for name, refs in _blocks(table, notes if first else _ProblemList(None)):
            array = table.catalog.arrays[name]
            if first:
                seen += len(refs)
                for kind, message, _ in faults(array, refs, sizes=sizes):
                    notes.add(kind, message)
                _check_status(name, refs, failed, notes)
                most, declared = _most_parts(refs), table.document.parts.get(name, 1)
                if most > declared:
                    notes.add("count", f"array {name!r}: a chunk has {most} parts where {declared} are declared")
            places.add(array, refs)
            if progress is not None and first:
                progress(min(seen, table.rows), table.rows)
        places.report(notes)
    if seen != table.rows and not notes.problems:
        notes.add("count", f"{seen} rows belong to arrays of the index, which has {table.rows}")
    return IndexReport(rows=seen, problems=tuple(notes.problems), more=notes.more)


def _check_status(name: str, refs: Refs, failed: NDArray[np.bool_], notes: _ProblemList) -> None:
    """A file with an error is not part of any array."""
    files = np.zeros(min(1, len(refs)), np.int32) if refs.file is None else np.unique(refs.file)
    for file in files[(files >= 0) & (files < len(failed))].tolist():
        if failed[file]:
            notes.add("file", f"array {name!r}: rows are in file {file}, which has the status 'error'")


def _most_parts(refs: Refs) -> int:
    return 1 if refs.part is None or not len(refs) else int(refs.part.max()) + 1


# --- rows, whatever is wrong with others -----------------------------------------------------------------------------


def _blocks(table: Table, notes: _ProblemList) -> Iterator[tuple[str, Refs]]:
    rows = table.unverified
    if isinstance(rows, ParquetRows):
        for part, piece in _parts(rows, notes):
            yield from _part_blocks(rows, part, piece, notes)
        return
    blocks = rows.blocks()
    while True:
        try:
            block = next(blocks, None)
        except PeriplusError as error:
            notes.error("unreadable", error)
            return
        if block is None:
            return
        if block[0] in table.catalog.arrays:
            yield block
        else:
            notes.add("array", f"rows belong to {block[0]!r}, which is no array of the index")


def _parts(rows: ParquetRows, notes: _ProblemList) -> Iterator[tuple[PartRows, PartFile | None]]:
    pieces = rows.document.pieces
    if pieces is None:
        yield rows.parts()[0], None
        return
    for url in sorted(_stored(rows, notes) - {rows.folder + piece.path for piece in pieces}):
        notes.add("orphan", "this part is not listed by the index: left by a writer that died, or being written", url)
    listed: set[str] = set()
    for piece in pieces:
        if piece.path in listed:
            notes.add("part", f"the index lists {piece.path} twice")
            continue
        listed.add(piece.path)
        try:
            (part,) = rows.opened([piece])
        except PeriplusError as error:
            notes.error("part", error)
        else:
            yield part, piece


def _stored(rows: ParquetRows, notes: _ProblemList) -> set[str]:
    """Files in the folder of parts; none where the store has no listing."""

    async def found() -> set[str]:
        return {source.url async for source in rows.fetch.find(rows.folder + "chunks/")}

    try:
        return rows.fetch.run(found())
    except MissingError:
        return set()
    except PeriplusError as error:
        if error.kind != "format":  # HTTP has no listing
            notes.error("part", error)
        return set()


def _part_blocks(
    rows: ParquetRows, part: PartRows, piece: PartFile | None, notes: _ProblemList
) -> Iterator[tuple[str, Refs]]:
    url = part.source.url
    for number in range(part.source.groups):
        if not part.source.metadata.row_group(number).num_rows:
            continue
        try:
            # All columns, also those whose values follow from statistics: the statistics are checked.
            ((_, table),) = part.source.read([number], part.all_columns)
            _statistics(part, number, table, notes)
            with arrow_errors("a row group does not decode", url):
                group = part.group(number, table, rows.names(part))
        except PeriplusError as error:
            notes.add("unreadable", f"row group {number}: {error.message}", url)
        else:
            for array, refs in _owned(rows, group, number, notes, url):
                _bounds(array, refs, piece, notes, url)
                yield array.name, refs


def _owned(rows: ParquetRows, group: Group, number: int, notes: _ProblemList, url: str) -> Iterator[tuple[Array, Refs]]:
    """The rows of a group by array; those of none are noted."""
    arrays, free = rows.document.catalog.arrays, group.count
    for name in list(arrays) if group.array is None else group.array.names:
        array = None if name is None else arrays.get(name)
        if array is None:
            notes.add("array", f"row group {number}: rows belong to {name!r}, which is no array of the index", url)
            free = 0
            continue
        try:
            hits = group.rows(array, None)
        except PeriplusError as error:
            notes.add("position", error.message, url)
            free = 0
            continue
        free -= len(hits)
        level = group.columns.get("level")
        if group.array is not None and level is not None and (level[hits] != array.level).any():
            notes.add("level", f"array {name!r}: rows name another level than {array.level}", url)
        if not len(hits):
            continue
        wrong = group.misfits(hits)
        if wrong is not None:
            notes.add("inline", wrong, url)
            continue
        try:
            refs = group.refs(array, hits)
        except PeriplusError as error:
            notes.add("file", error.message, url)
        else:
            yield array, refs
    if free > 0 and group.present is None:
        notes.add("array", f"row group {number}: {free} rows belong to no array of the index", url)


def _bounds(array: Array, refs: Refs, piece: PartFile | None, notes: _ProblemList, url: str) -> None:
    """Rows outside the bounds of their part would never be found by a query."""
    if piece is None or not piece.bounds:
        return
    box = piece.bounds.get(array.name)
    ends = [(int(line.min()), int(line.max())) for line in refs.chunk]
    if box is None or any(least < low or most >= high for (least, most), (low, high) in zip(ends, box, strict=True)):
        notes.add(
            "bounds", f"array {array.name!r}: rows are outside the bounds that the index lists for this part", url
        )


def _statistics(part: PartRows, number: int, table: pa.Table, notes: _ProblemList) -> None:
    """Rows outside the statistics of their row group would never be found by a query."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with arrow_errors("a row group", part.source.url):
        for name in (*part.columns.chunk.values(), *([part.columns.array] if part.columns.array else [])):
            low, high, full = part.source.bounds(number, name)
            if low is None or not table.num_rows:
                continue
            column = table[name]
            values = _used(column) if pa.types.is_dictionary(column.type) else column
            ends = pc.min_max(values).as_py()
            least, most = ends["min"], ends["max"]
            if (full and column.null_count) or (least is not None and (least < low or most > high)):
                notes.add("statistics", f"row group {number}: {name!r} does not match its statistics", part.source.url)


def _used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Distinct values of a column of a dictionary, of which some may be of no row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pieces = [piece.dictionary.take(pc.unique(piece.indices.drop_null())) for piece in column.chunks]
    return pa.chunked_array(pieces, column.type.value_type)


# --- chunks that come twice, and parts of chunks that are missing ----------------------------------------------------


class _Places:
    """The places of the rows of one pass, by array: 8 bytes a row, or the columns themselves in a giant grid."""

    def __init__(self, turn: int, passes: int) -> None:
        self._turn, self._passes = turn, passes
        self._keys: dict[str, list[NDArray[Any]]] = {}
        self._arrays: dict[str, Array] = {}

    def add(self, array: Array, refs: Refs) -> None:
        grid = np.array(array.grid, np.int64)[:, None]
        good = ((refs.chunk >= 0) & (refs.chunk < grid)).all(axis=0)
        chunk = refs.chunk if good.all() else refs.chunk[:, good]
        part = np.zeros(chunk.shape[1], np.int64) if refs.part is None else refs.part[good].astype(np.int64)
        if math.prod(array.grid) * PARTS < 1 << 63:
            key = flat_positions(chunk, array.grid) if array.ndim else np.zeros(chunk.shape[1], np.int64)
            mine = key % self._passes == self._turn
            columns = (key * PARTS + part)[mine][None]
        else:
            mine = chunk.sum(axis=0, dtype=np.int64) % self._passes == self._turn
            columns = np.concatenate([chunk[:, mine].astype(np.int64), part[mine][None]])
        self._arrays[array.name] = array
        self._keys.setdefault(array.name, []).append(columns)

    def report(self, notes: _ProblemList) -> None:
        for name in list(self._keys):
            array, columns = self._arrays[name], np.concatenate(self._keys.pop(name), axis=1)
            if len(columns) > 1:
                columns = columns[:, np.lexsort(columns[::-1])]
                self._check(array, columns[:-1], columns[-1], notes)
                continue
            key = columns[0]
            key.sort()
            ends = [*range(STEP, len(key), STEP), len(key)]
            start = 0
            for end in ends:
                # Not between two parts of a chunk.
                stop = end if end == len(key) else int(np.searchsorted(key, key[end] // PARTS * PARTS))
                self._check(array, key[None, start:stop] // PARTS, key[start:stop] % PARTS, notes)
                start = stop

    def _check(self, array: Array, places: NDArray[Any], part: NDArray[Any], notes: _ProblemList) -> None:
        if not len(part):
            return
        begins = np.ones(len(part), bool)
        begins[1:] = (places[:, 1:] != places[:, :-1]).any(axis=0)
        twice = np.zeros(len(part), bool)
        twice[1:] = ~begins[1:] & (part[1:] == part[:-1])
        if twice.any():
            where = self._where(array, places, int(np.argmax(twice)))
            notes.add("duplicate", f"array {array.name!r}: {int(twice.sum())} rows come twice, the first of {where}")
            places, part, begins = places[:, ~twice], part[~twice], begins[~twice]
        rows = np.arange(len(part))
        missing = part != rows - np.maximum.accumulate(np.where(begins, rows, 0))
        if missing.any():
            where = self._where(array, places, int(np.argmax(missing)))
            notes.add("sequence", f"array {array.name!r}: parts do not count 0, 1, 2 …, first in {where}")

    @staticmethod
    def _where(array: Array, places: NDArray[Any], row: int) -> str:
        if len(places) == array.ndim != 1:
            position = places[:, row].tolist()
        else:
            position = [int(n) for n in np.unravel_index(int(places[0, row]), array.grid)] if array.ndim else []
        return f"chunk {tuple(position)}"
