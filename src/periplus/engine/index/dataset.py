"""A group of an index as a Dataset: lazy variables, labels, CF decoding by xarray itself, then its place on Earth."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray

from periplus.conventions.cf.encode import encode_time
from periplus.engine.index.array import LazyArray
from periplus.engine.index.groups import parent, under
from periplus.engine.index.packing import PACKING, Packing, number, per_band, stored
from periplus.engine.place import COORDS, GRID_MAPPING, locate
from periplus.model import Array, Catalog, Coordinate

if TYPE_CHECKING:
    from periplus.facade import Index

BANDS = "bands"
MOST_LABELS = MOST_CHUNKS = 1 << 20
"""Bands that are numbered, and chunks along a dimension that are offered to dask, which lists them all in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How groups are opened."""

    coords: str = "auto"
    """Labels of x and y: `lazy`, in `memory`, `auto` by their number, or `none`."""
    mask_and_scale: bool | Mapping[str, bool] = True
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `xarray.decode_cf`."""
    drop: Container[str] = ()
    source: str | None = None

    def __post_init__(self) -> None:
        if self.coords not in COORDS:
            raise ValueError(f"coords must be one of {', '.join(COORDS)}, not {self.coords!r}")

    def unpacks(self, name: str) -> bool:
        """Whether nodata, scale and offset of this variable are applied."""
        chosen = self.mask_and_scale
        return bool(chosen.get(name, True)) if isinstance(chosen, Mapping) else bool(chosen)


def open_group(index: Index, group: str, options: Options) -> xr.Dataset:
    """The arrays of one group, with what the groups around it (the image, the file) say; no chunk is read."""
    catalog = index.table.catalog
    dataset = _dataset(index, group, _by_group(catalog).get(group, []), options)
    around = group
    while around:
        around = parent(around)
        dataset.attrs = {**safe(catalog.attributes.get(around, {})), **dataset.attrs}
    return dataset


def open_groups(index: Index, root: str, options: Options) -> dict[str, xr.Dataset]:
    """Every group from `root` down, by its path from there; the root has one too, if only for its attributes."""
    arrays = _by_group(index.table.catalog)
    groups = dict.fromkeys(under([root, *index.table.catalog.attributes, *arrays], root))
    return {"/" + g[len(root) :].strip("/"): _dataset(index, g, arrays.get(g, []), options) for g in groups}


def _by_group(catalog: Catalog) -> dict[str, list[Array]]:
    groups: dict[str, list[Array]] = {}
    for array in catalog.arrays.values():
        groups.setdefault(parent(array.name), []).append(array)
    return groups


def _dataset(index: Index, group: str, arrays: list[Array], options: Options) -> xr.Dataset:
    catalog = index.table.catalog
    sizes: dict[str, int] = {}
    variables, located = {}, None
    for array in arrays:
        name = array.name.rpartition("/")[2]
        if name in options.drop:
            continue
        dims = _dims(name, array, sizes)
        variables[name] = _variable(index, name, array, dims, options)
        if located is None and array.georeference is not None:
            located = array, dims
    labels = _labels(catalog, arrays, sizes)  # of one name, the array counts, as in the Zarr store
    labels = {k: v for k, v in labels.items() if k not in options.drop and k not in variables}
    dataset = xr.Dataset(variables, labels, safe(catalog.attributes.get(group, {})))
    dataset = xr.decode_cf(dataset, **{"mask_and_scale": options.mask_and_scale, **options.decoding})
    if located is not None:
        dataset = locate(dataset, *located, coords=options.coords, drop=options.drop)
    if options.source is not None:
        dataset.encoding["source"] = options.source
    return dataset


