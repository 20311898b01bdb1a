"""What an index of a mosaic remembers of its files, so that a later run need not read them again to lay them anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from periplus.arrange import Arrangement, Entry, Lookup
from periplus.arrange.packing import NAMES
from periplus.arrange.spot import MEANING
from periplus.errors import PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog
from periplus.table.document import document_for, dump, load
from periplus.table.families import likeness

KEY = "members"
"""In the arrangement of a mosaic: `names` of its arrays in their files; `arrays` of files, the text of a document;
`kinds` of files, lists of numbers of arrays and how many rows of each the index has; and for each row of the files
table its `kind` (null where it is not remembered) and its corner `x`, `y`."""
KEPT = (*NAMES, *MEANING, "band_names")
"""Attributes that decide whether files fit together."""


def with_members(laid: Arrangement, entries: Sequence[Entry], refs: Lookup) -> Arrangement:
    """The arrangement with what is needed to lay its files again."""
    if laid.kind != "mosaic":
        return laid
    names = local_names(laid.catalog, entries)
    inside = set(names.values())
    arrays: dict[str, Array] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    kinds: dict[tuple[tuple[int, int], ...], int] = {}
    column: dict[str, list[Any]] = {"kind": [], "x": [], "y": []}
    for i, entry in enumerate(entries):
        corner = _corner(entry.arrays[0]) if entry.arrays else None
        alike = corner is not None and all(_corner(array) == corner for array in entry.arrays)
        if laid.files.status[i] != "ok" or entry.companions or corner is None or not alike:
            for each in column.values():
                each.append(None)
            continue
        kind = []
        for k, array in enumerate(entry.arrays):
            plain = _plain(array)
            key = array.name, likeness(plain) or len(numbers)
            if key not in numbers:
                numbers[key] = len(numbers)
                arrays[f"{numbers[key]}/{array.name}"] = plain
            kind.append((numbers[key], len(refs(i, k)) if array.name in inside else 0))
        column["kind"].append(kinds.setdefault(tuple(kind), len(kinds)))
        column["x"].append(corner[0])
        column["y"].append(corner[1])
    members = {
        "names": names,
        # As text, since numbers that JSON lacks have other names in the arrangement than in a document.
        "arrays": dump(document_for(Catalog(arrays=arrays))),
        "kinds": [[list(pair) for pair in kind] for kind in kinds],
        **column,
    }
    series = next((entry.series for entry in entries if entry.series is not None), None)
    if series is not None:
        members["series"] = series
    arrangement = {**laid.catalog.arrangement, KEY: members}
    return replace(laid, catalog=replace(laid.catalog, arrangement=arrangement))


def local_names(catalog: Catalog, entries: Sequence[Entry]) -> dict[str, str]:
    """The name in its files of each array of a mosaic; those of several spacings have a group before it."""
    known = {array.name for entry in entries for array in entry.arrays}
    return {name: name if name in known else name.partition("/")[2] for name in catalog.arrays}


def _corner(array: Array) -> tuple[float, float] | None:
    place = array.georeference
    return None if place is None or place.transform is None else (place.transform[2], place.transform[5])


def _plain(array: Array) -> Array:
    """The array without what is its file's alone, or the same for all files of the mosaic."""
    place = array.georeference
    assert place is not None
    assert place.transform is not None
    a, b, _, d, e, _ = place.transform
    return replace(
        array,
        attributes={name: array.attributes[name] for name in KEPT if name in array.attributes},
        georeference=replace(place, transform=(a, b, 0.0, d, e, 0.0), gcps=(), rpc=None),
    )


@dataclass(slots=True, eq=False)
class Members:
    """What an index remembers of its files."""

    names: dict[str, str]
    kinds: list[list[tuple[Array, int]]]
    """Arrays of a file, and how many rows of each the index has."""
    kind: Sequence[int | None]
    x: Sequence[float | None]
    y: Sequence[float | None]
    series: str
    _arrays: dict[int, tuple[Array, ...]] = field(default_factory=dict)

    def arrays(self, file: int, shared: Mapping[str, Mapping[str, Any]]) -> tuple[Array, ...]:
        """The arrays of a file; `shared` are the attributes that all files have, by name of the array in its file."""
        if file not in self._arrays:
            number, x, y = self.kind[file], self.x[file], self.y[file]
            assert number is not None
            self._arrays[file] = tuple(
                replace(
                    array,
                    attributes={**shared.get(array.name, {}), **array.attributes},
                    georeference=_moved(array, float(x or 0), float(y or 0)),
                )
                for array, _ in self.kinds[number]
            )
        return self._arrays[file]


def _moved(array: Array, x: float, y: float) -> Any:
    place = array.georeference
    if place is None or place.transform is None:
        return place
    a, b, _, d, e, _ = place.transform
    return replace(place, transform=(a, b, x, d, e, y))


def _finite(value: Any) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError("a corner lies nowhere")
    return float(value)


def members_of(catalog: Catalog, files: int, *, limits: Limits) -> Members | None:
    """What the index remembers; None where it remembers nothing, or nothing sound."""
    told = catalog.arrangement.get(KEY)
    if catalog.arrangement.get("kind") != "mosaic" or not isinstance(told, Mapping):
        return None
    try:
        described = {
            int(name.partition("/")[0]): array.renamed(name.partition("/")[2])
            for name, array in load(str(told["arrays"]), limits=limits).catalog.arrays.items()
        }
        found = Members(
            names={str(name): str(local) for name, local in told["names"].items()},
            kinds=[[(described[number], int(rows)) for number, rows in kind] for kind in told["kinds"]],
            kind=[None if number is None else index(number) for number in told["kind"]],
            x=[_finite(x) for x in told["x"]],
            y=[_finite(y) for y in told["y"]],
            series=str(told.get("series", "")),
        )
        # Rows of companions follow those of files, and are not told of.
        sound = len(found.kind) == len(found.x) == len(found.y) <= files and set(found.names) == set(catalog.arrays)
        sound = sound and all(n is None or 0 <= n < len(found.kinds) for n in found.kind)
    except (PeriplusError, KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None  # such an index is read as any other, and its files are read again
    return found if sound else None
