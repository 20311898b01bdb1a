"""One array of a mosaic: the origins of its files on one grid, and whether their chunks are adjacent or overlaid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from periplus.arrange.arrangement import FileEntry, Lookup, Placement
from periplus.arrange.compatibility import Misfits
from periplus.arrange.messages import file_names, name_difference
from periplus.arrange.mosaic.adjacent import Adjacent, adjacent
from periplus.arrange.mosaic.origin import content_difference, grid_origin, transform_of
from periplus.arrange.mosaic.overlap import PixelBox, coverage, first_overlap, intersection, overlay_order
from periplus.arrange.mosaic.overlay import Overlay, overlay
from periplus.arrange.packing import (
    common_attributes,
    packing_of,
    physical_attributes,
    physical_dtype,
    same_packing,
)
from periplus.errors import ConflictError
from periplus.model import Array, Georeference, Refs
from periplus.model.affine import shifted

MOST_CHUNKS = 1 << 26
"""Chunks of a mosaic including missing ones: 256 MB while it is arranged."""
LONGEST = 1 << 20
"""Chunks along one dimension, whose sizes may have to be listed."""


@dataclass(frozen=True, slots=True, eq=False)
class MosaicArray:
    """An array of a mosaic with its files."""

    array: Array
    boxes: Mapping[int, PixelBox]
    """Pixels of the array that each entry covers."""
    content: Adjacent | Overlay
    physical: bool
    """Whether values are converted to physical ones, because their meaning differs between files."""
    numbers: Mapping[int, int]
    """Number of the array in each entry."""
    order: Mapping[int, int]
    """Files with higher numbers cover those with lower ones."""

    @property
    def placements(self) -> list[Placement]:
        """Each file at its box."""
        others = self.array.shape[:-2]
        zeros = (0,) * len(others)
        return [
            Placement(
                entry=i,
                array=self.numbers[i],
                target=self.array.name,
                origin=(*zeros, box.top, box.left),
                extent=(*others, box.bottom - box.top, box.right - box.left),
                order=self.order[i],
            )
            for i, box in self.boxes.items()
        ]

    def blocks(self, refs: Lookup) -> Iterator[tuple[str, Refs]]:
        return self.content.blocks(refs, self.numbers)


def find_origins(
    arrays: Mapping[int, Array], entries: Sequence[FileEntry], misfits: Misfits, *, like: int
) -> dict[int, tuple[int, int]]:
    """(row, column) of each file on the grid of entry `like`; files that do not fit are added to `misfits`."""
    found: dict[int, tuple[int, int]] = {}
    # The file that defines the grid comes first: files that differ from it are the misfits.
    for i in (like, *(i for i in arrays if i != like)):
        array = arrays[i]
        reason = content_difference(array, arrays[like]) or (None if all(array.shape) else "it is empty")
        origin = reason or grid_origin(array, arrays[like])
        if isinstance(origin, str):
            ours, theirs = file_names(entries[i], entries[like])
            misfits.add(i, origin if i == like else f"{ours} does not fit {theirs}: {origin}")
        else:
            found[i] = origin
    return {i: found[i] for i in arrays if i in found}


def lost_missing_chunks(arrays: Mapping[int, Array], has_missing: Callable[[int], bool]) -> dict[int, str]:
    """Files whose missing chunks mean a value although a missing chunk of the mosaic is NaN."""
    if same_packing(arrays.values()):
        return {}
    return {
        i: "it has missing chunks and no nodata value: they mean 0 in the file and would be NaN in a mosaic of files "
        "with different nodata values"
        for i, array in arrays.items()
        if packing_of(array).nodata is None and has_missing(i)
    }


def mosaic_array(
    name: str,
    members: Mapping[int, Array],
    origins: Mapping[int, tuple[int, int]],
    entries: Sequence[FileEntry],
    *,
    like: int,
    duplicates: str,
    ranks: Mapping[int, int],
) -> MosaicArray:
    """Arrange the arrays of one name at their origins; entry `like` gives what all have in common."""
    physical = not same_packing(members.values())
    top, left = (min(origin[k] for origin in origins.values()) for k in (0, 1))
    boxes = {
        i: PixelBox(row - top, column - left, row - top + members[i].shape[-2], column - left + members[i].shape[-1])
        for i, (row, column) in origins.items()
    }
    size = max(box.bottom for box in boxes.values()), max(box.right for box in boxes.values())
    usual = Counter(array.chunks for array in members.values()).most_common(1)[0][0]
    grid = [n / each for n, each in zip(size, usual[-2:], strict=True)]
    if max(grid) > LONGEST or grid[0] * grid[1] > MOST_CHUNKS:
        raise ConflictError(f"the files are so far apart that {name} would have {grid[0]:,.0f} x {grid[1]:,.0f} chunks")
    first = members[like]
    template = replace(
        first,
        name=name,
        shape=(*first.shape[:-2], *size),
        attributes=common_attributes(array.attributes for array in members.values()),
        georeference=_georeference(first, members, origins, (top - origins[like][0], left - origins[like][1])),
        edges=None,
    )
    if physical:
        dtype = physical_dtype(first.dtype) or first.dtype
        template = replace(template, dtype=dtype, fill=math.nan, attributes=physical_attributes(template.attributes))
    order = overlay_order({i: ranks[i] for i in boxes}, duplicates)
    content: Adjacent | Overlay | None = adjacent(template, members, boxes, physical=physical)
    if content is None:
        pair = first_overlap(boxes)
        if duplicates == "error" and pair is not None:
            raise _overlap_error(name, boxes, pair, entries)
        content = overlay(
            template,
            members,
            boxes,
            usual=usual,
            transparent=_transparent(template, members, duplicates, physical=physical),
            physical=physical,
            overlaps=pair is not None,
            order=order,
        )
    numbers = {i: array_number(entries[i], name) for i in boxes}
    return MosaicArray(content.array, boxes, content, physical, numbers, order)


def array_number(entry: FileEntry, name: str) -> int:
    """The number of the array of that name in a file that has it."""
    return next(k for k, array in enumerate(entry.arrays) if array.name == name)


def _overlap_error(
    name: str, boxes: Mapping[int, PixelBox], pair: tuple[int, int], entries: Sequence[FileEntry]
) -> ConflictError:
    """Names two files that overlap, and what can be done without hiding a file completely."""
    seen: dict[PixelBox, int] = {}
    same = next(((i, seen[box]) for i, box in boxes.items() if seen.setdefault(box, i) != i), None)
    one, other = (entries[i] for i in same or pair)
    ours, theirs = file_names(one, other)
    if same is not None:
        return ConflictError(
            f"{ours} and {theirs} cover the same pixels and {name_difference(one, other)}: a mosaic shows one file at "
            "each pixel, so index the files of each separately, or collect all with arrange='collect'",
            url=one.source.url,
        )
    both = intersection(boxes[pair[0]], boxes[pair[1]])
    results = [coverage(boxes, {i: sign * i for i in boxes}) for sign in (1, -1)]
    hidden = max(0 if result is None else len(result.hidden) for result in results)
    return ConflictError(
        f"{ours} and {theirs} overlap in {both.bottom - both.top} rows and {both.right - both.left} columns from row "
        f"{both.top}, column {both.left} of {name}; pass duplicates='first' or 'last' to choose whose pixels are taken "
        "('first-valid' or 'last-valid': those that are not nodata)"
        + (f"; this may hide {hidden:,} of {len(boxes):,} files completely" if hidden else ""),
        url=one.source.url,
    )


def _transparent(
    template: Array, members: Mapping[int, Array], duplicates: str, *, physical: bool
) -> int | float | None:
    """The nodata value that shows the files below; None if all pixels cover them."""
    if not duplicates.endswith("valid"):
        return None
    if physical:
        return math.nan
    nodata = packing_of(next(iter(members.values()))).nodata
    if isinstance(nodata, np.generic):
        nodata = nodata.item()
    if type(nodata) not in (int, float) or template.is_mask:
        raise ConflictError(f"duplicates={duplicates!r} needs a nodata value, and {template.name} has none")
    return nodata  # type: ignore[no-any-return]


def _georeference(
    like: Array, members: Mapping[int, Array], origins: Mapping[int, tuple[int, int]], shift: tuple[int, int]
) -> Georeference:
    transform = shifted(transform_of(like), *shift)
    if transform[1] == transform[3] == 0:
        # Corners of files are exact; multiples of the pixel size may not be.
        top, left = (min(origins, key=lambda i, k=k: origins[i][k]) for k in (0, 1))  # type: ignore[misc]
        transform = (*transform[:2], transform_of(members[left])[2], *transform[3:5], transform_of(members[top])[5])
    georeference = like.georeference or Georeference()
    return Georeference(crs=georeference.crs, transform=transform, registration=georeference.registration)
