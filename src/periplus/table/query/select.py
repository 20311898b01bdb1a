"""Selecting rows by array, level, chunk window, box and time: arithmetic on the grid, then a readable Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from periplus.errors import MissingError
from periplus.model import Array, BBox, Catalog, Refs
from periplus.table.collection.bundles import bundled
from periplus.table.document.columns import columns_for
from periplus.table.parquet.buffers import numbers
from periplus.table.parquet.schema import RowSchema, chunks_to_arrow
from periplus.table.query.boxes import ArrayBatch, Boxes, InDegrees, Reproject, batches, own_boxes
from periplus.table.query.footprint import (
    affine,
    bounds,
    chunk_boxes,
    chunk_range,
    chunk_window,
    corners,
    meets,
    spatial_axes,
    turns,
)
from periplus.table.query.times import time_coordinate, within

if TYPE_CHECKING:
    from periplus.table.table import Table, Window

ROW_BYTES, BOX_BYTES = 128, 96
"""Memory that a row takes at most on its way to Arrow (measured: 82 bytes when rows are sorted), and its box."""
BOX = ("xmin", "ymin", "xmax", "ymax")
TAKEN = {"array", "level", "part", "path", "offset", "length", "encoding", "crc32c", *BOX}


def select(
    table: Table,
    *,
    array: str | Sequence[str] | None = None,
    level: int | None = None,
    window: Window | Mapping[str, tuple[int, int]] | None = None,
    bbox: BBox | None = None,
    crs: str | None = None,
    time: Any = None,
    footprints: bool = False,
    reproject: Reproject | None = None,
    in_degrees: InDegrees | None = None,
) -> pa.Table:
    """Rows of the arrays that are asked for (all of them, unless named), each with its source as an absolute URL.

    `window` gives half-open ranges of chunk positions, for every dimension or by name; `bbox` is (xmin, ymin, xmax,
    ymax) in `crs`, by default the one CRS that the arrays share; `time` is one moment (a string may name a whole day,
    month or year), a pair, or a slice. Without a time dimension the files' own times count. `footprints` adds each
    chunk's box, in the CRS of its array. `reproject` brings a box from one CRS to another;
    `in_degrees` is whether a CRS has longitudes, so that a box may cross the antimeridian.
    """
    chosen = _chosen(table, array)
    if level is not None:
        chosen = _at_level(chosen, level)
    bbox = None if bbox is None else corners(bbox)
    asked: list[tuple[ArrayBatch, Boxes | None]] = [(one, None) for one in chosen]
    if bbox is not None:
        asked = own_boxes(chosen, bbox, crs, reproject, strict=array is not None, in_degrees=in_degrees)
    most = table.limits.memory_bytes // (ROW_BYTES + BOX_BYTES * footprints)
    files = None if time is None else _files_within(table, time)
    wanted = [_SelectedArray(table, *hit, window, time, files) for hit in _hits(table, asked, window, files)]
    wanted = [one for one in wanted if one.there]
    refs = table.listed_all([(one.array, one.box) for one in wanted], most=most)
    found = [(one.array, kept) for one, held in zip(wanted, refs, strict=True) if len(kept := one.kept(held))]
    return _readable(table, found, [one.kind for one, _ in asked], footprints)


def _files_within(table: Table, time: Any) -> NDArray[np.bool_]:
    """The files of a time; MissingError where the whole index has no times, so that no time could find anything."""
    moments = np.asarray(table.files.datetime)
    labelled = any(one.values.dtype.kind == "M" for one in table.catalog.coordinates.values())
    if len(moments) and np.isnat(moments).all() and not labelled:
        raise MissingError("the index has no times: no file has one, and no array has a dimension of times")
    return within(moments, time)


def _chosen(table: Table, array: str | Sequence[str] | None) -> list[ArrayBatch]:
    if array is None:
        return list(batches(table.catalog.arrays))
    names = [array] if isinstance(array, str) else array
    if not isinstance(names, Iterable):
        raise TypeError(f"array is the name of an array, such as 0/data, or several of them, not {array!r}")
    return [ArrayBatch(table.array(name)) for name in names]


def _at_level(chosen: list[ArrayBatch], level: int) -> list[ArrayBatch]:
    """The arrays of a level; ValueError where there are none."""
    if not isinstance(level, Integral) or isinstance(level, bool):
        raise TypeError(f"level is a number, 0 for full resolution, not {level!r}")
    found = [one for one in chosen if one.kind.level == level]
    if not found and chosen:
        there = sorted({one.kind.level for one in chosen})
        raise ValueError(f"there is no level {level}; the levels are {', '.join(map(str, there))}")
    return found


def _hits(
    table: Table, asked: Sequence[tuple[ArrayBatch, Boxes | None]], window: Any, files: NDArray[np.bool_] | None
) -> Iterator[tuple[Array, tuple[BBox, ...] | None]]:
    """The arrays that may have rows, in the order of the catalog, each with the box in its own CRS.

    There are two boxes where it meets both ends of an array, across the antimeridian.
    """
    places: list[tuple[int, int, int]] = []
    for number, (batch, _) in enumerate(asked):
        if batch.groups is None or batch.rows is None:
            places.append((-1, number, 0))
            continue
        if (named := _named_window(batch.kind, window)) is not None:
            _common(batch.kind, [(0, count) for count in batch.kind.grid], named)
        there = np.arange(len(batch))
        if files is not None and not any(
            set(c.dims) <= set(batch.kind.dims) for c in table.catalog.coordinates.values()
        ):
            file = batch.groups.file[batch.rows]
            there = there[(file < 0) | files[file]]  # the time of a group is that of its file
        places += zip(batch.rows[there].tolist(), [number] * len(there), there.tolist(), strict=True)
    for _, number, which in sorted(places):
        batch, boxes = asked[number]
        array = batch.array(which)
        if boxes is None:
            yield array, None
            continue
        box: Any = tuple(boxes[:, which].tolist())
        whole = bounds(array) if batch.degrees else None
        yield array, (box,) if whole is None else turns(box, whole)


def _named_window(array: Array, window: Any) -> Window | None:
    if window is None or not isinstance(window, Mapping):
        return window
    unknown = set(window) - set(array.dims)
    if unknown:
        raise ValueError(f"array {array.name!r} has no dimension {sorted(unknown)[0]!r}")
    return [window.get(dim, (0, count)) for dim, count in zip(array.dims, array.grid, strict=True)]


class _SelectedArray:
    """An array, the window of its chunks that may be asked for, and which rows in it are."""

    def __init__(
        self,
        table: Table,
        array: Array,
        boxes: tuple[BBox, ...] | None,
        window: Any,
        time: Any,
        files: NDArray[np.bool_] | None,
    ) -> None:
        """`files` marks the files of the time, for arrays that have no dimension of it."""
        self.array, self._boxes, self._files = array, boxes, files
        self.box = [(0, count) for count in array.grid]
        if (named := _named_window(array, window)) is not None:
            self.box = _common(array, self.box, named)
        found = [chunk_window(array, box) for box in boxes or ()]
        self._windows = [one for one in found if all(low < high for low, high in one)]
        if boxes is not None:
            # In the order of dimensions; what is between two windows is not kept.
            ends = [[one[axis] for one in self._windows] or [(0, 0)] for axis in range(array.ndim)]
            spans = [(min(low for low, _ in each), max(high for _, high in each)) for each in ends]
            self.box = _common(array, self.box, spans)
        self._steps: tuple[int, NDArray[np.bool_]] | None = None
        coordinate = None if time is None else time_coordinate(table.catalog, array)
        if time is not None and coordinate is not None:
            axis = array.dims.index(coordinate.dims[0])
            self._steps = axis, chunks_holding(array, axis, within(coordinate.values, time))
            hits = np.flatnonzero(self._steps[1])
            around = [(0, count) for count in array.grid]
            around[axis] = (int(hits[0]), int(hits[-1]) + 1) if hits.size else (0, 0)
            self.box = _common(array, self.box, around)
        never = self._steps is None and files is not None and not files.any()
        self.there = not never and all(low < high for low, high in self.box)

    def kept(self, refs: Refs) -> Refs:
        """Of the rows in the window those that are asked for."""
        keep = np.ones(len(refs), bool)
        if self._steps is not None:
            keep &= self._steps[1][refs.chunk[self._steps[0]]]
        elif self._files is not None:
            fits = np.append(self._files, False)  # the last, for the -1 of inline rows
            keep &= fits[0] if refs.file is None else fits[refs.file]
        if len(self._windows) > 1:
            keep &= np.any([_inside(refs, window) for window in self._windows], axis=0)
        if self._boxes is not None and _rotated(self.array):
            rows, columns = spatial_axes(self.array) or (0, 0)
            around = chunk_boxes(self.array, refs.chunk[rows], refs.chunk[columns])
            keep &= np.any([meets(around, box) for box in self._boxes], axis=0)
        return refs if keep.all() else refs.take(keep)


def _inside(refs: Refs, window: Window) -> NDArray[np.bool_]:
    """Which rows are in a window of chunks."""
    held = [(refs.chunk[axis] >= low) & (refs.chunk[axis] < high) for axis, (low, high) in enumerate(window)]
    return np.asarray(np.all(held, axis=0))


def _common(array: Array, one: Window, two: Window) -> list[tuple[int, int]]:
    if len(one) != len(two):
        raise ValueError(f"array {array.name!r} has {array.ndim} dimensions, the window {len(two)}")
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, two, strict=True)]
    return [(low, max(low, high)) for low, high in both]


def _rotated(array: Array) -> bool:
    transform = affine(array)
    return transform is not None and (transform[1] != 0 or transform[3] != 0)


def chunks_holding(array: Array, axis: int, elements: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which chunks along a dimension hold at least one of the elements."""
    if array.chunks[axis] == 1 and (array.edges is None or array.edges[axis] is None):
        return elements
    mask = np.zeros(array.grid[axis], bool)
    for element in np.flatnonzero(elements).tolist():
        mask[chunk_range(array, axis, element, element + 1)[0]] = True
    return mask


