"""tiles: images of one pixel grid become one array, each file's chunks where its pixels lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from periplus.arrange.collect import owners
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.layer import common, is_mask
from periplus.arrange.packing import packing_of
from periplus.arrange.sheet import DUPLICATES, Sheet, sheet
from periplus.arrange.stack import Misfits
from periplus.errors import ConflictError, FormatError, PeriplusError
from periplus.model import Array, Catalog, Refs

BASE = "0/data"
ROWS = 1 << 20
"""Rows of a block of many small files; a single file may have more."""


def tiles(
    entries: Sequence[Entry], refs: Lookup, *, duplicates: str = "error", skip_misfits: bool = False, **_: Any
) -> Arrangement:
    """Lay files of one CRS, pixel size and phase side by side; ConflictError names the first that does not fit.

    Chunks stay as they are stored: where they do not repeat regularly, the array has `edges`. Of files that hold the
    same chunk, `duplicates` takes the `first` or the `last` given, or stops (`error`). Where no file lies, chunks are
    missing. Levels and masks that do not fit in this way, or that a file lacks, are left out with a warning; with
    `skip_misfits`, files that do not fit become rows that say so.
    """
    if duplicates not in DUPLICATES:
        raise FormatError(f"duplicates of a mosaic is one of {', '.join(DUPLICATES)}, not {duplicates!r}")
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
    like = _like(entries, numbers, misfits)
    base = sheet(BASE, _named(entries, numbers, BASE), entries, misfits, duplicates, like=like)
    members = [i for i in numbers if i in base.spots]
    sheets, warnings = _others(entries, members, duplicates)
    sheets.insert(0, base)
    if (hole := _hole(base)) is not None:
        warnings.append(hole)
    placed = set(np.unique(base.owner).tolist())
    covered = dict.fromkeys(
        (i for i in members if i not in placed), "conflict: other files of the mosaic hold the same pixels"
    )
    shared = common(entries[i].attributes for i in members)
    return Arrangement(
        catalog=Catalog(
            arrays={each.array.name: each.array for each in sheets},
            attributes={"": shared} if shared else {},
            arrangement={"kind": "mosaic"},
        ),
        files=files_of(entries, errors={**{i: f"conflict: {why}" for i, why in misfits.why.items()}, **covered}),
        blocks=_blocks(entries, sheets, refs, covered),
        kind="mosaic",
        warnings=tuple(warnings),
        misfits=misfits.why,
        replaced=covered,
    )


def _named(entries: Sequence[Entry], numbers: Sequence[int], name: str) -> dict[int, Array]:
    """The array of that name of each of the files."""
    return {i: next(array for array in entries[i].arrays if array.name == name) for i in numbers}


def _like(entries: Sequence[Entry], numbers: Sequence[int], misfits: Misfits) -> int:
    """The file whose grid is the mosaic's: the first, or the first of the kind most are where misfits are skipped."""
    if not misfits.skip:
        return numbers[0]
    kinds = {i: _kind(array) for i, array in _named(entries, numbers, BASE).items()}
    usual = Counter(kinds.values()).most_common(1)[0][0]
    return next(i for i in numbers if kinds[i] == usual)


def _kind(array: Array) -> tuple[Any, ...]:
    place = array.georeference
    pixel = () if place is None or place.transform is None else tuple(f"{place.transform[k]:.5g}" for k in (0, 1, 3, 4))
    return array.dims, array.shape[:-2], array.dtype.str, None if place is None else place.crs, pixel


def _others(entries: Sequence[Entry], members: Sequence[int], duplicates: str) -> tuple[list[Sheet], list[str]]:
    """Levels and masks that fit as the base does, and what is to be said of those that do not."""
    found: list[Sheet] = []
    warnings: list[str] = []
    names = list(dict.fromkeys(array.name for i in members for array in entries[i].arrays if array.name != BASE))
    for name in names:
        lacking = next((i for i in members if all(array.name != name for array in entries[i].arrays)), None)
        try:
            if lacking is not None:
                raise ConflictError(f"{_name(entries[lacking])} has none")
            strict = Misfits(entries, skip=False)
            found.append(sheet(name, _named(entries, members, name), entries, strict, duplicates, like=members[0]))
        except PeriplusError as error:
            warnings.append(f"{name} is left out: {error.message}")
    return found, warnings


def _name(entry: Entry) -> str:
    return entry.source.url.partition("?")[0].rpartition("/")[2]


def _hole(base: Sheet) -> str | None:
    """What a missing chunk reads as, where nobody could tell it from data."""
    array = base.array
    missing = int((base.owner < 0).sum())
    if not missing or is_mask(array) or packing_of(array).nodata is not None:
        return None
    return f"no file lies at {missing:,} of {base.owner.size:,} places of {array.name}; without a nodata they read as 0"


def _blocks(
    entries: Sequence[Entry], sheets: Sequence[Sheet], lookup: Lookup, left_out: Mapping[int, str]
) -> Iterator[tuple[str, Refs]]:
    for each in sheets:
        pieces: list[Refs] = []
        count = 0
        for i in sorted(each.spots, key=each.spots.__getitem__):
            if i in left_out:
                continue
            which = next(k for k, array in enumerate(entries[i].arrays) if array.name == each.array.name)
            piece = _laid(each, i, lookup(i, which))
            if not len(piece):
                continue
            pieces.append(piece)
            count += len(piece)
            if count >= ROWS:
                yield each.array.name, _joined(pieces)
                pieces, count = [], 0
        if pieces:
            yield each.array.name, _joined(pieces)


def _laid(each: Sheet, entry: int, refs: Refs) -> Refs:
    """The references of a file at their places in the mosaic, without those that another file holds instead."""
    chunk = refs.chunk.copy()
    chunk[-2:] += np.array(each.spots[entry], np.int32)[:, None]
    codes = each.codes[entry]
    moved = Refs(
        chunk=chunk,
        offset=refs.offset,
        length=refs.length,
        file=owners(refs, entry),
        part=refs.part,
        encoding=np.full(len(refs), codes[0], np.uint16) if refs.encoding is None else codes[refs.encoding],
        data=refs.data,
    )
    ours = each.owner[chunk[-2], chunk[-1]] == entry
    return moved if ours.all() else moved.take(ours)


def _joined(pieces: Sequence[Refs]) -> Refs:
    encoding = np.concatenate([piece.encoding for piece in pieces if piece.encoding is not None])
    inline = any(piece.data is not None for piece in pieces)
    parted = any(piece.part is not None for piece in pieces)
    return Refs(
        chunk=np.concatenate([piece.chunk for piece in pieces], axis=1),
        offset=np.concatenate([piece.offset for piece in pieces]),
        length=np.concatenate([piece.length for piece in pieces]),
        file=np.concatenate([piece.file for piece in pieces if piece.file is not None]),
        part=np.concatenate([np.zeros(len(p), np.uint16) if p.part is None else p.part for p in pieces])
        if parted
        else None,
        encoding=encoding if encoding.any() else None,
        data=[data for piece in pieces for data in (piece.data or [None] * len(piece))] if inline else None,
    )
