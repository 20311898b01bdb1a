"""periplus.unpack: stored numbers to physical ones, value * scale + offset, with nodata as NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.scratch import scratch_array
from periplus.errors import FormatError

NAME = "periplus.unpack"
BANDS_AXIS = -3
SLOT = 16
SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def stored_dtype(configuration: Mapping[str, Any]) -> np.dtype[Any]:
    """The type of values before unpacking, native."""
    name = configuration.get("dtype")
    try:
        dtype: np.dtype[Any] = np.dtype(name if isinstance(name, str) else "V")
    except (TypeError, ValueError):
        raise FormatError(f"codec {NAME}: dtype is {name!r}") from None
    if dtype.kind not in "biuf":
        raise FormatError(f"codec {NAME} cannot unpack {name!r}")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def unpacker(
    configuration: Mapping[str, Any], *, rank: int, dtype: np.dtype[Any]
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """The function from stored values to physical ones of that type, which is a float."""
    if dtype.kind != "f":
        raise FormatError(f"codec {NAME} yields floating point numbers, not {dtype}")
    stored = stored_dtype(configuration)
    scale = _along_bands(configuration, "scale", 1.0, rank)
    offset = _along_bands(configuration, "offset", 0.0, rank)
    nodata = _nodata(configuration, stored, rank)
    packed = bool((scale != 1).any() or (offset != 0).any())

    def run(values: NDArray[Any]) -> NDArray[Any]:
        out = scratch_array(SLOT, values.shape, dtype)
        with np.errstate(all="ignore"):
            if packed:
                # In double precision throughout: a float32 result is then the nearest to the true value.
                exact = out if dtype.itemsize == 8 else scratch_array(SLOT + 1, values.shape, np.dtype(np.float64))
                np.multiply(values, scale, out=exact, dtype=np.float64)
                np.add(exact, offset, out=exact)
                values_out = exact
            else:
                values_out = values
            if values_out is not out:
                np.copyto(out, values_out, casting="unsafe")
            if nodata is not None:
                out[values == nodata] = np.nan
        return out

    return run


def _along_bands(configuration: Mapping[str, Any], key: str, default: float, rank: int) -> NDArray[np.float64]:
    value = configuration.get(key)
    return _numbers(key, default if value is None else value, np.dtype(np.float64), rank)


def _numbers(key: str, value: Any, dtype: np.dtype[Any], rank: int) -> NDArray[Any]:
    """A number, or one a band shaped to run along the bands."""
    many = [SPECIAL.get(v, v) if isinstance(v, str) else v for v in (value if isinstance(value, list) else [value])]
    if not many or not all(isinstance(v, int | float) for v in many):
        raise FormatError(f"codec {NAME}: {key} is {value!r}")
    try:
        numbers = np.array(many, dtype)
    except (OverflowError, ValueError):
        raise FormatError(f"codec {NAME}: {key} is {value!r}") from None
    if not isinstance(value, list):
        return numbers.reshape(())
    if rank < -BANDS_AXIS:
        raise FormatError(f"codec {NAME}: {key} runs along bands, which {rank} dimensions do not have")
    return numbers.reshape(-1, 1, 1)


def _nodata(configuration: Mapping[str, Any], stored: np.dtype[Any], rank: int) -> NDArray[Any] | None:
    """Nodata in the stored type; one that the type cannot hold matches nothing."""
    value = configuration.get("nodata")
    if value is None:
        return None
    wide = _numbers("nodata", value, np.dtype(object), rank)
    fitting = [_cast(v, stored) for v in np.ravel(wide)]
    if all(v is None for v in fitting):
        return None
    if not isinstance(value, list):
        return np.array(fitting[0], stored)
    # NaN equals nothing, so it stands for the bands that have no nodata.
    kind = stored if all(v is not None for v in fitting) else np.dtype(np.float64)
    return np.array([np.nan if v is None else v for v in fitting], kind).reshape(-1, 1, 1)


def _cast(value: Any, stored: np.dtype[Any]) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return value if stored.kind == "f" and not np.isnan(value) else None
    if stored.kind in "iub":
        if value != int(value) or (stored.kind != "b" and not np.iinfo(stored).min <= value <= np.iinfo(stored).max):
            return None
        return int(value)
    return value