# --- the answer -----------------------------------------------------------------------------------------------------


def _readable(table: Table, found: list[tuple[Array, Refs]], chosen: list[Array], footprints: bool) -> pa.Table:
    columns = columns_for(chosen)
    asked = [*chosen, *(one for one, _ in found)] if table.catalog.coordinates else []
    known = [time_coordinate(table.catalog, one) for one in asked]
    times = dict.fromkeys(one.dims[0] for one in known if one is not None and one.dims[0] not in TAKEN)
    extras = {"level"}
    extras |= {"part"} if any(refs.part is not None for _, refs in found) else set()
    extras |= {"encoding"} if any(refs.encoding is not None for _, refs in found) else set()
    extras |= {"crc32c"} if any(refs.crc32c is not None for _, refs in found) else set()
    # Whole columns at once: a table for each of many thousand arrays would each drag the dictionary of all paths along.
    rows = bundled([(array, replace(refs, inline=None)) for array, refs in found])
    layout = RowSchema(columns=columns, extras=frozenset(extras), paths=table.files.path)
    plain = chunks_to_arrow(rows, layout)
    names = plain.column_names
    first = 2 + len(columns.chunk)  # array, level and positions
    made = [(name, plain[name]) for name in names[:first]]
    made += [(dim, _moments(found, dim, table.catalog)) for dim in times]
    made += [(name, plain[name]) for name in names[first:]]
    made += _footprints(found) if footprints else []
    return pa.Table.from_arrays([column for _, column in made], [name for name, _ in made])


