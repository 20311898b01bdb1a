"""A part of a harvest: the references of many files as flat columns, in memory or mapped from a journal's file."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from mmap import MADV_DONTNEED, mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from periplus import __version__
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Refs, Shape, Source, chunk_positions
from periplus.table.document import document_for, dump, load

MAGIC = b"PERIPART"
VERSION = 1
_SMALL = 1 << 16
"""Chunks of a grid whose positions are kept."""
_COLUMNS = {
    "offset": "<i8",
    "length": "<i8",
    "chunk": "<i4",
    "part": "<u2",
    "encoding": "<u2",
    "sizes": "<i8",
    "inline": "|u1",
}


class Piece(NamedTuple):
    """Where the rows of one array of one file lie in the columns."""

    start: int
    stop: int
    chunk: int
    """Where its chunk positions begin, row by row; -1 where they are those of the whole grid in order."""
    parted: bool = False
    coded: bool = False
    inline: int = -1
    """Where its inline bytes begin; -1 where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One file of a part."""

    source: Source
    format: str
    datetime: datetime | None
    attributes: Mapping[str, Any]
    arrays: tuple[Array, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    """For each array; usually one piece, several where its rows came in several blocks."""
    codes: tuple[tuple[int, ...] | None, ...] | None = None
    """For each array the stored numbers of its pipelines, where they are not counted from 0."""
    prefix: str = ""
    """The group or series it had in the index it comes from."""


@dataclass(slots=True, kw_only=True, eq=False)
class Part:
    """Files and their references."""

    records: list[Record]
    columns: Mapping[str, NDArray[Any]]
    maps: Sequence[mmap] = ()
    """Files that the columns are mapped from."""
    _grids: dict[int, Shape] = field(default_factory=dict)

    def release(self) -> None:
        """Let the pages go that were read so far: they are the disk's, but would count as our memory."""
        for each in self.maps:
            each.madvise(MADV_DONTNEED)

    @property
    def rows(self) -> int:
        return len(self.columns["offset"])

    def refs(self, slot: int, which: int) -> Refs:
        """References of an array of a file."""
        record = self.records[slot]
        array, pieces = record.arrays[which], record.pieces[which]
        found = [self._piece(piece, array) for piece in pieces]
        refs = found[0] if len(found) == 1 else _joined(found, array)
        codes = None if record.codes is None else record.codes[which]
        if codes is not None and refs.encoding is not None:
            local = np.searchsorted(np.array(codes), refs.encoding).astype(np.uint16)
            refs = _with_encoding(refs, local if local.any() else None)
        return refs

    def _piece(self, piece: Piece, array: Array) -> Refs:
        rows, columns = slice(piece.start, piece.stop), self.columns
        count = piece.stop - piece.start
        if piece.chunk < 0:
            grid = self._grids.get(id(array))
            if grid is None:
                grid = self._grids[id(array)] = array.grid
            chunk = whole_grid(grid)
        else:
            chunk = columns["chunk"][piece.chunk : piece.chunk + array.ndim * count].reshape(count, array.ndim).T
        return Refs(
            chunk=chunk,
            offset=columns["offset"][rows],
            length=columns["length"][rows],
            part=columns["part"][rows] if piece.parted else None,
            encoding=columns["encoding"][rows] if piece.coded else None,
            data=None if piece.inline < 0 else self._inline(piece),
        )

    def _inline(self, piece: Piece) -> list[bytes | None]:
        result: list[bytes | None] = []
        at = piece.inline
        for size in self.columns["sizes"][piece.start : piece.stop].tolist():
            result.append(None if size < 0 else self.columns["inline"][at : at + size].tobytes())
            at += max(size, 0)
        return result


