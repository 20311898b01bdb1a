"""A mosaic of images of one pixel grid: the full resolution first, then the levels and masks that fit as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from periplus.arrange.arrangement import REPLACED, Arrangement, FileEntry, Lookup, assemble, files_table
from periplus.arrange.compatibility import Misfits, reference_files
from periplus.arrange.messages import file_name
from periplus.arrange.mosaic.adjacent import Adjacent
from periplus.arrange.mosaic.grid import MosaicArray, array_number, find_origins, lost_missing_chunks, mosaic_array
from periplus.arrange.mosaic.overlap import coverage, overlay_order, rank_files
from periplus.arrange.packing import common_attributes, has_missing_chunks, packing_of
from periplus.errors import ConflictError, PeriplusError
from periplus.model import Array

BASE = "0/data"


def mosaic_images(
    entries: Sequence[FileEntry], refs: Lookup, *, duplicates: str, order: str, skip_misfits: bool
) -> Arrangement:
    """Arrange files of one CRS, pixel size and phase in one array; ConflictError names the first that does not fit.

    If the files share chunk boundaries, their chunks stay as they are stored; otherwise chunks of the array are
    composed of pieces of stored ones. Where files overlap, `duplicates` takes the pixels of the `first` or the `last`
    file, or the first or last that are not nodata (`first-valid`, `last-valid`), or is an `error`; `order` ranks files
    as `given`, by `name` or by `time`. Where there is no file, chunks are missing. Levels and masks that do not fit, or
    that a file lacks, are omitted with a warning. With `skip_misfits`, files that do not fit become rows with an error.
    """
    misfits = Misfits(entries, skip_misfits)
    numbers = _with_base(entries, misfits)
    base, members, covered = _base_array(entries, numbers, misfits, refs, duplicates, order)
    others, omitted = _other_arrays(entries, members, refs, duplicates, order)
    arrays = [base, *others]
    shared = common_attributes(entries[i].attributes for i in members)
    return assemble(
        arrays,
        refs,
        files=files_table(entries, errors={**misfits.errors, **covered}),
        record={"kind": "mosaic", **({"left_out": omitted} if omitted else {})},
        attributes={"": shared} if shared else {},
        warnings=_warnings(base, omitted),
        misfits=misfits.reasons,
    )


def _with_base(entries: Sequence[FileEntry], misfits: Misfits) -> list[int]:
    """Files that have an array of full resolution; they must be of one asset."""
    numbers = []
    for i, entry in enumerate(entries):
        if entry.error is None:
            if any(array.name == BASE for array in entry.arrays):
                numbers.append(i)
            else:
                misfits.add(i, f"it has no {BASE}")
    if not numbers:
        raise ConflictError("there is no file for a mosaic")
    assets = list(dict.fromkeys(str(entries[i].series) for i in numbers))
    if len(assets) > 1:
        # Bands of a scene cover the same pixels, so a rule for overlaps would mix them.
        raise ConflictError(
            f"a mosaic has files of one asset, and these are of {', '.join(assets[:5])}; choose one with assets="
        )
    return numbers


def _base_array(
    entries: Sequence[FileEntry], numbers: Sequence[int], misfits: Misfits, refs: Lookup, duplicates: str, order: str
) -> tuple[MosaicArray, list[int], dict[int, str]]:
    """The array of full resolution, the files in it, and those omitted because others cover them completely."""
    like = _grid_file(entries, numbers, misfits)
    arrays = _arrays_named(entries, numbers, BASE)
    origins = find_origins(arrays, entries, misfits, like=like)
    candidates = {i: arrays[i] for i in origins}
    for i, reason in lost_missing_chunks(candidates, partial(_is_sparse, entries, refs, BASE)).items():
        misfits.add(i, reason)
        del origins[i]
    if not origins:
        raise ConflictError("there is no file for a mosaic")
    ranks = rank_files(entries, list(origins), order)

    def arranged(members: Sequence[int]) -> MosaicArray:
        return mosaic_array(
            BASE,
            {i: arrays[i] for i in members},
            {i: origins[i] for i in members},
            entries,
            like=like if like in members else members[0],
            duplicates=duplicates,
            ranks=ranks,
        )

    base = arranged(list(origins))
    shown = None if duplicates.endswith("valid") else coverage(base.boxes, overlay_order(ranks, duplicates))
    hidden = [] if shown is None else shown.hidden
    members = [i for i in origins if i not in hidden]
    if hidden:
        # Arranged again, so that no chunk is split because of a hidden file.
        base = arranged(members)
    return base, members, dict.fromkeys(hidden, f"{REPLACED}other files of the mosaic hold the same pixels")


def _arrays_named(entries: Sequence[FileEntry], numbers: Sequence[int], name: str) -> dict[int, Array]:
    """The array of that name of each file."""
    return {i: next(array for array in entries[i].arrays if array.name == name) for i in numbers}


def _is_sparse(entries: Sequence[FileEntry], refs: Lookup, name: str, number: int) -> bool:
    k = array_number(entries[number], name)
    return has_missing_chunks(entries[number].arrays[k], refs(number, k))


def _grid_file(entries: Sequence[FileEntry], numbers: Sequence[int], misfits: Misfits) -> int:
    """The file that defines the grid: the first, or the first of the most frequent kind if misfits are skipped."""
    numbers = reference_files(entries, numbers)
    if not misfits.skip:
        return numbers[0]
    kinds = {i: _kind(array) for i, array in _arrays_named(entries, numbers, BASE).items()}
    usual = Counter(kinds.values()).most_common(1)[0][0]
    return next(i for i in numbers if kinds[i] == usual)


def _kind(array: Array) -> tuple[Any, ...]:
    place = array.georeference
    pixel = () if place is None or place.transform is None else tuple(f"{place.transform[k]:.5g}" for k in (0, 1, 3, 4))
    return array.dims, array.shape[:-2], array.dtype.str, None if place is None else place.crs, pixel


def _other_arrays(
    entries: Sequence[FileEntry], members: Sequence[int], refs: Lookup, duplicates: str, order: str
) -> tuple[list[MosaicArray], dict[str, str]]:
    """Levels and masks that fit as the full resolution does, and why others are omitted."""
    found: list[MosaicArray] = []
    omitted: dict[str, str] = {}
    names = list(dict.fromkeys(array.name for i in members for array in entries[i].arrays if array.name != BASE))
    ranks = rank_files(entries, members, order)
    for name in names:
        lacking = next((i for i in members if all(array.name != name for array in entries[i].arrays)), None)
        try:
            if lacking is not None:
                raise ConflictError(f"{file_name(entries[lacking])} has none")
            arrays = _arrays_named(entries, members, name)
            strict = Misfits(entries, skip=False)
            origins = find_origins(arrays, entries, strict, like=members[0])
            strict.add_all(lost_missing_chunks(arrays, partial(_is_sparse, entries, refs, name)))
            found.append(
                mosaic_array(name, arrays, origins, entries, like=members[0], duplicates=duplicates, ranks=ranks)
            )
        except PeriplusError as error:
            omitted[name] = error.message
    return found, omitted


def _warnings(base: MosaicArray, omitted: dict[str, str]) -> list[str]:
    warnings = [f"{name} is omitted: {reason}" for name, reason in omitted.items()]
    if base.physical:
        warnings.append(
            f"files differ in nodata, scale or offset: {BASE} has physical values, as {base.array.dtype} with NaN for "
            "nodata"
        )
    array = base.array
    if array.is_mask or packing_of(array).nodata is not None:
        return warnings
    if isinstance(base.content, Adjacent):
        missing, total = base.content.missing, int(np.prod(array.grid[-2:], dtype=np.int64))
        where = f"{missing:,} of {total:,} chunks" if missing else None
    else:
        shown = coverage(base.boxes, base.order)
        where = "some pixels" if shown is not None and shown.gaps else None
    if where is not None:
        warnings.append(f"{where} of {array.name} have no file; without a nodata value they read as 0")
    return warnings
