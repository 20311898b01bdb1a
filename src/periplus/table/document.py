"""The footer document: a catalog, column roles and parts as versioned JSON, strictly checked on the way in."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from periplus import __version__
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Georeference, GroundControlPoint, Pipeline
from periplus.table.columns import Columns, columns_for, read_columns, write_columns
from periplus.table.values import (
    DTYPES,
    INT64,
    listed,
    mapped,
    read_coordinate,
    read_free,
    read_scalar,
    real,
    shown,
    text,
    whole,
    write_coordinate,
    write_free,
    write_scalar,
)

VERSION = 1
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
KEY = b"array_references"
FILES_KEY = b"array_references_files"
INT32 = (1 << 31) - 1
PARTS = 1 << 16
"""Most byte ranges of one chunk: `part` is 16 bits wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One Parquet file of a dataset's rows, and what a reader may skip it by."""

    path: str
    """Relative to the dataset's folder."""
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By array: half-open range of chunk positions along each dimension."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """Everything an index says apart from its rows and files."""

    catalog: Catalog
    columns: Columns
    parts: Mapping[str, int] = field(default_factory=dict)
    """By array: most byte ranges one chunk has, where that is not one."""
    pieces: tuple[Piece, ...] | None = None
    """The Parquet files of a dataset; None in a flat table."""
    revision: str | None = None
    """Changes with every commit to a dataset."""

    @property
    def most_rows(self) -> int:
        """How many rows the declared grids admit."""
        return sum(math.prod(a.grid) * self.parts.get(name, 1) for name, a in self.catalog.arrays.items())


# --- out ------------------------------------------------------------------------------------------------------------


def document_for(catalog: Catalog, **changes: Any) -> Document:
    """A document with the columns that we write."""
    return Document(catalog=catalog, columns=columns_for(catalog.arrays.values()), **changes)


def dump(document: Document) -> str:
    """The document as JSON text, with no bare NaN."""
    catalog = document.catalog
    answer: dict[str, Any] = {
        "version": VERSION,
        "software": f"periplus {__version__}",
        "columns": write_columns(document.columns),
        "arrays": {name: _write_array(array, document.parts.get(name, 1)) for name, array in catalog.arrays.items()},
    }
    if catalog.coordinates:
        answer["coordinates"] = {name: write_coordinate(c) for name, c in catalog.coordinates.items()}
    if catalog.attributes:
        answer["attributes"] = write_free(catalog.attributes, "attributes")
    if catalog.arrangement:
        answer["arrangement"] = write_free(catalog.arrangement, "arrangement")
    if document.pieces is not None:
        answer["chunks"] = [
            {
                "path": piece.path,
                "rows": piece.rows,
                "bytes": piece.bytes,
                "bounds": {name: [list(pair) for pair in box] for name, box in piece.bounds.items()},
            }
            for piece in document.pieces
        ]
    if document.revision is not None:
        answer["revision"] = document.revision
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))


def _write_array(array: Array, parts: int) -> dict[str, Any]:
    what = f"array {array.name!r}"
    answer: dict[str, Any] = {
        "dims": list(array.dims),
        "shape": [int(n) for n in array.shape],
        "chunks": [int(n) for n in array.chunks],
        "dtype": array.dtype.name,
        "fill": write_scalar(array.fill),
        "encodings": [write_free(list(pipeline), what) for pipeline in array.encodings],
    }
    if array.edges is not None:
        answer["edges"] = [None if edges is None else [int(n) for n in edges] for edges in array.edges]
    if array.attributes:
        answer["attributes"] = write_free(array.attributes, what)
    if array.level:
        answer["level"] = int(array.level)
    if parts != 1:
        answer["parts"] = parts
    if array.georeference is not None:
        answer |= _write_georeference(array.georeference, what)
    return answer


def _write_georeference(place: Georeference, what: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"registration": place.registration}
    if place.crs is not None:
        answer["crs"] = place.crs
    if place.transform is not None:
        answer["transform"] = [float(v) for v in place.transform]
    if place.gcps:
        answer["gcps"] = [[float(v) for v in (p.column, p.row, p.x, p.y, p.z)] for p in place.gcps]
    if place.rpc is not None:
        answer["rpc"] = write_free(place.rpc, what)
    return answer


# --- in -------------------------------------------------------------------------------------------------------------


def load(source: str | bytes | Mapping[str, Any], *, limits: Limits, url: str | None = None) -> Document:
    """The document, every field of it checked; FormatError or LimitError where it is not sound."""
    try:
        return _load(_parse(source, limits) if isinstance(source, str | bytes) else source, limits)
    except PeriplusError as error:
        raise error.at(url=url) from error.__cause__
    except RecursionError:
        raise FormatError("the footer document is nested too deeply", url=url) from None


def _parse(source: str | bytes, limits: Limits) -> Any:
    limits.check("the footer document", len(source), limits.header_bytes)
    try:
        value = json.loads(source, parse_constant=_refuse_constant)
        if SURROGATE.search(source if isinstance(source, bytes) else source.encode()):
            json.dumps(value, ensure_ascii=False).encode()  # a pair is a character, a single one is none
        return value
    except UnicodeEncodeError:
        raise FormatError("a name or text of the footer document holds half a character") from None
    except ValueError as error:  # also bad UTF-8 and integers of absurd length
        if isinstance(error, PeriplusError):
            raise
        raise FormatError(f"the footer document is not JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise FormatError(f"the footer document holds a bare {name}, which is not JSON")


def _load(value: Any, limits: Limits) -> Document:
    fields = mapped(value, "the footer document")
    version = whole(fields.get("version"), "version", least=1)
    if version > VERSION:
        raise FormatError(f"this index has version {version}; this periplus reads versions up to {VERSION}")
    memory: dict[str, tuple[Pipeline, ...]] = {}
    listing = mapped(fields.get("arrays"), "arrays")
    arrays = {name: _read_array(name, item, limits, memory) for name, item in listing.items()}
    parts = {
        name: whole(item["parts"], f"array {name!r}: parts", least=1, most=PARTS)
        for name, item in listing.items()
        if "parts" in item
    }
    coordinates = {
        name: read_coordinate(_name(name), item, limits)
        for name, item in mapped(fields.get("coordinates", {}), "coordinates").items()
    }
    groups = mapped(fields.get("attributes", {}), "attributes")
    catalog = Catalog(
        arrays=arrays,
        coordinates=coordinates,
        attributes={_group(name): read_free(mapped(item, "attributes")) for name, item in groups.items()},
        arrangement=read_free(mapped(fields.get("arrangement", {}), "arrangement")),
    )
    _check_coordinates(catalog)
    pieces = fields.get("chunks")
    return Document(
        catalog=catalog,
        columns=read_columns(fields.get("columns", {}), arrays.values()),
        parts=parts,
        pieces=None if pieces is None else listed(pieces, "chunks", lambda item, _: _read_piece(item, catalog)),
        revision=None if fields.get("revision") is None else text(fields["revision"], "revision"),
    )


def _name(value: Any) -> str:
    return _checked_name(text(value, "a name"))


@lru_cache(maxsize=1024)  # thousands of arrays have the same few dimensions
def _checked_name(name: str) -> str:
    if not name or len(name) > 4096 or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise FormatError(f"{shown(name)} cannot be a name")
    return name


def _group(value: Any) -> str:
    return _name(value) if value != "" else ""


def _read_array(name: str, value: Any, limits: Limits, memory: dict[str, tuple[Pipeline, ...]]) -> Array:
    what = f"array {_name(name)!r}"
    fields = mapped(value, what)
    shape = listed(fields.get("shape"), f"{what}: shape", whole)
    rank = limits.check(f"{what}: rank", len(shape), limits.dims)
    dims = listed(fields.get("dims"), f"{what}: dims", lambda item, _: _name(item), size=rank)
    if len(set(dims)) != rank:
        raise FormatError(f"{what}: a dimension is named twice")
    chunks = listed(fields.get("chunks"), f"{what}: chunks", lambda item, at: whole(item, at, least=1), size=rank)
    kind = text(fields.get("dtype"), f"{what}: dtype")
    if kind not in DTYPES:
        raise FormatError(f"{what}: unknown dtype {shown(kind)}")
    dtype = DTYPES[kind]
    if math.prod(shape) > INT64:
        raise FormatError(f"{what} declares {math.prod(shape)} values, more than 64 bits can count")
    limits.check(f"{what}: bytes of one chunk", math.prod(chunks) * dtype.itemsize, limits.chunk_bytes)
    array = Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=read_scalar(fields.get("fill"), dtype, f"{what}: fill"),
        encodings=_read_encodings(fields.get("encodings", []), what, memory),
        attributes=read_free(mapped(fields.get("attributes", {}), f"{what}: attributes")),
        level=whole(fields.get("level", 0), f"{what}: level", most=255),
        georeference=_read_georeference(fields, what),
        edges=_read_edges(fields.get("edges"), shape, chunks, what),
    )
    if any(count > INT32 for count in array.grid):
        raise FormatError(f"{what}: more than {INT32} chunks along a dimension")
    return array


def _read_encodings(value: Any, what: str, memory: dict[str, tuple[Pipeline, ...]]) -> tuple[Pipeline, ...]:
    """Codec lists; arrays that are encoded alike share one object, which decoders are cached by."""
    key = json.dumps(value, sort_keys=True)
    if key not in memory:
        pipelines = listed(value, f"{what}: encodings", lambda item, at: listed(item, at, _read_codec))
        if len(pipelines) > PARTS:
            raise FormatError(f"{what}: more than {PARTS} encodings")
        memory[key] = pipelines
    return memory[key]


def _read_codec(value: Any, what: str) -> dict[str, Any]:
    codec = mapped(value, what)
    name = text(codec.get("name"), f"{what}: codec name")
    unknown = set(codec) - {"name", "configuration", "must_understand"}
    if unknown or not name:
        raise FormatError(f"{what}: codec {shown(name)} has an unknown field {sorted(unknown)}")
    if "configuration" not in codec:
        return read_free(codec)  # type: ignore[no-any-return]
    return read_free(codec | {"configuration": mapped(codec["configuration"], f"{what}: {name}")})  # type: ignore[no-any-return]


def _read_edges(value: Any, shape: tuple[int, ...], chunks: tuple[int, ...], what: str) -> Any:
    if value is None:
        return None

    def sizes(item: Any, at: str) -> tuple[int, ...] | None:
        return None if item is None else listed(item, at, lambda size, where: whole(size, where, least=1))

    edges = listed(value, f"{what}: edges", sizes, size=len(shape))
    for one, extent, chunk in zip(edges, shape, chunks, strict=True):
        if one is not None and sum(one) != extent:
            raise FormatError(f"{what}: edges add up to {sum(one)}, not to the extent {extent}")
        if one and max(one) != chunk:
            raise FormatError(f"{what}: the largest edge is {max(one)}, the chunk size says {chunk}")
    return edges


def _read_georeference(fields: Mapping[str, Any], what: str) -> Georeference | None:
    if not any(key in fields for key in ("crs", "transform", "registration", "gcps", "rpc")):
        return None
    crs, transform, rpc = fields.get("crs"), fields.get("transform"), fields.get("rpc")
    registration = fields.get("registration", "area")
    if registration not in ("area", "point"):
        raise FormatError(f"{what}: registration must be area or point, not {shown(registration)}")
    if crs is not None and type(crs) is not str:  # WKT may hold line breaks, so no check of characters
        raise FormatError(f"{what}: crs must be a string, not {shown(crs)}")
    gcps = listed(fields.get("gcps", []), f"{what}: gcps", lambda item, at: listed(item, at, real, size=5))
    return Georeference(
        crs=crs,
        transform=None if transform is None else listed(transform, f"{what}: transform", real, size=6),
        registration=registration,
        gcps=tuple(GroundControlPoint(column=c, row=r, x=x, y=y, z=z) for c, r, x, y, z in gcps),
        rpc=None if rpc is None else read_free(mapped(rpc, f"{what}: rpc")),
    )


def _check_coordinates(catalog: Catalog) -> None:
    for name, coordinate in catalog.coordinates.items():
        for array in catalog.arrays.values():
            extent = dict(zip(array.dims, array.shape, strict=True))
            if not set(coordinate.dims) <= set(extent):
                continue
            shape = tuple(extent[dim] for dim in coordinate.dims)
            if shape != coordinate.values.shape:
                raise FormatError(
                    f"coordinate {name!r} has shape {coordinate.values.shape}, array {array.name!r} needs {shape}"
                )


def _read_piece(value: Any, catalog: Catalog) -> Piece:
    fields = mapped(value, "chunks")
    path = _name(fields.get("path"))
    bounds: dict[str, tuple[tuple[int, int], ...]] = {}
    for name, box in mapped(fields.get("bounds", {}), f"{path}: bounds").items():
        if name not in catalog.arrays:
            raise FormatError(f"{path}: bounds of an unknown array {shown(name)}")
        rank = catalog.arrays[name].ndim
        bounds[name] = listed(box, f"{path}: bounds", lambda pair, at: listed(pair, at, whole, size=2), size=rank)
    return Piece(
        path=path,
        rows=whole(fields.get("rows"), f"{path}: rows"),
        bytes=whole(fields.get("bytes"), f"{path}: bytes", least=12),
        bounds=bounds,
    )
