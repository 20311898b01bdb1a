"""The description of an array: shape, encodings, georeference; without its byte ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError

Shape: TypeAlias = tuple[int, ...]
Codec: TypeAlias = Mapping[str, Any]
"""One Zarr v3 codec: {"name": ..., "configuration": {...}}."""
Pipeline: TypeAlias = tuple[Codec, ...]
"""Zarr v3 codecs in encoding order: array to array, array to bytes, bytes to bytes."""
Scalar: TypeAlias = int | float | complex | bool | bytes | str
"""A number; bytes or text of arrays of these; times are integers in their unit, NaT the smallest of 64 bits."""
Transform: TypeAlias = tuple[float, float, float, float, float, float]
"""(a, b, c, d, e, f): x = a*column + b*row + c, y = d*column + e*row + f, at pixel corners."""
BBox: TypeAlias = tuple[float, float, float, float]
"""(xmin, ymin, xmax, ymax) at pixel edges; x before y in every CRS."""


RPC_NAMES = (
    "err_bias", "err_rand", "line_off", "samp_off", "lat_off", "long_off", "height_off",
    "line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale",
)  # fmt: skip
RPC_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
"""Keys of `Georeference.rpc`, in the order of the tag of TIFF: numbers, and lists of twenty; named as in rasterio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundControlPoint:
    """A pixel position (column, row, at pixel corners) and its coordinates in the CRS."""

    column: float
    row: float
    x: float
    y: float
    z: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Georeference:
    """The location of pixels on the Earth."""

    crs: str | None = None
    """An authority code such as EPSG:32633, or WKT or PROJJSON text."""
    transform: Transform | None = None
    """Pixel corners to CRS coordinates, already shifted by half a pixel for PixelIsPoint."""
    registration: str = "area"
    """`area`, or `point` where the values are samples at nodes (the transform is still that of pixel corners)."""
    gcps: tuple[GroundControlPoint, ...] = ()
    rpc: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a stored chunk that is overlaid into a chunk of the array, over the regions before it."""

    begin: Shape
    """Where it begins in the stored chunk."""
    at: Shape
    """Where it begins in the chunk of the array."""
    size: Shape
    transparent: int | float | None = None
    """Value that does not cover the images below; None if all values cover them."""
    layer: int = 0
    """Only distinguishes neighbours that would be equal otherwise: a run of rows of one encoding is one region."""

    @property
    def end(self) -> Shape:
        """How much of the stored chunk must be there."""
        return tuple(a + n for a, n in zip(self.begin, self.size, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """How chunks are stored: their codecs, and how what these decode is related to the chunks of the array."""

    codecs: Pipeline
    extent: Shape | None = None
    """Shape that the codecs decode, where it is not that of the array's chunk; without a region the array has its first
    elements."""
    clipped: tuple[str, ...] = ()
    """Dimensions along which a stored chunk may end where the part that the array uses ends, such as the last strip of
    an image: it holds at least that part and at most the whole extent."""
    region: Region | None = None
    """What of the stored chunk goes where, where that is not all of it; there is an extent then."""
    _text: str = field(default="", init=False, repr=False)

    @property
    def text(self) -> str:
        """The codecs as JSON, by which decoders are cached; FormatError where they are not plain data."""
        if not self._text:
            object.__setattr__(self, "_text", codecs_text(self.codecs))
        return self._text

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it as plain values, in which two equal encodings may still differ by the order of settings."""
        region = self.region
        if region is None:
            return self.codecs, self.extent, self.clipped
        part = region.begin, region.at, region.size, region.transparent, region.layer
        return self.codecs, self.extent, self.clipped, part

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.text, self.extent, self.clipped, repr(self.region)  # NaN equals itself as text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoding) and (self is other or self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def codecs_text(codecs: Any) -> str:
    """Codecs as JSON, equal for equal ones; FormatError where they are not plain data."""
    try:
        return json.dumps(codecs, sort_keys=True, default=_plain)
    except (TypeError, ValueError):
        raise FormatError("the codec pipeline is not plain data") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, frozenset) else dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """What a reader needs to know of one array, apart from its byte ranges."""

    name: str
    """Path in the index, for example `0/data` or `sst`."""
    dims: tuple[str, ...]
    shape: Shape
    chunks: Shape
    """Chunk shape; with `edges`, the largest chunk along that dimension."""
    dtype: np.dtype[Any]
    """Of decoded values, in native byte order."""
    fill: Scalar | None = None
    """Value of a missing chunk; None means zero, empty text, or no time (NaT)."""
    encodings: tuple[Encoding, ...] = ()
    """A row's `encoding` is an index into this."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values. Packed data uses CF's names: _FillValue, scale_factor, add_offset, units, long_name."""
    level: int = 0
    """Pyramid level; 0 is full resolution."""
    georeference: Georeference | None = None
    edges: tuple[tuple[int, ...] | None, ...] | None = None
    """Sizes of every chunk along a dimension whose chunks are not regular; None for a regular dimension."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def grid(self) -> Shape:
        """Number of chunks along each dimension."""
        return tuple(
            len(edges) if (edges := self._edges(d)) is not None else -(-n // c) if n else 0
            for d, (n, c) in enumerate(zip(self.shape, self.chunks, strict=True))
        )

    @property
    def pyramid(self) -> str:
        """The name all levels of this image share: `0/data` and `1/data` give `data`."""
        return pyramid_of(self.name, self.level)

    @property
    def is_mask(self) -> bool:
        """Whether it is the validity mask of the array in its group."""
        return self.name.rpartition("/")[2] == "mask"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def starts(self, dim: int) -> NDArray[np.int64]:
        """First element of every chunk along a dimension, and the end of the last: grid + 1 values."""
        edges = self._edges(dim)
        if edges is not None:
            return np.concatenate([[0], np.cumsum(np.asarray(edges, np.int64))])
        stops = np.arange(self.grid[dim] + 1, dtype=np.int64) * self.chunks[dim]
        stops[-1:] = self.shape[dim]
        return stops

    def _edges(self, dim: int) -> tuple[int, ...] | None:
        return None if self.edges is None else self.edges[dim]

    def renamed(self, name: str, **changes: Any) -> Array:
        return replace(self, name=name, **changes)


MOST_LEVELS = 256
"""The level of an array is 8 bits wide."""


def pyramid_of(name: str, level: int) -> str:
    """The name that all levels of an image share, from that of one of them."""
    parts = name.split("/")
    if len(parts) >= 2 and parts[-2] == str(level):
        del parts[-2]
    return "/".join(parts)
