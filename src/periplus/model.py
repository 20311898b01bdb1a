"""The nouns that pass between packages: Source, Encoding, Array, Refs, Files, Coordinate, Catalog. All frozen data."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.redaction import redact

Shape: TypeAlias = tuple[int, ...]
Codec: TypeAlias = Mapping[str, Any]
"""One Zarr v3 codec: {"name": ..., "configuration": {...}}."""
Pipeline: TypeAlias = tuple[Codec, ...]
"""Zarr v3 codecs in encoding order: array to array, array to bytes, bytes to bytes."""
Scalar: TypeAlias = int | float | complex | bool | bytes | str
"""A number; bytes or text of arrays of these; times are integers in their unit, NaT the smallest of 64 bits."""
Transform: TypeAlias = tuple[float, float, float, float, float, float]
"""(a, b, c, d, e, f): x = a*column + b*row + c, y = d*column + e*row + f, at pixel corners."""
BBox: TypeAlias = tuple[float, float, float, float]
"""(xmin, ymin, xmax, ymax) at pixel edges; x before y whatever the CRS says."""
GATHERED = 1 << 18
"""Bytes of inline rows that are moved together: each takes 8 bytes of positions meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One object in a store, as the response that read its header described it."""

    url: str
    size: int | None = None
    etag: str | None = None
    last_modified: datetime | None = None
    """Always aware, in UTC."""

    def __repr__(self) -> str:
        return f"<Source {redact(self.url)}: {self.size} bytes, {self.etag or self.last_modified}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundControlPoint:
    """A pixel position (column, row, at pixel corners) and where it lies in the CRS."""

    column: float
    row: float
    x: float
    y: float
    z: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Georeference:
    """How pixels lie on the Earth."""

    crs: str | None = None
    """An authority code such as EPSG:32633, or WKT or PROJJSON text."""
    transform: Transform | None = None
    """Pixel corners to CRS coordinates, already shifted by half a pixel where the file says PixelIsPoint."""
    registration: str = "area"
    """`area`, or `point` where the values are samples at nodes (the transform is still that of pixel corners)."""
    gcps: tuple[GroundControlPoint, ...] = ()
    rpc: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a stored chunk that is overlaid into a chunk of the array, over the regions before it."""

    begin: Shape
    """Where it begins in the stored chunk."""
    at: Shape
    """Where it begins in the chunk of the array."""
    size: Shape
    transparent: int | float | None = None
    """Value that does not cover what lies beneath; None where all values cover it."""
    layer: int = 0
    """Only distinguishes neighbours that would be equal otherwise: a run of rows of one encoding is one region."""

    @property
    def end(self) -> Shape:
        """How much of the stored chunk must be there."""
        return tuple(a + n for a, n in zip(self.begin, self.size, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """How chunks are stored: their codecs, and how what these decode is related to the chunks of the array."""

    codecs: Pipeline
    extent: Shape | None = None
    """Shape that the codecs decode, where it is not that of the array's chunk; without a region the array has its first
    elements."""
    clipped: tuple[str, ...] = ()
    """Dimensions along which a stored chunk may end where the part that the array uses ends, such as the last strip of
    an image: it holds at least that part and at most the whole extent."""
    region: Region | None = None
    """What of the stored chunk goes where, where that is not all of it; there is an extent then."""
    _text: str = field(default="", init=False, repr=False)

    @property
    def text(self) -> str:
        """The codecs as JSON, by which decoders are cached; FormatError where they are not plain data."""
        if not self._text:
            object.__setattr__(self, "_text", codecs_text(self.codecs))
        return self._text

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it as plain values, in which two equal encodings may still differ by the order of settings."""
        region = self.region
        if region is None:
            return self.codecs, self.extent, self.clipped
        part = region.begin, region.at, region.size, region.transparent, region.layer
        return self.codecs, self.extent, self.clipped, part

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.text, self.extent, self.clipped, repr(self.region)  # NaN equals itself as text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoding) and (self is other or self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def codecs_text(codecs: Any) -> str:
    """Codecs as JSON, equal for equal ones; FormatError where they are not plain data."""
    try:
        return json.dumps(codecs, sort_keys=True, default=_plain)
    except (TypeError, ValueError):
        raise FormatError("the codec pipeline is not plain data") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, frozenset) else dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """What a reader must know of one array, apart from where its bytes lie."""

    name: str
    """Path in the index, for example `0/data` or `sst`."""
    dims: tuple[str, ...]
    shape: Shape
    chunks: Shape
    """Chunk shape; where `edges` says otherwise, the largest chunk along that dimension."""
    dtype: np.dtype[Any]
    """Of decoded values, in native byte order."""
    fill: Scalar | None = None
    """Value of a missing chunk; None means zero, empty text, or no time (NaT)."""
    encodings: tuple[Encoding, ...] = ()
    """A row's `encoding` is an index into this."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values. Packed data uses CF's names: _FillValue, scale_factor, add_offset, units, long_name."""
    level: int = 0
    """Pyramid level; 0 is full resolution."""
    georeference: Georeference | None = None
    edges: tuple[tuple[int, ...] | None, ...] | None = None
    """Sizes of every chunk along a dimension whose chunks are not regular; None for a regular dimension."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def grid(self) -> Shape:
        """Number of chunks along each dimension."""
        return tuple(
            len(edges) if (edges := self._edges(d)) is not None else -(-n // c) if n else 0
            for d, (n, c) in enumerate(zip(self.shape, self.chunks, strict=True))
        )

    @property
    def pyramid(self) -> str:
        """The name all levels of this image share: `0/data` and `1/data` give `data`."""
        return pyramid_of(self.name, self.level)

    @property
    def is_mask(self) -> bool:
        """Whether it says which pixels of the array beside it are valid."""
        return self.name.rpartition("/")[2] == "mask"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def starts(self, dim: int) -> NDArray[np.int64]:
        """First element of every chunk along a dimension, and the end of the last: grid + 1 values."""
        edges = self._edges(dim)
        if edges is not None:
            return np.concatenate([[0], np.cumsum(np.asarray(edges, np.int64))])
        stops = np.arange(self.grid[dim] + 1, dtype=np.int64) * self.chunks[dim]
        stops[-1:] = self.shape[dim]
        return stops

    def _edges(self, dim: int) -> tuple[int, ...] | None:
        return None if self.edges is None else self.edges[dim]

    def renamed(self, name: str, **changes: Any) -> Array:
        return replace(self, name=name, **changes)


MOST_LEVELS = 256
"""The level of an array is 8 bits wide."""


def pyramid_of(name: str, level: int) -> str:
    """The name that all levels of an image share, from that of one of them."""
    parts = name.split("/")
    if len(parts) >= 2 and parts[-2] == str(level):
        del parts[-2]
    return "/".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """Bytes of rows that the index itself holds: where those of each row begin in one buffer."""

    at: NDArray[np.int64]
    """First byte of each row in `buffer`, -1 where its bytes are in a file; a row has exactly `Refs.length` bytes."""
    buffer: NDArray[np.uint8]

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> Inline | None:
        """The bytes of a few rows; None where all of them are in files."""
        if all(item is None for item in items):
            return None
        ends = np.cumsum([len(item or b"") for item in items], dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        at = np.where([item is None for item in items], -1, starts)
        return cls(at, np.frombuffer(b"".join(item or b"" for item in items), np.uint8))

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which rows have their bytes here."""
        return self.at >= 0

    def take(self, rows: Any) -> Inline:
        """Those of the given rows, over the same buffer."""
        return Inline(self.at[rows], self.buffer)

    def packed(self, length: NDArray[np.int64]) -> Inline:
        """The same bytes one after the other in the order of rows, and no others; not copied where they are so."""
        held = self.held
        sizes = np.where(held, length, 0)
        ends = np.cumsum(sizes, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        starts = ends - sizes
        shift = self.at - starts
        moved = shift[held & (sizes > 0)]
        if not (moved != moved[:1]).any():  # all rows are as far from their new places as the first
            first = int(moved[0]) if len(moved) else 0
            return Inline(np.where(held, starts, -1), self.buffer[first : first + total])
        out = np.empty(total, np.uint8)
        row = 0
        while row < len(ends):
            begin = int(starts[row])
            stop = max(row + 1, int(np.searchsorted(ends, begin + GATHERED, side="right")))
            end = int(ends[stop - 1])
            if stop == row + 1:
                out[begin:end] = self.buffer[max(int(self.at[row]), 0) :][: end - begin]
            else:
                places = np.repeat(shift[row:stop], sizes[row:stop])
                places += np.arange(begin, end)
                out[begin:end] = self.buffer[places]
            row = stop
        return Inline(np.where(held, starts, -1), out)

    def trimmed(self, length: NDArray[np.int64]) -> Inline:
        """The same, without bytes of other rows where these are most of the buffer."""
        used = int(length[self.held].sum())
        return self.packed(length) if 2 * used < self.buffer.size else self

    @classmethod
    def joined(cls, pieces: Sequence[tuple[Inline | None, int]]) -> Inline | None:
        """Those of rows that came in pieces of so many rows each; buffers that pieces share are there once."""
        if all(inline is None for inline, _ in pieces):
            return None
        places: dict[int, int] = {}
        buffers: list[NDArray[np.uint8]] = []
        columns, end = [], 0
        for inline, count in pieces:
            if inline is None:
                columns.append(np.full(count, -1, np.int64))
                continue
            if id(inline.buffer) not in places:
                places[id(inline.buffer)] = end
                buffers.append(inline.buffer)
                end += inline.buffer.size
            columns.append(np.where(inline.held, inline.at + places[id(inline.buffer)], -1))
        return cls(np.concatenate(columns), buffers[0] if len(buffers) == 1 else np.concatenate(buffers))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refs:
    """Stored byte ranges of one array, as columns of equal length; never one Python object per chunk."""

    chunk: NDArray[np.int32]
    """(ndim, n): chunk position along each dimension."""
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    file: NDArray[np.int32] | None = None
    """Row of the files table; None while only one file is meant. -1 where the bytes are inline."""
    part: NDArray[np.uint16] | None = None
    """Order of a chunk's byte ranges; None where every chunk is one range."""
    encoding: NDArray[np.uint16] | None = None
    """Index into Array.encodings; None where all are 0."""
    inline: Inline | None = None
    """Bytes that the index holds, where a range is not in a file; None where all are in files."""

    def __len__(self) -> int:
        return int(self.offset.shape[0])

    def inline_bytes(self, row: int) -> memoryview | None:
        """The inline bytes of a row; None where they are in a file."""
        if self.inline is None or self.inline.at[row] < 0:
            return None
        at = int(self.inline.at[row])
        return self.inline.buffer[at : at + int(self.length[row])].data

    @classmethod
    def empty(cls, ndim: int) -> Refs:
        """No references, of an array with that many dimensions."""
        none = np.empty(0, np.int64)
        return cls(chunk=np.empty((ndim, 0), np.int32), offset=none, length=none)

    @classmethod
    def joined(cls, pieces: Sequence[Refs], ndim: int) -> Refs:
        """References of one array that came in pieces, or in none; a column that some pieces lack is 0 for them."""
        if not pieces:
            return cls.empty(ndim)
        if len(pieces) == 1:
            return pieces[0]

        def column(name: str, dtype: type) -> Any:
            found = [(getattr(piece, name), len(piece)) for piece in pieces]
            if all(values is None for values, _ in found):
                return None
            return np.concatenate([np.zeros(count, dtype) if values is None else values for values, count in found])

        return cls(
            chunk=np.concatenate([piece.chunk for piece in pieces], axis=1),
            offset=np.concatenate([piece.offset for piece in pieces]),
            length=np.concatenate([piece.length for piece in pieces]),
            file=column("file", np.int32),
            part=column("part", np.uint16),
            encoding=column("encoding", np.uint16),
            inline=Inline.joined([(piece.inline, len(piece)) for piece in pieces]),
        )

    def take(self, rows: Any) -> Refs:
        """The given rows (an index array, a mask or a slice)."""
        return Refs(
            chunk=self.chunk[:, rows],
            offset=self.offset[rows],
            length=self.length[rows],
            file=None if self.file is None else self.file[rows],
            part=None if self.part is None else self.part[rows],
            encoding=None if self.encoding is None else self.encoding[rows],
            inline=None if self.inline is None else self.inline.take(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bundle:
    """Stored byte ranges of many arrays, in columns as a table has them: no Python object per array but its name."""

    names: Sequence[str]
    """Of the arrays."""
    owner: NDArray[np.int32]
    """Array of each row: a number in `names`."""
    dims: tuple[str, ...]
    """All dimensions that any of the arrays has."""
    refs: Refs
    """`chunk` has a row for each of `dims`; -1 where the array lacks that dimension."""
    levels: NDArray[np.uint8] | None = None
    """Pyramid level of each array, where it is known."""

    def __len__(self) -> int:
        return len(self.refs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """The files table as columns; row number is the file id."""

    path: Sequence[str]
    """URL as harvested."""
    size: NDArray[np.int64]
    """Bytes; -1 unknown."""
    etag: Sequence[str | None]
    last_modified: NDArray[np.datetime64]
    """datetime64[us], UTC; NaT unknown."""
    datetime: NDArray[np.datetime64]
    """When the data were taken, datetime64[us], UTC; NaT unknown."""
    format: Sequence[str]
    status: Sequence[str]
    """`ok` or `error`."""
    error: Sequence[str | None]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Further columns, as long as the others: `group`, and those of users. Text is an object array; what is missing is
    None, NaN or NaT. In a collection `group` is the path of the group that a file is in: the empty string for a single
    file, whose arrays have plain names, and None for a file in no array."""

    def __len__(self) -> int:
        return len(self.path)

    def __repr__(self) -> str:
        failed = sum(status != "ok" for status in self.status)
        return f"<periplus files: {len(self):,}" + (f", {failed:,} of them in no array>" if failed else ">")

    def take(self, rows: NDArray[np.intp]) -> Files:
        """Some of the files, in the order of `rows`."""
        numbers = rows.tolist()

        def taken(values: Any) -> Any:
            return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in numbers]

        columns = {name: values[rows] for name, values in self.columns.items()}
        return Files(columns=columns, **{name: taken(getattr(self, name)) for name in _FILE_COLUMNS})

    @classmethod
    def joined(cls, first: Files, then: Files) -> Files:
        """Two files tables as one; a column that one of them lacks is missing there."""

        def join(name: str) -> Any:
            pair = getattr(first, name), getattr(then, name)
            return np.concatenate(pair) if isinstance(pair[0], np.ndarray) else [*pair[0], *pair[1]]

        columns = {
            name: _joined_columns(first.columns.get(name), len(first), then.columns.get(name), len(then))
            for name in {**first.columns, **then.columns}
        }
        return cls(columns=columns, **{name: join(name) for name in _FILE_COLUMNS})

    def source(self, file: int) -> Source:
        modified = self.last_modified[file]
        return Source(
            url=self.path[file],
            size=None if self.size[file] < 0 else int(self.size[file]),
            etag=self.etag[file],
            last_modified=None
            if np.isnat(modified)
            else datetime.fromisoformat(np.datetime_as_string(modified, unit="us") + "+00:00"),
        )


_FILE_COLUMNS = ("path", "size", "etag", "last_modified", "datetime", "format", "status", "error")


def _joined_columns(first: Any, count: int, then: Any, more: int) -> NDArray[Any]:
    def missing(values: NDArray[Any], size: int) -> NDArray[Any]:
        if values.dtype.kind in "fM":
            return np.full(size, "NaT" if values.dtype.kind == "M" else np.nan, values.dtype)
        return np.full(size, None, object)

    pair = (missing(then, count) if first is None else first, missing(first, more) if then is None else then)
    if pair[0].dtype.kind != pair[1].dtype.kind:
        pair = pair[0].astype(object), pair[1].astype(object)
    return np.concatenate(pair)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinate:
    """Values along a dimension that no affine gives, such as time."""

    name: str
    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """Where the arrays of files went, as columns: one row for each file and array of it."""

    file: NDArray[np.int32]
    """Row of the files table that holds the bytes."""
    description: NDArray[np.int32]
    """Number of the array, as it is in the file, in `descriptions`."""
    array: NDArray[np.int32]
    """Number of the target array in `arrays`; -1 for an array of the file that is in none."""
    origin: NDArray[np.int64]
    """(n, most dimensions): first element in the target along each of its dimensions; 0 beyond them."""
    extent: NDArray[np.int64]
    """(n, most dimensions): elements of the target that it covers, likewise."""
    order: NDArray[np.int64]
    """Where placements of one array overlap, higher numbers cover lower ones."""
    corner: NDArray[np.float64]
    """(n, 2): x and y of the file's transform; NaN where it has none."""
    descriptions: Sequence[Array]
    """Arrays as they are in files, their transforms beginning at (0, 0)."""
    arrays: Sequence[str]

    def __len__(self) -> int:
        return len(self.file)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """Everything an index says apart from its rows and files."""

    arrays: Mapping[str, Array]
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    """By path: `time` is for all arrays, `utm33/time` for those in that group; see `coordinates_of`."""
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of groups, by path; the root is the empty string."""
    arrangement: Mapping[str, Any] = field(default_factory=dict)
    """How files were laid into arrays, for example {"kind": "stack", "dim": "time"}."""
    _scopes: dict[str, dict[str, Coordinate]] = field(init=False, repr=False)
    """Coordinates by group and name."""

    def __post_init__(self) -> None:
        scopes: dict[str, dict[str, Coordinate]] = {}
        for path, coordinate in self.coordinates.items():
            group, _, name = path.rpartition("/")
            scopes.setdefault(group, {})[name] = coordinate
        object.__setattr__(self, "_scopes", scopes)

    @property
    def scopes(self) -> Collection[str]:
        """The groups that have coordinates of their own; the root is the empty string."""
        return self._scopes.keys()

    def coordinates_of(self, array: Array) -> dict[str, Coordinate]:
        """The coordinates of an array by name: those in its group or the nearest above, whose dimensions it all has."""
        found: dict[str, Coordinate] = {}
        group = array.name if self._scopes else ""
        while group:
            group = group.rpartition("/")[0]
            for name, coordinate in self._scopes.get(group, {}).items():
                if name not in found and set(coordinate.dims) <= set(array.dims):
                    found[name] = coordinate
        return found

    def levels(self, pyramid: str) -> list[Array]:
        """The levels of the image that is named so, from full resolution down; none where there is no such image."""
        above, _, leaf = pyramid.rpartition("/")
        folder = above + "/" if above else ""
        names = [pyramid, *(f"{folder}{number}/{leaf}" for number in range(MOST_LEVELS))]
        found = [array for name in names if (array := self.arrays.get(name)) is not None and array.pyramid == pyramid]
        return sorted(found, key=lambda array: array.level)

    def pyramids(self) -> dict[str, list[Array]]:
        """Arrays grouped by image, each list ordered from full resolution down."""
        groups: dict[str, list[Array]] = {}
        for array in self.arrays.values():
            groups.setdefault(array.pyramid, []).append(array)
        return {name: sorted(levels, key=lambda a: a.level) for name, levels in groups.items()}


# --- what a scanner says -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Need:
    """A scanner asks for bytes; it gets exactly these, or fewer where the file ends."""

    offset: int
    length: int
    sparse: bool = False
    """What follows is not wanted: reading ahead is no help."""
    sibling: str = ""
    """Name of another file that Beside or a Listing found, from the folder of the scanner's own; empty for its own."""
    passing: bool = False
    """Looked at once and not kept, so that it does not count as header."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A scanner asks which is the first of these files that lies in the folder of its own.

    It gets the name and Source of that file, or None where there is none. Asking costs a request for each name, so only
    formats that call for it ask.
    """

    names: tuple[str, ...]
    head: int = 4096
    """Bytes at the file's start that will be asked for next."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A scanner asks which objects are below a folder, which is given by its path from the folder of its own file.

    It gets a dictionary of Sources by name, in the order of names, at most as many as `Limits.listed` allows for one
    scan. Names are relative to the folder of the scanner's own file too, so that a Need can have one as its `sibling`.
    Where nothing is below the folder, or there is no such folder, the dictionary is empty. HTTP servers have no
    listings: then a FormatError is raised where the scanner asked, which it may catch; otherwise the file is refused.
    """

    prefix: str = ""
    """Ends in a slash, or is empty for the folder of the scanner's own file."""
    deep: bool = True
    """Whether objects in folders below it are listed; otherwise these folders are, with a slash after the name."""


@dataclass(frozen=True, slots=True)
class Found:
    """A scanner answers with one array and where its bytes lie in this file, or in one beside it."""

    array: Array
    refs: Refs
    sibling: str = ""
    """Name of the file beside the scanner's own that holds the bytes; empty for its own."""
    told_by: tuple[str, ...] = ()
    """Names of files beside the scanner's own that say something of the array, such as a world file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the file says of itself; at most once a file."""

    datetime: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


Round: TypeAlias = tuple[Need, ...] | list[Need]
"""Bytes that are needed together: fetched at once, neighbours in one request, answered in the same order."""
Step: TypeAlias = Need | Round | Beside | Listing | Found | About
Steps: TypeAlias = Generator[Step, Any, None]
"""A Need is answered with bytes, a round with a tuple of them, Beside with a name and a Source or with None, a Listing
with Sources by name, the others with nothing."""


def chunk_positions(grid: Shape) -> NDArray[np.int32]:
    """(ndim, n) positions of every chunk of a grid in C order."""
    return np.indices(grid, dtype=np.int32).reshape(len(grid), math.prod(grid))
