"""Arrays of one group as one Dataset: with the coordinates that conventions give each, wherever those lie."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from periplus.conventions.meaning import Coord, CrsText, Grid, Meaning, Regular
from periplus.conventions.write.attributes import declare, merged
from periplus.engine.xgroup.attach import Attaching
from periplus.engine.xgroup.coordinates import renamed
from periplus.engine.xgroup.crs import Mappings
from periplus.engine.xgroup.decode import decode
from periplus.engine.xgroup.describe import described, is_axis
from periplus.engine.xgroup.draft import Draft
from periplus.engine.xgroup.join import joined
from periplus.engine.xgroup.nodes import UNREADABLE
from periplus.engine.xgroup.opening import Opening
from periplus.engine.xgroup.problems import NO_PRINCIPAL
from periplus.engine.xgroup.quantized import dequantized
from periplus.errors import PeriplusError

REGISTRATION = "spatial:registration"


@dataclass(frozen=True, slots=True)
class Assembled:
    """A Dataset and the grids its arrays lie on."""

    dataset: xr.Dataset
    grids: Mapping[tuple[str, str], tuple[Grid, Mapping[str, CrsText]]]
    """With the CRSs of the arrays on each, by their texts; by the dimensions (y, x) they have there."""


def assemble(opening: Opening, arrays: Mapping[str, str], attributes: Mapping[str, Any]) -> Assembled:
    """The Dataset of some arrays, given as names to paths; no chunk is read."""
    wanted = {name: path for name, path in arrays.items() if name not in opening.options.drop}
    made = _Assembly(opening, wanted)
    return Assembled(made.dataset(attributes), made.grids)


class _Assembly:
    """Puts one Dataset together."""

    def __init__(self, opening: Opening, arrays: Mapping[str, str]) -> None:
        self.opening, self.draft = opening, Draft(arrays)
        self.attaching, self.mappings = Attaching(opening, self.draft), Mappings(opening)
        self.labelled: dict[str, Any] = {}
        """What labels each dimension, as the first array that has labels says it."""
        self.grids: dict[tuple[str, str], tuple[Grid, dict[str, CrsText]]] = {}

    def dataset(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        stored, said = self._read()
        if self.opening.computes:
            self._hide(stored, said)
        placed: dict[str, dict[str, str]] = {}
        for name in sorted(stored, key=lambda name: (*_rank(name, stored[name]), name)):
            placed[name] = self._place(name, stored[name], said[name])
            self._dequantize(name, said[name], placed[name])
        for name in stored:
            self.attaching.attach(name, said[name], placed[name])
        for name in stored:
            self._ask_strangers(said[name])
        for name in stored:
            self._locate(name, said[name], placed[name])
        self._note_bare(said)
        return self._decoded(self._registered(attributes))

    def _read(self) -> tuple[dict[str, xr.Variable], dict[str, Meaning]]:
        """The arrays as they are stored, and what the conventions say of each."""
        stored: dict[str, xr.Variable] = {}
        said: dict[str, Meaning] = {}
        for name, path in self.draft.arrays.items():
            try:
                stored[name] = self.opening.hierarchy.variable(path)
            except UNREADABLE as error:
                self.opening.report.broken(path, "", f"it cannot be read: {error!s:.300}")
                continue
            meaning = self.opening.meaning(path)
            said[name] = Meaning(path=path) if meaning is None else meaning
            self.opening.report.add(said[name].diagnostics)
        return stored, said

    def _hide(self, stored: dict[str, xr.Variable], said: Mapping[str, Meaning]) -> None:
        """Leave out stored labels that a grid gives as well: those of the grid cost nothing to open."""
        axes = [coord for meaning in said.values() for coord in meaning.coords if is_axis(coord)]
        for coord in axes:
            labels, values = stored.get(coord.name), coord.values
            if labels is None or not isinstance(values, Regular):
                continue
            if labels.dims == coord.dims and labels.size == values.count:
                del stored[coord.name]
                self.opening.hierarchy.forget(self.draft.forget(coord.name))

    def _place(self, name: str, variable: xr.Variable, meaning: Meaning) -> dict[str, str]:
        """Put an array in; answers which of its dimensions are called what."""
        axes = {coord.dims[0]: coord for coord in meaning.coords if is_axis(coord)}
        given: dict[str, str] = {}
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            given[str(dim)] = self._dim(name, str(dim), size, axes.get(str(dim)), meaning)
        dims = tuple(given[str(dim)] for dim in variable.dims)
        raw = self.draft.raw
        raw[name] = variable if dims == variable.dims else renamed(variable, dims)
        raw[name].attrs.update(meaning.attributes)
        if meaning.grid is not None and any(given[dim] != dim for dim in meaning.grid.dims):
            raw[name].attrs["spatial:dimensions"] = [given[dim] for dim in meaning.grid.dims]
        self.draft.origins[name] = ("path", None, self.draft.arrays[name])
        return given

    def _dequantize(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        if meaning.quantization is None or not self.opening.options.dequantize:
            return
        raw = self.draft.raw
        try:
            raw[name] = dequantized(raw[name], meaning.quantization, dims, self.opening.variable)
        except (PeriplusError, *UNREADABLE) as error:
            self.opening.report.broken(meaning.path, "quantization", f"stored values are shown as they are: {error}")

    def _dim(self, name: str, dim: str, size: int, axis: Coord | None, meaning: Meaning) -> str:
        """The name of a dimension, another one where arrays before it have other sizes or labels along it."""
        sizes, arrays = self.draft.sizes, self.draft.arrays
        stored = dim in arrays and sizes.get(dim) == size and self.draft.raw[dim].dims == (dim,)
        description = None if axis is None or stored else described(axis)
        told = self.labelled.get(dim)
        fits = sizes.setdefault(dim, size) == size
        agrees = description is None or told is None or told == description
        if fits and agrees:
            if description is not None:
                self.labelled[dim] = description
            return dim
        other = f"{name}_{dim}"
        while sizes.get(other, size) != size or other in arrays:
            other += "_"
        sizes[other] = size
        conflicts = self.opening.report.conflicts
        if fits:
            conflicts.setdefault(meaning.path, {})[f"other labels along {dim} than arrays beside it"] = other
        elif meaning.level is None:
            conflicts.setdefault(meaning.path, {})[f"size {size} along {dim} where others have {sizes[dim]}"] = other
        return other

    def _ask_strangers(self, meaning: Meaning) -> None:
        answer, draft = self.opening.strangers(meaning.path), self.draft
        for key, variable in ({} if answer is None else answer.variables).items():
            fits = isinstance(variable, xr.Variable) and all(
                draft.sizes.setdefault(str(dim), size) == size for dim, size in variable.sizes.items()
            )
            if draft.holds(key) or not fits:
                if key not in draft.coords:
                    self.opening.report.broken(meaning.path, key, "a handler gave a variable that does not fit")
                continue
            draft.raw[key] = variable
            draft.coords.add(key)
        if answer is not None and answer.principal:
            self.opening.used.add(meaning.path)

    def _locate(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        if meaning.grid is not None:
            y, x = (dims.get(dim, dim) for dim in meaning.grid.dims)
            _, texts = self.grids.setdefault((y, x), (meaning.grid, {}))
            if meaning.crs is not None:
                texts[meaning.crs.text] = meaning.crs
        mapping = self.mappings.of(name, meaning, self.draft, dims)
        if mapping is not None:
            self.draft.coords.add(mapping)
            self.draft.raw[name].encoding["grid_mapping"] = mapping

    def _registered(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes of the Dataset that declare nodes too, where only a group further up, a pyramid's, does."""
        registrations = {grid.registration for grid, _ in self.grids.values()}
        own = (self.draft.raw[name].attrs for name in self.draft.arrays if name in self.draft.raw)
        if registrations != {"node"} or any(REGISTRATION in one for one in (attributes, *own)):
            return attributes
        kept = {key: value for key, value in attributes.items() if key.startswith("spatial:")}
        return merged(attributes, {**declare("spatial"), **kept, REGISTRATION: "node"})

    def _note_bare(self, said: Mapping[str, Meaning]) -> None:
        raw, coords = self.draft.raw, self.draft.coords
        for name, meaning in said.items():
            data = name in raw and name not in coords and raw[name].dims not in ((name,), ())
            if data and any(one.code == NO_PRINCIPAL for one in meaning.diagnostics):
                self.opening.report.bare.append(meaning.path)

    def _decoded(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        draft, drop = self.draft, self.opening.options.drop
        raw = {name: variable for name, variable in draft.raw.items() if name not in drop}
        decoded, attrs, coordinates = decode(self.opening, raw, attributes, own=draft.arrays, before=draft.before)
        ready = {name: made for name, made in draft.ready.items() if name not in drop}
        coords: dict[Hashable, Any] = {name: made.variable for name, made in ready.items()}
        data: dict[Hashable, Any] = {}
        for name, variable in decoded.items():
            is_coord = name in coordinates or name in draft.coords or variable.dims == (name,)
            (coords if is_coord else data)[name] = variable
        indexes: dict[Hashable, Any] = {name: made.index for name, made in ready.items() if made.index is not None}
        return joined(data, coords, indexes, attrs)


def _rank(name: str, variable: xr.Variable) -> tuple[bool, int]:
    """Stored labels first, then larger arrays: dimensions keep their names for the finest of them."""
    return variable.dims != (name,), -variable.size
