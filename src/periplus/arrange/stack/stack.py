"""stack: files of one grid become one array with a new leading dimension, in the order of its coordinate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from periplus.arrange.collect.collect import placed
from periplus.arrange.collect.names import safe_path
from periplus.arrange.compatibility import difference, likeness
from periplus.arrange.entry import Arrangement, Entry, Lookup, Placed, files_of
from periplus.arrange.messages import file_name, two_files
from periplus.arrange.misfits import Misfits, judges
from periplus.arrange.packing import physical_dtype
from periplus.arrange.pattern import suggested
from periplus.arrange.stack.coordinate import Axis, read_axis
from periplus.arrange.stack.member import Layer, clash, common, hides_holes, is_sparse, lay
from periplus.arrange.stack.references import Place, stacked_blocks
from periplus.arrange.stack.steps import Steps, place
from periplus.errors import ConflictError, FormatError
from periplus.model import Array, Catalog, Coordinate


def stack(
    entries: Sequence[Entry],
    refs: Lookup,
    *,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    duplicates: str = "error",
    skip_misfits: bool = False,
    axis: Axis | None = None,
    start: int = 0,
) -> Arrangement:
    """Lay files along a new dimension; ConflictError names the first that does not fit, and how.

    The coordinate is read out of the names by `pattern`, else it is the files' datetime, else their order; `coordinate`
    says which (`pattern`, `datetime`, `order`). `duplicates` says what becomes of files with the same coordinate
    (`error`, `last` wins, `keep` all); with `skip_misfits` files that do not fit become rows that say so. `axis` is
    what `read_axis` gave, where it was read before. Blocks begin with entry `start`: the references of those before are
    stored already.
    """
    if axis is None:
        good = [i for i, entry in enumerate(entries) if entry.error is None]
        axis = read_axis(entries, good, dim=dim, pattern=pattern, way=coordinate)
    misfits = Misfits(entries, skip_misfits)
    misfits.add_all(axis.misfits)
    fit(entries, axis, misfits)
    while True:
        members = [i for i in axis.numbers if i not in misfits.why]
        steps = place(entries, axis, members, duplicates=duplicates)
        layers = lay_all(entries, steps)
        sparse = lost_holes(entries, steps, layers, refs)
        misfits.add_all(sparse)
        if not sparse:
            break
    places = places_of(entries, steps, layers)
    catalog = catalog_of(entries, axis, steps, layers, pattern)
    order = in_order(len(entries), steps)
    return Arrangement(
        catalog=catalog,
        files=files_of(
            entries,
            order,
            errors={**misfits.errors, **steps.replaced},
            times=times_of(steps),
        ),
        blocks=stacked_blocks(
            [(layer, [place for place in row if place.entry >= start]) for layer, row in places],
            refs,
            {number: file for file, number in enumerate(order)},
        ),
        kind="stack",
        warnings=_warnings(entries, axis),
        misfits=misfits.why,
        placed=[
            Placed(p.entry, p.array, layer.name, (p.step, *[0] * layer.like.ndim), p.entry)
            for layer, row in places
            for p in row
        ],
        order=order,
    )


def fit(entries: Sequence[Entry], axis: Axis, misfits: Misfits) -> None:
    """Compare every file with the first of its series (with the structure most have, when misfits are skipped)."""
    for numbers in by_series(entries, axis.numbers).values():
        known = judges(entries, numbers)
        first = known[0]
        if misfits.skip:
            usual = Counter(likeness(entries[i].arrays) for i in known).most_common(1)[0][0]
            first = next(i for i in known if likeness(entries[i].arrays) == usual)
        judged: dict[int, str | None] = {id(entries[first].arrays): None}
        for i in numbers:
            arrays = entries[i].arrays
            if id(arrays) not in judged:
                judged[id(arrays)] = misfit(arrays, entries[first].arrays)
            why = judged[id(arrays)]
            if why is not None:
                ours, theirs = two_files(entries[i], entries[first])
                misfits.add(i, f"{ours} differs from {theirs}: {why}")


def first_misfit(entries: Sequence[Entry], axis: Axis) -> str | None:
    """What sets the first file that does not fit apart from the first of its series; None where all fit."""
    try:
        fit(entries, axis, Misfits(entries, skip=False))
    except ConflictError as error:
        return error.message
    return None


def misfit(ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """Why two files cannot be steps of the same arrays, or None."""
    found = difference(ours, theirs)
    if found is None:
        other = {array.name: array for array in theirs}
        found = next((why for array in ours if (why := clash(array, other[array.name])) is not None), None)
    return found


def lay_all(entries: Sequence[Entry], steps: Steps) -> dict[str | None, list[Layer]]:
    """The layers of every series."""
    result = {}
    for series, numbers in by_series(entries, steps.of).items():
        gaps = len(numbers) < len(steps.values)
        variants = variants_of(entries, numbers)
        layers = []
        for array in variants[0]:
            same = [next(a for a in arrays if a.name == array.name) for arrays in variants]
            name = placed(group_of(series), array.name)
            layer = lay(name, same, gaps=gaps)
            if layer.packed and physical_dtype(array.dtype) is None:
                raise ConflictError(
                    f"{name} has no file at some of the {len(steps.values)} steps, and no nodata to say so; "
                    f"no float holds every {array.dtype} exactly"
                )
            layers.append(layer)
        result[series] = layers
    return result


def places_of(
    entries: Sequence[Entry], steps: Steps, layers: dict[str | None, list[Layer]]
) -> list[tuple[Layer, list[Place]]]:
    """For each layer its files in the order of their steps."""
    result = []
    for series, numbers in by_series(entries, steps.of).items():
        numbers.sort(key=steps.of.__getitem__)
        for layer in layers[series]:
            base = layer.like.name
            where: dict[int, int] = {}
            row = []
            for i in numbers:
                arrays = entries[i].arrays
                k = where.get(id(arrays))
                if k is None:
                    k = where[id(arrays)] = next(k for k, a in enumerate(arrays) if a.name == base)
                row.append(Place(steps.of[i], i, k, layer.codes(arrays[k])))
            result.append((layer, row))
    return result


def catalog_of(
    entries: Sequence[Entry],
    axis: Axis,
    steps: Steps,
    layers: dict[str | None, list[Layer]],
    pattern: str | None,
) -> Catalog:
    """The stacked arrays, their coordinate, and what all files say of themselves."""
    arrays = {layer.name: layer.array(axis.dim, len(steps.values)) for found in layers.values() for layer in found}
    for array in arrays.values():
        if axis.dim in array.dims[1:]:
            raise FormatError(f"{array.name} has a dimension {axis.dim!r} of its own; choose another with dim=")
    attributes = {}
    for series, numbers in by_series(entries, steps.of).items():
        shared = common(entries[i].attributes for i in numbers)
        if shared:
            attributes[group_of(series)] = shared
    arrangement: dict[str, Any] = {"kind": "stack", "dim": axis.dim, "coordinate": axis.way}
    if groups := [group_of(series) for series in layers if series is not None]:
        arrangement["series"] = groups
    if axis.way == "pattern" and pattern is not None:
        arrangement["pattern"] = pattern
    return Catalog(
        arrays=arrays,
        coordinates={axis.dim: Coordinate(name=axis.dim, dims=(axis.dim,), values=steps.values)},
        attributes=attributes,
        arrangement=arrangement,
    )


def by_series(entries: Sequence[Entry], numbers: Iterable[int]) -> dict[str | None, list[int]]:
    """Entries grouped by the stack they belong to."""
    groups: dict[str | None, list[int]] = {}
    for i in numbers:
        groups.setdefault(entries[i].series, []).append(i)
    return groups


def group_of(series: str | None) -> str:
    """The group that the arrays of a series lie in; the root is the empty string."""
    return "" if series is None else safe_path(series)


def times_of(steps: Steps) -> dict[int, np.datetime64]:
    """When each file was taken, where the new dimension is time."""
    if steps.values.dtype.kind != "M":
        return {}
    return {i: steps.values[step] for i, step in steps.of.items()}


def variants_of(entries: Sequence[Entry], numbers: Sequence[int]) -> list[tuple[Array, ...]]:
    """Each different tuple of arrays once, the first file's first."""
    return list({id(entries[i].arrays): entries[i].arrays for i in numbers}.values())


