"""From a mosaic back to its files: their references, as if they had just been scanned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.layer import common
from periplus.arrange.packing import pipeline_key, without_packing
from periplus.arrange.spot import spot
from periplus.codecnames import CROP, PIECE, UNPACK
from periplus.harvest.members import Members
from periplus.harvest.part import Builder, Fact, Part
from periplus.model import Array, Catalog, Pipeline, Refs

if TYPE_CHECKING:
    from periplus.harvest.known import Index
    from periplus.table import Table

HEADS = frozenset({CROP, PIECE, UNPACK})
"""Codecs that a mosaic puts before those of a file."""
TRIMS = ("trim_top", "trim_bottom", "trim_left", "trim_right")


def undo_mosaic(index: Index, members: Members, wanted: Collection[int]) -> tuple[Part, list[Fact], dict[int, int]]:
    """The wanted files as if they had just been scanned; those of which the index lacks a row have no slot."""
    files, catalog = index.files, index.table.catalog
    keep = _remembered(index, members, wanted)
    shared = _shared(catalog, members)
    rows = _rows_of_files(index.table, members, shared, keep)
    builder, slots = Builder(), {}
    for owner in np.flatnonzero(keep).tolist():
        arrays = members.arrays(owner, shared)
        number = members.kind[owner]
        assert number is not None
        every = [_once(rows.get((owner, array.name), []), array) for array in arrays]
        if any(len(each) != count for each, (_, count) in zip(every, members.kinds[number], strict=True)):
            continue
        fact = Fact(
            source=files.source(owner),
            format=files.format[owner],
            datetime=index.moment(owner),
            attributes=catalog.attributes.get("", {}),
            prefix=members.series,
        )
        slots[owner] = builder.add(fact, arrays, [array.grid for array in arrays], every)
    facts = builder.facts
    return builder.build(), facts, slots


def _remembered(index: Index, members: Members, wanted: Collection[int]) -> NDArray[np.bool_]:
    """Which files of the table are wanted and told of."""
    keep = np.zeros(len(index.files), bool)
    if index.table.catalog.arrangement.get("left_out") and len(wanted) < len(index.by_url):
        return keep  # what was left out because of a file that is gone may fit now
    keep[[n for n in wanted if n < len(members.kind) and members.kind[n] is not None]] = True
    return keep


def _shared(catalog: Catalog, members: Members) -> dict[str, Mapping[str, Any]]:
    """What all files say of their arrays, by the name these have in a file."""
    shared: dict[str, Mapping[str, Any]] = {}
    for name, local in members.names.items():
        found = without_packing(catalog.arrays[name].attributes)
        shared[local] = common([shared[local], found]) if local in shared else found
    return shared


def _rows_of_files(
    table: Table, members: Members, shared: Mapping[str, Mapping[str, Any]], keep: NDArray[np.bool_]
) -> dict[tuple[int, str], list[Refs]]:
    """References by file and name of the array in it; `keep` loses files whose rows do not all come back."""
    rows: dict[tuple[int, str], list[Refs]] = {}
    for name, block in table.blocks():
        file = np.zeros(len(block), np.int32) if block.file is None else block.file
        if block.inline is not None:
            keep[file[file >= 0]] = False
        order = np.lexsort((np.zeros(len(block)) if block.part is None else block.part, *block.chunk[::-1], file))
        order = order[(file[order] >= 0) & keep[np.maximum(file[order], 0)]]
        ordered = block.take(order)
        owners = file[order]
        starts = np.flatnonzero(np.diff(owners, prepend=-2))
        try:
            undone = _Undoing(table.catalog.arrays[name])
        except (KeyError, TypeError, ValueError, OverflowError):  # settings that are none of ours: no file comes back
            keep[:] = False
            break
        for start, stop in pairwise([*starts.tolist(), len(owners)]):
            owner, local = int(owners[start]), members.names[name]
            array = next((a for a in members.arrays(owner, shared) if a.name == local), None)
            own = None if array is None else undone.refs(ordered.take(slice(start, stop)), array)
            if own is None:
                keep[owner] = False
            else:
                rows.setdefault((owner, local), []).append(own)
    return rows


def moment(value: np.datetime64) -> datetime | None:
    """An instant of the files table, aware."""
    if np.isnat(value):
        return None
    found: datetime = value.astype("datetime64[us]").item()
    return found.replace(tzinfo=UTC)


class _Undoing:
    """Rows of an array of a mosaic back to the chunks of its files."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._starts = [array.starts(d) for d in range(array.ndim)]
        shifts = [_shift(pipeline, array.ndim) for pipeline in array.encodings]
        self._shift = np.array(shifts, np.int64).reshape(-1, array.ndim)
        self._plain = [_stripped(pipeline) for pipeline in array.encodings]
        self._codes: dict[tuple[str, ...], NDArray[np.int64]] = {}

    def refs(self, rows: Refs, array: Array) -> Refs | None:
        """The rows of one file, some of them more than once; None where they are not of it."""
        corner = spot(array, self._array)
        if isinstance(corner, str):
            return None
        code = np.zeros(len(rows), np.intp) if rows.encoding is None else rows.encoding.astype(np.intp)
        places = []
        begin = (*(0 for _ in array.shape[:-2]), *corner)
        for dim in range(array.ndim):
            pixel = self._starts[dim][rows.chunk[dim]] + self._shift[code, dim] - begin[dim]
            chunk = np.searchsorted(array.starts(dim), pixel, side="right") - 1
            if len(chunk) and not 0 <= chunk.min() <= chunk.max() < array.grid[dim]:
                return None
            places.append(chunk)
        own = self._own(array)[code]
        if (own < 0).any():
            return None
        return Refs(
            chunk=np.stack(places).astype(np.int32),
            offset=rows.offset,
            length=rows.length,
            part=_parts(rows, code),
            encoding=own.astype(np.uint16),
        )

    def _own(self, array: Array) -> NDArray[np.int64]:
        """The number in the file of each pipeline; -1 where it is none of the file's."""
        keys = tuple(_stripped(pipeline) for pipeline in array.encodings)
        if keys not in self._codes:
            numbers = {key: n for n, key in enumerate(keys)}
            self._codes[keys] = np.array([numbers.get(key, -1) for key in self._plain], np.int64)
        return self._codes[keys]


