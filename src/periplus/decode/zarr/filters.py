"""Filters on values, as numcodecs and tifffile name them; each is undone on whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode.native import native
from periplus.errors import FormatError

Stage: TypeAlias = tuple[str, Mapping[str, Any]]
Undo: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
ALONG = ("periplus.delta", "periplus.floatpred", "numcodecs.delta")
"""Filters that look at neighbours, and so depend on the order in which values are stored."""


def split(stages: Sequence[Stage], dtype: np.dtype[Any]) -> tuple[list[Stage], np.dtype[Any], Undo]:
    """The stages without filters on values, the type that those yield, and the function that undoes the filters."""
    rest = [stage for stage in stages if stage[0] not in NAMES]
    held = [stage for stage in stages if stage[0] in NAMES]
    if rest and rest[0][0] == "transpose" and any(name in ALONG for name, _ in held):
        raise FormatError(f"codec {held[0][0]} is not supported for transposed values")
    undo: list[Undo] = []
    for name, configuration in held:
        if _type(configuration, "dtype", dtype) != dtype.newbyteorder("="):
            raise FormatError(f"codec {name!r} is of {configuration['dtype']!r}, where values are {dtype}")
        dtype, step = NAMES[name](configuration, dtype)
        undo.append(step)

    def run(values: NDArray[Any]) -> NDArray[Any]:
        for step in reversed(undo):
            values = step(values)
        return values

    return rest, dtype, run


def _type(configuration: Mapping[str, Any], key: str, default: np.dtype[Any]) -> np.dtype[Any]:
    name = configuration.get(key)
    if name is None:
        return default
    try:
        dtype: np.dtype[Any] = np.dtype(name if isinstance(name, str) else "V")
    except (TypeError, ValueError):
        dtype = np.dtype("V")
    if dtype.kind not in "biufc":
        raise FormatError(f"a filter stores {name!r}, which is not a numeric type")
    return dtype.newbyteorder("=")


def _number(configuration: Mapping[str, Any], key: str) -> float:
    value = configuration.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FormatError(f"a filter has {key} {value!r}")
    return value


def _delta(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Undo]:
    """Differences of neighbours in the order they are stored."""
    stored = _type(configuration, "astype", dtype)

    def undo(values: NDArray[Any]) -> NDArray[Any]:
        return np.cumsum(values.reshape(-1), dtype=dtype).reshape(values.shape)

    return stored, undo


def _fixed(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Undo]:
    """(value - offset) * scale, rounded."""
    stored = _type(configuration, "astype", dtype)
    offset, scale = _number(configuration, "offset"), _number(configuration, "scale")
    if scale == 0:
        raise FormatError("a filter has scale 0")

    def undo(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return ((values / scale) + offset).astype(dtype)

    return stored, undo


def _astype(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Undo]:
    stored = _type(configuration, "encode_dtype", _type(configuration, "astype", dtype))
    return stored, lambda values: values.astype(dtype, copy=False)


def _axis(configuration: Mapping[str, Any]) -> int:
    axis, dist = configuration.get("axis", -1), configuration.get("dist", 1)
    if type(axis) is not int or not -8 <= axis < 8 or dist != 1:
        raise FormatError(f"a predictor works along axis {axis!r} at distance {dist!r}")
    return axis


def _predicted(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Undo]:
    """Differences along one axis, as TIFF's predictor 2 has them: sums wrap around."""
    axis = _axis(configuration)
    if dtype.kind not in "iu":
        raise FormatError(f"differences of {dtype} values are not supported")
    return dtype, lambda values: np.cumsum(values, axis=axis, dtype=dtype)


def _floats(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Undo]:
    """TIFF's predictor 3: bytes of a row by significance, and their differences."""
    axis = _axis(configuration)
    decode = native("floatpred_decode")
    if dtype.kind != "f":
        raise FormatError(f"a float predictor of {dtype} values is not supported")
    return dtype, lambda values: np.asarray(decode(np.ascontiguousarray(values), axis=axis)).astype(dtype, copy=False)


NAMES: dict[str, Callable[[Mapping[str, Any], np.dtype[Any]], tuple[np.dtype[Any], Undo]]] = {
    "numcodecs.delta": _delta,
    "numcodecs.fixedscaleoffset": _fixed,
    "numcodecs.quantize": _astype,
    "numcodecs.bitround": _astype,
    "numcodecs.astype": _astype,
    "periplus.delta": _predicted,
    "periplus.floatpred": _floats,
}
"""Array to array, by name in a codec list."""
