"""Arrays of one group as one Dataset: with the coordinates that conventions give each, wherever those lie."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Affine, Coord, CrsText, External, Grid, Meaning, Regular
from periplus.engine.xgroupbook import Book
from periplus.engine.xgroupcoords import Made, grid_pair, is_time, make, renamed
from periplus.engine.xgroupcrs import Mappings
from periplus.engine.xgroupdecode import WORDS, decode, reworded
from periplus.engine.xgroupdescribe import described, elsewhere, is_axis, named
from periplus.engine.xgrouperrors import NO_PRINCIPAL
from periplus.engine.xgroupjoin import joined
from periplus.engine.xgroupnodes import UNREADABLE
from periplus.engine.xgroupquantized import dequantized
from periplus.errors import PeriplusError

FOLLOWED = ("bounds", "term", "grid_mapping")
"""What a coordinate that is taken from another group brings along."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A Dataset and the grids its arrays lie on."""

    dataset: xr.Dataset
    grids: Mapping[tuple[str, str], Grid]
    """By the dimensions (y, x) they have there."""
    crs: CrsText | None
    """Of the first array that has one."""


def assemble(book: Book, arrays: Mapping[str, str], attributes: Mapping[str, Any]) -> Assembled:
    """The Dataset of some arrays, given as names to paths; no chunk is read."""
    wanted = {name: path for name, path in arrays.items() if name not in book.options.drop}
    made = _Assembly(book, wanted)
    return Assembled(made.dataset(attributes), made.grids, made.crs)


