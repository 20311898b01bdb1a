"""Nodata, scale and offset: CF attributes for xarray where all bands share one value, else applied here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError

PACKING = ("_FillValue", "scale_factor", "add_offset")


@dataclass(frozen=True, slots=True, eq=False)
class BandPacking:
    """Nodata, scale and offset of each band; `axis` is the dimension of bands."""

    axis: int
    dtype: np.dtype[Any]
    """Of unpacked values."""
    nodata: NDArray[Any]
    """As stored; used only where `masked`."""
    masked: NDArray[np.bool_]
    scale: NDArray[np.float64]
    offset: NDArray[np.float64]

    def apply(self, raw: Any, key: tuple[Any, ...]) -> NDArray[Any]:
        """Unpacked values of the raw ones that an outer `key` selected, NaN for nodata."""
        raw = np.asarray(raw)
        # Integers drop their dimension: only slices and lists after that of the bands leave dimensions.
        behind = sum(isinstance(k, slice) or np.ndim(k) == 1 for k in key[self.axis + 1 :])

        def along(column: NDArray[Any]) -> Any:
            chosen = column[key[self.axis]]
            return chosen.reshape(-1, *(1,) * behind) if np.ndim(chosen) else chosen

        scale, offset = along(self.scale.astype(self.dtype)), along(self.offset.astype(self.dtype))
        missing = along(self.masked) & (raw == along(self.nodata))
        with np.errstate(all="ignore"):  # overflow gives infinity, as everywhere in xarray
            values = raw.astype(self.dtype) * scale + offset
        return np.asarray(np.where(missing, self.dtype.type(np.nan), values))


def per_band(attributes: Mapping[str, Any], dtype: np.dtype[Any], axis: int | None, bands: int) -> BandPacking | None:
    """The packing of bands that differ in it; None where they share one value, or there is none."""
    if not any(isinstance(attributes.get(name), list | tuple) for name in PACKING):
        return None
    if axis is None:
        raise FormatError("nodata, scale or offset is a list, but the array has no bands")
    if dtype.kind not in "iufb":
        raise FormatError(f"bands of {dtype} cannot differ in nodata, scale or offset")
    for name in PACKING:  # before anything of the declared number of bands is allocated
        value = attributes.get(name)
        if isinstance(value, list | tuple) and len(value) != bands:
            raise FormatError(f"{name} has {len(value)} values for {bands} bands")
    nodata = [stored(v, dtype) for v in _column(attributes, "_FillValue", None, bands)]
    # The float type that xarray would choose: that of scale and offset, else one that holds every stored value.
    small = dtype.itemsize <= (4 if dtype.kind == "f" else 2) and not {"scale_factor", "add_offset"} & set(attributes)
    return BandPacking(
        axis=axis,
        dtype=np.dtype(np.float32 if small else np.float64),
        nodata=np.array([0 if v is None else v for v in nodata], dtype),
        masked=np.array([v is not None for v in nodata]),
        scale=np.array([number(v) for v in _column(attributes, "scale_factor", 1, bands)], np.float64),
        offset=np.array([number(v) for v in _column(attributes, "add_offset", 0, bands)], np.float64),
    )


def number(value: Any) -> int | float | None:
    """A number of an index, which stores NaN and infinities as text; FormatError where it is not a number."""
    if value is None:
        return None
    try:
        real = float(value)  # OverflowError for integers beyond float64
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"nodata, scale or offset is {value!r:.40}, which is not a number") from None
    return value if isinstance(value, int) else real


def stored(value: Any, dtype: np.dtype[Any]) -> Any:
    """A nodata value in the dtype of the array; None where no stored value can equal it."""
    value = number(value)
    if value is None or dtype.kind not in "iub":
        with np.errstate(over="ignore"):
            return None if value is None else dtype.type(value)
    limits = np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    fits = math.isfinite(value) and int(value) == value and limits.min <= value <= limits.max
    return dtype.type(int(value)) if fits else None


def _column(attributes: Mapping[str, Any], name: str, default: Any, bands: int) -> list[Any]:
    value = attributes.get(name, default)
    if not isinstance(value, list | tuple):
        return [value] * bands
    return [default if v is None else v for v in value]
