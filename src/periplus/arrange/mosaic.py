"""mosaic: elevation cells side by side become one array, each cell one chunk; posts that two cells share occur once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from periplus.arrange.collect import owners, placed
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of, short_names
from periplus.arrange.layer import common
from periplus.arrange.overlap import RULES
from periplus.arrange.packing import pipeline_key
from periplus.arrange.stack import Misfits
from periplus.errors import ConflictError, FormatError
from periplus.model import Array, Catalog, Georeference, Pipeline, Refs

CELL_CODEC = "https://awslabs.github.io/osml-imagery-io/codecs/dted"
PHASE = 1e-3
"""Part of a post by which the corner of a cell may be off the grid of the others."""


@dataclass(slots=True, kw_only=True, eq=False)
class Zone:
    """Cells of one spacing; spacing in longitude changes with latitude, and each spacing is an array of its own."""

    name: str
    like: Array
    west: float
    north: float
    """Pixel corner of the whole."""
    cells: dict[tuple[int, int], int] = field(default_factory=dict)
    """Entries by (row, column) of cells, from the north-west."""
    pipelines: dict[str, int] = field(default_factory=dict)
    encodings: list[Pipeline] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    """Number of the pipeline of each entry."""

    @property
    def grid(self) -> tuple[int, int]:
        return max(row for row, _ in self.cells) + 1, max(column for _, column in self.cells) + 1


def mosaic(
    entries: Sequence[Entry], refs: Lookup, *, duplicates: str = "error", skip_misfits: bool = False, **_: Any
) -> Arrangement:
    """Lay cells of one grid into one array a spacing.

    A cell keeps the posts of its southern and western edge; those of its northern and eastern edge are the next
    cell's, and only the northernmost row and the easternmost column of cells keep theirs. Missing cells read as null.
    """
    if duplicates not in RULES:
        raise FormatError(f"duplicates of a mosaic is one of {', '.join(RULES)}, not {duplicates!r}")
    misfits = Misfits(entries, skip_misfits)
    replaced: dict[int, str] = {}
    zones: list[Zone] = []
    for name, numbers in _spacings(entries, misfits).items():
        zone = _zone(name, numbers, entries, misfits, replaced, duplicates)
        _encode(zone, entries)
        zones.append(zone)
    if not zones:
        raise ConflictError("there is no cell to lay into a mosaic")
    arrays = {}
    for zone in zones:
        array = _array(zone, entries, placed(zone.name if len(zones) > 1 else "", "0/data"))
        arrays[array.name] = array
    return Arrangement(
        catalog=Catalog(arrays=arrays, arrangement={"kind": "mosaic"}),
        files=files_of(entries, errors={**{i: f"conflict: {why}" for i, why in misfits.why.items()}, **replaced}),
        blocks=_blocks(dict(zip(arrays, zones, strict=True)), refs),
        kind="mosaic",
        misfits=misfits.why,
        replaced=replaced,
    )


def _spacings(entries: Sequence[Entry], misfits: Misfits) -> dict[str, list[int]]:
    """Entries by spacing, named in seconds of arc, latitude before longitude; from fine to coarse."""
    found: dict[tuple[float, ...], list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.error is not None:
            continue
        if (why := _unfit(entry.arrays)) is not None:
            misfits.add(i, why)
            continue
        dx, dy = _step(entry.arrays[0])
        found.setdefault((round(dy * 3600, 4), round(dx * 3600, 4), *entry.arrays[0].shape[1:]), []).append(i)
    named: dict[str, list[int]] = {}
    for (dy, dx, *_shape), numbers in sorted(found.items()):
        named.setdefault(f"{dy:g}x{dx:g}", []).extend(numbers)
    return named


def is_cell(arrays: tuple[Array, ...]) -> bool:
    """Whether a file is an elevation cell."""
    codecs = arrays[0].encodings[0] if len(arrays) == 1 and len(arrays[0].encodings) == 1 else ()
    return len(codecs) == 1 and codecs[0].get("name") == CELL_CODEC


def _unfit(arrays: tuple[Array, ...]) -> str | None:
    """Why a file is no cell of a mosaic, or None."""
    if not is_cell(arrays):
        return "a mosaic is laid of DTED cells, and this is none"
    place = arrays[0].georeference
    if min(arrays[0].shape[1:]) < 2:
        return "the cell has a single line or post"
    if place is None or place.transform is None:
        return "the cell does not say where it lies"
    return None


def _transform(array: Array) -> tuple[float, ...]:
    assert array.georeference is not None
    assert array.georeference.transform is not None
    return array.georeference.transform


def _step(array: Array) -> tuple[float, float]:
    transform = _transform(array)
    return transform[0], -transform[4]


def _zone(
    name: str,
    numbers: Sequence[int],
    entries: Sequence[Entry],
    misfits: Misfits,
    replaced: dict[int, str],
    duplicates: str,
) -> Zone:
    """Cells by place; the first cell decides what the grid is."""
    first = entries[numbers[0]].arrays[0]
    (dx, _, west, _, _, north), (_, posts, lines) = _transform(first), first.shape
    dy = _step(first)[1]
    found: dict[tuple[int, int], int] = {}
    for i in numbers:
        array = entries[i].arrays[0]
        if array.shape != first.shape or _crs(array) != _crs(first):
            misfits.add(i, f"its shape or datum is not that of {entries[numbers[0]].source.url.rpartition('/')[2]}")
            continue
        corner = _transform(array)
        column, row = (corner[2] - west) / dx, (north - corner[5]) / dy
        cell = (round(row / (posts - 1)), round(column / (lines - 1)))
        if max(abs(row - cell[0] * (posts - 1)), abs(column - cell[1] * (lines - 1))) > PHASE:
            misfits.add(i, "its posts are not on the grid of the other cells")
            continue
        if (other := found.get(cell)) is not None:
            names = short_names(entries[other].source.url, entries[i].source.url)
            if duplicates == "error":
                raise ConflictError(
                    f"{names[0]} and {names[1]} are the same cell; pass duplicates='first' or 'last' to take one",
                    url=entries[i].source.url,
                )
            if duplicates == "first":
                replaced[i] = f"conflict: {names[0]} is the same cell and came first"
                continue
            replaced[other] = f"conflict: {names[1]} is the same cell and came later"
        found[cell] = i
    top, left = min(row for row, _ in found), min(column for _, column in found)
    return Zone(
        name=name,
        like=first,
        west=west + left * (lines - 1) * dx,
        north=north - top * (posts - 1) * dy,
        cells={(row - top, column - left): i for (row, column), i in found.items()},
    )


def _crs(array: Array) -> str | None:
    return None if array.georeference is None else array.georeference.crs


def _encode(zone: Zone, entries: Sequence[Entry]) -> None:
    """The pipeline of every cell, trimmed by what the next cell holds."""
    _, last = zone.grid
    for (row, column), i in zone.cells.items():
        (codec,) = entries[i].arrays[0].encodings[0]
        trims = {"trim_top": int(row > 0), "trim_right": int(column < last - 1)}
        pipeline: Pipeline = ({**codec, "configuration": {**codec["configuration"], **trims}},)
        key = pipeline_key(pipeline)
        if key not in zone.pipelines:
            zone.pipelines[key] = len(zone.encodings)
            zone.encodings.append(pipeline)
        zone.codes[i] = zone.pipelines[key]


def _array(zone: Zone, entries: Sequence[Entry], name: str) -> Array:
    rows, columns = zone.grid
    _, posts, lines = zone.like.shape
    high = (posts, *[posts - 1] * (rows - 1))
    wide = (*[lines - 1] * (columns - 1), lines)
    dx, dy = _step(zone.like)
    members = [entries[i].arrays[0] for i in zone.cells.values()]
    attributes = common(array.attributes for array in members)
    if told := common(_told(array.attributes) for array in members):
        attributes["dted"] = told
    return replace(
        zone.like,
        name=name,
        shape=(1, sum(high), sum(wide)),
        chunks=(1, posts, lines),
        encodings=tuple(zone.encodings),
        attributes=attributes,
        georeference=Georeference(
            crs=_crs(zone.like), transform=(dx, 0.0, zone.west, 0.0, -dy, zone.north), registration="point"
        ),
        edges=None if rows == columns == 1 else (None, high, wide),
    )


def _told(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    told = attributes.get("dted")
    return told if isinstance(told, Mapping) else {}


def _blocks(zones: Mapping[str, Zone], lookup: Lookup) -> Iterator[tuple[str, Refs]]:
    for name, zone in zones.items():
        for (row, column), i in sorted(zone.cells.items()):
            refs = lookup(i, 0)
            chunk = refs.chunk + np.array([[0], [row], [column]], np.int32)
            encoding = np.full(len(refs), zone.codes[i], np.uint16)
            yield name, replace(refs, chunk=chunk, encoding=encoding, file=owners(refs, i))
