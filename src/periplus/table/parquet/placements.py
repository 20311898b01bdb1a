"""Placements at rest: where the arrays of each file went, as a Parquet table of the index."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Placements
from periplus.table.collection.groups import GroupedArrays
from periplus.table.document.document import document_for, dump, load
from periplus.table.parquet.buffers import numbers, strings, to_numpy, to_strings, to_valid
from periplus.table.parquet.ranges import ParquetBytes, arrow_errors
from periplus.table.parquet.schema import integers, is_text

if TYPE_CHECKING:
    from periplus.table.table import Table

DESCRIPTIONS = "array_references_descriptions"
"""Footer key: the arrays as they are in files, as a document whose names begin with their numbers."""
NAMES = pa.dictionary(pa.int32(), pa.string())
PLAIN = {"file_id": pa.int32(), "source": pa.string(), "array": pa.string(), "order": pa.int64()}
ROW_BYTES = 64
"""Memory of a row, apart from its positions."""


def write_placements(placements: Placements, catalog: Catalog) -> bytes:
    """The placements as a Parquet file."""
    buffer = io.BytesIO()
    table = placements_to_arrow(placements, catalog)
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        use_dictionary=["source", "array"],
        column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table, row_group_size=1 << 17)
        writer.add_key_value_metadata({DESCRIPTIONS: dump_descriptions(placements)})
    return buffer.getvalue()


def dump_descriptions(placements: Placements) -> str:
    """The arrays as they are in files, as the text of a document."""
    named = {f"{number}/{array.name}": array for number, array in enumerate(placements.descriptions)}
    return dump(document_for(Catalog(arrays=named)))


def placements_to_arrow(placements: Placements, catalog: Catalog) -> pa.Table:
    """One row for each file and array of it; positions along a dimension are null for arrays without it."""
    code = np.ascontiguousarray(placements.description, np.int32)
    names = strings([array.name for array in placements.descriptions])
    columns: dict[str, pa.Array] = {
        "file_id": numbers(np.ascontiguousarray(placements.file, np.int32)),
        "source": pa.DictionaryArray.from_arrays(numbers(code), names),
        "description": numbers(code),
        "array": pa.DictionaryArray.from_arrays(
            numbers(np.maximum(placements.array, 0).astype(np.int32), valid=placements.array >= 0),
            strings(placements.arrays),
        ),
    }
    targets = [catalog.arrays[name] for name in placements.arrays]
    for dim, axis in _axes(targets):
        place = np.append(axis, -1)[placements.array]
        rows = np.arange(len(placements))
        for what, values in (("origin", placements.origin), ("extent", placements.extent)):
            # Where a target lacks the dimension its place is -1, and what the last column has is not shown.
            columns[f"{dim}_{what}"] = numbers(values[rows, place], valid=place >= 0)
    columns["order"] = numbers(np.ascontiguousarray(placements.order, np.int64))
    placed = ~np.isnan(placements.corner)
    for k, name in enumerate("xy"):
        columns[name] = numbers(np.ascontiguousarray(placements.corner[:, k]), valid=placed[:, k])
    return pa.table(columns)


def _axes(targets: Sequence[Array]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Every dimension, and its place in each target; -1 where a target lacks it."""
    for dim in dict.fromkeys(dim for target in targets for dim in target.dims):
        yield dim, np.array([t.dims.index(dim) if dim in t.dims else -1 for t in targets], np.int64)


def placements_view(table: Table) -> pa.Table:
    """Where the arrays of files went, whatever the arrangement: those of a collection follow from the files' groups."""
    catalog, placed = table.catalog, table.placements
    if placed is not None:
        return placements_to_arrow(placed, catalog).drop_columns(["description"])
    pieces = [_collected(table)] if catalog.arrangement.get("kind") == "collect" else []
    if isinstance(catalog.arrays, GroupedArrays):
        groups = catalog.arrays
        for number, family in enumerate(groups.families):
            rows = groups.of_family(number)
            names = groups.names.take(numbers(rows))
            pieces += [_whole(array, names, numbers(groups.file[rows])) for array in family.values()]
    empty = pa.table({name: pa.array([], kind) for name, kind in PLAIN.items()})
    return pa.concat_tables([empty, *pieces], promote_options="default")


