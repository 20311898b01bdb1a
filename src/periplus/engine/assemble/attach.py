"""Add the coordinates that conventions describe to a draft: each once, under a free name, with what it refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import xarray as xr

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Affine, Coord, External, Meaning, Regular
from periplus.engine.assemble.coordinates import MadeCoordinate, grid_pair, is_time, make
from periplus.engine.assemble.decode import NAMING_ATTRIBUTES, with_new_names
from periplus.engine.assemble.draft import DatasetDraft, in_store, is_axis, origin_of
from periplus.engine.assemble.source import UNREADABLE, ArraySource
from periplus.errors import PeriplusError

FOLLOWED = ("bounds", "term", "grid_mapping")
"""Roles of what a coordinate from another group refers to, and is added with it."""


class CoordinateAttacher:
    """Gives the arrays of a draft their coordinates."""

    def __init__(self, source: ArraySource, draft: DatasetDraft) -> None:
        self.source, self.draft = source, draft
        self._attached: set[Any] = set()
        """Coordinates that an array has added, and arrays with the same meaning need not add again."""

    def attach(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        """Add the coordinates of an array; `dims` maps its dimensions to their names in the draft."""
        key = (id(meaning.coords), tuple(dims.items()))
        if key in self._attached:
            return
        new_names: dict[str, str] = {}
        done: set[str] = set()
        for coord in meaning.coords:
            if coord.name in done:
                continue
            if isinstance(coord.values, Affine):
                done |= self._grid(name, meaning, dims)
                continue
            if coord.role == "axis" and isinstance(coord.values, Regular) and self.source.options.coords == "none":
                continue
            if (
                coord.convention == "CF"
                and isinstance(coord.values, External)
                and not self.source.options.decodes_coords
            ):
                continue  # as in xarray, whose own engine leaves such arrays as data
            final = self._add(name, meaning.path, coord, dims)
            if final is not None and final != coord.name:
                new_names[coord.name] = final
        ready = self.draft.ready
        if not new_names and all(isinstance(one.values, Regular) and one.name in ready for one in meaning.coords):
            self._attached.add(key)
        self._rename_in_attributes((name, *new_names.values()), new_names)

    def _rename_in_attributes(self, names: Iterable[str], new_names: Mapping[str, str]) -> None:
        """Use the new names of coordinates in the attributes of these variables."""
        for name in names if new_names else ():
            variable = self.draft.variable(name)
            variable.attrs = with_new_names(variable.attrs, new_names)

    def _add(
        self, name: str, path: str, coord: Coord, dims: Mapping[str, str], seen: frozenset[Any] = frozenset()
    ) -> str | None:
        """Add one coordinate; returns its name in the draft, None where it could not be added."""
        draft = self.draft
        own = draft.own(coord)
        if own is not None:
            self._use(own, coord, by=name)
            if own == coord.name or not is_axis(coord):
                return own
        target = tuple(dims.get(dim, dim) for dim in coord.dims)
        origin = origin_of(coord)
        wanted = target[0] if is_axis(coord) else coord.name
        present = self._present(wanted, coord, target, origin)
        if present is None and draft.holds(wanted) and not is_axis(coord):
            wanted = f"{name}_{coord.name}"
            present = wanted if draft.origins.get(wanted) == origin else None
        if present is None and draft.holds(wanted):
            taken = f"{wanted} has no labels by {coord.convention}: an array of other dimensions has that name"
            self.source.findings.add([Diagnostic("principal.name", "warning", path, coord.name, taken)])
        if present is not None or draft.holds(wanted):
            return present
        made = self._made(path, coord, target, wanted)
        if made is None:
            return None
        draft.put(wanted, made, origin)
        if isinstance(coord.values, External):
            self._follow(wanted, coord.values, made.variable, seen)
        return wanted

    def _present(self, wanted: str, coord: Coord, dims: tuple[str, ...], origin: Any) -> str | None:
        """The name under which the draft already has the coordinate."""
        if self.draft.stores_labels(wanted, dims) or self.draft.origins.get(wanted) == origin:
            return wanted
        return None if is_axis(coord) else self.draft.same(origin, dims)

    def _use(self, own: str, coord: Coord, *, by: str) -> None:
        """Make an array of this group a coordinate of another one, unless it is data."""
        itself = own == by != coord.name
        if itself or self._stays_data(own, coord):
            return
        self.draft.coords |= {own} - {by}
        if isinstance(coord.values, External):
            self.source.used.add(coord.values.reference.path)
        if coord.attributes and coord.convention != "CF" and own in self.draft.raw:
            self.draft.describe(own, coord.attributes)

    def _stays_data(self, name: str, coord: Coord) -> bool:
        if coord.role == "ancillary":
            return True
        if coord.role != "term":
            return False
        meaning = self.source.meaning(self.draft.arrays[name])
        # xarray itself does not make coordinates of the terms of a CF formula.
        return coord.convention == "CF" or (meaning is not None and bool(meaning.principal or meaning.coords))

    def _made(self, path: str, coord: Coord, dims: tuple[str, ...], name: str) -> MadeCoordinate | None:
        """The variable of a coordinate under that name; None, with a finding, where it cannot be made."""
        findings = self.source.findings
        where = f"{coord.convention} ({coord.name})" if coord.convention else coord.name
        try:
            made = make(replace(coord, name=name), dims, self.source.external, lazy=self.source.options.lazy)
        except (PeriplusError, *UNREADABLE) as error:
            reason = error.message if isinstance(error, PeriplusError) else str(error)[:300]
            findings.broken(path, where, reason)
            return None
        if made.index is not None and is_time(coord.attributes):
            count, units = made.variable.size, coord.attributes["units"]
            text = f"{count} times are too many to decode; {name} stays numbers, {units}"
            findings.add([Diagnostic("cs.time-long", "warning", path, where, text)])
        sizes = self.draft.sizes
        for dim, size in made.variable.sizes.items():
            if sizes.get(str(dim), size) != size and not _may_rename(str(dim), coord, made.variable):
                findings.broken(path, where, f"it has {size} values along {dim}, not {sizes[str(dim)]}")
                return None
        return self.draft.fitted(name, made)

    def _follow(self, name: str, values: External, variable: xr.Variable, seen: frozenset[Any]) -> None:
        """Add what a coordinate from elsewhere refers to itself: its boundaries, the terms of its formula."""
        reference = values.reference
        key = (reference.uri, reference.path)
        if key in seen:
            return
        meaning = self.source.meaning(reference.path, reference.uri)
        if meaning is None:
            return
        self.source.findings.add(one for one in meaning.diagnostics if one.code.startswith("ref."))
        dims = self._dims_of(values, variable)
        new_names: dict[str, str] = {}
        for coord in meaning.coords:
            if coord.role not in FOLLOWED:
                continue
            referred = coord if reference.uri is None else in_store(coord, reference.uri)
            final = self._add(name, reference.path, referred, dims, seen | {key})
            if final is not None and final != coord.name:
                new_names[coord.name] = final
        overlay = {
            key: value for key, value in meaning.attributes.items() if key in NAMING_ATTRIBUTES and key != "coordinates"
        }
        raw = self.draft.raw
        if (overlay or new_names) and name in raw:
            raw[name].attrs = with_new_names({**raw[name].attrs, **overlay}, new_names)

    def _dims_of(self, values: External, variable: xr.Variable) -> dict[str, str]:
        """Stored dimensions of an array of another group, mapped to their names in the draft."""
        node = self.source.node(values.reference.path, values.reference.uri)
        stored = () if node is None else node.dims
        if len(stored) != variable.ndim:
            return {}
        pairs = zip(reversed(stored) if values.transpose else stored, variable.dims, strict=True)
        return {old: str(new) for old, new in pairs if old is not None}

    def _grid(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> set[str]:
        """Add both coordinates of a rotated grid, which share an index; returns their names in the meaning."""
        pair = {one.values.axis: one for one in meaning.coords if isinstance(one.values, Affine)}
        done = {one.name for one in pair.values()}
        if self.source.options.coords == "none" or set(pair) != {"x", "y"}:
            return done
        x, y = pair["x"], pair["y"]
        target = (dims.get(y.dims[0], y.dims[0]), dims.get(y.dims[1], y.dims[1]))
        origin = (origin_of(x), target)
        names = (x.name, y.name)
        if self.draft.origins.get(names[0]) == origin:
            return done
        if any(map(self.draft.holds, names)):
            names = (f"{name}_{x.name}", f"{name}_{y.name}")
        for key, made in grid_pair(x, y, target, names).items():
            self.draft.ready[str(key)] = made
            self.draft.origins[str(key)] = origin
        return done


def _may_rename(dim: str, coord: Coord, variable: xr.Variable) -> bool:
    """Whether a coordinate may have a dimension of another size: that of its vertices, or one of a formula term."""
    vertices = coord.role == "bounds" and dim == variable.dims[-1]
    return vertices or (dim in coord.dims and coord.role in ("term", "ancillary"))
