"""Where row groups go: one Parquet file, or the parts of a dataset. Nothing is visible before it is whole."""

from __future__ import annotations

import base64
import io
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from periplus.fetch.errors import system_errors
from periplus.fetch.local.atomic import replacing, scratch
from periplus.model import Array, Bundle, Source
from periplus.policy import canonical, is_local
from periplus.table.collection.groups import kind_of, kinds
from periplus.table.document.document import PartFile
from periplus.table.leftovers import new_spool
from periplus.table.parquet.buffers import numbers, without_dictionary
from periplus.table.parquet.row_groups import RowTally
from periplus.table.parquet.schema import EXTRAS, RowSchema, chunks_to_arrow, extras_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch


@contextmanager
def sink(url: str, fetch: Fetch, *, create: bool = False, expect: Source | None = None) -> Iterator[IO[bytes]]:
    """A file that becomes the object at `url` when the block succeeds, and is removed if it fails.

    ConflictError where there is one (`create`), or the object to be replaced is no longer the one that is expected.
    """
    plain = canonical(url)
    if is_local(plain):
        fetch.policy.check(plain)
        with replacing(plain, create=create, expect=expect) as file:
            yield file
        return
    with scratch() as folder:
        spool = folder / "spool"
        with spool.open("w+b") as file:
            yield file
        fetch.run(fetch.write(url, spool, create=create, expect=expect))


@contextmanager
def spool_folder(url: str) -> Iterator[Path]:
    """A folder for incomplete files: next to a local target, which has space for them, else a temporary one.

    It is locked while it is in use, so that the next writer can tell what a writer that died left behind.
    """
    plain = canonical(url)
    if not is_local(plain):
        with scratch() as elsewhere:
            yield elsewhere
        return
    with system_errors(plain), new_spool(Path(plain)) as folder:
        yield folder


GROUP_BYTES = 32 << 20
"""Bytes of a row group in memory; only rows with inline bytes and very long paths take that much."""


class GroupWriter:
    """A Parquet writer with the encodings of the convention; it counts what it writes."""

    def __init__(self, file: IO[bytes], layout: RowSchema, arrays: Mapping[str, Array]) -> None:
        self.layout = layout
        self.tally = RowTally()
        schema = layout.schema()
        names = [name for name in ("array", "path") if name in schema.names]
        integers = [field.name for field in schema if pa.types.is_integer(field.type) and field.name != "crc32c"]
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=names,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            write_statistics=["array", *layout.columns.chunk.values()],
            sorting_columns=_sorting(schema, layout, arrays),
            write_page_index=True,
            write_page_checksum=True,
        )

    def write(self, group: Bundle) -> None:
        self.tally.add(group)
        for piece in _shares(group):
            self._write(chunks_to_arrow(piece, self.layout))

    def _write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=_group_rows(table, table.num_rows))

    def copy(self, path: Path, tally: RowTally) -> None:
        """Take over the row groups of a narrower table."""
        with pq.ParquetFile(path) as narrow:
            for number in range(narrow.num_row_groups):
                self.pass_on(narrow.read_row_group(number))
        self.tally = tally

    def pass_on(self, table: pa.Table) -> None:
        """Write a row group of a narrower table as it is; it is not counted."""
        columns = [
            _as_stored(table[field.name], field.type)
            if field.name in table.column_names
            else _absent(field, len(table))
            for field in self.layout.schema()
        ]
        self._write(pa.Table.from_arrays(columns, schema=self.layout.schema()))

    def close(self, keys: dict[str, str]) -> None:
        if keys:
            self._writer.add_key_value_metadata(keys)
        self._writer.close()


def _shares(group: Bundle) -> Iterator[Bundle]:
    """A row group in pieces whose inline bytes fit in memory: rows may share them, and have copies when written."""
    refs = group.refs
    if refs.inline is None:
        yield group
        return
    share = np.cumsum(np.where(refs.inline.held, refs.length, 0)) // GROUP_BYTES
    starts = np.flatnonzero(np.diff(share, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(group)], strict=True):
        rows = slice(start, stop)
        yield group if len(starts) == 1 else replace(group, owner=group.owner[rows], refs=refs.take(rows))


