"""One array of a mosaic: its files on one grid, where their chunks go, and which file holds each chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.cuts import Cuts
from periplus.arrange.entry import Entry, short_names
from periplus.arrange.layer import LARGEST_ENCODING, common
from periplus.arrange.packing import pipeline_key
from periplus.arrange.spot import shifted, spot, unlike
from periplus.arrange.stack import Misfits
from periplus.errors import ConflictError, LimitError
from periplus.model import Array, Georeference, Pipeline, Transform

CROP = "periplus.crop"
DUPLICATES = ("error", "first", "last")
MOST_CHUNKS = 1 << 26
"""Chunks of a mosaic with those that are missing: 256 MB while it is laid."""
LONGEST = 1 << 20
"""Chunks along one dimension, which may have to be listed."""
AXES = ((-2, "rows"), (-1, "columns"))


@dataclass(slots=True, eq=False)
class Sheet:
    """An array and where the chunks of its files go."""

    array: Array
    owner: NDArray[np.int32]
    """(rows, columns) of chunks: the entry that holds each; -1 where no file lies."""
    spots: dict[int, tuple[int, int]]
    """(row, column) of the first chunk of each entry."""
    codes: dict[int, NDArray[np.uint16]]
    """For each pipeline of an entry's array, its number here."""


def sheet(
    name: str,
    arrays: Mapping[int, Array],
    entries: Sequence[Entry],
    misfits: Misfits,
    duplicates: str,
    *,
    like: int,
) -> Sheet:
    """Lay the arrays of one name side by side, on the grid of entry `like`; files that do not fit go to `misfits`."""
    first = arrays[like]
    cuts = Cuts(), Cuts()
    pixels: dict[int, tuple[int, int]] = {}
    # The file that gives the grid comes first: whatever is across it is the misfit.
    for i in (like, *(i for i in arrays if i != like)):
        why = _placed(arrays[i], i, first, cuts, pixels, entries)
        if why is not None:
            ours, theirs = short_names(entries[i].source.url, entries[like].source.url)
            misfits.add(i, why if i == like else f"{ours} does not fit beside {theirs}: {why}")
    if not pixels:
        raise ConflictError("there is no file to lay into a mosaic")
    members = {i: arrays[i] for i in arrays if i in pixels}
    usual = tuple(max(array.chunks[d] for array in members.values()) for d, _ in AXES)
    along = [cut.extent / each for cut, each in zip(cuts, usual, strict=True)]
    if max(along) > LONGEST or along[0] * along[1] > MOST_CHUNKS:
        raise ConflictError(
            f"the files lie so far apart that {name} would have {along[0]:,.0f} x {along[1]:,.0f} chunks"
        )
    sizes = cuts[0].sizes(usual[0]), cuts[1].sizes(usual[1])
    free = tuple(_irregular(sizes[k], usual[k], members, d) for k, (d, _) in enumerate(AXES))
    book = _Pipelines(name)
    codes = {i: book.of(array, cropped=_cropped(array, free, entries[i])) for i, array in members.items()}
    starts = [np.concatenate([[0], np.cumsum(size)]) + cut.first for size, cut in zip(sizes, cuts, strict=True)]
    spots = {i: (_at(starts[0], row), _at(starts[1], column)) for i, (row, column) in pixels.items()}
    edges = tuple(tuple(size.tolist()) if each else None for size, each in zip(sizes, free, strict=True))
    largest = tuple(int(size.max()) if each else n for size, each, n in zip(sizes, free, usual, strict=True))
    array = replace(
        first,
        name=name,
        shape=(*first.shape[:-2], cuts[0].extent, cuts[1].extent),
        chunks=(*first.chunks[:-2], *largest),
        encodings=tuple(book.pipelines),
        attributes=common(array.attributes for array in members.values()),
        georeference=_georeference(first, members, pixels, cuts[0].first, cuts[1].first),
        edges=(*(None for _ in first.shape[:-2]), *edges) if any(free) else None,
    )
    shape = len(sizes[0]), len(sizes[1])
    return Sheet(array, _owners(members, spots, shape, entries, duplicates, array), spots, codes)


def _placed(
    array: Array,
    entry: int,
    like: Array,
    cuts: tuple[Cuts, Cuts],
    pixels: dict[int, tuple[int, int]],
    entries: Sequence[Entry],
) -> str | None:
    """Find the place of a file and take its chunks; else why it does not fit."""
    why = unlike(array, like)
    if why is not None:
        return why
    if not all(array.shape):
        return "it is empty"
    place = spot(array, like)
    if isinstance(place, str):
        return place
    edges = [array.starts(array.ndim + d) for d, _ in AXES]
    for (_, noun), cut, first, each in zip(AXES, cuts, place, edges, strict=True):
        clash = cut.clash(first, each)
        if clash is not None:
            (a, b), (c, d) = clash.ours, clash.theirs
            other = short_names(entries[clash.entry].source.url, entries[entry].source.url)[0]
            return (
                f"its chunk of {noun} {a} to {b} lies across the chunk of {noun} {c} to {d} of {other} (counted from "
                "the first file's first pixel)"
            )
    for cut, first, each in zip(cuts, place, edges, strict=True):
        cut.add(first, each, entry)
    pixels[entry] = place
    return None


