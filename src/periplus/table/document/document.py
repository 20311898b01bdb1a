"""The footer document: a catalog, column roles and parts as versioned JSON, strictly checked on the way in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from periplus import __version__
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog
from periplus.parse.json import (
    abbreviated,
    check_depth,
    check_integer,
    check_list,
    check_object,
    check_text,
    parse_json,
    walking,
)
from periplus.table.collection.groups import (
    GroupAttributes,
    GroupColumns,
    GroupedArrays,
    GroupParts,
    kind_of,
    kinds,
    row_capacity,
)
from periplus.table.document.arrays import PARTS, read_array, read_name, write_array
from periplus.table.document.columns import Columns, columns_for, read_columns, write_columns
from periplus.table.document.encodings import Memory
from periplus.table.document.families import read_families, read_groups, write_families
from periplus.table.document.values import read_coordinate, read_free, write_coordinate, write_free
from periplus.table.stored_form import KEY as KEY

VERSION = 3
"""What is written, and the newest that is read."""
FILES_KEY = b"array_references_files"
PLACEMENTS_KEY = b"array_references_placements"
WHAT = "the footer document"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """One Parquet file of a dataset's rows, with bounds that allow readers to skip it."""

    path: str
    """Relative to the dataset's folder."""
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By array: half-open range of chunk positions along each dimension."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexDocument:
    """The footer document of an index: everything but its rows and files."""

    catalog: Catalog
    columns: Columns
    parts: Mapping[str, int] = field(default_factory=dict)
    """By array: most byte ranges one chunk has, where that is not one."""
    pieces: tuple[PartFile, ...] | None = None
    """The Parquet files of a dataset; None in a flat table."""
    placements: tuple[PartFile, ...] = ()
    """The Parquet files of a dataset that hold its placements."""
    revision: str | None = None
    """Changes with every commit to a dataset."""

    @property
    def most_rows(self) -> int:
        """How many rows the declared grids admit."""
        return row_capacity(self.catalog.arrays, self.parts)


# --- out ------------------------------------------------------------------------------------------------------------


def document_for(catalog: Catalog, **changes: Any) -> IndexDocument:
    """A document with the columns that we write."""
    return IndexDocument(catalog=catalog, columns=columns_for(kinds(catalog.arrays)), **changes)


def dump(document: IndexDocument) -> str:
    """The document as JSON text, with no bare NaN."""
    with walking(WHAT):
        answer = _answer(document)
    check_depth(answer, what=WHAT)  # what is written can be read again
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))


def _answer(document: IndexDocument) -> dict[str, Any]:
    catalog = document.catalog
    groups = catalog.arrays if isinstance(catalog.arrays, GroupedArrays) else None
    listing = catalog.arrays if groups is None else groups.plain
    answer: dict[str, Any] = {
        "version": VERSION,
        "software": f"periplus {__version__}",
        "columns": write_columns(document.columns),
        "arrays": {name: write_array(array, document.parts.get(name, 1)) for name, array in listing.items()},
    }
    attributes = catalog.attributes
    if groups is not None:
        answer |= write_families(groups)
        attributes = attributes.plain if isinstance(attributes, GroupAttributes) else attributes
    if catalog.coordinates:
        answer["coordinates"] = {name: write_coordinate(c) for name, c in catalog.coordinates.items()}
    if attributes:
        answer["attributes"] = write_free(attributes, "attributes")
    if catalog.arrangement:
        # The groups of the files are a column of the files table.
        stated = {name: value for name, value in catalog.arrangement.items() if name != "groups"}
        answer["arrangement"] = write_free(stated, "arrangement")
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
    if document.placements:
        answer["placements"] = [
            {"path": piece.path, "rows": piece.rows, "bytes": piece.bytes} for piece in document.placements
        ]
    if document.revision is not None:
        answer["revision"] = document.revision
    return answer


# --- in -------------------------------------------------------------------------------------------------------------


def load(
    source: str | bytes | Mapping[str, Any],
    *,
    limits: Limits,
    url: str | None = None,
    members: Callable[[], GroupColumns] | None = None,
) -> IndexDocument:
    """The document, every field of it checked; FormatError or LimitError if it is invalid.

    `members` reads the group columns of the files table, which the document of a collection needs from version 3 on.
    """
    try:
        return _load(parse(source, limits) if isinstance(source, str | bytes) else source, limits, members)
    except PeriplusError as error:
        raise error.at(url=url) from error.__cause__


