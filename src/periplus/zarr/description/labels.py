"""Computed arrays that no file has: labels of x and y, times, names of bands, the CF grid mapping."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.cf.encode import encode_time
from periplus.conventions.proj.crs import axis_attributes, georeference_attributes
from periplus.model import Array, Catalog, Georeference, Shape
from periplus.table.query.footprint import affine, spatial_axes
from periplus.zarr.description.codecs import array_document, jsonable, plain

GRID_MAPPING = "spatial_ref"
BANDS = "bands"
CHUNK = 1 << 16
"""Labels in one chunk: half a mebibyte."""
MOST_BANDS = 1 << 20
"""Bands beyond which they are not numbered."""
MOST_LABELS = 1 << 24
"""Pixels beyond which an axis has no labels: xarray would hold them all in memory as soon as it opens them."""
Compute = Callable[[int, int], NDArray[Any]]
"""Labels [start, stop) along the first dimension."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComputedLabels:
    """A small array and how its values are computed, a run along its first dimension at a time."""

    dims: tuple[str, ...]
    shape: Shape
    dtype: np.dtype[Any] | None
    """Little-endian; None for strings."""
    compute: Compute
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chunks(self) -> Shape:
        """Whole but along the first dimension."""
        if not self.shape:
            return ()
        rest = tuple(max(1, n) for n in self.shape[1:])
        return max(1, min(self.shape[0], CHUNK // math.prod(rest))), *rest

    def document(self) -> dict[str, Any]:
        """Zarr v3 metadata."""
        fill = "" if self.dtype is None else "NaN" if self.dtype.kind == "f" else jsonable(np.zeros((), self.dtype))
        codecs = ({"name": "vlen-utf8"},) if self.dtype is None else plain(self.dtype)
        return array_document(
            self.shape,
            self.chunks,
            self.dims,
            codecs=codecs,
            attributes=jsonable(self.attributes),
            data_type="string" if self.dtype is None else str(self.dtype),
            fill_value=fill,
        )

    def chunk(self, position: tuple[int, ...]) -> bytes | None:
        """The stored bytes of one chunk, padded to its full size; None where the array has no such chunk."""
        if len(position) != len(self.shape) or any(position[1:]) or 0 in self.shape:
            return None
        size, extent = (self.chunks[0], self.shape[0]) if position else (1, 1)
        start = (position or (0,))[0] * size
        if not 0 <= start < extent:
            return None
        stop = min(start + size, extent)
        values = self.compute(start, stop)
        missing = (size - (stop - start)) * math.prod(self.chunks[1:])
        if self.dtype is None:
            return _strings([*np.ravel(np.asarray(values, object)), *[""] * missing])
        return np.ascontiguousarray(values, self.dtype).tobytes() + bytes(missing * self.dtype.itemsize)


def _strings(values: Sequence[str]) -> bytes:
    """As `vlen-utf8` stores them: their number, then each after its length."""
    items = [value.encode("utf-8", "replace") for value in values]
    return b"".join([struct.pack("<I", len(items)), *(struct.pack("<I", len(item)) + item for item in items)])


@dataclass(frozen=True, slots=True, eq=False)
class GroupLabels:
    """The labels and grid mappings of one group."""

    labels: dict[str, ComputedLabels]
    """By name."""
    mappings: dict[str, str]
    """The grid mapping of each array that has a place, by the array's name."""

    def auxiliary(self, array: Array) -> list[str]:
        """Names of an array's coordinates that are no labels of a dimension, for CF's `coordinates`."""
        other = set(self.mappings.values()) - {self.mappings.get(array.name)}
        return [
            name
            for name, label in self.labels.items()
            if label.dims != (name,) and name not in other and set(label.dims) <= set(array.dims) and " " not in name
        ]


def group_labels(catalog: Catalog, arrays: Sequence[Array], sizes: Mapping[str, int]) -> GroupLabels:
    """Labels for the arrays of one group; `sizes` are the extents of its dimensions."""
    found: dict[str, ComputedLabels] = {}
    mappings: dict[str, str] = {}
    places: list[Georeference] = []
    axes: dict[str, ComputedLabels | None] = {}
    for array in arrays:
        place = array.georeference
        if place is None:
            continue
        if place not in places:
            places.append(place)
        number = places.index(place)
        name = mappings[array.name] = f"{GRID_MAPPING}_{number}" if number else GRID_MAPPING
        mapping, unknown = georeference_attributes(place)
        found.setdefault(name, _scalar(mapping))
        axis_texts = {} if unknown is not None or place.crs is None else axis_attributes(place.crs)
        for dim, label in _axes(array, axis_texts, sizes).items():
            old = axes.setdefault(dim, label)
            if old is None or not np.array_equal(old.compute(0, 2), label.compute(0, 2)):
                axes[dim] = None  # two grids share the dimension, so that neither's labels are right
    found |= {dim: label for dim, label in axes.items() if label is not None}
    if BANDS in sizes:
        found |= _bands(arrays, sizes[BANDS])
    given = {name: one for array in reversed(arrays) for name, one in catalog.coordinates_of(array).items()}
    for name, coordinate in given.items():
        values = np.asarray(coordinate.values)
        if values.shape == tuple(sizes.get(dim) for dim in coordinate.dims):
            found[name] = _given(coordinate.dims, values, coordinate.attributes)
    return GroupLabels(found, mappings)


def _scalar(attributes: Mapping[str, Any]) -> ComputedLabels:
    return ComputedLabels(
        dims=(), shape=(), dtype=np.dtype("<i8"), compute=lambda _a, _b: np.zeros(1), attributes=attributes
    )


def _given(dims: tuple[str, ...], values: NDArray[Any], attributes: Mapping[str, Any]) -> ComputedLabels:
    encoded = dict(attributes)
    if values.dtype.kind == "M":
        values, encoding = encode_time(values)
        encoded |= encoding
    elif values.dtype.kind == "m":
        unit = np.datetime_data(values.dtype)[0]
        names = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "D": "days"}
        values = values.astype(np.int64) if unit in names else values.astype("timedelta64[s]").astype(np.int64)
        encoded["units"] = names.get(unit, "seconds")
    if values.dtype.kind not in "biufc":
        texts = np.array([str(value) for value in values.ravel().tolist()], object).reshape(values.shape)
        return ComputedLabels(dims=dims, shape=values.shape, dtype=None, compute=_runs(texts), attributes=encoded)
    stored = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).reshape(values.shape)
    return ComputedLabels(dims=dims, shape=values.shape, dtype=stored.dtype, compute=_runs(stored), attributes=encoded)