@dataclass(slots=True, eq=False)
class Builder:
    """Collects files until a part is full."""

    records: list[Record] = field(default_factory=list)
    rows: int = 0
    _chunks: int = 0
    _bytes: int = 0
    _offset: list[NDArray[np.int64]] = field(default_factory=list)
    _length: list[NDArray[np.int64]] = field(default_factory=list)
    _chunk: list[NDArray[np.int32]] = field(default_factory=list)
    _part: dict[int, NDArray[np.uint16]] = field(default_factory=dict)
    _encoding: dict[int, NDArray[np.uint16]] = field(default_factory=dict)
    _sizes: dict[int, list[int]] = field(default_factory=dict)
    _inline: list[bytes] = field(default_factory=list)

    def add(self, refs: Refs, grid: Shape) -> Piece:
        """Take the references of one array."""
        count, chunk, inline = len(refs), -1, -1
        start = self.rows
        if not is_whole(refs.chunk, grid):
            chunk, self._chunks = self._chunks, self._chunks + refs.chunk.size
            self._chunk.append(np.ascontiguousarray(refs.chunk.T, np.int32).reshape(-1))
        self._offset.append(refs.offset)
        self._length.append(refs.length)
        if refs.part is not None:
            self._part[start] = refs.part
        if refs.encoding is not None:
            self._encoding[start] = refs.encoding
        if refs.data is not None:
            inline = self._bytes
            self._sizes[start] = [-1 if data is None else len(data) for data in refs.data]
            self._inline += [data for data in refs.data if data is not None]
            self._bytes += sum(max(size, 0) for size in self._sizes[start])
        self.rows += count
        return Piece(start, self.rows, chunk, refs.part is not None, refs.encoding is not None, inline)

    def build(self) -> Part:
        """The part."""
        columns: dict[str, NDArray[Any]] = {
            "offset": _concatenated(self._offset, np.int64),
            "length": _concatenated(self._length, np.int64),
            "chunk": _concatenated(self._chunk, np.int32),
        }
        for name, pieces in (("part", self._part), ("encoding", self._encoding), ("sizes", self._sizes)):
            if pieces:
                column = np.full(self.rows, -1 if name == "sizes" else 0, dtype=_COLUMNS[name])
                for start, values in pieces.items():
                    column[start : start + len(values)] = values
                columns[name] = column
        if self._inline:
            columns["inline"] = np.frombuffer(b"".join(self._inline), np.uint8)
        return Part(records=self.records, columns=columns)


def whole_grid(grid: Shape) -> NDArray[np.int32]:
    """Positions of every chunk of a grid in order; shared, so not to be written to."""
    return _remembered(grid) if math.prod(grid) <= _SMALL else chunk_positions(grid)


@lru_cache(maxsize=64)
def _remembered(grid: Shape) -> NDArray[np.int32]:
    positions = chunk_positions(grid)
    positions.flags.writeable = False
    return positions


def is_whole(chunk: NDArray[np.int32], grid: Shape) -> bool:
    """Whether the positions are those of the whole grid in order."""
    return chunk.shape[1] == math.prod(grid) and bool((chunk == whole_grid(grid)).all())


# --- at rest --------------------------------------------------------------------------------------------------------


def write_part(part: Part) -> bytes:
    """The part as bytes: magic, columns, a JSON document, its length, a checksum, magic."""
    body, places, at = [MAGIC], {}, len(MAGIC)
    for name, column in part.columns.items():
        data = np.ascontiguousarray(column, _COLUMNS[name]).tobytes()
        places[name] = [at, len(column)]
        padding = b"\0" * (-len(data) % 8)
        body += [data, padding]
        at += len(data) + len(padding)
    document = json.dumps({"version": VERSION, "software": __version__, "columns": places} | _written(part.records))
    text = document.encode()
    body += [text, len(text).to_bytes(8, "little")]
    whole = b"".join(body)
    return whole + zlib.crc32(whole).to_bytes(4, "little") + MAGIC