def _irregular(sizes: NDArray[np.int64], usual: int, members: Mapping[int, Array], dim: int) -> bool:
    """Whether chunks along a dimension must be told one by one: only the last may be cut short by the array's end."""
    if bool((sizes[:-1] != usual).any()) or int(sizes[-1]) > usual:
        return True
    return any(a.chunks[dim] != usual or (a.edges is not None and a.edges[dim] is not None) for a in members.values())


def _cropped(array: Array, free: Sequence[bool], entry: Entry) -> bool:
    """Whether the file stores more than the mosaic shows of a chunk at its edge, such as the padding of a tile."""
    short = [
        array.shape[d] % array.chunks[d] != 0
        for each, (d, _) in zip(free, AXES, strict=True)
        if each and (array.edges is None or array.edges[d] is None)
    ]
    if any(short) and array.edges is not None and any(edges is not None for edges in array.edges):
        raise ConflictError(f"{array.name} is cut unevenly and padded as well", url=entry.source.url)
    return any(short)


@dataclass(slots=True, eq=False)
class _Pipelines:
    """Different pipelines of all files, numbered."""

    name: str
    pipelines: list[Pipeline] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _known: dict[tuple[int, bool], NDArray[np.uint16]] = field(default_factory=dict)

    def of(self, array: Array, *, cropped: bool) -> NDArray[np.uint16]:
        known = self._known.get((id(array), cropped))
        if known is None:
            head: Pipeline = ({"name": CROP, "configuration": {"shape": list(array.chunks)}},) if cropped else ()
            numbers = [self._number((*head, *pipeline)) for pipeline in array.encodings]
            known = self._known[id(array), cropped] = np.array(numbers, np.uint16)
        return known

    def _number(self, pipeline: Pipeline) -> int:
        key = pipeline_key(pipeline)
        if key not in self._numbers:
            if len(self.pipelines) >= LARGEST_ENCODING:
                raise LimitError(f"{self.name} would have more than {LARGEST_ENCODING} encodings")
            self._numbers[key] = len(self.pipelines)
            self.pipelines.append(pipeline)
        return self._numbers[key]


def _at(starts: NDArray[np.int64], pixel: int) -> int:
    return int(np.searchsorted(starts, pixel))


def _georeference(
    like: Array, members: Mapping[int, Array], pixels: Mapping[int, tuple[int, int]], row: int, column: int
) -> Georeference:
    place = like.georeference
    assert place is not None
    assert place.transform is not None
    transform = shifted(place.transform, row, column)
    if transform[1] == transform[3] == 0:
        # Sums of pixels are not exact where the files' own corners are.
        left = next(i for i in members if pixels[i][1] == column)
        top = next(i for i in members if pixels[i][0] == row)
        transform = (*transform[:2], _own(members[left])[2], *transform[3:5], _own(members[top])[5])
    return Georeference(crs=place.crs, transform=transform, registration=place.registration)


def _own(array: Array) -> Transform:
    assert array.georeference is not None
    assert array.georeference.transform is not None
    return array.georeference.transform


def _owners(
    members: Mapping[int, Array],
    spots: Mapping[int, tuple[int, int]],
    shape: tuple[int, int],
    entries: Sequence[Entry],
    duplicates: str,
    array: Array,
) -> NDArray[np.int32]:
    """Which entry holds each chunk, in the order the files were given."""
    owner = np.full(shape, -1, np.int32)
    for i, each in members.items():
        row, column = spots[i]
        rows, columns = each.grid[-2:]
        view = owner[row : row + rows, column : column + columns]
        taken = view >= 0
        if duplicates == "error" and taken.any():
            other = int(view[taken][0])
            y, x = (int(n[0]) for n in np.nonzero(taken))
            ours, theirs = short_names(entries[i].source.url, entries[other].source.url)
            corner = int(array.starts(array.ndim - 2)[row + y]), int(array.starts(array.ndim - 1)[column + x])
            raise ConflictError(
                f"{ours} and {theirs} both hold the chunk at row {corner[0]}, column {corner[1]} of {array.name}; "
                "pass duplicates='first' or 'last' to say whose is taken",
                url=entries[i].source.url,
            )
        if duplicates == "first":
            view[~taken] = i
        else:
            view[...] = i
    return owner
