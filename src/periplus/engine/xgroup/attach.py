"""Coordinates that conventions describe, put into a Dataset: each once, by a name that is free, with what it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import xarray as xr

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Affine, Coord, External, Meaning, Regular
from periplus.engine.xgroup.coordinates import Made, grid_pair, is_time, make
from periplus.engine.xgroup.decode import WORDS, reworded
from periplus.engine.xgroup.describe import described, elsewhere, is_axis, named
from periplus.engine.xgroup.draft import Draft
from periplus.engine.xgroup.nodes import UNREADABLE
from periplus.engine.xgroup.opening import Opening
from periplus.errors import PeriplusError

FOLLOWED = ("bounds", "term", "grid_mapping")
"""What a coordinate that is taken from another group brings along."""


class Attaching:
    """Gives the arrays of a draft their coordinates."""

    def __init__(self, opening: Opening, draft: Draft) -> None:
        self.opening, self.draft = opening, draft
        self._attached: set[Any] = set()
        """Coordinates that an array has brought, and others like it need not bring again."""

    def attach(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        """Give an array the coordinates that its conventions describe; `dims` says what its dimensions are called."""
        mark = (id(meaning.coords), tuple(dims.items()))
        if mark in self._attached:
            return
        called: dict[str, str] = {}
        done: set[str] = set()
        for coord in meaning.coords:
            if coord.name in done:
                continue
            if isinstance(coord.values, Affine):
                done |= self._grid(name, meaning, dims)
                continue
            if coord.role == "axis" and isinstance(coord.values, Regular) and self.opening.options.coords == "none":
                continue
            final = self._one(name, meaning.path, coord, dims)
            if final is not None and final != coord.name:
                called[coord.name] = final
        ready = self.draft.ready
        if not called and all(isinstance(one.values, Regular) and one.name in ready for one in meaning.coords):
            self._attached.add(mark)
        self._reword((name, *called.values()), called)

    def _reword(self, names: Iterable[str], called: Mapping[str, str]) -> None:
        """Let attributes of these variables speak of coordinates by the names they got."""
        for name in names if called else ():
            variable = self.draft.variable(name)
            variable.attrs = reworded(variable.attrs, called)

    def _one(
        self, name: str, path: str, coord: Coord, dims: Mapping[str, str], seen: frozenset[Any] = frozenset()
    ) -> str | None:
        """Add one coordinate; answers the name it got, None where it could not be added."""
        draft = self.draft
        own = draft.own(coord)
        if own is not None:
            self._use(own, coord, by=name)
            if own == coord.name or not is_axis(coord):
                return own
        target = tuple(dims.get(dim, dim) for dim in coord.dims)
        description = described(coord)
        wanted = target[0] if is_axis(coord) else coord.name
        there = self._there(wanted, coord, target, description)
        if there is None and draft.holds(wanted) and not is_axis(coord):
            wanted = f"{name}_{coord.name}"
            there = wanted if draft.origins.get(wanted) == description else None
        if there is not None or draft.holds(wanted):
            return there
        made = self._made(path, coord, target, wanted)
        if made is None:
            return None
        draft.put(wanted, made, description)
        if isinstance(coord.values, External):
            self._follow(wanted, coord.values, made.variable, seen)
        return wanted

    def _there(self, wanted: str, coord: Coord, dims: tuple[str, ...], description: Any) -> str | None:
        """The name by which the draft has the coordinate already."""
        if self.draft.stores_labels(wanted, dims) or self.draft.origins.get(wanted) == description:
            return wanted
        return None if is_axis(coord) else self.draft.same(description, dims)

    def _use(self, own: str, coord: Coord, *, by: str) -> None:
        """Let an array of this group be a coordinate of another one, unless it is data in its own right."""
        itself = own == by != coord.name
        if itself or self._stays_data(own, coord):
            return
        self.draft.coords |= {own} - {by}
        if isinstance(coord.values, External):
            self.opening.used.add(coord.values.reference.path)
        if coord.attributes and coord.convention != "CF" and own in self.draft.raw:
            self.draft.describe(own, coord.attributes)

    def _stays_data(self, name: str, coord: Coord) -> bool:
        if coord.role == "ancillary":
            return True
        if coord.role != "term":
            return False
        meaning = self.opening.meaning(self.draft.arrays[name])
        # A formula of CF says of no array that it is a mere coordinate, and stock xarray makes none of it.
        return coord.convention == "CF" or (meaning is not None and bool(meaning.principal or meaning.coords))

    def _made(self, path: str, coord: Coord, dims: tuple[str, ...], name: str) -> Made | None:
        """The variable of a coordinate by that name; None, and a word to the user, where it cannot be."""
        where = f"{coord.convention} ({coord.name})" if coord.convention else coord.name
        try:
            given = coord if coord.name == name else named(coord, name)
            made = make(given, dims, self.opening.variable, lazy=self.opening.options.lazy)
        except (PeriplusError, *UNREADABLE) as error:
            reason = error.message if isinstance(error, PeriplusError) else str(error)[:300]
            self.opening.report.broken(path, where, reason)
            return None
        if made.index is not None and is_time(coord.attributes):
            text = (
                f"{made.variable.size} times are too many to decode; {name} stays numbers, {coord.attributes['units']}"
            )
            self.opening.report.add([Diagnostic("cs.time-long", "warning", path, where, text)])
        sizes = self.draft.sizes
        for dim, size in made.variable.sizes.items():
            if sizes.get(str(dim), size) != size and not _has_own(str(dim), coord, made.variable):
                self.opening.report.broken(path, where, f"it has {size} values along {dim}, not {sizes[str(dim)]}")
                return None
        return self.draft.fitted(name, made)

    def _follow(self, name: str, values: External, variable: xr.Variable, seen: frozenset[Any]) -> None:
        """Bring along what a coordinate from elsewhere refers to itself: its boundaries, the terms of its formula."""
        reference = values.reference
        mark = (reference.uri, reference.path)
        if mark in seen:
            return
        meaning = self.opening.meaning(reference.path, reference.uri)
        if meaning is None:
            return
        self.opening.report.add(one for one in meaning.diagnostics if one.code.startswith("ref."))
        dims = self._dims_of(values, variable)
        called: dict[str, str] = {}
        for coord in meaning.coords:
            if coord.role not in FOLLOWED:
                continue
            away = coord if reference.uri is None else elsewhere(coord, reference.uri)
            final = self._one(name, reference.path, away, dims, seen | {mark})
            if final is not None and final != coord.name:
                called[coord.name] = final
        overlay = {key: value for key, value in meaning.attributes.items() if key in WORDS and key != "coordinates"}
        raw = self.draft.raw
        if (overlay or called) and name in raw:
            raw[name].attrs = reworded({**raw[name].attrs, **overlay}, called)

    def _dims_of(self, values: External, variable: xr.Variable) -> dict[str, str]:
        """What the dimensions that an array of another group is stored with are called here."""
        node = self.opening.store(values.reference.uri).lookup(values.reference.path)
        stored = () if node is None else node.dims
        if len(stored) != variable.ndim:
            return {}
        pairs = zip(reversed(stored) if values.transpose else stored, variable.dims, strict=True)
        return {old: str(new) for old, new in pairs if old is not None}

    def _grid(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> set[str]:
        """Both coordinates of a turned grid at once, as one index serves both; answers which are done."""
        pair = {one.values.axis: one for one in meaning.coords if isinstance(one.values, Affine)}
        done = {one.name for one in pair.values()}
        if self.opening.options.coords == "none" or set(pair) != {"x", "y"}:
            return done
        x, y = pair["x"], pair["y"]
        target = (dims.get(y.dims[0], y.dims[0]), dims.get(y.dims[1], y.dims[1]))
        description = (described(x), target)
        names = (x.name, y.name)
        if self.draft.origins.get(names[0]) == description:
            return done
        if any(map(self.draft.holds, names)):
            names = (f"{name}_{x.name}", f"{name}_{y.name}")
        for key, made in grid_pair(x, y, target, names).items():
            self.draft.ready[str(key)] = made
            self.draft.origins[str(key)] = description
        return done


def _has_own(dim: str, coord: Coord, variable: xr.Variable) -> bool:
    """Whether a coordinate may have a dimension of its own size: its vertices, or what a term of a formula needs."""
    vertices = coord.role == "bounds" and dim == variable.dims[-1]
    return vertices or (dim in coord.dims and coord.role in ("term", "ancillary"))