def _group_rows(table: pa.Table, most: int) -> int:
    """Rows of a row group, so that long strings and inline bytes stay far below what readers accept of one."""
    return max(1, min(most, int(table.num_rows) * GROUP_BYTES // max(int(table.nbytes), 1)))


def _as_stored(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in the type that it is written in; strings that are read as a dictionary are one by one again."""
    if column.type == kind:
        return column
    plain = without_dictionary(column)
    return plain if plain.type == kind else column.cast(kind)


def _absent(field: pa.Field, count: int) -> pa.Array:
    return pa.nulls(count, field.type) if field.nullable else numbers(np.zeros(count, field.type.to_pandas_dtype()))


def _sorting(schema: pa.Schema, layout: RowSchema, arrays: Mapping[str, Array]) -> list[pq.SortingColumn]:
    """Rows of a group are sorted by array, then by the later dimensions, the first one and the part.

    Beyond the array's name that is one order of columns only where all arrays have the same dimensions.
    """
    names = ["array"]
    shapes = {array.dims for array in kinds(arrays)}
    if len(shapes) == 1:
        (dims,) = shapes
        ordered = [*dims[1:], dims[0]] if len(dims) >= 3 else dims
        names += [layout.columns.chunk[dim] for dim in ordered]
        names += ["part"] if "part" in schema.names else []
    return [pq.SortingColumn(schema.names.index(name)) for name in names]


class FlatSink:
    """One Parquet file; begun again with more columns where a later row needs one that the first did not."""

    def __init__(self, file: IO[bytes], layout: RowSchema, arrays: Mapping[str, Array]) -> None:
        self._file = file
        self._arrays = arrays
        self._layout = layout
        self._writer: GroupWriter | None = None

    def write(self, group: Bundle) -> None:
        self._ready(extras_of(group.refs)).write(group)

    def _ready(self, needs: frozenset[str]) -> GroupWriter:
        if self._writer is None:
            self._layout = replace(self._layout, extras=self._layout.extras | needs)
            self._writer = GroupWriter(self._file, self._layout, self._arrays)
        elif needs - self._layout.extras:
            self._widen(needs)
        return self._writer

    def _widen(self, needs: frozenset[str]) -> None:
        assert self._writer is not None
        tally = self._writer.tally
        self._writer.close({})
        self._layout = replace(self._layout, extras=self._layout.extras | needs)
        with scratch() as folder:
            narrow = folder / "narrow.parquet"
            self._file.flush()
            with open(self._file.fileno(), "rb", closefd=False) as written, narrow.open("wb") as copy:
                written.seek(0)
                shutil.copyfileobj(written, copy)
            self._file.seek(0)
            self._file.truncate()
            self._writer = GroupWriter(self._file, self._layout, self._arrays)
            self._writer.copy(narrow, tally)

    def pass_on(self, table: pa.Table) -> None:
        """Take over a row group of another table as it is; it is not counted."""
        self._ready(EXTRAS.intersection(table.column_names)).pass_on(table)

    @property
    def tally(self) -> RowTally:
        return self._ready(frozenset()).tally

    def close(self, keys: dict[str, str]) -> None:
        self._ready(frozenset()).close(keys)

    def __enter__(self) -> FlatSink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._writer is not None:
            with suppress(Exception):  # while the file is open: nobody will see it
                self._writer.close({})


class PartSink:
    """Parts of a dataset, named so that no two writers ever choose the same; a new one where columns change."""

    def __init__(self, folder: str, layout: RowSchema, arrays: Mapping[str, Array], fetch: Fetch) -> None:
        self._folder = folder
        self._layout = layout
        self._arrays = arrays
        self._fetch = fetch
        self._stack = ExitStack()
        self._writer: GroupWriter | None = None
        self._file: IO[bytes] | None = None
        self._path = ""
        self._held: list[int] = []
        self.pieces: list[PartFile] = []
        self.placements: list[PartFile] = []
        self.tallies: list[RowTally] = []

    def release(self) -> None:
        """Give up the locks on the parts, which mark them as not yet committed."""
        while self._held:
            with suppress(OSError):  # the files are synced and closed; this is one more descriptor of them
                os.close(self._held.pop())

    def write(self, group: Bundle) -> None:
        needs = extras_of(group.refs)
        if self._writer is not None and needs - self._writer.layout.extras:
            self._finish()
        if self._writer is None:
            self._path = f"chunks/part-{secrets.token_hex(8)}.parquet"
            self._layout = replace(self._layout, extras=self._layout.extras | needs)
            self._file = self._stack.enter_context(sink(self._folder + self._path, self._fetch))
            self._writer = GroupWriter(self._file, self._layout, self._arrays)
        self._writer.write(group)

    @property
    def paths(self) -> list[str]:
        """Of all that was written, relative to the dataset's folder."""
        return [piece.path for piece in (*self.pieces, *self.placements)]

    def write_placements(self, data: bytes, rows: int) -> None:
        """A part of the table of placements."""
        path = f"placements/part-{secrets.token_hex(8)}.parquet"
        with sink(self._folder + path, self._fetch) as file:
            file.write(data)
            file.flush()
            self._hold(file)
        self.placements.append(PartFile(path=path, rows=rows, bytes=len(data)))

    def _hold(self, file: IO[bytes]) -> None:
        """Keep the lock of a file when it has its name."""
        if is_local(self._folder):
            self._held.append(os.dup(file.fileno()))

    def _finish(self) -> None:
        if self._writer is None or self._file is None:
            return
        self._writer.close({})
        self._file.flush()
        size = os.fstat(self._file.fileno()).st_size
        tally = self._writer.tally
        self._hold(self._file)
        self._stack.close()
        bounds = {name: self._box(name, box) for name, box in tally.bounds.items()}
        self.pieces.append(PartFile(path=self._path, rows=tally.rows, bytes=size, bounds=bounds))
        self.tallies.append(tally)
        self._writer = self._file = None

    def _box(self, name: str, box: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        array = kind_of(self._arrays, name)
        return () if array is None else tuple(box[dim] for dim in array.dims)

    def __enter__(self) -> PartSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            if self._writer is not None:
                with suppress(Exception):  # the file goes; a writer left open would write to it when it is collected
                    self._writer.close({})
            self._stack.__exit__(kind, error, trace)  # type: ignore[arg-type]
            return
        with self._stack:  # what fails at the end, as the last bytes on a full disk do, is of the open part too
            self._finish()


def files_parquet(table: pa.Table, file: IO[bytes], keys: dict[str, str]) -> None:
    """The files table as Parquet."""
    packed = ("file_id", "size", "family", "note")
    integers = [field.name for field in table.schema if field.name in packed and pa.types.is_integer(field.type)]
    with pq.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        use_dictionary=["format", "status", "error"],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        write_statistics=integers,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table, row_group_size=_group_rows(table, 1 << 17))
        writer.add_key_value_metadata(keys)


def embedded_files(table: pa.Table) -> str:
    """The files table as Parquet in base64, to be carried in a footer."""
    buffer = io.BytesIO()
    files_parquet(table, buffer, {})
    return base64.b64encode(buffer.getvalue()).decode("ascii")
