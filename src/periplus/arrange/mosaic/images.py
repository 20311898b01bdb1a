"""Images of one pixel grid as one array, each file's pixels where they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from periplus.arrange.entry import REPLACED, Arrangement, Entry, Lookup, Placed, files_of
from periplus.arrange.messages import file_name
from periplus.arrange.misfits import Misfits, judges
from periplus.arrange.mosaic.adjacent import Aligned
from periplus.arrange.mosaic.grid import Sheet, located, lost_holes, sheet
from periplus.arrange.mosaic.overlap import painting, ranks, view
from periplus.arrange.packing import packing_of
from periplus.arrange.stack.member import common, is_sparse
from periplus.errors import ConflictError, PeriplusError
from periplus.model import Array, Catalog, Refs

BASE = "0/data"


def lay_images(
    entries: Sequence[Entry], refs: Lookup, *, duplicates: str, order: str, skip_misfits: bool
) -> Arrangement:
    """Lay files of one CRS, pixel size and phase into one array; ConflictError names the first that does not fit.

    Where chunks fit side by side they stay as they are stored; otherwise chunks of the array are made of pieces of
    stored ones. Where files overlap, `duplicates` takes the pixels of the `first` or the `last` of them, or the first
    or last that are not nodata (`first-valid`, `last-valid`), or stops (`error`); `order` says what makes a file first:
    the order `given`, its `name`, or its `time`. Where no file lies, chunks are missing. Levels and masks that do not
    fit in this way, or that a file lacks, are left out with a warning; with `skip_misfits`, files that do not fit
    become rows that say so.
    """
    misfits = Misfits(entries, skip_misfits)
    numbers = []
    for i, entry in enumerate(entries):
        if entry.error is None:
            if any(array.name == BASE for array in entry.arrays):
                numbers.append(i)
            else:
                misfits.add(i, f"it has no {BASE}")
    if not numbers:
        raise ConflictError("there is no file to lay into a mosaic")
    kinds = list(dict.fromkeys(str(entries[i].series) for i in numbers))
    if len(kinds) > 1:
        # Bands of one scene lie at the same place: a rule for overlaps would mix them.
        raise ConflictError(f"a mosaic is of one asset, and these are {', '.join(kinds[:5])}; choose one with assets=")
    base, members, covered = _base(entries, numbers, misfits, refs, duplicates, order)
    sheets, left_out = _others(entries, members, refs, duplicates, order)
    sheets.insert(0, base)
    warnings = [f"{name} is left out: {why}" for name, why in left_out.items()]
    if base.mixed:
        warnings.append(
            f"files differ in nodata, scale or offset: {BASE} holds what their values mean, as {base.array.dtype} with "
            "NaN for nodata"
        )
    if (hole := _hole(base)) is not None:
        warnings.append(hole)
    shared = common(entries[i].attributes for i in members)
    return Arrangement(
        catalog=Catalog(
            arrays={each.array.name: each.array for each in sheets},
            attributes={"": shared} if shared else {},
            arrangement={"kind": "mosaic", **({"left_out": left_out} if left_out else {})},
        ),
        files=files_of(entries, errors={**misfits.errors, **covered}),
        blocks=_blocks(entries, sheets, refs),
        kind="mosaic",
        warnings=tuple(warnings),
        misfits=misfits.why,
        placed=_placed(entries, sheets, painting(ranks(entries, members, order), duplicates)),
    )


def _placed(entries: Sequence[Entry], sheets: Sequence[Sheet], order: Mapping[int, int]) -> list[Placed]:
    """Where each array of each file lies in the mosaic."""
    found = []
    for each in sheets:
        name, before = each.array.name, (0,) * (each.array.ndim - 2)
        found += [
            Placed(i, _which(entries, i, name), name, (*before, box.top, box.left), order[i])
            for i, box in each.boxes.items()
        ]
    return found


def _base(
    entries: Sequence[Entry], numbers: Sequence[int], misfits: Misfits, refs: Lookup, duplicates: str, order: str
) -> tuple[Sheet, list[int], dict[int, str]]:
    """The array of full resolution, the files in it, and those left out because others cover them."""
    like = _like(entries, numbers, misfits)
    arrays = _named(entries, numbers, BASE)
    pixels = located(arrays, entries, misfits, like=like)
    for i, why in lost_holes({i: arrays[i] for i in pixels}, lambda i: _sparse(entries, refs, i, BASE)).items():
        misfits.add(i, why)
        del pixels[i]
    if not pixels:
        raise ConflictError("there is no file to lay into a mosaic")
    rank = ranks(entries, list(pixels), order)
    members = {i: arrays[i] for i in pixels}
    base = sheet(BASE, members, pixels, entries, like=_first(like, members), rule=duplicates, rank=rank)
    seen = None if duplicates.endswith("valid") else view(base.boxes, painting(rank, duplicates))
    hidden = [] if seen is None else seen.hidden
    if hidden:
        # The covered ones go before anything is cut because of them.
        members = {i: array for i, array in members.items() if i not in hidden}
        pixels = {i: pixels[i] for i in members}
        base = sheet(BASE, members, pixels, entries, like=_first(like, members), rule=duplicates, rank=rank)
    return base, list(members), dict.fromkeys(hidden, f"{REPLACED}other files of the mosaic hold the same pixels")


def _first(like: int, members: Mapping[int, Array]) -> int:
    return like if like in members else next(iter(members))


def _named(entries: Sequence[Entry], numbers: Sequence[int], name: str) -> dict[int, Array]:
    """The array of that name of each of the files."""
    return {i: next(array for array in entries[i].arrays if array.name == name) for i in numbers}


def _which(entries: Sequence[Entry], number: int, name: str) -> int:
    return next(k for k, array in enumerate(entries[number].arrays) if array.name == name)


def _sparse(entries: Sequence[Entry], refs: Lookup, number: int, name: str) -> bool:
    """Whether a file does not store all chunks of an array."""
    which = _which(entries, number, name)
    return is_sparse(entries[number].arrays[which], refs(number, which))


def _like(entries: Sequence[Entry], numbers: Sequence[int], misfits: Misfits) -> int:
    """The file whose grid is the mosaic's: the first, or the first of the kind most are where misfits are skipped."""
    numbers = judges(entries, numbers)
    if not misfits.skip:
        return numbers[0]
    kinds = {i: _kind(array) for i, array in _named(entries, numbers, BASE).items()}
    usual = Counter(kinds.values()).most_common(1)[0][0]
    return next(i for i in numbers if kinds[i] == usual)


