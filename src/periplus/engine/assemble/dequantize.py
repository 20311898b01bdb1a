"""Quantized embeddings as the numbers they represent: stored values times scales, computed when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray

from periplus.conventions.meaning import External, Quantization
from periplus.engine.assemble.coordinates import ComputedArray, Fetcher, renamed
from periplus.errors import FormatError

KEPT = ("chunks", "preferred_chunks", "shards")
"""Entries of the encoding that still apply to the converted values."""
_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")


class Dequantized(ComputedArray):
    """Stored * scale + offset; NaN where the scale is not finite."""

    def __init__(self, stored: xr.Variable, scale: xr.Variable | float, offset: float, dtype: np.dtype[Any]) -> None:
        self.stored, self.scale, self.offset = stored, scale, offset
        self.shape, self.dtype = stored.shape, dtype

    def _at(self, key: tuple[Any, ...]) -> Any:
        stored = self.stored[key].astype(self.dtype)
        scale = self.scale
        if isinstance(scale, xr.Variable):
            places = dict(zip(self.stored.dims, key, strict=True))
            scale = scale[tuple(places[dim] for dim in scale.dims)].astype(self.dtype)
        with np.errstate(all="ignore"):  # scales that are not finite mean nodata, and give NaN
            # scale - scale is 0 where the scale is finite, else NaN.
            made = stored * scale + self.offset + (scale - scale)
        return np.asarray(made.values, self.dtype)


def dequantized(
    variable: xr.Variable, quantization: Quantization, dims: Mapping[str, str], fetch: Fetcher
) -> xr.Variable:
    """The variable as lazy floats; `dims` maps stored dimensions to its own. FormatError where impossible."""
    try:
        dtype = np.dtype(quantization.dtype)
    except TypeError:
        raise FormatError(f"{quantization.dtype[:80]!r} is not a data type") from None
    if dtype.kind != "f":
        raise FormatError(f"embeddings are floats, not {dtype}")
    scale: xr.Variable | float
    if isinstance(quantization.scale, External):
        found = fetch(quantization.scale)
        names = tuple(dims.get(dim, dim) for dim in quantization.scale.dims)
        if len(names) != found.ndim or not set(names) <= set(variable.dims):
            raise FormatError(f"scales along {names} do not fit {variable.dims}")
        scale = renamed(found, names)
        if any(scale.sizes[dim] != variable.sizes[dim] for dim in names):
            raise FormatError(f"scales of shape {scale.shape} do not fit {variable.shape}")
    else:
        scale = float(quantization.scale)
    data = LazilyIndexedArray(Dequantized(variable, scale, quantization.offset, dtype))
    attributes = {key: value for key, value in variable.attrs.items() if key not in _PACKING}
    encoding = {key: value for key, value in variable.encoding.items() if key in KEPT}
    return xr.Variable(variable.dims, data, attributes, encoding)