def _collected(table: Table) -> pa.Table:
    """Placements of arrays that are listed one by one, each in the group of a file."""
    arrays = table.catalog.arrays
    plain = arrays.plain if isinstance(arrays, GroupedArrays) else arrays
    column = table.stored_files.columns.get("group")
    files = {} if column is None else {group: file for file, group in enumerate(column.tolist()) if group is not None}
    pieces = []
    for name, array in plain.items():
        at = len(name)
        while (at := name.rfind("/", 0, at)) > 0 and name[:at] not in files:
            pass
        group = name[: max(at, 0)]
        if group in files:
            inner = array.renamed(name[len(group) + 1 :] if group else name)
            pieces.append(_whole(inner, strings([group]), numbers(np.array([files[group]], np.int32))))
    return pa.concat_tables(pieces, promote_options="default") if pieces else pa.table({})


def _whole(array: Array, groups: pa.Array, files: pa.Array) -> pa.Table:
    """Placements of an array that each of these files has, and that is all of its target."""
    count = len(groups)
    names = [f"{group}/{array.name}" if group else array.name for group in to_strings(groups)]
    columns = {"file_id": files, "source": strings([array.name] * count), "array": strings(names)}
    for dim, extent in zip(array.dims, array.shape, strict=True):
        columns[f"{dim}_origin"] = numbers(np.zeros(count, np.int64))
        columns[f"{dim}_extent"] = numbers(np.full(count, extent, np.int64))
    return pa.table({**columns, "order": numbers(to_numpy(files).astype(np.int64))})


