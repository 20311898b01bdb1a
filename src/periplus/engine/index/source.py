"""Arrays of an index as a source for the assembler: lazy variables, labels, and georeferences as their meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray

from periplus.conventions.cf.encode import encode_time
from periplus.conventions.meaning import CrsText, Grid, Meaning
from periplus.conventions.node import ROOT
from periplus.conventions.spatial.grid import coords_of
from periplus.conventions.spatial.place import axis_words
from periplus.engine.assemble.chunks import BANDS, Axis, chunk_encoding, group_chunks
from periplus.engine.assemble.source import ArraySource, AssemblyOptions
from periplus.engine.index.array import LazyArray, OpenIndex
from periplus.engine.index.packing import PACKING, BandPacking, number, per_band, stored
from periplus.model import Array, Georeference
from periplus.table.query.footprint import spatial_axes

MOST_LABELS = 1 << 20
"""Bands that are numbered."""


class IndexSource(ArraySource):
    """The arrays of one group of an index."""

    def __init__(
        self, index: OpenIndex, arrays: list[Array], options: AssemblyOptions, *, url: str | None = None
    ) -> None:
        super().__init__(options)
        self.computes_labels = options.coords != "none"
        self._arrays = {ROOT + array.name: array for array in arrays if _name(array) not in options.drop}
        groups = group_chunks(self._arrays.values(), index.limits)
        self._variables = {path: lazy_variable(index, array, options, groups) for path, array in self._arrays.items()}
        for variable in self._variables.values() if url is not None else ():
            variable.encoding["source"] = url
        names = {_name(array) for array in self._arrays.values()}
        # An array takes precedence over labels of its name, as in the Zarr store.
        self.labels = {name: label for name, label in self._labels(index, arrays).items() if name not in names}

    @property
    def paths(self) -> dict[str, str]:
        """Paths of arrays and labels by name."""
        return {**{_name(array): path for path, array in self._arrays.items()}, **{name: name for name in self.labels}}

    def read(self, path: str) -> xr.Variable:
        return self._variables[path] if path in self._variables else self.labels[path]

    def meaning(self, path: str, uri: str | None = None) -> Meaning | None:
        """The grid of an array and the coordinates it gives."""
        array = self._arrays.get(path) if uri is None else None
        place = None if array is None else array.georeference
        axes = None if array is None else spatial_axes(array)
        if array is None or place is None or place.transform is None or axes is None:
            return None
        y, x = axes
        dims = self._variables[path].dims
        if array.dims[y] not in dims or array.dims[x] not in dims:
            return None
        crs = None if place.crs is None else CrsText(text=place.crs, form="wkt2")
        grid = Grid(
            dims=(array.dims[y], array.dims[x]), shape=(array.shape[y], array.shape[x]), transform=place.transform
        )
        a, b, _, d, e, _ = place.transform
        usable = grid.upright or (np.isfinite(place.transform).all() and a * e != b * d)
        return Meaning(path=path, grid=grid, crs=crs, coords=tuple(coords_of(grid, axis_words(crs))) if usable else ())

    def georeference(self, meaning: Meaning) -> Georeference | None:
        array = self._arrays.get(meaning.path)
        return None if array is None else array.georeference

    def _labels(self, index: OpenIndex, arrays: list[Array]) -> dict[str, xr.Variable]:
        """Labels that no transform gives: coordinates of the index, and names or numbers of bands."""
        sizes: dict[str, set[int]] = {}
        for variable in self._variables.values():
            for dim, size in variable.sizes.items():
                sizes.setdefault(str(dim), set()).add(size)
        labels: dict[str, xr.Variable] = {}
        if BANDS in sizes:
            labels |= _band_labels(arrays, max(sizes[BANDS]))
        catalog = index.table.catalog
        given = {name: one for array in reversed(arrays) for name, one in catalog.coordinates_of(array).items()}
        for name, coordinate in given.items():
            values: Any = np.asarray(coordinate.values)
            attributes = dict(coordinate.attributes)
            fits = len(coordinate.dims) == values.ndim
            if not fits or any(n not in sizes.get(d, ()) for d, n in zip(coordinate.dims, values.shape, strict=True)):
                continue
            if values.dtype.kind == "M":
                values, encoding = encode_time(values)
                attributes |= encoding
            labels[name] = xr.Variable(coordinate.dims, values, plain_attributes(attributes))
        return labels


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that every writer of xarray accepts: all but numbers, texts and flat lists become JSON text."""

    def plain(value: Any) -> bool:
        return isinstance(value, str | int | float | np.generic)

    def flat(value: Any) -> bool:
        return isinstance(value, list | tuple) and len({type(v) for v in value}) == 1 and all(map(plain, value))

    known = {str(name): value for name, value in attributes.items() if value is not None}
    return {name: value if plain(value) or flat(value) else json.dumps(value) for name, value in known.items()}


def lazy_variable(index: OpenIndex, array: Array, options: AssemblyOptions, groups: Mapping[Axis, int]) -> xr.Variable:
    """An array as a lazy variable, with the attributes that xarray decodes."""
    attributes, packing = _unpacking(array, wanted=_unpacks(options, _name(array)))
    if array.georeference is not None:
        attributes.pop("grid_mapping", None)  # the assembler gives it one
    variable = xr.Variable(
        array.dims, LazilyIndexedArray(LazyArray(index, array, packing)), plain_attributes(attributes)
    )
    if _serves_all_bands(array):
        variable = variable.isel({BANDS: 0})
    variable.encoding |= chunk_encoding(array, variable.dims, groups)
    return variable


def _name(array: Array) -> str:
    return array.name.rpartition("/")[2]


def _serves_all_bands(array: Array) -> bool:
    """Whether it is one mask for all bands of its image."""
    return array.is_mask and BANDS in array.dims and array.shape[array.dims.index(BANDS)] == 1


def _unpacks(options: AssemblyOptions, name: str) -> bool:
    """Whether nodata, scale and offset of a variable are applied."""
    chosen = options.decoding.get("mask_and_scale", True)
    return bool(chosen.get(name, True)) if isinstance(chosen, Mapping) else bool(chosen)


def _unpacking(array: Array, *, wanted: bool) -> tuple[dict[str, Any], BandPacking | None]:
    """Attributes as xarray decodes them, and the packing that is undone here because bands differ in it."""
    attributes = {k: v for k, v in array.attributes.items() if k != "band_names"}
    axis = array.dims.index(BANDS) if BANDS in array.dims else None
    bands = 0 if axis is None else array.shape[axis]
    packing = per_band(attributes, array.dtype, axis, bands) if wanted else None
    if packing is not None:
        attributes = {k: v for k, v in attributes.items() if k not in PACKING}
    elif not any(isinstance(attributes.get(k), list | tuple) for k in PACKING):
        # xarray expects nodata of the stored type, and unpacks to the type of scale and offset.
        attributes["_FillValue"] = stored(attributes.get("_FillValue"), array.dtype)
        attributes |= {k: float(v) for k in PACKING[1:] if (v := number(attributes.get(k))) is not None}
    return attributes, packing


def _band_labels(arrays: list[Array], count: int) -> dict[str, xr.Variable]:
    """Names of bands where each has a different one, else numbers from 1."""
    for array in arrays:
        given = array.attributes.get("band_names")
        names = [str(name or "") for name in given] if isinstance(given, list | tuple) else []
        if len(names) == len(set(names)) == count and all(names):
            return {BANDS: xr.Variable((BANDS,), np.array(names, object))}
    if count > MOST_LABELS:
        return {}
    return {BANDS: xr.Variable((BANDS,), np.arange(1, count + 1))}