def parse(source: str | bytes, limits: Limits) -> Any:
    """The JSON of a document, nothing of it checked."""
    limits.check(f"the size of {WHAT}", len(source), limits.header_bytes)
    return parse_json(source, what=WHAT, limits=limits, constants=False)


def _load(value: Any, limits: Limits, members: Callable[[], GroupColumns] | None) -> IndexDocument:
    fields = check_object(value, "the footer document")
    version = check_integer(fields.get("version"), "version", least=1)
    if version > VERSION:
        raise FormatError(f"this index has version {version}; this periplus reads versions up to {VERSION}")
    memory: Memory = {}
    listing = check_object(fields.get("arrays"), "arrays")
    arrays: Mapping[str, Array] = {name: read_array(name, item, limits, memory) for name, item in listing.items()}
    parts: Mapping[str, int] = {
        name: check_integer(item["parts"], f"array {name!r}: parts", least=1, most=PARTS)
        for name, item in listing.items()
        if "parts" in item
    }
    coordinates = {
        name: read_coordinate(read_name(name), item, limits)
        for name, item in check_object(fields.get("coordinates", {}), "coordinates").items()
    }
    attributes: Mapping[str, Mapping[str, Any]] = {
        _group(name): read_free(check_object(item, "attributes"))
        for name, item in check_object(fields.get("attributes", {}), "attributes").items()
    }
    groups = None
    if version == 2 and "groups" in fields:
        groups = read_groups(fields, arrays, limits, memory)
    elif version > 2 and fields.get("families"):
        groups = read_families(fields, arrays, limits, memory, members)
    if groups is not None:
        arrays, attributes = groups, GroupAttributes(attributes, groups)
        parts = GroupParts(parts, groups) if groups.parts else parts
    catalog = Catalog(
        arrays=arrays,
        coordinates=coordinates,
        attributes=attributes,
        arrangement=read_free(check_object(fields.get("arrangement", {}), "arrangement")),
    )
    _check_coordinates(catalog)
    pieces = fields.get("chunks")
    if groups is not None:
        groups.look_up(_bounded(pieces))
    return IndexDocument(
        catalog=catalog,
        columns=read_columns(fields.get("columns", {}), kinds(arrays)),
        parts=parts,
        pieces=None if pieces is None else check_list(pieces, "chunks", lambda item, _: _read_piece(item, catalog)),
        placements=check_list(fields.get("placements", []), "placements", lambda item, _: _read_piece(item, catalog)),
        revision=None if fields.get("revision") is None else check_text(fields["revision"], "revision"),
    )


def _group(value: Any) -> str:
    return read_name(value) if value != "" else ""


def _check_coordinates(catalog: Catalog) -> None:
    if not catalog.coordinates:
        return
    # Arrays of one kind share the coordinates at the root, but not those of groups.
    for array in kinds(catalog.arrays) if set(catalog.scopes) == {""} else catalog.arrays.values():
        extent = dict(zip(array.dims, array.shape, strict=True))
        for name, coordinate in catalog.coordinates_of(array).items():
            shape = tuple(extent[dim] for dim in coordinate.dims)
            if shape != coordinate.values.shape:
                raise FormatError(
                    f"coordinate {name!r} has shape {coordinate.values.shape}, array {array.name!r} needs {shape}"
                )


def _bounded(pieces: Any) -> Iterator[str]:
    """Names of arrays of which parts have bounds; nothing of them is checked."""
    for piece in pieces if isinstance(pieces, list) else ():
        bounds = piece.get("bounds") if isinstance(piece, Mapping) else None
        yield from bounds if isinstance(bounds, Mapping) else ()


def _read_piece(value: Any, catalog: Catalog) -> PartFile:
    fields = check_object(value, "chunks")
    path = read_name(fields.get("path"))
    bounds: dict[str, tuple[tuple[int, int], ...]] = {}
    for name, box in check_object(fields.get("bounds", {}), f"{path}: bounds").items():
        kind = kind_of(catalog.arrays, name)
        if kind is None:
            raise FormatError(f"{path}: bounds of an unknown array {abbreviated(name)}")
        rank = kind.ndim
        bounds[name] = check_list(
            box, f"{path}: bounds", lambda pair, at: check_list(pair, at, check_integer, size=2), size=rank
        )
        if any(low > high for low, high in bounds[name]):
            raise FormatError(f"{path}: bounds of {abbreviated(name)} end before they begin")
    return PartFile(
        path=path,
        rows=check_integer(fields.get("rows"), f"{path}: rows"),
        bytes=check_integer(fields.get("bytes"), f"{path}: bytes", least=12),
        bounds=bounds,
    )