def read_placements(parts: Sequence[ParquetBytes], catalog: Catalog, files: int, limits: Limits) -> Placements:
    """The placements of an index of that many files, every number of them checked."""
    found = []
    for part in parts:
        with arrow_errors("the table of placements", part.url):
            count = int(part.metadata.num_rows)
            limits.check("the size of the table of placements", count * ROW_BYTES, limits.memory_bytes // 4)
            text = part.keys.get(DESCRIPTIONS.encode())
            if text is None:
                raise FormatError(f"the table of placements has no {DESCRIPTIONS}")
            tables = [table for _, table in part.read(range(part.groups), part.schema.names)]
            table = pa.concat_tables(tables) if tables else part.schema.empty_table()
            found.append(placements_from_arrow(table, text, catalog, files, limits))
    return found[0] if len(found) == 1 else joined_placements(found)


def placements_from_arrow(
    table: pa.Table, descriptions: str | bytes, catalog: Catalog, files: int, limits: Limits
) -> Placements:
    """The reverse of `placements_to_arrow`, every number checked; FormatError where one makes no sense."""
    described = _described(descriptions, limits)
    arrays, array = _targets(table)
    for name in arrays:
        if name not in catalog.arrays:
            raise FormatError(f"a placement is in {name!r}, which is no array of the index")
    targets = [catalog.arrays[name] for name in arrays]
    widest = max((target.ndim for target in targets), default=0)
    boxes = {what: np.zeros((table.num_rows, widest), np.int64) for what in ("origin", "extent")}
    for dim, axis in _axes(targets):
        place = np.append(axis, -1)[array]
        rows = np.flatnonzero(place >= 0)
        for what, values in boxes.items():
            column = _column(table, f"{dim}_{what}")
            if not to_valid(column)[rows].all():
                raise FormatError(f"the column {dim + '_' + what!r} of placements holds a null")
            values[rows, place[rows]] = integers(column, np.int64, f"{dim}_{what}", null=0)[rows]
    _check_boxes(boxes["origin"], boxes["extent"], array, targets, widest)
    file, description = _within(table, "file_id", files), _within(table, "description", len(described))
    _check_pairs(file, array, description, catalog.arrangement.get("kind") == "stack")
    _check_descriptions(array, description, boxes["extent"], targets, described)
    return Placements(
        file=file,
        description=description,
        array=array,
        origin=boxes["origin"],
        extent=boxes["extent"],
        order=integers(_column(table, "order"), np.int64, "order"),
        corner=np.stack([_reals(table, name) for name in "xy"], axis=1),
        descriptions=described,
        arrays=arrays,
    )


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise FormatError(f"the table of placements has no column {name!r}")
    return table[name]


def _described(text: str | bytes, limits: Limits) -> list[Array]:
    found = []
    for number, (name, array) in enumerate(load(text, limits=limits).catalog.arrays.items()):
        before, _, plain = name.partition("/")
        if before != str(number) or not plain:
            raise FormatError(f"the descriptions of placements count from 0, and {name!r} is number {number}")
        found.append(array.renamed(plain))
    return found


def _targets(table: pa.Table) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct names of target arrays, and the number of each row's; -1 for an array that is in none."""
    column = _column(table, "array")
    if not is_text(column.type):
        raise FormatError("the column 'array' of placements must hold names")
    names: dict[str, int] = {}
    found = [-1 if name is None else names.setdefault(name, len(names)) for name in to_strings(column)]
    return list(names), np.array(found, np.int32)


def _within(table: pa.Table, name: str, stop: int) -> NDArray[np.int32]:
    found: NDArray[np.int32] = integers(_column(table, name), np.int32, name)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < stop:
        raise FormatError(f"the column {name!r} of placements holds a number outside 0..{stop - 1}")
    return found


def _reals(table: pa.Table, name: str) -> NDArray[np.float64]:
    column = _column(table, name)
    if column.type != pa.float64():
        raise FormatError(f"the column {name!r} of placements must hold numbers")
    found = np.where(to_valid(column), to_numpy(column, null=0), np.nan)
    if np.isinf(found).any():
        raise FormatError(f"the column {name!r} of placements holds an infinite number")
    return found


def _check_boxes(
    origin: NDArray[np.int64],
    extent: NDArray[np.int64],
    array: NDArray[np.int32],
    targets: Sequence[Array],
    widest: int,
) -> None:
    """FormatError if a placement exceeds its array."""
    if not len(array):
        return
    shapes = np.zeros((len(targets), widest), np.int64)
    for number, target in enumerate(targets):
        shapes[number, : target.ndim] = target.shape
    allowed = np.append(shapes, np.zeros((1, widest), np.int64), axis=0)[array]
    if (origin < 0).any() or (extent < 0).any() or (origin > allowed).any() or (extent > allowed - origin).any():
        raise FormatError("a placement exceeds its array")


def _check_pairs(
    file: NDArray[np.int32], array: NDArray[np.int32], description: NDArray[np.int32], stacked: bool
) -> None:
    """FormatError where a file has two placements in one array, or two arrays of one description left out."""
    if stacked and (array < 0).any():
        raise FormatError("an array of a file of a stack is in no array")
    # Arrays that were left out are counted down from -1.
    which = np.where(array < 0, -1 - description.astype(np.int64), array)
    pairs = np.stack([file.astype(np.int64), which])
    if np.unique(pairs, axis=1).shape[1] != len(file):
        raise FormatError("a file has two placements in one array")


def _check_descriptions(
    array: NDArray[np.int32],
    description: NDArray[np.int32],
    extent: NDArray[np.int64],
    targets: Sequence[Array],
    described: Sequence[Array],
) -> None:
    """FormatError where a file's array cannot be a part of its target, or a placement has another extent than it."""
    placed = np.flatnonzero(array >= 0)
    kinds, which = np.unique(np.stack([array[placed], description[placed]]), axis=1, return_inverse=True)
    expected = np.zeros((kinds.shape[1], extent.shape[1]), np.int64)
    for kind, (target, source) in enumerate((targets[a], described[d]) for a, d in kinds.T.tolist()):
        lead = target.ndim - source.ndim
        if lead < 0 or target.dims[lead:] != source.dims or bool(target.encodings) != bool(source.encodings):
            raise FormatError(f"{source.name!r} of a file cannot be a part of {target.name!r}")
        expected[kind, : target.ndim] = (*[1] * lead, *source.shape)
    if not np.array_equal(expected[which.ravel()], extent[placed]):
        raise FormatError("a placement has another extent than the array of its file")


def joined_placements(parts: Sequence[Placements]) -> Placements:
    """Placements that were written in several parts."""
    described: list[Array] = []
    names: dict[str, int] = {}
    widest = max((part.origin.shape[1] for part in parts), default=0)
    columns: dict[str, list[Any]] = {name: [] for name in ("description", "array", "origin", "extent")}
    for part in parts:
        columns["description"].append(part.description + np.int32(len(described)))
        described += part.descriptions
        codes = np.array([*(names.setdefault(name, len(names)) for name in part.arrays), -1], np.int32)
        columns["array"].append(codes[part.array])
        for name in ("origin", "extent"):
            values = getattr(part, name)
            columns[name].append(np.pad(values, ((0, 0), (0, widest - values.shape[1]))))
    return Placements(
        file=np.concatenate([part.file for part in parts]),
        order=np.concatenate([part.order for part in parts]),
        corner=np.concatenate([part.corner for part in parts]),
        descriptions=described,
        arrays=list(names),
        **{name: np.concatenate(values) for name, values in columns.items()},
    )
