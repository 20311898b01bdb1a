"""Adding files at the end of a stack that is stored already, without laying it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.axis import Axis, read_axis
from periplus.arrange.blocks import stacked_blocks
from periplus.arrange.book import Book
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.invert import Origin, origins, unstacked
from periplus.arrange.layer import Layer, common, needs_unpacking
from periplus.arrange.packing import physical, split_unpack
from periplus.arrange.place import Steps, place
from periplus.arrange.stack import by_series, group_of, in_order, lost_holes, misfit, places_of, times_of, variants_of
from periplus.errors import ConflictError
from periplus.model import Array, Catalog


def extend(catalog: Catalog, entries: Sequence[Entry], refs: Lookup, *, first_file: int) -> Arrangement | None:
    """The stack with more files after its last step; None where they do not simply follow, so all must be laid again.

    The files of the result are the new ones alone; their ids count from `first_file`.
    """
    way = catalog.arrangement
    dim, pattern = str(way.get("dim")), way.get("pattern")
    names = origins(catalog)
    if way.get("kind") != "stack" or names is None or dim not in catalog.coordinates:
        return None
    if not isinstance(pattern, str | None):
        return None
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    axis = read_axis(entries, good, dim=dim, pattern=pattern, way=str(way.get("coordinate")))
    before = catalog.coordinates[dim].values
    steps = None if axis.misfits else _following(entries, axis, before)
    if steps is None:
        return None
    layers = _layers(catalog, names, entries, steps)
    if layers is None or lost_holes(entries, steps, layers, refs):
        return None
    count = len(before) + len(steps.values)
    arrays = {layer.name: layer.array(dim, count) for found in layers.values() for layer in found}
    attributes = dict(catalog.attributes)
    for series, numbers in by_series(entries, steps.of).items():
        group = group_of(series)
        attributes[group] = common([attributes.get(group, {}), *(entries[i].attributes for i in numbers)])
    values = np.concatenate([before, steps.values])
    order = in_order(len(entries), steps)
    return Arrangement(
        catalog=Catalog(
            arrays={**catalog.arrays, **arrays},
            coordinates={**catalog.coordinates, dim: replace(catalog.coordinates[dim], values=values)},
            attributes={group: found for group, found in attributes.items() if found},
            arrangement=way,
        ),
        files=files_of(entries, order, times=times_of(steps)),
        blocks=stacked_blocks(
            places_of(entries, steps, layers, first=len(before)),
            refs,
            {number: first_file + file for file, number in enumerate(order)},
        ),
        kind="stack",
    )


def _following(entries: Sequence[Entry], axis: Axis, before: NDArray[Any]) -> Steps | None:
    """Steps of the new files, if all of them come after those there are."""
    try:
        steps = place(entries, axis, axis.numbers)
    except ConflictError:
        return None
    if axis.way == "order":
        return replace(steps, values=steps.values + len(before)) if before.dtype.kind == "i" else None
    if not len(steps.values) or not len(before):
        return steps
    if steps.values.dtype.kind != before.dtype.kind:
        return None
    return steps if steps.values[0] > before[-1] else None


def _layers(
    catalog: Catalog, names: dict[str, Origin], entries: Sequence[Entry], steps: Steps
) -> dict[str | None, list[Layer]] | None:
    """The stored layers, with the pipelines of the new files added; None where a new file does not fit them."""
    stored: dict[str, list[tuple[Array, Origin]]] = {}
    for name, origin in names.items():
        stored.setdefault(origin.prefix, []).append((catalog.arrays[name], origin))
    result: dict[str | None, list[Layer]] = {}
    groups = by_series(entries, steps.of)
    if {group_of(series) for series in groups} != set(stored):
        return None  # a series without a new step has gaps, one more series changes everything
    for series, numbers in groups.items():
        group = group_of(series)
        likes = {o.name: (array, unstacked(array, o.name, (0,))) for array, o in stored[group]}
        variants = variants_of(entries, numbers)
        if len(numbers) < len(steps.values) or any(misfit(v, [like for _, like in likes.values()]) for v in variants):
            return None
        layers = []
        for name, (array, like) in likes.items():
            layer = _resumed(array, like)
            same = [next(a for a in arrays if a.name == name) for arrays in variants]
            if not layer.packed and needs_unpacking([like, *same], gaps=False):
                return None
            layer.attributes = common([array.attributes, *(_unpacked(layer, a) for a in same)])
            for one in same:
                layer.codes(one)
            layers.append(layer)
        result[series] = layers
    return result


def _resumed(array: Array, like: Array) -> Layer:
    unpack, _ = split_unpack(array.encodings[0]) if array.encodings else (None, ())
    return Layer(
        name=array.name,
        like=like,
        packed=unpack is not None,
        attributes=dict(array.attributes),
        book=Book.of(array.name, array.encodings),
    )


def _unpacked(layer: Layer, array: Array) -> dict[str, Any]:
    return physical(array.attributes) if layer.packed else dict(array.attributes)
