"""Elevation cells side by side as one array a spacing, each cell one chunk; posts that two cells share occur once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from periplus.arrange.collect.collect import placed
from periplus.arrange.entry import REPLACED, Arrangement, Entry, Lookup, Placed, files_of
from periplus.arrange.messages import distinguished, two_files
from periplus.arrange.misfits import Misfits, judges
from periplus.arrange.mosaic.elevation_chunks import Laid, lay
from periplus.arrange.mosaic.origin import PHASE, transform_of
from periplus.arrange.mosaic.overlap import painting, ranks
from periplus.arrange.stack.member import common
from periplus.errors import ConflictError
from periplus.model import Array, Catalog, Georeference, codecnames

Spot: TypeAlias = tuple[int, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Zone:
    """Cells of one spacing; spacing in longitude changes with latitude, and each spacing is an array of its own."""

    name: str
    like: Array
    west: float
    north: float
    """Pixel corner of the whole."""
    cells: dict[Spot, list[int]]
    """Entries by (row, column) of cells, from the north-west; several where values of all of them are taken."""

    @property
    def grid(self) -> tuple[int, int]:
        return max(row for row, _ in self.cells) + 1, max(column for _, column in self.cells) + 1


def lay_cells(
    entries: Sequence[Entry], refs: Lookup, *, duplicates: str, order: str, skip_misfits: bool
) -> Arrangement:
    """Lay cells of one grid into one array a spacing.

    A cell keeps the posts of its southern and western edge; those of its northern and eastern edge are the next
    cell's, and only the northernmost row and the easternmost column of cells keep theirs. Where a cell is missing, its
    posts are null but for those of its edges that a neighbour has. Of files of the same cell, `duplicates` takes the
    `first` or the `last` by `order`, or stops; with `first-valid` or `last-valid`, posts that are null in one file, or
    at the edge of a cell, are taken from another that has them.
    """
    misfits = Misfits(entries, skip_misfits)
    replaced: dict[int, str] = {}
    laid: list[Laid] = []
    placed_cells: list[Placed] = []
    spacings = _spacings(entries, misfits)
    # From the first laid to the last, which lies on top.
    painted = painting(ranks(entries, [i for numbers in spacings.values() for i in numbers], order), duplicates)
    for name, numbers in spacings.items():
        zone = _zone(name, numbers, entries, misfits, replaced, duplicates, painted)
        array = _array(zone, entries, placed(name if len(spacings) > 1 else "", "0/data"))
        laid.append(lay(array, zone.cells, entries, valid=duplicates.endswith("valid")))
        _, posts, lines = zone.like.shape
        placed_cells += [
            Placed(i, 0, array.name, (0, row * (posts - 1), column * (lines - 1)), painted[i])
            for (row, column), same in zone.cells.items()
            for i in same
        ]
    if not laid:
        raise ConflictError("there is no cell to lay into a mosaic")
    return Arrangement(
        catalog=Catalog(arrays={each.array.name: each.array for each in laid}, arrangement={"kind": "mosaic"}),
        files=files_of(entries, errors={**misfits.errors, **replaced}),
        blocks=(block for each in laid for block in each.blocks(refs)),
        kind="mosaic",
        misfits=misfits.why,
        placed=placed_cells,
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
    codecs = arrays[0].encodings[0].codecs if len(arrays) == 1 and len(arrays[0].encodings) == 1 else ()
    return len(codecs) == 1 and codecs[0].get("name") == codecnames.DTED


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


def _step(array: Array) -> tuple[float, float]:
    transform = transform_of(array)
    return transform[0], -transform[4]


def _zone(
    name: str,
    numbers: Sequence[int],
    entries: Sequence[Entry],
    misfits: Misfits,
    replaced: dict[int, str],
    duplicates: str,
    painted: Mapping[int, int],
) -> Zone:
    """Cells by place; the first cell decides what the grid is."""
    judge = judges(entries, numbers)[0]
    first = entries[judge].arrays[0]
    (dx, _, west, _, _, north), (_, posts, lines) = transform_of(first), first.shape
    dy = _step(first)[1]
    found: dict[Spot, list[int]] = {}
    for i in numbers:
        array = entries[i].arrays[0]
        if array.shape != first.shape or _crs(array) != _crs(first):
            ours, theirs = two_files(entries[i], entries[judge])
            misfits.add(
                i,
                f"{ours} does not fit beside {theirs}: it has {array.shape[2]} lines of {array.shape[1]} posts on the "
                f"datum {_crs(array)}, not {lines} of {posts} on {_crs(first)}",
            )
            continue
        corner = transform_of(array)
        column, row = (corner[2] - west) / dx, (north - corner[5]) / dy
        cell = (round(row / (posts - 1)), round(column / (lines - 1)))
        off = max(abs(row - cell[0] * (posts - 1)), abs(column - cell[1] * (lines - 1)))
        if off > PHASE:
            misfits.add(i, f"its posts are not on the grid of the other cells: they lie {off:.3g} of a post off it")
            continue
        found.setdefault(cell, []).append(i)
    for same in found.values():
        _decide(same, entries, replaced, duplicates, painted)
    top, left = min(row for row, _ in found), min(column for _, column in found)
    return Zone(
        name=name,
        like=first,
        west=west + left * (lines - 1) * dx,
        north=north - top * (posts - 1) * dy,
        cells={(row - top, column - left): same for (row, column), same in found.items()},
    )


def _decide(
    same: list[int], entries: Sequence[Entry], replaced: dict[int, str], duplicates: str, painted: Mapping[int, int]
) -> None:
    """Keep of the files of one cell those that are to be seen, the one on top last."""
    if len(same) > 1 and duplicates == "error":
        one, other = entries[same[0]], entries[same[1]]
        names = two_files(one, other)
        # Averages, minima and maxima of a cell are files of other suffixes: to take one of them would drop data.
        alike = len({name.rpartition(".")[2].lower() for name in names}) == 1
        hint = "duplicates='first' or 'last' takes one of each" if alike else "index the files of each on their own"
        raise ConflictError(
            f"{names[0]} and {names[1]} are the same cell and {distinguished(one, other)}: {hint}", url=other.source.url
        )
    same.sort(key=painted.__getitem__)
    if not duplicates.endswith("valid"):
        for i in same[:-1]:
            names = two_files(entries[same[-1]], entries[i])
            replaced[i] = f"{REPLACED}{names[0]} is the same cell and is taken"
        del same[:-1]


def _crs(array: Array) -> str | None:
    return None if array.georeference is None else array.georeference.crs


def _array(zone: Zone, entries: Sequence[Entry], name: str) -> Array:
    """The array of a zone, but for its encodings."""
    rows, columns = zone.grid
    _, posts, lines = zone.like.shape
    high = (posts, *[posts - 1] * (rows - 1))
    wide = (*[lines - 1] * (columns - 1), lines)
    dx, dy = _step(zone.like)
    members = [entries[i].arrays[0] for same in zone.cells.values() for i in same]
    return replace(
        zone.like,
        name=name,
        shape=(1, sum(high), sum(wide)),
        chunks=(1, posts, lines),
        attributes=common(array.attributes for array in members),
        georeference=Georeference(
            crs=_crs(zone.like), transform=(dx, 0.0, zone.west, 0.0, -dy, zone.north), registration="point"
        ),
        edges=None if rows == columns == 1 else (None, high, wide),
    )
