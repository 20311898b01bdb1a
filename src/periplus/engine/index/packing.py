"""Nodata, scale and offset as xarray expects them: CF attributes where one value serves all bands, else done here."""

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
class Packing:
    """Nodata, scale and offset band by band; bands lie along one axis of the array."""

    axis: int
    dtype: np.dtype[Any]
    """Of unpacked values."""
    nodata: NDArray[Any]
    """As stored; means something only where `masked`."""
    masked: NDArray[np.bool_]
    scale: NDArray[np.float64]
    offset: NDArray[np.float64]

    def apply(self, raw: Any, key: tuple[Any, ...]) -> NDArray[Any]:
        """Physical values of the raw ones that an outer `key` selected, NaN where there are none."""
        raw = np.asarray(raw)
        # Integers drop their dimension: behind the bands lie as many as there are other kinds of key behind theirs.
        behind = sum(isinstance(k, slice) or np.ndim(k) == 1 for k in key[self.axis + 1 :])

        def along(column: NDArray[Any]) -> Any:
            chosen = column[key[self.axis]]
            return chosen.reshape(-1, *(1,) * behind) if np.ndim(chosen) else chosen

        scale, offset = along(self.scale.astype(self.dtype)), along(self.offset.astype(self.dtype))
        missing = along(self.masked) & (raw == along(self.nodata))
        with np.errstate(all="ignore"):  # what overflows is infinite, as it is everywhere in xarray
            values = raw.astype(self.dtype) * scale + offset
        return np.asarray(np.where(missing, self.dtype.type(np.nan), values))


def per_band(attributes: Mapping[str, Any], dtype: np.dtype[Any], axis: int | None, bands: int) -> Packing | None:
    """The packing of bands that differ in it; None where one value serves all of them, or there is none."""
    if not any(isinstance(attributes.get(name), list | tuple) for name in PACKING):
        return None
    if axis is None:
        raise FormatError("nodata, scale or offset is a list, and there are no bands for it")
    if dtype.kind not in "iufb":
        raise FormatError(f"bands of {dtype} cannot differ in nodata, scale or offset")
    for name in PACKING:  # before anything is made as long as there are said to be bands
        value = attributes.get(name)
        if isinstance(value, list | tuple) and len(value) != bands:
            raise FormatError(f"{name} has {len(value)} values for {bands} bands")
    nodata = [stored(v, dtype) for v in _column(attributes, "_FillValue", None, bands)]
    # The float xarray would choose: that of the numbers multiplied and added, else one that holds every stored value.
    small = dtype.itemsize <= (4 if dtype.kind == "f" else 2) and not {"scale_factor", "add_offset"} & set(attributes)
    return Packing(
        axis=axis,
        dtype=np.dtype(np.float32 if small else np.float64),
        nodata=np.array([0 if v is None else v for v in nodata], dtype),
        masked=np.array([v is not None for v in nodata]),
        scale=np.array([number(v) for v in _column(attributes, "scale_factor", 1, bands)], np.float64),
        offset=np.array([number(v) for v in _column(attributes, "add_offset", 0, bands)], np.float64),
    )


def number(value: Any) -> int | float | None:
    """A number of an index, which spells NaN and the infinities as text; FormatError where it is none."""
    if value is None:
        return None
    try:
        real = float(value)  # also one that float64 cannot hold is none
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"nodata, scale or offset is {value!r:.40}, which is no number") from None
    return value if isinstance(value, int) else real


def stored(value: Any, dtype: np.dtype[Any]) -> Any:
    """A nodata value as the array's dtype has it; None where no stored value can equal it."""
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