def _moments(found: list[tuple[Array, Refs]], dim: str, catalog: Catalog) -> pa.Array:
    """The moment at which each chunk begins; null for arrays without times along that dimension."""
    values = []
    for array, refs in found:
        coordinate = time_coordinate(catalog, array)
        if coordinate is not None and coordinate.dims[0] == dim:
            axis = array.dims.index(dim)
            labels = coordinate.values.astype("datetime64[us]")
            values.append(labels[array.starts(axis)[refs.chunk[axis]]])
        else:
            values.append(np.full(len(refs), "NaT", "datetime64[us]"))
    moments = np.concatenate([np.empty(0, "datetime64[us]"), *values])
    return numbers(moments.view(np.int64), valid=~np.isnat(moments), kind=pa.timestamp("us"))


def _footprints(found: list[tuple[Array, Refs]]) -> list[tuple[str, pa.Array]]:
    """The box of every chunk; null for arrays without a transform."""
    boxes = [np.empty((4, 0))]
    for array, refs in found:
        axes = spatial_axes(array)
        if affine(array) is None or axes is None:
            boxes.append(np.full((4, len(refs)), np.nan))
        else:
            boxes.append(np.array(chunk_boxes(array, refs.chunk[axes[0]], refs.chunk[axes[1]])))
    whole = np.concatenate(boxes, axis=1)
    return [(name, numbers(values, valid=~np.isnan(values))) for name, values in zip(BOX, whole, strict=True)]
