"""periplus.unpack: stored numbers to physical ones, value * scale + offset, with nodata as NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.scratch import scratch_array
from periplus.decode.settings import kind, known
from periplus.errors import FormatError
from periplus.model import Shape, codecnames

NAME = codecnames.UNPACK
BANDS_AXIS = -3
SLOT = 16
KEYS = frozenset({"dtype", "nodata", "scale", "offset"})
SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def stored_dtype(configuration: Mapping[str, Any]) -> np.dtype[Any]:
    """The type of values before unpacking, native."""
    known(NAME, configuration, KEYS)
    return kind(NAME, configuration, "biuf")


def unpacker(
    configuration: Mapping[str, Any], *, chunks: Shape, dtype: np.dtype[Any]
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """The function from stored values to physical ones of that type, which is a float."""
    if dtype.kind != "f":
        raise FormatError(f"codec {NAME} yields floating point numbers, not {dtype}")
    stored = stored_dtype(configuration)
    scale = _floats(configuration, "scale", 1.0, chunks)
    offset = _floats(configuration, "offset", 0.0, chunks)
    nodata = _nodata(configuration, stored, chunks)
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


def _numbers(configuration: Mapping[str, Any], key: str, chunks: Shape) -> list[Any] | None:
    """One number, or one for each band of the chunk; None where there is none at all."""
    value = configuration.get(key)
    if value is None:
        return None
    many = [SPECIAL.get(v, v) if isinstance(v, str) else v for v in (value if isinstance(value, list) else [value])]
    if not many or not all(v is None or isinstance(v, int | float) for v in many):
        raise FormatError(f"codec {NAME}: {key} is {value!r}")
    if isinstance(value, list) and (len(chunks) < -BANDS_AXIS or chunks[BANDS_AXIS] != len(value)):
        raise FormatError(f"codec {NAME}: {key} has {len(value)} values, which do not run along chunks of {chunks}")
    return many


def _floats(configuration: Mapping[str, Any], key: str, default: float, chunks: Shape) -> NDArray[np.float64]:
    """Doubles, shaped to run along the bands."""
    many = _numbers(configuration, key, chunks) or [None]
    try:
        return _along_bands([default if v is None else float(v) for v in many], np.dtype(np.float64))
    except OverflowError:
        raise FormatError(f"codec {NAME}: {key} is {configuration[key]!r}") from None


def _nodata(configuration: Mapping[str, Any], stored: np.dtype[Any], chunks: Shape) -> NDArray[Any] | None:
    """Nodata in the stored type; one that the type cannot hold matches nothing."""
    fitting = [_cast(v, stored) for v in _numbers(configuration, "nodata", chunks) or []]
    if all(v is None for v in fitting):
        return None
    if None not in fitting:
        return _along_bands(fitting, stored)
    # NaN equals nothing, so it represents bands without nodata.
    return _along_bands([np.nan if v is None else v for v in fitting], np.dtype(np.float64))


def _along_bands(many: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    numbers = np.array(many, dtype)
    return numbers.reshape(()) if len(many) == 1 else numbers.reshape(-1, 1, 1)


def _cast(value: Any, stored: np.dtype[Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, float) and not np.isfinite(value):
        return value if stored.kind == "f" and not np.isnan(value) else None
    if stored.kind in "iub":
        if value != int(value) or (stored.kind != "b" and not np.iinfo(stored).min <= value <= np.iinfo(stored).max):
            return None
        return int(value)
    return value