class _Assembly:
    """A Dataset while it is put together."""

    def __init__(self, book: Book, arrays: Mapping[str, str]) -> None:
        self.book, self.arrays = book, dict(arrays)
        self.names = {path: name for name, path in self.arrays.items()}
        self.raw: dict[str, xr.Variable] = {}
        """Variables as they are stored, to be decoded."""
        self.ready: dict[str, Made] = {}
        """Coordinates that have an index already."""
        self.origins: dict[str, Any] = {}
        """What each name stands for, to tell whether another means the same."""
        self.labelled: dict[str, Any] = {}
        """What labels each dimension, as the first array that has labels says it."""
        self.attached: set[Any] = set()
        """Coordinates that an array has brought, and others like it need not bring again."""
        self.sizes: dict[str, int] = {}
        self.coords: set[str] = set()
        self.before: dict[str, Mapping[Any, Any]] = {}
        """Attributes of arrays of the group before a convention added to them."""
        self.grids: dict[tuple[str, str], Grid] = {}
        self.crs: CrsText | None = None
        self.mappings = Mappings(book)

    # --- the whole --------------------------------------------------------------------------------------------------

    def dataset(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        said: dict[str, Meaning] = {}
        stored: dict[str, xr.Variable] = {}
        for name, path in self.arrays.items():
            try:
                stored[name] = self.book.hierarchy.variable(path)
            except UNREADABLE as error:
                self.book.report.broken(path, "", f"it cannot be read: {error!s:.300}")
                continue
            meaning = self.book.meaning(path)
            said[name] = Meaning(path=path) if meaning is None else meaning
            self.book.report.add(said[name].diagnostics)
        if self.book.computes:
            self._hide(stored, said)
        placed: dict[str, dict[str, str]] = {}
        for name in sorted(stored, key=lambda name: (*_rank(name, stored[name]), name)):
            placed[name] = self._place(name, stored[name], said[name])
            self._dequantize(name, said[name], placed[name])
        for name in stored:
            self._attach(name, said[name], placed[name])
        for name in stored:
            self._ask_strangers(said[name])
        for name in stored:
            self._locate(name, said[name], placed[name])
        self._note_bare(said)
        return self._decoded(attributes)

    def _hide(self, stored: dict[str, xr.Variable], said: Mapping[str, Meaning]) -> None:
        """Leave out stored labels that a grid gives as well: those of the grid cost nothing to open."""
        axes = [coord for meaning in said.values() for coord in meaning.coords if is_axis(coord)]
        for coord in axes:
            labels, values = stored.get(coord.name), coord.values
            if labels is None or not isinstance(values, Regular):
                continue
            if labels.dims == coord.dims and labels.size == values.count:
                del stored[coord.name]
                path = self.arrays.pop(coord.name)
                self.names.pop(path)
                self.book.hierarchy.forget(path)

    def _decoded(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        drop = self.book.options.drop
        raw = {name: variable for name, variable in self.raw.items() if name not in drop}
        decoded, attrs, coordinates = decode(self.book, raw, attributes, own=self.arrays, before=self.before)
        ready = {name: made for name, made in self.ready.items() if name not in drop}
        coords: dict[Hashable, Any] = {name: made.variable for name, made in ready.items()}
        data: dict[Hashable, Any] = {}
        for name, variable in decoded.items():
            is_coord = name in coordinates or name in self.coords or variable.dims == (name,)
            (coords if is_coord else data)[name] = variable
        indexes: dict[Hashable, Any] = {name: made.index for name, made in ready.items() if made.index is not None}
        return joined(data, coords, indexes, attrs)

    # --- arrays of the group ----------------------------------------------------------------------------------------

    def _place(self, name: str, variable: xr.Variable, meaning: Meaning) -> dict[str, str]:
        """Put an array in; answers which of its dimensions are called what."""
        axes = {coord.dims[0]: coord for coord in meaning.coords if is_axis(coord)}
        given: dict[str, str] = {}
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            given[str(dim)] = self._dim(name, str(dim), size, axes.get(str(dim)), meaning)
        dims = tuple(given[str(dim)] for dim in variable.dims)
        self.raw[name] = variable if dims == variable.dims else renamed(variable, dims)
        self.raw[name].attrs.update(meaning.attributes)
        self.origins[name] = ("path", None, self.arrays[name])
        return given

    def _dequantize(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        if meaning.quantization is None or not self.book.options.dequantize:
            return
        try:
            self.raw[name] = dequantized(self.raw[name], meaning.quantization, dims, self.book.variable)
        except (PeriplusError, *UNREADABLE) as error:
            self.book.report.broken(meaning.path, "quantization", f"stored values are shown as they are: {error}")

    def _dim(self, name: str, dim: str, size: int, axis: Coord | None, meaning: Meaning) -> str:
        """The name of a dimension, another one where arrays before it have other sizes or labels along it."""
        stored = dim in self.arrays and self.sizes.get(dim) == size and self.raw[dim].dims == (dim,)
        description = None if axis is None or stored else described(axis)
        told = self.labelled.get(dim)
        fits = self.sizes.setdefault(dim, size) == size
        agrees = description is None or told is None or told == description
        if fits and agrees:
            if description is not None:
                self.labelled[dim] = description
            return dim
        other = f"{name}_{dim}"
        while self.sizes.get(other, size) != size or other in self.arrays:
            other += "_"
        self.sizes[other] = size
        if fits:
            self._tell(meaning.path, f"other labels along {dim} than arrays beside it", other)
        elif meaning.level is None:
            self._tell(meaning.path, f"size {size} along {dim} where others have {self.sizes[dim]}", other)
        return other

    def _tell(self, path: str, reason: str, dim: str) -> None:
        self.book.report.conflicts.setdefault(path, {})[reason] = dim

    # --- coordinates ------------------------------------------------------------------------------------------------

    def _attach(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        """Give an array the coordinates that its conventions describe."""
        mark = (id(meaning.coords), tuple(dims.items()))
        if mark in self.attached:
            return
        called: dict[str, str] = {}
        new: list[str] = [name]
        done: set[str] = set()
        for coord in meaning.coords:
            if coord.name in done:
                continue
            if isinstance(coord.values, Affine):
                done |= self._attach_grid(name, meaning, dims)
                continue
            if coord.role == "axis" and isinstance(coord.values, Regular) and self.book.options.coords == "none":
                continue
            final = self._attach_one(name, meaning.path, coord, dims)
            if final is not None and final != coord.name:
                called[coord.name] = final
                new.append(final)
        if not called and all(isinstance(one.values, Regular) and one.name in self.ready for one in meaning.coords):
            self.attached.add(mark)
        for one in new if called else ():
            variable = self.ready[one].variable if one in self.ready else self.raw[one]
            variable.attrs = reworded(variable.attrs, called)

    def _attach_one(
        self, name: str, path: str, coord: Coord, dims: Mapping[str, str], seen: frozenset[Any] = frozenset()
    ) -> str | None:
        """Add one coordinate; answers the name it got, None where it could not be added."""
        own = self._own(coord)
        if own is not None:
            itself = own == name != coord.name
            if not itself and not self._stays_data(own, coord):
                self.coords |= {own} - {name}
                if isinstance(coord.values, External):
                    self.book.used.add(coord.values.reference.path)
                self._lay(own, coord)
            if own == coord.name or not is_axis(coord):
                return own
        target = tuple(dims.get(dim, dim) for dim in coord.dims)
        wanted = target[0] if is_axis(coord) else coord.name
        description = described(coord)
        if wanted in self.arrays and self._stored_axis(wanted, target):
            return wanted
        if self.origins.get(wanted) == description:
            return wanted
        if not is_axis(coord) and (same := self._same(description, target)) is not None:
            return same
        if wanted in self.raw or wanted in self.ready:
            if is_axis(coord):
                return None
            wanted = f"{name}_{coord.name}"
            if wanted in self.raw or wanted in self.ready:
                return wanted if self.origins.get(wanted) == description else None
        made = self._made(path, coord, target, wanted)
        if made is None:
            return None
        self.origins[wanted] = description
        self.coords.add(wanted)
        if made.index is not None:
            self.ready[wanted] = made
        else:
            self.raw[wanted] = made.variable
        if isinstance(coord.values, External):
            self._follow(wanted, coord.values, made.variable, seen)
        return wanted

    def _same(self, description: Any, dims: tuple[str, ...]) -> str | None:
        """The coordinate that is the same array along the same dimensions, by whatever name."""
        if not isinstance(description, tuple):
            return None
        names = (name for name in self.raw if name in self.coords and self.origins.get(name) == description)
        return next((name for name in names if self.raw[name].dims == dims and dims != (name,)), None)

    def _made(self, path: str, coord: Coord, dims: tuple[str, ...], name: str) -> Made | None:
        where = f"{coord.convention} ({coord.name})" if coord.convention else coord.name
        try:
            given = coord if coord.name == name else named(coord, name)
            made = make(given, dims, self.book.variable, lazy=self.book.options.lazy)
        except (PeriplusError, *UNREADABLE) as error:
            reason = error.message if isinstance(error, PeriplusError) else str(error)[:300]
            self.book.report.broken(path, where, reason)
            return None
        if made.index is not None and is_time(coord.attributes):
            text = (
                f"{made.variable.size} times are too many to decode; {name} stays numbers, {coord.attributes['units']}"
            )
            self.book.report.add([Diagnostic("cs.time-long", "warning", path, where, text)])
        for dim, size in made.variable.sizes.items():
            if self.sizes.get(str(dim), size) != size:
                vertices = coord.role == "bounds" and dim == made.variable.dims[-1]
                if vertices or (dim in coord.dims and coord.role in ("term", "ancillary")):
                    continue  # it gets a dimension of its own
                reason = f"it has {size} values along {dim}, not {self.sizes[str(dim)]}"
                self.book.report.broken(path, where, reason)
                return None
        return self._fitted(name, made)

    def _fitted(self, name: str, made: Made) -> Made:
        """The coordinate with dimensions of its own where those it brings along are taken by others."""
        variable = made.variable
        dims = tuple(
            str(dim) if self.sizes.setdefault(str(dim), size) == size else f"{name}_{dim}"
            for dim, size in variable.sizes.items()
        )
        if dims == variable.dims:
            return made
        self.sizes |= dict(zip(dims, variable.shape, strict=True))
        return Made(renamed(variable, dims))

    def _follow(self, name: str, values: External, variable: xr.Variable, seen: frozenset[Any]) -> None:
        """Bring along what a coordinate from elsewhere refers to itself: its boundaries, the terms of its formula."""
        reference = values.reference
        mark = (reference.uri, reference.path)
        if mark in seen:
            return
        meaning = self.book.meaning(reference.path, reference.uri)
        if meaning is None:
            return
        self.book.report.add(one for one in meaning.diagnostics if one.code.startswith("ref."))
        node = self.book.store(reference.uri).lookup(reference.path)
        stored = () if node is None else node.dims
        if len(stored) == variable.ndim:
            ways = zip(reversed(stored) if values.transpose else stored, variable.dims, strict=True)
            dims = {old: str(new) for old, new in ways if old is not None}
        else:
            dims = {}
        called: dict[str, str] = {}
        for coord in meaning.coords:
            if coord.role not in FOLLOWED:
                continue
            away = coord if reference.uri is None else elsewhere(coord, reference.uri)
            final = self._attach_one(name, reference.path, away, dims, seen | {mark})
            if final is not None and final != coord.name:
                called[coord.name] = final
        overlay = {key: value for key, value in meaning.attributes.items() if key in WORDS and key != "coordinates"}
        if (overlay or called) and name in self.raw:
            self.raw[name].attrs = reworded({**self.raw[name].attrs, **overlay}, called)

    def _attach_grid(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> set[str]:
        """Both coordinates of a turned grid at once, as one index serves both."""
        pair = {one.values.axis: one for one in meaning.coords if isinstance(one.values, Affine)}
        done = {one.name for one in pair.values()}
        if self.book.options.coords == "none" or set(pair) != {"x", "y"}:
            return done
        x, y = pair["x"], pair["y"]
        target = (dims.get(y.dims[0], y.dims[0]), dims.get(y.dims[1], y.dims[1]))
        description = (described(x), target)
        names = (x.name, y.name)
        if self.origins.get(names[0]) == description:
            return done
        if any(one in self.raw or one in self.ready for one in names):
            names = (f"{name}_{x.name}", f"{name}_{y.name}")
        for key, made in grid_pair(x, y, target, names).items():
            self.ready[str(key)] = made
            self.origins[str(key)] = description
        return done

    def _own(self, coord: Coord) -> str | None:
        """The name of the array of this group that a coordinate is."""
        values = coord.values
        if not isinstance(values, External) or values.reference.uri is not None:
            return None
        return self.names.get(values.reference.path)

    def _lay(self, name: str, coord: Coord) -> None:
        """Attributes that a convention gives to an array of this group."""
        if coord.attributes and coord.convention != "CF" and name in self.raw:
            self.before.setdefault(name, self.raw[name].attrs)
            self.raw[name].attrs = {**self.raw[name].attrs, **coord.attributes}

    def _stored_axis(self, name: str, dims: tuple[str, ...]) -> bool:
        """Whether the group itself stores labels of this dimension: they are what other readers see."""
        return name in self.raw and self.raw[name].dims == dims == (name,)

    def _stays_data(self, name: str, coord: Coord) -> bool:
        """Whether an array of this group that another refers to is data in its own right all the same."""
        if coord.role == "ancillary":
            return True
        if coord.role != "term":
            return False
        meaning = self.book.meaning(self.arrays[name])
        # A formula of CF says of no array that it is a mere coordinate, and stock xarray makes none of it.
        return coord.convention == "CF" or (meaning is not None and bool(meaning.principal or meaning.coords))

    # --- strangers, CRS, warnings -----------------------------------------------------------------------------------

    def _ask_strangers(self, meaning: Meaning) -> None:
        answer = self.book.strangers(meaning.path)
        for key, variable in ({} if answer is None else answer.variables).items():
            fits = isinstance(variable, xr.Variable) and all(
                self.sizes.setdefault(str(dim), size) == size for dim, size in variable.sizes.items()
            )
            if key in self.raw or key in self.ready or not fits:
                if key not in self.coords:
                    self.book.report.broken(meaning.path, key, "a handler gave a variable that does not fit")
                continue
            self.raw[key] = variable
            self.coords.add(key)
        if answer is not None and answer.principal:
            self.book.used.add(meaning.path)

    def _locate(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        self.crs = self.crs or meaning.crs
        if meaning.grid is not None:
            y, x = (dims.get(dim, dim) for dim in meaning.grid.dims)
            self.grids.setdefault((y, x), meaning.grid)
        placed = self.mappings.of(name, meaning, self.raw, self.ready, dims)
        if placed is None:
            return
        key, made, variable = placed
        self.coords.add(key)
        if made is not None:
            self.ready[key] = made
        if variable is not None:
            self.raw[name].encoding["grid_mapping"] = key

    def _note_bare(self, said: Mapping[str, Meaning]) -> None:
        for name, meaning in said.items():
            data = name in self.raw and name not in self.coords and self.raw[name].dims not in ((name,), ())
            if data and any(one.code == NO_PRINCIPAL for one in meaning.diagnostics):
                self.book.report.bare.append(meaning.path)


def _rank(name: str, variable: xr.Variable) -> tuple[bool, int]:
    """Stored labels first, then larger arrays: dimensions keep their names for the finest of them."""
    return variable.dims != (name,), -variable.size