def safe(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that every writer of xarray accepts: what is no number, text or flat list becomes JSON text."""

    def plain(value: Any) -> bool:
        return isinstance(value, str | int | float | np.generic)

    def flat(value: Any) -> bool:
        return isinstance(value, list | tuple) and len({type(v) for v in value}) == 1 and all(map(plain, value))

    known = {str(name): value for name, value in attributes.items() if value is not None}
    return {name: value if plain(value) or flat(value) else json.dumps(value) for name, value in known.items()}


def _dims(name: str, array: Array, sizes: dict[str, int]) -> tuple[str, ...]:
    """Names of dimensions that agree in size with those before them; noted in `sizes`."""
    dims = []
    for dim, size in zip(array.dims, array.shape, strict=True):
        # Its image may have more bands: `_variable` drops this one.
        fits = not _serves_all_bands(array) or dim != BANDS
        dims.append(dim if fits and sizes.setdefault(dim, size) == size else f"{name}_{dim}")
    return tuple(dims)


def _serves_all_bands(array: Array) -> bool:
    """Whether it is one mask for however many bands its image has."""
    return array.is_mask and BANDS in array.dims and array.shape[array.dims.index(BANDS)] == 1


def _variable(index: Index, name: str, array: Array, dims: tuple[str, ...], options: Options) -> xr.Variable:
    attributes, packing = _unpacking(array, wanted=options.unpacks(name))
    variable = xr.Variable(dims, LazilyIndexedArray(LazyArray(index, array, packing)), safe(attributes))
    if _serves_all_bands(array):
        variable = variable.isel({dims[array.dims.index(BANDS)]: 0})
    shown = [(d, dim) for d, dim in enumerate(dims) if dim in variable.dims]
    chunks = {dim: _chunks(array, d) for d, dim in shown}
    variable.encoding["preferred_chunks"] = {dim: chunks[dim] for d, dim in shown if array.grid[d] <= MOST_CHUNKS}
    variable.encoding["chunksizes"] = tuple(c if isinstance(c, int) else max(c) for c in chunks.values())
    if options.source is not None:
        variable.encoding["source"] = options.source
    if array.georeference is not None:
        variable.encoding["grid_mapping"] = GRID_MAPPING
    return variable


def _unpacking(array: Array, *, wanted: bool) -> tuple[dict[str, Any], Packing | None]:
    """Attributes as xarray decodes them, and the packing that we undo ourselves because bands differ in it."""
    attributes = {k: v for k, v in array.attributes.items() if k != "band_names"}
    axis = array.dims.index(BANDS) if BANDS in array.dims else None
    bands = 0 if axis is None else array.shape[axis]
    packing = per_band(attributes, array.dtype, axis, bands) if wanted else None
    if packing is not None:
        attributes = {k: v for k, v in attributes.items() if k not in PACKING}
    elif not any(isinstance(attributes.get(k), list | tuple) for k in PACKING):
        # xarray looks for nodata of the stored type, and unpacks into the type of the other two.
        attributes["_FillValue"] = stored(attributes.get("_FillValue"), array.dtype)
        attributes |= {k: float(v) for k in PACKING[1:] if (v := number(attributes.get(k))) is not None}
    return attributes, packing


def _chunks(array: Array, dim: int) -> int | tuple[int, ...]:
    """Chunk size along a dimension, or all of them where they differ."""
    edges = None if array.edges is None else array.edges[dim]
    return edges if edges is not None else min(array.chunks[dim], max(array.shape[dim], 1))


def _names(given: Any) -> list[str]:
    return [str(name or "") for name in given] if isinstance(given, list | tuple) else []


def _labels(catalog: Catalog, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, xr.Variable]:
    """Labels of the dimensions that no affine gives: those of the index, and names or numbers of bands."""
    labels = {}
    if BANDS in sizes:
        given = (_names(a.attributes.get("band_names")) for a in arrays)
        names = next((n for n in given if len(n) == len(set(n)) == sizes[BANDS] and all(n)), None)
        if names is not None:
            labels[BANDS] = xr.Variable((BANDS,), np.array(names, object))
        elif sizes[BANDS] <= MOST_LABELS:
            labels[BANDS] = xr.Variable((BANDS,), np.arange(1, sizes[BANDS] + 1))
    for name, coordinate in _coordinates(catalog, arrays).items():
        values: Any = np.asarray(coordinate.values)
        attributes = dict(coordinate.attributes)
        if values.shape != tuple(sizes.get(dim) for dim in coordinate.dims):
            continue
        if values.dtype.kind == "M":
            values, encoding = encode_time(values)
            attributes |= encoding
        labels[name] = xr.Variable(coordinate.dims, values, safe(attributes))
    return labels


def _coordinates(catalog: Catalog, arrays: list[Array]) -> dict[str, Coordinate]:
    """Those of all arrays of a group."""
    return {name: one for array in reversed(arrays) for name, one in catalog.coordinates_of(array).items()}
