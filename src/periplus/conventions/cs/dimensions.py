"""coords and its successor dimensions: coordinates of each dimension, inline, by interval or in other arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from periplus.conventions.context import Reading, mapping, number, shown, texts
from periplus.conventions.coordinate_names import CoordinateNames
from periplus.conventions.cs.times import duration, instant
from periplus.conventions.cs.values import MOST_ITEMS, term_dims
from periplus.conventions.meaning import Coord, Explicit, External, Regular
from periplus.conventions.node import Node
from periplus.conventions.ref import ReferenceTarget, resolve

_UNIT_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _DimensionEntry:
    name: str
    descriptor: Any
    dims: tuple[str, ...] | None
    where: str
    words: Mapping[str, Any] = field(default_factory=dict)


def read_dimensions(reading: Reading, names: CoordinateNames, covered: frozenset[str]) -> list[Coord]:
    """Coordinates of the array being read that it or its group describes; `covered` are dimensions that have one."""
    made: list[Coord] = []
    done = set(covered)
    for source in (reading.node, reading.group):
        if source is None or not reading.declares(source, "dimensions"):
            continue
        for entry in _entries(reading, source):
            if entry.name in done:
                continue
            coord = _coord(reading, entry, names, source)
            if coord is not None:
                done.add(entry.name)
                made.append(coord)
    return made


def _entries(reading: Reading, source: Node) -> Iterator[_DimensionEntry]:
    """What a node describes, in either generation of keys; of a group, only what concerns the array."""
    own = source.path == reading.node.path
    for key in ("coords:coordinates", "dimensions:axes", "dimensions:coordinates"):
        if key not in source.attributes:
            continue
        found = mapping(source.attributes[key])
        if found is None:
            reading.note("dimensions.malformed", "error", key, f"{key} is an object", path=source.path)
            continue
        if key.startswith("coords:"):
            message = "coords:* was renamed dimensions:*, under the same uuid"
            reading.note("dimensions.old-keys", "info", key, message, path=source.path)
        read = _axis if key == "dimensions:axes" else _coordinate
        for name, raw in found.items():
            entry = read(reading, key, name, raw, own)
            if entry is not None:
                yield entry


def _axis(reading: Reading, key: str, name: str, raw: Any, own: bool) -> _DimensionEntry | None:
    """The labels of an axis; `own` is whether the array itself declares it."""
    dims, inner, where = reading.node.dims, mapping(raw) or {}, f"{key}.{name}"
    if name in dims and "coords" in inner:
        return _DimensionEntry(name=name, descriptor=inner["coords"], dims=(name,), where=where, words=_words(inner))
    if own and name not in dims:
        reading.note("dimensions.unknown", "warning", where, f"{name!r} is not a dimension of the array")
    return None


def _coordinate(reading: Reading, key: str, name: str, raw: Any, own: bool) -> _DimensionEntry | None:
    """A coordinate along the dimensions that index it; `own` is whether the array itself declares it."""
    dims, inner, where = reading.node.dims, mapping(raw) or {}, f"{key}.{name}"
    descriptor = inner.get("coords", raw) if key == "dimensions:coordinates" else raw
    indexed = inner.get("indexed_by", (mapping(descriptor) or {}).get("indexed_by"))
    along = (name,) if indexed is None and name in dims else texts(indexed)
    if along is not None and set(along) <= set(dims):
        return _DimensionEntry(name=name, descriptor=descriptor, dims=along, where=where, words=_words(inner))
    if own and along is None:
        return _DimensionEntry(name=name, descriptor=descriptor, dims=None, where=where, words=_words(inner))
    if own:
        reading.note("dimensions.unknown", "warning", where, f"{list(along or ())} are not dimensions of the array")
    return None


def _words(found: Mapping[str, Any]) -> dict[str, Any]:
    words = {"units": found.get("unit"), "long_name": found.get("description"), "axis": found.get("axis")}
    words["axis"] = str(words["axis"]).upper() if words["axis"] is not None else None
    if words["axis"] not in ("X", "Y", "Z", "T"):
        del words["axis"]
    return {key: value for key, value in words.items() if isinstance(value, str) and value}


def _coord(reading: Reading, entry: _DimensionEntry, names: CoordinateNames, source: Node) -> Coord | None:
    descriptor = mapping(entry.descriptor)
    if isinstance(entry.descriptor, list | tuple):
        reading.note("dimensions.bare", "info", entry.where, "a mere list of values", 'write {"type": "inline", …}')
        descriptor = {"type": "inline", "values": entry.descriptor}
    if descriptor is None:
        reading.note("dimensions.malformed", "error", entry.where, "a descriptor is an object")
        return None
    kind = descriptor.get("type") or _guessed(descriptor)
    if kind == "reference":
        return None  # another convention describes it
    if kind == "array":
        return _array(reading, entry, descriptor, names, source)
    node = reading.node
    sizes = dict(zip(node.dims, node.shape, strict=False))
    if entry.dims is None or len(entry.dims) > 1:
        reading.note("dimensions.malformed", "error", entry.where, f"{kind} values must have one dimension")
        return None
    count = sizes[entry.dims[0]] if entry.dims else 1
    words = dict(entry.words)
    values: Regular | Explicit | None
    if kind == "inline":
        values = _inline(reading, descriptor.get("values"), entry, count)
    elif kind == "interval":
        values, more = _interval(reading, descriptor, entry, count)
        words |= more
    else:
        reading.note("dimensions.type", "warning", entry.where, f"the type {shown(kind)} is not known")
        return None
    return None if values is None else _named(replace(entry, words=words), entry.dims, values, names)


def _named(
    entry: _DimensionEntry,
    dims: tuple[str, ...],
    values: Regular | Explicit | External,
    names: CoordinateNames,
    target: ReferenceTarget | None = None,
) -> Coord:
    """The coordinate of these values; one along the dimension of its own name is an axis."""
    axis = dims == (entry.name,)
    return Coord(
        name=names.axis(entry.name, target) if axis else names.free(entry.name, target, dims=dims),
        dims=dims,
        values=values,
        role="axis" if axis else "auxiliary" if dims else "scalar",
        convention="dimensions",
        attributes=dict(entry.words),
    )


def _guessed(descriptor: Mapping[str, Any]) -> str | None:
    keys = (("path", "array"), ("values", "inline"), ("start", "interval"), ("convention", "reference"))
    return next((kind for key, kind in keys if key in descriptor), None)


def _array(
    reading: Reading, entry: _DimensionEntry, descriptor: Mapping[str, Any], names: CoordinateNames, source: Node
) -> Coord | None:
    target = resolve(reading, {"node": descriptor.get("path", "")}, entry.where, defined_in=source, array=True)
    if target is None:
        return None
    node, sizes = target.node, dict(zip(reading.node.dims, reading.node.shape, strict=False))
    dims = entry.dims if entry.dims is not None else term_dims(node, reading.node)
    if node.kind != "array" or dims is None or tuple(sizes.get(dim) for dim in dims) != node.shape:
        message = f"{node.path} of shape {list(node.shape)} does not fit the dimensions {list(dims or ())}"
        reading.note("dimensions.length", "error", entry.where, message)
        return None
    return _named(entry, dims, External(reference=target.reference, dims=dims, shape=node.shape), names, target)


def _inline(reading: Reading, values: Any, entry: _DimensionEntry, count: int) -> Explicit | None:
    items = list(values) if isinstance(values, list | tuple) else None
    fine = items is not None and (
        all(isinstance(item, str) for item in items) or all(number(item) is not None for item in items)
    )
    if items is None or not fine or len(items) != count:
        message = f"inline values are {count} numbers, or {count} texts"
        reading.note("dimensions.length", "error", entry.where, message)
        return None
    return Explicit(tuple(items))


def _interval(
    reading: Reading, descriptor: Mapping[str, Any], entry: _DimensionEntry, count: int
) -> tuple[Regular | Explicit | None, dict[str, Any]]:
    start, end, step = (descriptor.get(key) for key in ("start", "end", "step"))
    if isinstance(start, str):
        return _times(reading, start, step, entry, count)
    first, last, by = number(start), number(end), number(step)
    if first is None or (by is None and (last is None or count < 2)) or by == 0:
        reading.note("dimensions.interval", "error", entry.where, "an interval has a start, and a step or an end")
        return None, {}
    if by is None:
        by = ((last or 0) - first) / (count - 1)
        reading.note("dimensions.interval", "info", entry.where, f"the step {by} is computed from the end")
    elif last is not None:
        # The convention does not define whether the end is included; both are accepted.
        reach = (last - first) / by
        if min(abs(reach - (count - 1)), abs(reach - count)) > 1e-3 * max(count, 1):
            message = f"{first} to {last} by {by} is not {count} values; the end is ignored"
            reading.note("dimensions.interval", "warning", entry.where, message)
    return Regular(first, by, count), {}


def _times(
    reading: Reading, start: str, step: Any, entry: _DimensionEntry, count: int
) -> tuple[Regular | Explicit | None, dict[str, Any]]:
    """An interval of ISO 8601 times, as numbers since its start."""
    begin = instant(start)
    length = duration(step) if isinstance(step, str) else None
    if begin is None or length is None or length == (0, 0.0) or (length[0] and length[1]) or count > MOST_ITEMS:
        reading.note("dimensions.interval", "error", entry.where, "times are an ISO 8601 start and duration")
        return None, {}
    months, seconds = length
    if months:
        first = begin.astype("datetime64[M]")
        within = begin.astype("datetime64[s]") - first.astype("datetime64[s]")
        if within.astype(np.int64) >= 28 * 86400:
            reading.note("dimensions.interval", "error", entry.where, "a day that not every month has")
            return None, {}
        moments = (first + np.arange(count) * months).astype("datetime64[s]") + within
        days = (moments - begin.astype("datetime64[s]")).astype(np.int64)
        items = tuple(int(v) // 86400 if int(v) % 86400 == 0 else int(v) / 86400 for v in days)
        return Explicit(items), _since("days", start)
    unit = next(name for name, size in _UNIT_SECONDS.items() if seconds % size == 0 or name == "seconds")
    by = seconds / _UNIT_SECONDS[unit]
    return Regular(0, int(by) if by == int(by) else by, count), _since(unit, start)


def _since(unit: str, start: str) -> dict[str, Any]:
    return {"units": f"{unit} since {start}", "calendar": "proleptic_gregorian", "axis": "T"}
