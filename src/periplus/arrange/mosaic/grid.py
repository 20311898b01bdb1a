"""One array of a mosaic: its files on one grid, and whether their chunks fit side by side or must be cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.entry import Entry, Lookup
from periplus.arrange.messages import distinguished, two_files
from periplus.arrange.misfits import Misfits
from periplus.arrange.mosaic.adjacent import Aligned, aligned
from periplus.arrange.mosaic.edges import lines, regular
from periplus.arrange.mosaic.origin import spot, transform_of, unlike
from periplus.arrange.mosaic.overlap import Box, first_overlap, painting, shared, view
from periplus.arrange.mosaic.overlay import Patchwork
from periplus.arrange.mosaic.overlay_file import Canvas, Patches
from periplus.arrange.packing import packing_of, physical, physical_dtype
from periplus.arrange.stack.member import common, hides_holes
from periplus.errors import ConflictError
from periplus.model import Array, Georeference, Refs
from periplus.model.affine import shifted

MOST_CHUNKS = 1 << 26
"""Chunks of a mosaic with those that are missing: 256 MB while it is laid."""
LONGEST = 1 << 20
"""Chunks along one dimension, which may have to be listed."""


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """An array, the pixels its files cover, and how their references are laid."""

    array: Array
    boxes: Mapping[int, Box]
    """By entry, in pixels of the array."""
    laid: Aligned | Patchwork
    mixed: bool
    """Whether values are turned into physical ones, because files differ in what they mean."""

    def blocks(self, lookup: Lookup, which: Mapping[int, int]) -> Iterator[tuple[str, Refs]]:
        return self.laid.blocks(lookup, which)


def located(
    arrays: Mapping[int, Array], entries: Sequence[Entry], misfits: Misfits, *, like: int
) -> dict[int, tuple[int, int]]:
    """(row, column) of every file on the grid of entry `like`; files that do not fit go to `misfits`."""
    pixels: dict[int, tuple[int, int]] = {}
    # The file that gives the grid comes first: whatever is unlike it is the misfit.
    for i in (like, *(i for i in arrays if i != like)):
        array = arrays[i]
        place = unlike(array, arrays[like]) or ("it is empty" if not all(array.shape) else spot(array, arrays[like]))
        if isinstance(place, str):
            ours, theirs = two_files(entries[i], entries[like])
            misfits.add(i, place if i == like else f"{ours} does not fit beside {theirs}: {place}")
        else:
            pixels[i] = place
    return {i: pixels[i] for i in arrays if i in pixels}


def lost_holes(arrays: Mapping[int, Array], holes: Any) -> dict[int, str]:
    """Files whose missing chunks mean a value that a mosaic of physical values would show as a hole."""
    if not mixed(arrays):
        return {}
    return {
        i: "it has missing chunks and no nodata: they mean 0 there, and would be holes beside files of another nodata"
        for i, array in arrays.items()
        if hides_holes(array) and holes(i)
    }


def mixed(arrays: Mapping[int, Array]) -> bool:
    """Whether values of these arrays do not all mean the same."""
    return len({packing_of(array).key for array in arrays.values() if not array.is_mask}) > 1


def sheet(
    name: str,
    members: Mapping[int, Array],
    pixels: Mapping[int, tuple[int, int]],
    entries: Sequence[Entry],
    *,
    like: int,
    rule: str,
    rank: Mapping[int, int],
) -> Sheet:
    """Lay the arrays of one name, whose places are known."""
    packed = mixed(members)
    top, left = (min(place[k] for place in pixels.values()) for k in (0, 1))
    boxes = {
        i: Box(row - top, column - left, row - top + members[i].shape[-2], column - left + members[i].shape[-1])
        for i, (row, column) in pixels.items()
    }
    extent = max(box.bottom for box in boxes.values()), max(box.right for box in boxes.values())
    usual = Counter(array.chunks for array in members.values()).most_common(1)[0][0]
    along = [n / each for n, each in zip(extent, usual[-2:], strict=True)]
    if max(along) > LONGEST or along[0] * along[1] > MOST_CHUNKS:
        raise ConflictError(
            f"the files lie so far apart that {name} would have {along[0]:,.0f} x {along[1]:,.0f} chunks"
        )
    first = members[like]
    plain = replace(
        first,
        name=name,
        shape=(*first.shape[:-2], *extent),
        attributes=common(array.attributes for array in members.values()),
        georeference=_georeference(first, members, pixels, (top - pixels[like][0], left - pixels[like][1])),
        edges=None,
    )
    if packed:
        dtype = physical_dtype(first.dtype) or first.dtype
        plain = replace(plain, dtype=dtype, fill=math.nan, attributes=physical(plain.attributes))
    found: Aligned | Patchwork | None = aligned(plain, members, boxes, packed=packed)
    if found is None:
        pair = first_overlap(boxes)
        if rule == "error" and pair is not None:
            raise _overlapping(name, boxes, pair, entries)
        found = _patchwork(plain, members, boxes, usual, packed=packed, layered=pair is not None, rule=rule, rank=rank)
    return Sheet(found.array, boxes, found, packed)


def _overlapping(name: str, boxes: Mapping[int, Box], pair: tuple[int, int], entries: Sequence[Entry]) -> ConflictError:
    """Two files that overlap, and what can be done that hides no file altogether."""
    seen: dict[Box, int] = {}
    same = next(((i, seen[box]) for i, box in boxes.items() if seen.setdefault(box, i) != i), None)
    one, other = (entries[i] for i in same or pair)
    ours, theirs = two_files(one, other)
    if same is not None:
        return ConflictError(
            f"{ours} and {theirs} hold the same pixels and {distinguished(one, other)}: a mosaic shows one file at "
            "each place, so index the files of each on their own, or collect all with arrange='collect'",
            url=one.source.url,
        )
    both = shared(boxes[pair[0]], boxes[pair[1]])
    looks = [view(boxes, {i: sign * i for i in boxes}) for sign in (1, -1)]
    hidden = max(0 if look is None else len(look.hidden) for look in looks)
    return ConflictError(
        f"{ours} and {theirs} overlap in {both.bottom - both.top} rows and {both.right - both.left} columns from row "
        f"{both.top}, column {both.left} of {name} on; pass duplicates='first' or 'last' to say whose pixels are taken "
        "('first-valid' or 'last-valid': those that are not nodata)"
        + (f"; {hidden:,} of {len(boxes):,} files may then be covered by others altogether" if hidden else ""),
        url=one.source.url,
    )


def _patchwork(
    plain: Array,
    members: Mapping[int, Array],
    boxes: Mapping[int, Box],
    usual: tuple[int, ...],
    *,
    packed: bool,
    layered: bool,
    rule: str,
    rank: Mapping[int, int],
) -> Patchwork:
    """Files over each other, and across each other's chunks."""
    clear = _clear(plain, members, packed=packed) if rule.endswith("valid") else None
    if clear is None and rule.endswith("valid"):
        raise ConflictError(f"duplicates={rule!r} needs a nodata value, and {plain.name} of these files has none")
    corners = {i: (*(0 for _ in plain.shape[:-2]), box.top, box.left) for i, box in boxes.items()}
    found = [
        lines((members[i].starts(d) + corner[d] for i, corner in corners.items()), usual[d]) for d in range(plain.ndim)
    ]
    # Bands are never cut unevenly: what a file stores together is decoded together anyway.
    found[:-2] = [(regular(n, size), True) for n, size in zip(plain.shape[:-2], usual[:-2], strict=True)]
    canvas = Canvas(tuple(each for each, _ in found), tuple(even for _, even in found), usual, clear, packed)
    patches = Patches(plain.name, canvas)
    phases = {i: tuple(n % size for n, size in zip(corner, usual, strict=True)) for i, corner in corners.items()}
    # Pieces of files of other phases differ, where all chunks are of one size.
    alike = all(array.chunks == usual and array.edges is None for array in members.values())
    often = Counter(phases.values()) if all(canvas.regular) and alike else None
    laid = {
        i: patches.of(members[i], corner, layered=layered and (often is None or often[phases[i]] > 1))
        for i, corner in corners.items()
    }
    sizes = [None if even else np.diff(each) for each, even in found]
    array = replace(
        plain,
        chunks=tuple(n if size is None else int(size.max()) for n, size in zip(usual, sizes, strict=True)),
        encodings=tuple(patches.book.encodings),
        edges=None if all(canvas.regular) else tuple(map(_listed, sizes)),
    )
    return Patchwork(array, laid, painting({i: rank[i] for i in boxes}, rule))


def _listed(sizes: NDArray[np.int64] | None) -> tuple[int, ...] | None:
    return None if sizes is None else tuple(sizes.tolist())


def _clear(plain: Array, members: Mapping[int, Array], *, packed: bool) -> int | float | None:
    """The nodata of the array, if it is one number."""
    if packed:
        return math.nan
    found = packing_of(next(iter(members.values()))).nodata
    if isinstance(found, np.generic):
        found = found.item()
    return found if type(found) in (int, float) and not plain.is_mask else None


def _georeference(
    like: Array, members: Mapping[int, Array], pixels: Mapping[int, tuple[int, int]], shift: tuple[int, int]
) -> Georeference:
    transform = shifted(transform_of(like), *shift)
    if transform[1] == transform[3] == 0:
        # Sums of pixels are not exact where the files' own corners are.
        top, left = (min(pixels, key=lambda i, k=k: pixels[i][k]) for k in (0, 1))  # type: ignore[misc]
        transform = (*transform[:2], transform_of(members[left])[2], *transform[3:5], transform_of(members[top])[5])
    place = like.georeference or Georeference()
    return Georeference(crs=place.crs, transform=transform, registration=place.registration)
