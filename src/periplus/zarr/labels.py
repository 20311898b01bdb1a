"""Arrays that no file holds: labels of x and y, times, names of bands, the CF grid mapping; computed chunk by chunk."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.cf import control_points, encode_time
from periplus.conventions.proj import axis_attributes, grid_mapping
from periplus.errors import FormatError
from periplus.model import Array, Catalog, Georeference, Shape
from periplus.table.footprint import affine, spatial_axes
from periplus.zarr.express import jsonable, plain

GRID_MAPPING = "spatial_ref"
BANDS = "bands"
CHUNK = 1 << 16
"""Labels in one chunk: half a mebibyte."""
MOST_BANDS = 1 << 20
"""Bands beyond which they are not numbered."""
Compute = Callable[[int, int], NDArray[Any] | Sequence[str]]
"""Labels [start, stop)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """A small array of one dimension, or of none, and how its values are computed."""

    dims: tuple[str, ...]
    shape: Shape
    dtype: np.dtype[Any] | None
    """Little-endian; None for strings."""
    compute: Compute
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chunks(self) -> Shape:
        return tuple(max(1, min(n, CHUNK)) for n in self.shape)

    def document(self) -> dict[str, Any]:
        """Zarr v3 metadata."""
        strings = self.dtype is None
        fill = "" if self.dtype is None else "NaN" if self.dtype.kind == "f" else 0
        codecs = ({"name": "vlen-utf8"},) if self.dtype is None else plain(self.dtype)
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": "string" if strings else str(self.dtype),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [dict(codec) for codec in codecs],
            "attributes": jsonable(self.attributes),
            "dimension_names": list(self.dims),
        }

    def chunk(self, position: tuple[int, ...]) -> bytes | None:
        """The stored bytes of one chunk, padded to its full size; None where the array has no such chunk."""
        if len(position) != len(self.shape):
            return None
        if not position:
            return np.asarray(self.compute(0, 1), self.dtype).tobytes()
        (number,), (size,), (extent,) = position, self.chunks, self.shape
        start, stop = number * size, min((number + 1) * size, extent)
        if not 0 <= start < extent:
            return None
        values = self.compute(start, stop)
        if self.dtype is None:
            return _strings([*values, *[""] * (size - (stop - start))])
        return np.concatenate([np.asarray(values, self.dtype), np.zeros(size - (stop - start), self.dtype)]).tobytes()


def _strings(values: Sequence[str]) -> bytes:
    """As `vlen-utf8` stores them: their number, then each behind its length."""
    items = [value.encode("utf-8", "replace") for value in values]
    return b"".join([struct.pack("<I", len(items)), *(struct.pack("<I", len(item)) + item for item in items)])


def labels(catalog: Catalog, arrays: Sequence[Array], sizes: Mapping[str, int]) -> dict[str, Labels]:
    """What one group needs beside its arrays; `sizes` are the extents of its dimensions."""
    found: dict[str, Labels] = {}
    located = next((a for a in arrays if a.georeference is not None), None)
    if located is not None and located.georeference is not None:
        mapping, axes = _mapping(located.georeference)
        found[GRID_MAPPING] = Labels(
            dims=(), shape=(), dtype=np.dtype("<i8"), compute=lambda _a, _b: np.int64(0), attributes=mapping
        )
        found |= _axes(located, axes, sizes)
    if BANDS in sizes:
        found |= _bands(arrays, sizes[BANDS])
    for coordinate in catalog.coordinates.values():
        values = np.asarray(coordinate.values)
        if values.ndim == 1 and values.shape == tuple(sizes.get(dim) for dim in coordinate.dims):
            found[coordinate.name] = _given(coordinate.dims, values, coordinate.attributes)
    return found


def _given(dims: tuple[str, ...], values: NDArray[Any], attributes: Mapping[str, Any]) -> Labels:
    said = dict(attributes)
    if values.dtype.kind == "M":
        values, encoding = encode_time(values)
        said |= encoding
    elif values.dtype.kind == "m":
        unit = np.datetime_data(values.dtype)[0]
        names = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "D": "days"}
        values = values.astype(np.int64) if unit in names else values.astype("timedelta64[s]").astype(np.int64)
        said["units"] = names.get(unit, "seconds")
    if values.dtype.kind not in "biufc":
        texts = [str(value) for value in values.tolist()]
        return Labels(dims=dims, shape=values.shape, dtype=None, compute=lambda a, b: texts[a:b], attributes=said)
    stored = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"))
    return Labels(dims=dims, shape=values.shape, dtype=stored.dtype, compute=lambda a, b: stored[a:b], attributes=said)


def _bands(arrays: Sequence[Array], count: int) -> dict[str, Labels]:
    """Names of bands where they all have one of their own, else numbers from 1."""
    for array in arrays:
        names = array.attributes.get("band_names")
        if isinstance(names, list | tuple) and len(set(map(str, names))) == len(names) == count and all(names):
            return {BANDS: _given((BANDS,), np.array([str(name) for name in names], object), {})}
    if count > MOST_BANDS:
        return {}
    numbers = Labels(dims=(BANDS,), shape=(count,), dtype=np.dtype("<i8"), compute=lambda a, b: np.arange(a + 1, b + 1))
    return {BANDS: numbers}


def _axes(array: Array, axes: Mapping[str, Mapping[str, str]], sizes: Mapping[str, int]) -> dict[str, Labels]:
    """Pixel centres along x and y, where the grid is upright and they all differ."""
    transform, spots = affine(array), spatial_axes(array)
    if transform is None or spots is None or transform[1] or transform[3]:
        return {}
    a, _, c, _, e, f = transform
    found = {}
    for name, spot, corner, step in (("y", spots[0], f, e), ("x", spots[1], c, a)):
        dim, count = array.dims[spot], array.shape[spot]
        origin = step * 0.5 + corner  # grouped as affine libraries do, so that labels are bit for bit theirs
        reach = max(abs(origin), abs(origin + count * step))
        if not math.isfinite(reach) or abs(step) <= 4 * np.spacing(reach) or sizes.get(dim) != count:
            return {}
        found[dim] = Labels(
            dims=(dim,),
            shape=(count,),
            dtype=np.dtype("<f8"),
            compute=lambda low, high, step=step, origin=origin: np.arange(low, high) * step + origin,
            attributes=axes.get(name, {}),
        )
    return found


def _mapping(place: Georeference) -> tuple[dict[str, Any], Mapping[str, Mapping[str, str]]]:
    """Attributes of the CF grid mapping, and of the axes."""
    axes: Mapping[str, Mapping[str, str]] = {}
    transform = place.transform
    try:
        attributes = grid_mapping(place.crs, transform)
        axes = {} if place.crs is None else axis_attributes(place.crs)
    except FormatError:  # pixels can be read without a CRS; what the file said is kept
        attributes = {**grid_mapping(None, transform), "unknown_crs": place.crs}
    if place.gcps:
        attributes["gcps"] = control_points(place.gcps)
    if place.rpc is not None:
        attributes["rpc"] = json.dumps(dict(place.rpc), default=str)
    return attributes, axes