def lost_holes(
    entries: Sequence[Entry], steps: Steps, layers: dict[str | None, list[Layer]], refs: Lookup
) -> dict[int, str]:
    """Files whose missing chunks mean 0 although the stack shows a missing chunk as NaN."""
    found: dict[int, str] = {}
    for series, numbers in by_series(entries, steps.of).items():
        packed = {layer.like.name for layer in layers[series] if layer.packed}
        for i in numbers if packed else ():
            for k, array in enumerate(entries[i].arrays):
                if array.name in packed and hides_holes(array) and is_sparse(array, refs(i, k)):
                    name = file_name(entries[i])
                    found[i] = (
                        f"{array.name} of {name} has missing chunks and no nodata: they mean 0 there, and would be "
                        "holes in the stack"
                    )
    return found


def in_order(count: int, steps: Steps) -> list[int]:
    """Entries in the order of their steps (so that neighbours in time are neighbours in the table), then the others."""
    placed_ones = sorted(steps.of, key=lambda i: (steps.of[i], i))
    return placed_ones + [i for i in range(count) if i not in steps.of]


def _warnings(entries: Sequence[Entry], axis: Axis) -> tuple[str, ...]:
    if axis.way != "order":
        return ()
    hint = suggested([entries[i].source.url for i in axis.numbers])
    more = f"; the names seem to hold times: pattern={hint!r}" if hint else ""
    return (f"no coordinate is known: {axis.dim} counts the files in the order they were given{more}",)