def _kind(array: Array) -> tuple[Any, ...]:
    place = array.georeference
    pixel = () if place is None or place.transform is None else tuple(f"{place.transform[k]:.5g}" for k in (0, 1, 3, 4))
    return array.dims, array.shape[:-2], array.dtype.str, None if place is None else place.crs, pixel


def _others(
    entries: Sequence[Entry], members: Sequence[int], refs: Lookup, duplicates: str, order: str
) -> tuple[list[Sheet], dict[str, str]]:
    """Levels and masks that fit as the base does, and why others do not."""
    found: list[Sheet] = []
    left_out: dict[str, str] = {}
    names = list(dict.fromkeys(array.name for i in members for array in entries[i].arrays if array.name != BASE))
    rank = ranks(entries, members, order)
    for name in names:
        lacking = next((i for i in members if all(array.name != name for array in entries[i].arrays)), None)
        try:
            if lacking is not None:
                raise ConflictError(f"{file_name(entries[lacking])} has none")
            arrays = _named(entries, members, name)
            strict = Misfits(entries, skip=False)
            pixels = located(arrays, entries, strict, like=members[0])
            for i, why in lost_holes(arrays, lambda i, name=name: _sparse(entries, refs, i, name)).items():
                strict.add(i, why)
            found.append(sheet(name, arrays, pixels, entries, like=members[0], rule=duplicates, rank=rank))
        except PeriplusError as error:
            left_out[name] = error.message
    return found, left_out


def _hole(base: Sheet) -> str | None:
    """What a missing chunk reads as, where nobody could tell it from data."""
    array = base.array
    if array.is_mask or packing_of(array).nodata is not None:
        return None
    if isinstance(base.laid, Aligned):
        missing, whole = base.laid.missing, int(np.prod(array.grid[-2:], dtype=np.int64))
        where = f"{missing:,} of {whole:,} places" if missing else None
    else:
        seen = view(base.boxes, dict.fromkeys(base.boxes, 0))
        where = "some places" if seen is not None and seen.holes else None
    return where and f"no file lies at {where} of {array.name}; without a nodata they read as 0"


def _blocks(entries: Sequence[Entry], sheets: Sequence[Sheet], lookup: Lookup) -> Iterator[tuple[str, Refs]]:
    for each in sheets:
        name = each.array.name
        yield from each.blocks(lookup, {i: _which(entries, i, name) for i in each.boxes})