def read_part(data: memoryview, *, limits: Limits) -> Part:
    """A part over its bytes, not copied; FormatError where they are not whole, or of another version."""
    view = data.cast("B")
    tail = len(MAGIC) + 4
    sound = len(view) > 2 * len(MAGIC) + 12 and view[: len(MAGIC)] == MAGIC and view[-len(MAGIC) :] == MAGIC
    if not sound or zlib.crc32(view[:-tail]) != int.from_bytes(view[-tail : -len(MAGIC)], "little"):
        raise FormatError("a part of the journal is damaged")
    size = int.from_bytes(view[-tail - 8 : -tail], "little")
    try:
        document = json.loads(bytes(view[-tail - 8 - size : -tail - 8]))
        if document["version"] != VERSION or document["software"] != __version__:
            raise FormatError("a part of the journal is of another version")
        columns = {
            name: np.frombuffer(view, _COLUMNS[name], count, at) for name, (at, count) in document["columns"].items()
        }
        return Part(records=_read(document, limits), columns=columns)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FormatError(f"a part of the journal is damaged: {error}") from None


def _written(records: Sequence[Record]) -> dict[str, Any]:
    variants: dict[int, int] = {}
    arrays: dict[str, Array] = {}
    said: dict[int, str] = {}
    attributes: dict[str, Mapping[str, Any]] = {}
    files = []
    for record in records:
        for array in record.arrays:
            if id(array) not in variants:
                variants[id(array)] = len(variants)
                arrays[f"{variants[id(array)]}/{array.name}"] = array
        group = said.get(id(record.attributes))
        if group is None and record.attributes:
            group = said[id(record.attributes)] = str(len(said))
            attributes[group] = record.attributes
        source = record.source
        files.append(
            [
                source.url,
                source.size,
                source.etag,
                _time(source.last_modified),
                record.format,
                _time(record.datetime),
                group,
                [[variants[id(a)], *map(list, p)] for a, p in zip(record.arrays, record.pieces, strict=True)],
            ]
        )
    # The document of an index says all there is to say of arrays, and reads it back strictly.
    return {"files": files, "index": json.loads(dump(document_for(Catalog(arrays=arrays, attributes=attributes))))}


def _read(document: Mapping[str, Any], limits: Limits) -> list[Record]:
    catalog = load(document["index"], limits=limits).catalog
    arrays = {}
    for name, array in catalog.arrays.items():
        number, _, plain = name.partition("/")
        arrays[int(number)] = array.renamed(plain)
    tuples: dict[tuple[int, ...], tuple[Array, ...]] = {}
    records = []
    for url, size, etag, modified, form, taken, group, found in document["files"]:
        numbers = tuple(number for number, *_ in found)
        records.append(
            Record(
                source=Source(url=url, size=size, etag=etag, last_modified=_moment(modified)),
                format=form,
                datetime=_moment(taken),
                attributes={} if group is None else catalog.attributes[group],
                arrays=tuples.setdefault(numbers, tuple(arrays[number] for number in numbers)),
                pieces=tuple(tuple(Piece(*piece) for piece in pieces) for _, *pieces in found),
            )
        )
    return records


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _concatenated(pieces: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def _joined(pieces: Sequence[Refs], array: Array) -> Refs:
    if not pieces:
        empty = np.empty(0, np.int64)
        return Refs(chunk=np.empty((array.ndim, 0), np.int32), offset=empty, length=empty)
    return Refs(
        chunk=np.concatenate([p.chunk for p in pieces], axis=1),
        offset=np.concatenate([p.offset for p in pieces]),
        length=np.concatenate([p.length for p in pieces]),
        part=_column([p.part for p in pieces], pieces),
        encoding=_column([p.encoding for p in pieces], pieces),
        data=[d for p in pieces for d in (p.data or [None] * len(p))] if any(p.data for p in pieces) else None,
    )


def _column(columns: Sequence[NDArray[np.uint16] | None], pieces: Sequence[Refs]) -> NDArray[np.uint16] | None:
    if all(column is None for column in columns):
        return None
    pairs = zip(columns, pieces, strict=True)
    return np.concatenate([np.zeros(len(p), np.uint16) if column is None else column for column, p in pairs])


def _with_encoding(refs: Refs, encoding: NDArray[np.uint16] | None) -> Refs:
    return Refs(
        chunk=refs.chunk,
        offset=refs.offset,
        length=refs.length,
        part=refs.part,
        encoding=encoding,
        data=refs.data,
    )