def _runs(values: NDArray[Any]) -> Compute:
    return lambda start, stop: values[start:stop] if values.ndim else values


def _bands(arrays: Sequence[Array], count: int) -> dict[str, ComputedLabels]:
    """Names of bands where all are different, else numbers from 1."""
    for array in arrays:
        names = array.attributes.get("band_names")
        if isinstance(names, list | tuple) and len(set(map(str, names))) == len(names) == count and all(names):
            return {BANDS: _given((BANDS,), np.array([str(name) for name in names], object), {})}
    if count > MOST_BANDS:
        return {}
    numbers = ComputedLabels(
        dims=(BANDS,), shape=(count,), dtype=np.dtype("<i8"), compute=lambda a, b: np.arange(a + 1, b + 1)
    )
    return {BANDS: numbers}


def _axes(array: Array, axes: Mapping[str, Mapping[str, str]], sizes: Mapping[str, int]) -> dict[str, ComputedLabels]:
    """Pixel centres along x and y, where the grid is upright and they all differ."""
    transform, axes_yx = affine(array), spatial_axes(array)
    if transform is None or axes_yx is None or transform[1] or transform[3]:
        return {}
    a, _, c, _, e, f = transform
    found = {}
    for name, axis, corner, step in (("y", axes_yx[0], f, e), ("x", axes_yx[1], c, a)):
        dim, count = array.dims[axis], array.shape[axis]
        origin = step * 0.5 + corner  # grouped as affine libraries do, so that labels are bit for bit theirs
        reach = max(abs(origin), abs(origin + count * step))
        if (
            count > MOST_LABELS
            or not math.isfinite(reach)
            or abs(step) <= 4 * np.spacing(reach)
            or sizes.get(dim) != count
        ):
            return {}
        found[dim] = ComputedLabels(
            dims=(dim,),
            shape=(count,),
            dtype=np.dtype("<f8"),
            compute=_steps(origin, step),
            attributes=axes.get(name, {}),
        )
    return found


def _steps(origin: float, step: float) -> Compute:
    return lambda start, stop: np.arange(start, stop) * step + origin
