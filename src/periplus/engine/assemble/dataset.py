"""Assemble arrays of one group to a Dataset, with the coordinates and the CRS that conventions give each of them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from periplus.conventions.cf.grid_mapping import BY_GRID_MAPPING
from periplus.conventions.diagnostic import NO_PRINCIPAL
from periplus.conventions.meaning import Coord, CrsText, Grid, Meaning, Regular
from periplus.conventions.spatial.transform import labels_differ, labels_finding
from periplus.conventions.write.attributes import declare, merged
from periplus.engine.assemble.attach import CoordinateAttacher
from periplus.engine.assemble.coordinates import renamed
from periplus.engine.assemble.decode import decode, joined
from periplus.engine.assemble.dequantize import dequantized
from periplus.engine.assemble.draft import DatasetDraft, is_axis, origin_of
from periplus.engine.assemble.grid_mapping import GridMappings, LocatedArray
from periplus.engine.assemble.source import MOST_LABELS, UNREADABLE, ArraySource, reason_of
from periplus.errors import PeriplusError

REGISTRATION = "spatial:registration"
MOST_COMPARED = 1 << 17
"""Labels that are compared one by one: so many are kept in memory when they are read."""


@dataclass(frozen=True, slots=True)
class AssembledDataset:
    """A Dataset and the grids of its arrays."""

    dataset: xr.Dataset
    grids: Mapping[tuple[str, str], tuple[Grid, Mapping[str, CrsText]]]
    """By the dimensions (y, x) in the Dataset; with the CRSs of the arrays on each grid, by their texts."""


def assemble(
    source: ArraySource, arrays: Mapping[str, str], attributes: Mapping[str, Any], *, coords: Collection[str] = ()
) -> AssembledDataset:
    """The Dataset of some arrays, given as names to paths; no chunk is read. `coords` names arrays that are labels."""
    wanted = {name: path for name, path in arrays.items() if name not in source.options.drop}
    assembly = _Assembly(source, wanted, coords)
    return AssembledDataset(assembly.dataset(attributes), assembly.grids)


class _Assembly:
    """Assembles one Dataset."""

    def __init__(self, source: ArraySource, arrays: Mapping[str, str], coords: Collection[str]) -> None:
        self.source, self.findings, self.draft = source, source.findings, DatasetDraft(arrays)
        self.draft.coords |= set(coords)
        self.attacher = CoordinateAttacher(source, self.draft)
        self.mappings = GridMappings(self.draft, self.findings, indexed=source.options.crs_index)
        self.order = list(arrays)
        self.labelled: dict[str, Any] = {}
        """What labels each dimension, according to the first array that has labels for it."""
        self.grids: dict[tuple[str, str], tuple[Grid, dict[str, CrsText]]] = {}

    def dataset(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        stored, meanings = self._read()
        self._choose_labels(stored, meanings)
        dims: dict[str, dict[str, str]] = {}
        for name in sorted(stored, key=lambda name: (*_rank(name, stored[name]), name)):
            dims[name] = self._add(name, stored[name], meanings[name])
            self._dequantize(name, meanings[name], dims[name])
        for name in stored:
            self.attacher.attach(name, meanings[name], dims[name])
        for name in stored:
            self._add_from_handlers(meanings[name])
        self._locate(meanings, dims)
        self._note_missing_principals(meanings)
        return self._decoded(self._with_registration(attributes))

    def _read(self) -> tuple[dict[str, xr.Variable], dict[str, Meaning]]:
        """The arrays as stored, and what the conventions say of each."""
        stored: dict[str, xr.Variable] = {}
        meanings: dict[str, Meaning] = {}
        for name, path in self.draft.arrays.items():
            try:
                stored[name] = self.source.read(path)
            except UNREADABLE as error:
                self.findings.broken(path, "", f"it cannot be read: {reason_of(error)}", "node.unreadable")
                continue
            meaning = self.source.meaning(path)
            meanings[name] = Meaning(path=path) if meaning is None else meaning
            self.findings.add(meanings[name].diagnostics)
        return stored, meanings

    def _choose_labels(self, stored: dict[str, xr.Variable], meanings: dict[str, Meaning]) -> None:
        """Decide between stored labels and those of a grid: a declared grid wins, and a GeoTransform does not.

        Computed ones need no reading. Where stored ones are used, a grid that gives others is left out.
        """
        differ: dict[tuple[str, Regular], bool] = {}
        for name, meaning in meanings.items():
            for coord in filter(is_axis, meaning.coords):
                labels, values = stored.get(coord.name), coord.values
                if labels is None or not isinstance(values, Regular):
                    continue
                if labels.dims != coord.dims or labels.size != values.count:
                    continue
                declared = coord.convention != BY_GRID_MAPPING
                computed = declared and self.source.computes_labels
                key = (coord.name, values)
                if key not in differ:
                    of_grid = meaning.grid is not None and coord.name in meaning.grid.dims
                    differ[key] = of_grid and not computed and _differ(labels, values)
                    if differ[key]:
                        used = "those of the transform are used" if declared else "the stored ones are used"
                        self.findings.add([labels_finding(meaning.path, coord.name, declared=declared, used=used)])
                if computed or (declared and differ[key]):
                    del stored[coord.name]
                    self.source.skip(self.draft.remove(coord.name))
                elif differ[key]:
                    kept = tuple(one for one in meaning.coords if one.convention != BY_GRID_MAPPING or not is_axis(one))
                    meanings[name] = replace(meaning, grid=None, coords=kept)

    def _add(self, name: str, variable: xr.Variable, meaning: Meaning) -> dict[str, str]:
        """Add an array; returns the names that its dimensions have in the Dataset."""
        axes = {coord.dims[0]: coord for coord in meaning.coords if is_axis(coord)}
        given: dict[str, str] = {}
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            long = variable.dims == (name,) and variable.nbytes > MOST_LABELS
            given[str(dim)] = self._dim(name, str(dim), size, axes.get(str(dim)), meaning, long=long)
        dims = tuple(given[str(dim)] for dim in variable.dims)
        raw = self.draft.raw
        raw[name] = variable if dims == variable.dims else renamed(variable, dims)
        raw[name].attrs.update(meaning.attributes)
        grid = meaning.grid if "spatial" in meaning.principal else None
        if grid is not None and any(given[dim] != dim for dim in grid.dims):
            attributes = raw[name].attrs
            attributes["spatial:dimensions"] = [given[dim] for dim in grid.dims]
            # Of this order of dimensions, which may not be the declared one.
            own = {"spatial:transform": list(grid.transform), "spatial:shape": list(grid.shape)}
            attributes.update({key: value for key, value in own.items() if key in attributes})
        self.draft.origins[name] = ("path", None, self.draft.arrays[name])
        return given

    def _dequantize(self, name: str, meaning: Meaning, dims: Mapping[str, str]) -> None:
        if meaning.quantization is None or not self.source.options.dequantize:
            return
        raw = self.draft.raw
        try:
            raw[name] = dequantized(raw[name], meaning.quantization, dims, self.source.external)
        except (PeriplusError, *UNREADABLE) as error:
            self.findings.broken(meaning.path, "quantization", f"values stay as stored: {error}")

    def _dim(self, name: str, dim: str, size: int, axis: Coord | None, meaning: Meaning, *, long: bool) -> str:
        """The name of a dimension; a new one where arrays added before have another size or other labels along it.

        Also where the array is labels too `long` for an index, which xarray reads for a variable with the name of its
        dimension, or where that is the name of a scalar.
        """
        sizes, arrays = self.draft.sizes, self.draft.arrays
        named = self.draft.raw.get(dim) if dim in arrays else None
        stored = named is not None and sizes.get(dim) == size and named.dims == (dim,)
        origin = None if axis is None or stored else origin_of(axis)
        labels = self.labelled.get(dim)
        if long:
            reason = f"{size} labels (too many for an index)"
        elif named is not None and not named.dims:
            reason = f"a dimension with the name of the scalar {dim}"
        elif sizes.setdefault(dim, size) != size:
            reason = f"size {size} along {dim} where others have {sizes[dim]}"
        elif origin is not None and labels is not None and labels != origin:
            reason = f"other labels along {dim} than other arrays of its group"
        else:
            if origin is not None:
                self.labelled[dim] = origin
            return dim
        other = f"{name}_{dim}"
        while sizes.get(other, size) != size or other in arrays:
            other += "_"
        if meaning.level is None or sizes.get(dim, size) == size:  # levels have different sizes
            self.findings.conflicts.setdefault(meaning.path, {})[reason] = other
        sizes[other] = size
        return other

    def _add_from_handlers(self, meaning: Meaning) -> None:
        result, draft = self.source.from_handlers(meaning.path), self.draft
        for key, variable in ({} if result is None else result.variables).items():
            fits = isinstance(variable, xr.Variable) and all(
                draft.sizes.setdefault(str(dim), size) == size for dim, size in variable.sizes.items()
            )
            if draft.holds(key) or not fits:
                if key not in draft.coords:
                    self.findings.broken(meaning.path, key, "a handler gave a variable that does not fit")
                continue
            draft.raw[key] = variable
            draft.coords.add(key)
        if result is not None and result.principal:
            self.source.used.add(meaning.path)

    def _locate(self, meanings: Mapping[str, Meaning], dims: Mapping[str, Mapping[str, str]]) -> None:
        """Note the grids of arrays, and give them grid mappings."""
        located: dict[str, LocatedArray] = {}
        for name, given in dims.items():
            meaning = meanings[name]
            over: tuple[str, ...] = ()
            if meaning.grid is not None:
                y, x = (given.get(dim, dim) for dim in meaning.grid.dims)
                over = y, x
                _, texts = self.grids.setdefault((y, x), (meaning.grid, {}))
                if meaning.crs is not None:
                    texts[meaning.crs.text] = meaning.crs
            georeference = self.source.georeference(meaning)
            if georeference is not None:
                located[name] = LocatedArray(meaning.path, georeference, over)
        self.mappings.assign(located)

    def _with_registration(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes that declare `node` registration, where only a group further up (of a pyramid) declares it."""
        registrations = {grid.registration for grid, _ in self.grids.values()}
        own = (self.draft.raw[name].attrs for name in self.draft.arrays if name in self.draft.raw)
        if registrations != {"node"} or any(REGISTRATION in one for one in (attributes, *own)):
            return attributes
        kept = {key: value for key, value in attributes.items() if key.startswith("spatial:")}
        return merged(attributes, {**declare("spatial"), **kept, REGISTRATION: "node"})

    def _note_missing_principals(self, meanings: Mapping[str, Meaning]) -> None:
        raw, coords = self.draft.raw, self.draft.coords
        for name, meaning in meanings.items():
            data = name in raw and name not in coords and raw[name].dims and name not in raw[name].dims
            if data and any(one.code == NO_PRINCIPAL for one in meaning.diagnostics):
                self.findings.without_principal.append(meaning.path)

    def _decoded(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        """The Dataset of what the draft holds, its arrays in the order given."""
        draft, options = self.draft, self.source.options
        names = [name for name in dict.fromkeys([*self.order, *draft.raw]) if name in draft.raw]
        decoded, attrs, coordinates = decode(
            {name: draft.raw[name] for name in names if name not in options.drop},
            attributes,
            decoding=options.decoding,
            findings=self.findings,
            own=draft.arrays,
            before=draft.before,
        )
        ready = {name: made for name, made in draft.ready.items() if name not in options.drop}
        coords: dict[Hashable, Any] = {name: made.variable for name, made in ready.items()}
        data: dict[Hashable, Any] = {}
        for name, variable in decoded.items():
            is_coord = name in coordinates or name in draft.coords or name in variable.dims
            (coords if is_coord else data)[name] = variable
        indexes: dict[Hashable, Any] = {name: made.index for name, made in ready.items() if made.index is not None}
        return joined(data, coords, indexes, attrs)


def _differ(labels: xr.Variable, values: Regular) -> bool:
    """Whether stored labels are not those of a grid; of many, both ends are read. Unreadable ones are not compared."""
    at = [0, -1] if values.count > MOST_COMPARED else slice(None)
    try:
        part = xr.conventions.decode_cf_variable("labels", labels[at], decode_times=False)
        return labels_differ(part.values, values, at)
    except (PeriplusError, *UNREADABLE):
        return False


def _rank(name: str, variable: xr.Variable) -> tuple[bool, int]:
    """Stored labels and scalars first, then larger arrays: dimensions keep their names for the largest arrays."""
    return variable.dims not in ((name,), ()), -variable.size