def _shift(pipeline: Pipeline, rank: int) -> list[int]:
    """From the start of the mosaic's chunk to that of the stored one, along each dimension."""
    for codec in pipeline:
        settings = codec.get("configuration") or {}
        if codec["name"] == PIECE:
            return [at - first for at, first in zip(settings["at"], settings["from"], strict=True)]
        if "trim_top" in settings:
            return [*[0] * (rank - 2), -settings["trim_top"], -settings["trim_left"]]
    return [0] * rank


def _stripped(pipeline: Pipeline) -> str:
    """The pipeline as the file has it, as text."""
    kept = []
    for codec in pipeline:
        if codec["name"] in HEADS:
            continue
        settings = codec.get("configuration")
        if settings and "trim_top" in settings:
            codec = {**codec, "configuration": {**settings, **dict.fromkeys(TRIMS, 0)}}
        kept.append(codec)
    return pipeline_key(tuple(kept))


def _parts(rows: Refs, code: NDArray[np.intp]) -> NDArray[np.uint16] | None:
    """Parts of each stored chunk, counted from 0; rows are sorted by chunk and part."""
    if rows.part is None:
        return None
    part = rows.part.astype(np.int64)
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows.chunk[:, 1:] != rows.chunk[:, :-1]).any(axis=0)
    begins[1:] |= (code[1:] != code[:-1]) | (part[1:] != part[:-1] + 1)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    return (part - part[first]).astype(np.uint16)


def _once(found: Sequence[Refs], array: Array) -> Refs:
    """Each stored chunk once, in order."""
    refs = Refs.joined(found, array.ndim)
    if not len(refs):
        return refs
    part = np.zeros(len(refs), np.int64) if refs.part is None else refs.part.astype(np.int64)
    _, rows = np.unique(np.concatenate([refs.chunk, part[None]]), axis=1, return_index=True)
    once = refs.take(rows)
    encoding = once.encoding if once.encoding is not None and once.encoding.any() else None
    return replace(once, encoding=encoding, part=once.part if part.any() else None)
