"""What an index records of an arrangement: where every array of every file went, and what it was like in its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.arrange import Arrangement, FileEntry
from periplus.arrange.arrangement import Placement
from periplus.arrange.mosaic.origin import MEANING
from periplus.arrange.packing import NAMES
from periplus.harvest.sidecars import ids_of
from periplus.model import Array, Placements
from periplus.table.collection.build import likeness

KEPT = (*NAMES, *MEANING, "band_names")
"""Attributes that decide whether files fit together; others are those that all files of the array have."""


def placements_of(laid: Arrangement, entries: Sequence[FileEntry]) -> Placements | None:
    """The placements of an arrangement; None for a collection, whose groups say it."""
    if not laid.placements:
        return None
    files = {entry: file for file, entry in enumerate(range(len(entries)) if laid.order is None else laid.order)}
    beside = ids_of(entries)
    placements = sorted([*laid.placements, *_left_out(laid, entries)], key=lambda p: (files[p.entry], p.array))
    targets: dict[str, int] = {}
    descriptions: dict[Any, int] = {}
    described: list[Array] = []
    known: dict[int, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("file", "description", "array", "order")}
    corners: list[tuple[float, float]] = []
    widest = max(array.ndim for array in laid.catalog.arrays.values())
    boxes = np.zeros((2, len(placements), widest), np.int64)
    for row, (number, which, target, origin, extent, order) in enumerate(placements):
        entry = entries[number]
        array = entry.arrays[which]
        if id(array) not in known:
            plain = _plain(array)
            known[id(array)] = descriptions.setdefault((array.name, likeness(plain) or id(array)), len(descriptions))
            if known[id(array)] == len(described):
                described.append(plain)
        home = entry.stored_in[which] if entry.stored_in else 0
        columns["file"].append(beside[entry.sidecars[home - 1].url] if home else files[number])
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


def _left_out(laid: Arrangement, entries: Sequence[FileEntry]) -> list[Placement]:
    """Arrays of files that the arrangement had no room for."""
    if "left_out" not in laid.catalog.arrangement:
        return []
    there = {(p.entry, p.array) for p in laid.placements}
    return [
        Placement(entry, which, "", (), (), 0)
        for entry in {p.entry for p in laid.placements}
        for which in range(len(entries[entry].arrays))
        if (entry, which) not in there
    ]


def corner_of(array: Array) -> tuple[float, float]:
    """Where the transform begins; NaN where there is none."""
    place = array.georeference
    return (np.nan, np.nan) if place is None or place.transform is None else (place.transform[2], place.transform[5])


def _plain(array: Array) -> Array:
    """The array without its corner and without attributes that all files of the target have, or that decide nothing."""
    place = array.georeference
    if place is not None and place.transform is not None:
        a, b, _, d, e, _ = place.transform
        place = replace(place, transform=(a, b, 0.0, d, e, 0.0))
    kept = {name: array.attributes[name] for name in KEPT if name in array.attributes}
    return replace(array, attributes=kept, georeference=place)
