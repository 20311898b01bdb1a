"""The placements that an index stores: the target of each array of each file, and its description in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange import Arrangement, FileEntry
from periplus.arrange.arrangement import Placement
from periplus.arrange.mosaic.origin import MEANING
from periplus.arrange.packing import NAMES
from periplus.harvest.sidecars import sidecar_ids
from periplus.model import Array, Placements
from periplus.table.collection.build import likeness

FILE_ATTRIBUTES = (*NAMES, *MEANING, "band_names")
"""Attributes that decide whether files fit; only these are stored for each file."""


def placements_of(arrangement: Arrangement, entries: Sequence[FileEntry]) -> Placements | None:
    """The placements of an arrangement as columns; None for a collection, which has groups instead."""
    if not arrangement.placements:
        return None
    sidecars = sidecar_ids(entries)
    placements = sorted([*arrangement.placements, *_omitted(arrangement, entries)], key=lambda p: (p.entry, p.array))
    targets: dict[str, int] = {}
    descriptions: dict[Any, int] = {}
    described: list[Array] = []
    known: dict[int, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("file", "description", "array", "order")}
    corners: list[tuple[float, float]] = []
    widest = max(array.ndim for array in arrangement.catalog.arrays.values())
    boxes = np.zeros((2, len(placements), widest), np.int64)
    for row, (number, which, target, origin, extent, order) in enumerate(placements):
        entry = entries[number]
        array = entry.arrays[which]
        if id(array) not in known:
            description = _description(array)
            known[id(array)] = descriptions.setdefault(
                (array.name, likeness(description) or id(array)), len(descriptions)
            )
            if known[id(array)] == len(described):
                described.append(description)
        sidecar = entry.stored_in[which] if entry.stored_in else 0
        columns["file"].append(sidecars[entry.sidecars[sidecar - 1].url] if sidecar else number)
        columns["description"].append(known[id(array)])
        columns["array"].append(targets.setdefault(target, len(targets)) if target else -1)
        columns["order"].append(order)
        corners.append(corner_of(array))
        boxes[0, row, : len(origin)] = origin
        boxes[1, row, : len(extent)] = extent
    return Placements(
        file=np.array(columns["file"], np.int32),
        description=np.array(columns["description"], np.int32),
        array=np.array(columns["array"], np.int32),
        origin=boxes[0],
        extent=boxes[1],
        order=np.array(columns["order"], np.int64),
        corner=np.array(corners, np.float64).reshape(-1, 2),
        descriptions=described,
        arrays=list(targets),
    )


def _omitted(arrangement: Arrangement, entries: Sequence[FileEntry]) -> list[Placement]:
    """Arrays of files that the arrangement omits."""
    if "left_out" not in arrangement.catalog.arrangement:
        return []
    placed = {(p.entry, p.array) for p in arrangement.placements}
    return [
        Placement(entry, which, "", (), (), 0)
        for entry in {p.entry for p in arrangement.placements}
        for which in range(len(entries[entry].arrays))
        if (entry, which) not in placed
    ]


def corner_of(array: Array) -> tuple[float, float]:
    """Origin of the transform; NaN if there is none."""
    place = array.georeference
    return (np.nan, np.nan) if place is None or place.transform is None else (place.transform[2], place.transform[5])


def _description(array: Array) -> Array:
    """The array without its corner, and only with the attributes that are stored for each file."""
    place = array.georeference
    if place is not None and place.transform is not None:
        a, b, _, d, e, _ = place.transform
        place = replace(place, transform=(a, b, 0.0, d, e, 0.0))
    kept = {name: array.attributes[name] for name in FILE_ATTRIBUTES if name in array.attributes}
    return replace(array, attributes=kept, georeference=place)
