"""A mosaic of elevation cells (DTED): one array for each spacing, each cell one chunk, shared posts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from periplus.arrange.arrangement import (
    REPLACED,
    Arrangement,
    FileEntry,
    Lookup,
    Placement,
    array_path,
    assemble,
    file_column,
    files_table,
)
from periplus.arrange.compatibility import Misfits, reference_files
from periplus.arrange.encodings import mosaic_encodings
from periplus.arrange.messages import file_names, name_difference
from periplus.arrange.mosaic.origin import GRID_TOLERANCE, transform_of
from periplus.arrange.mosaic.overlap import overlay_order, rank_files
from periplus.arrange.packing import common_attributes
from periplus.errors import ConflictError
from periplus.model import Array, Codec, Encoding, Georeference, Refs, Region, codecnames

ROWS = 1 << 16
"""Rows of a block."""
NEIGHBOURS = ((1, -1), (1, 0), (0, -1))
"""(rows south, columns east) of the cells that repeat posts of a cell: those in the south-west, south and west."""

CellPosition: TypeAlias = tuple[int, int]
"""(row, column) of a cell, from the north-west."""


def mosaic_elevation(
    entries: Sequence[FileEntry], refs: Lookup, *, duplicates: str, order: str, skip_misfits: bool
) -> Arrangement:
    """Arrange cells of one grid in one array for each spacing.

    A cell has the posts of its southern and western edges; those of its northern and eastern edges belong to the next
    cell, except in the northernmost row and the easternmost column. A missing cell is null except for the edges that
    its neighbours have. Of several files for one cell, `duplicates` takes the `first` or the `last` in `order`, or is
    an error; with `first-valid` or `last-valid`, posts that are null in one file are taken from another.
    """
    misfits = Misfits(entries, skip_misfits)
    replaced: dict[int, str] = {}
    arrays: list[ElevationArray] = []
    spacings = _by_spacing(entries, misfits)
    numbers = [i for same in spacings.values() for i in same]
    covers = overlay_order(rank_files(entries, numbers, order), duplicates)
    for name, same in spacings.items():
        grid = _cell_grid(same, entries, misfits)
        for cell in grid.cells.values():
            _resolve_duplicates(cell, entries, replaced, duplicates, covers)
        array = _array(grid, entries, array_path(name if len(spacings) > 1 else "", "0/data"))
        arrays.append(_elevation_array(array, grid.cells, entries, covers, valid=duplicates.endswith("valid")))
    if not arrays:
        raise ConflictError("there is no elevation cell for a mosaic")
    return assemble(
        arrays,
        refs,
        files=files_table(entries, errors={**misfits.errors, **replaced}),
        record={"kind": "mosaic"},
        attributes={},
        misfits=misfits.reasons,
    )


def is_elevation_cell(arrays: tuple[Array, ...]) -> bool:
    """Whether a file is an elevation cell."""
    codecs = arrays[0].encodings[0].codecs if len(arrays) == 1 and len(arrays[0].encodings) == 1 else ()
    return len(codecs) == 1 and codecs[0].get("name") == codecnames.DTED


def _by_spacing(entries: Sequence[FileEntry], misfits: Misfits) -> dict[str, list[int]]:
    """Entries by spacing, named in arc seconds, latitude before longitude; from fine to coarse.

    The spacing in longitude changes with latitude.
    """
    found: dict[tuple[float, ...], list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.error is not None:
            continue
        if (reason := _cell_problem(entry.arrays)) is not None:
            misfits.add(i, reason)
            continue
        dx, dy = _spacing(entry.arrays[0])
        found.setdefault((round(dy * 3600, 4), round(dx * 3600, 4), *entry.arrays[0].shape[1:]), []).append(i)
    named: dict[str, list[int]] = {}
    for (dy, dx, *_shape), numbers in sorted(found.items()):
        named.setdefault(f"{dy:g}x{dx:g}", []).extend(numbers)
    return named


def _cell_problem(arrays: tuple[Array, ...]) -> str | None:
    """Why a file cannot be a cell of the mosaic, or None."""
    if not is_elevation_cell(arrays):
        return "the mosaic is one of DTED cells, and this file is not one"
    place = arrays[0].georeference
    if min(arrays[0].shape[1:]) < 2:
        return "the cell has a single line or post"
    if place is None or place.transform is None:
        return "the cell has no georeference"
    return None


def _spacing(array: Array) -> tuple[float, float]:
    """Degrees between posts, (longitude, latitude)."""
    transform = transform_of(array)
    return transform[0], -transform[4]


@dataclass(slots=True, kw_only=True, eq=False)
class CellGrid:
    """Cells of one spacing."""

    like: Array
    west: float
    north: float
    """Pixel corner of the whole grid."""
    cells: dict[CellPosition, list[int]]
    """The entries of each cell."""


def _cell_grid(numbers: Sequence[int], entries: Sequence[FileEntry], misfits: Misfits) -> CellGrid:
    """Cells by position; the first cell defines the grid."""
    reference = reference_files(entries, numbers)[0]
    first = entries[reference].arrays[0]
    (dx, _, west, _, _, north), (_, posts, lines) = transform_of(first), first.shape
    dy = _spacing(first)[1]
    found: dict[CellPosition, list[int]] = {}
    for i in numbers:
        array = entries[i].arrays[0]
        if array.shape != first.shape or _crs(array) != _crs(first):
            ours, theirs = file_names(entries[i], entries[reference])
            misfits.add(
                i,
                f"{ours} does not fit {theirs}: it has {array.shape[2]} lines of {array.shape[1]} posts on the datum "
                f"{_crs(array)}, not {lines} of {posts} on {_crs(first)}",
            )
            continue
        corner = transform_of(array)
        column, row = (corner[2] - west) / dx, (north - corner[5]) / dy
        cell = (round(row / (posts - 1)), round(column / (lines - 1)))
        off = max(abs(row - cell[0] * (posts - 1)), abs(column - cell[1] * (lines - 1)))
        if off > GRID_TOLERANCE:
            misfits.add(i, f"its posts are {off:.3g} of the spacing off the grid of the other cells")
            continue
        found.setdefault(cell, []).append(i)
    top, left = min(row for row, _ in found), min(column for _, column in found)
    return CellGrid(
        like=first,
        west=west + left * (lines - 1) * dx,
        north=north - top * (posts - 1) * dy,
        cells={(row - top, column - left): same for (row, column), same in found.items()},
    )


def _resolve_duplicates(
    same: list[int], entries: Sequence[FileEntry], replaced: dict[int, str], duplicates: str, covers: Mapping[int, int]
) -> None:
    """Keep the files of one cell that are shown, the one on top last."""
    if len(same) > 1 and duplicates == "error":
        one, other = entries[same[0]], entries[same[1]]
        names = file_names(one, other)
        # Averages, minima and maxima of a cell are files with other extensions: taking one of them would lose data.
        one_kind = len({name.rpartition(".")[2].lower() for name in names}) == 1
        hint = "duplicates='first' or 'last' takes one of each" if one_kind else "index the files of each separately"
        raise ConflictError(
            f"{names[0]} and {names[1]} are the same cell and {name_difference(one, other)}: {hint}",
            url=other.source.url,
        )
    same.sort(key=covers.__getitem__)
    if not duplicates.endswith("valid"):
        for i in same[:-1]:
            names = file_names(entries[same[-1]], entries[i])
            replaced[i] = f"{REPLACED}{names[0]} is the same cell and is taken"
        del same[:-1]


def _crs(array: Array) -> str | None:
    return None if array.georeference is None else array.georeference.crs


def _array(grid: CellGrid, entries: Sequence[FileEntry], name: str) -> Array:
    """The array of a grid, without its encodings."""
    rows, columns = (max(position[k] for position in grid.cells) + 1 for k in (0, 1))
    _, posts, lines = grid.like.shape
    heights = (posts, *[posts - 1] * (rows - 1))
    widths = (*[lines - 1] * (columns - 1), lines)
    dx, dy = _spacing(grid.like)
    members = [entries[i].arrays[0] for same in grid.cells.values() for i in same]
    return replace(
        grid.like,
        name=name,
        shape=(1, sum(heights), sum(widths)),
        chunks=(1, posts, lines),
        attributes=common_attributes(array.attributes for array in members),
        georeference=Georeference(
            crs=_crs(grid.like), transform=(dx, 0.0, grid.west, 0.0, -dy, grid.north), registration="point"
        ),
        edges=None if rows == columns == 1 else (None, heights, widths),
    )


# --- chunks -----------------------------------------------------------------------------------------------------------


class CellPart(NamedTuple):
    """A file in a chunk."""

    entry: int
    code: int
    """Number of its encoding."""


@dataclass(frozen=True, slots=True, eq=False)
class ElevationArray:
    """An array and the files of each of its chunks, the one on top last."""

    array: Array
    chunks: Mapping[CellPosition, Sequence[CellPart]]
    placements: Sequence[Placement]

    def blocks(self, refs: Lookup) -> Iterator[tuple[str, Refs]]:
        rows: list[tuple[int, int, int, int]] = []
        found: list[Refs] = []
        for (row, column), parts in sorted(self.chunks.items()):
            number = 0
            for entry, code in parts:
                each = refs(entry, 0)
                found.append(replace(each, file=file_column(each, entry)))
                rows += [(row, column, code, number + k) for k in range(len(each))]
                number += len(each)
            if len(rows) >= ROWS:
                yield self.array.name, _join(rows, found)
                rows, found = [], []
        if rows:
            yield self.array.name, _join(rows, found)


def _elevation_array(
    array: Array,
    cells: Mapping[CellPosition, Sequence[int]],
    entries: Sequence[FileEntry],
    covers: Mapping[int, int],
    *,
    valid: bool,
) -> ElevationArray:
    """Each cell without the edges of other cells; neighbours fill missing cells and, with `valid`, null posts."""
    encodings = mosaic_encodings(array.name)
    last = array.grid[-1] - 1
    chunks: dict[CellPosition, list[CellPart]] = {}
    for row, column in _chunks_with_posts(cells, array.grid[-2:]):
        own = cells.get((row, column), ())
        if own and not valid:
            (entry,) = own
            trims = {"trim_top": int(row > 0), "trim_right": int(column < last)}
            code = encodings.number(Encoding((_with_settings(_codec(entries[entry]), trims),)))
            chunks[row, column] = [CellPart(entry, code)]
            continue
        parts: list[CellPart] = []
        for south, east in (*NEIGHBOURS, (0, 0)):
            for entry in cells.get((row + south, column + east), ()):
                cell = entries[entry].arrays[0]
                region = _region(cell, row, column, south, east, last)
                encoding = Encoding(cell.encodings[0].codecs, extent=cell.chunks, region=region)
                code = encodings.number(encoding)
                if parts and parts[-1].code == code:
                    # Successive parts of one encoding would be read as one region in two parts.
                    code = encodings.number(replace(encoding, region=replace(region, layer=1)))
                parts.append(CellPart(entry, code))
        chunks[row, column] = parts
    return ElevationArray(
        replace(array, encodings=tuple(encodings.encodings)), chunks, _placements(array.name, cells, entries, covers)
    )


def _placements(
    name: str, cells: Mapping[CellPosition, Sequence[int]], entries: Sequence[FileEntry], covers: Mapping[int, int]
) -> list[Placement]:
    found = []
    for (row, column), same in cells.items():
        for i in same:
            _, posts, lines = shape = entries[i].arrays[0].shape
            found.append(Placement(i, 0, name, (0, row * (posts - 1), column * (lines - 1)), shape, covers[i]))
    return found


def _chunks_with_posts(cells: Iterable[CellPosition], grid: tuple[int, ...]) -> list[CellPosition]:
    """Chunks that some file has posts of."""
    cells = list(cells)
    found = {*cells, *((row - south, column - east) for row, column in cells for south, east in NEIGHBOURS)}
    return sorted((row, column) for row, column in found if row >= 0 and column < grid[1])


def _region(cell: Array, row: int, column: int, south: int, east: int, last: int) -> Region:
    """The posts of a chunk that the cell `south` and `east` of it has."""
    _, posts, lines = cell.shape
    top, right = int(row > 0), int(column < last)
    height, width = posts - top, lines - right
    # A neighbour in the south has the last row of the chunk as its first, one in the west the first column as its last.
    y = (0, height - 1, 1) if south else (top, 0, height)
    x = (lines - 1, 0, 1) if east else (0, 0, width)
    nodata = cell.fill if isinstance(cell.fill, int | float) else None
    return Region(begin=(0, y[0], x[0]), at=(0, y[1], x[1]), size=(1, y[2], x[2]), transparent=nodata)


def _codec(entry: FileEntry) -> Codec:
    (codec,) = entry.arrays[0].encodings[0].codecs
    return codec


def _with_settings(codec: Codec, settings: Mapping[str, Any]) -> Codec:
    return {**codec, "configuration": {**codec["configuration"], **settings}}


def _join(rows: Sequence[tuple[int, int, int, int]], found: Sequence[Refs]) -> Refs:
    row, column, code, part = np.array(rows, np.int64).T
    return replace(
        Refs.joined(found, 3),
        chunk=np.stack([np.zeros_like(row), row, column]).astype(np.int32),
        part=part.astype(np.uint16) if part.any() else None,
        encoding=code.astype(np.uint16) if code.any() else None,
    )
