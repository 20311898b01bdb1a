"""Numbers, coordinates and free JSON values, as the footer document writes and strictly reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.model import Coordinate
from periplus.parse.json import (
    INT64,
    abbreviated,
    check_integer,
    check_list,
    check_number,
    check_object,
    check_text,
)
from periplus.parse.zarr.dtypes import DTYPES, SPECIAL, TIMES, read_scalar, write_number, write_scalar

NUMBER = "$number"
"""Key that marks a number JSON cannot write, inside attributes and configurations: {"$number": "NaN"}."""


# --- free JSON: attributes, codec configurations, arrangements --------------------------------------------------------


def write_free(value: Any, what: str) -> Any:
    """Any JSON value; NumPy scalars and arrays become numbers and lists, NaN and infinities {"$number": ...}."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {NUMBER: write_number(value)}
    if isinstance(value, list | tuple):
        return [write_free(item, what) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise FormatError(f"{what}: only text keys can be written to JSON")
        return {key: write_free(item, what) for key, item in value.items()}
    raise FormatError(f"{what}: a {type(value).__name__} cannot be written to JSON")


def read_free(value: Any) -> Any:
    """The reverse of write_free."""
    if isinstance(value, dict):
        if len(value) == 1 and value.get(NUMBER) in ("NaN", "Infinity", "-Infinity"):
            return SPECIAL[value[NUMBER]]
        return {key: read_free(item) for key, item in value.items()}
    if isinstance(value, list):
        return [read_free(item) for item in value]
    return value


# --- coordinates ----------------------------------------------------------------------------------------------------


def write_coordinate(coordinate: Coordinate) -> dict[str, Any]:
    """dtype and values, or start, step and size where these reproduce the values exactly."""
    what = f"coordinate {coordinate.name!r}"
    values, dtype = _plain(np.asarray(coordinate.values), what)
    answer: dict[str, Any] = {"dims": list(coordinate.dims), "dtype": dtype}
    if values.ndim == 1 and values.size >= 3 and values.dtype.kind in "iuf" and (steps := _steps(values)) is not None:
        answer |= {"start": steps[0], "step": steps[1], "size": int(values.size)}
    else:
        if values.ndim != 1:
            answer["shape"] = list(values.shape)
        answer["values"] = _listing(values, dtype)
    if coordinate.attributes:
        answer["attributes"] = write_free(coordinate.attributes, what)
    return answer


def _plain(values: NDArray[Any], what: str) -> tuple[NDArray[Any], str]:
    """The values as integers, floats, booleans, complex numbers or strings, and the name of their dtype."""
    kind = values.dtype.kind
    if kind in "mM":
        exact = values.astype(f"{kind}8[us]")
        unit = "us" if np.array_equal(exact.astype(values.dtype), values, equal_nan=True) else "ns"
        name = "datetime64" if kind == "M" else "timedelta64"
        return values.astype(f"{kind}8[{unit}]").view(np.int64), f"{name}[{unit}]"
    if kind in "UT" or (kind == "O" and all(isinstance(v, str) for v in values.flat)):
        return values, "string"
    if values.dtype.name not in DTYPES:
        raise FormatError(f"{what}: values of dtype {values.dtype} cannot be written")
    return values.astype(values.dtype.newbyteorder("=")), values.dtype.name


def _listing(values: NDArray[Any], dtype: str) -> list[Any]:
    """All values in C order; a missing time is null."""
    if dtype in TIMES:
        return [None if value == -INT64 - 1 else value for value in values.ravel().tolist()]
    return [value if dtype == "string" else write_scalar(value) for value in values.ravel().tolist()]


def _steps(values: NDArray[Any]) -> tuple[Any, Any] | None:
    if values.dtype.kind in "iu":
        first, stride = int(values[0]), int(values[1]) - int(values[0])
        if stride == 0 or abs(first) > 1 << 62 or abs(stride) * values.size > 1 << 62:
            return None
        if first + stride * (values.size - 1) != int(values[-1]):  # equal in the dtype alone, where it wraps around
            return None
        return (first, stride) if np.array_equal(regular(first, stride, values.size, values.dtype), values) else None
    with np.errstate(all="ignore"):  # infinities among the values are no steps, and no reason to warn
        start, step = float(values[0]), float(values[-1] - values[0]) / (values.size - 1)
    if not math.isfinite(start) or not math.isfinite(step):
        return None
    for candidate in (step, float(values[1]) - start, round(step, 12)):
        if np.array_equal(regular(start, candidate, values.size, values.dtype), values):
            return start, candidate
    return None


def regular(start: float, step: float, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """start + step * i, in 64-bit integers for integers and times, else in float64, then in the dtype."""
    if dtype.kind in "iumM":
        return (np.int64(start) + np.int64(step) * np.arange(size, dtype=np.int64)).astype(dtype)
    with np.errstate(all="ignore"):
        return (start + step * np.arange(size, dtype=np.float64)).astype(dtype)


def read_coordinate(name: str, value: Any, limits: Limits) -> Coordinate:
    """The coordinate at a path, its sizes and values checked; its memory is bounded by Limits.header_bytes."""
    what = f"coordinate {name!r}"
    fields, leaf = check_object(value, what), name.rpartition("/")[2]
    dims = check_list(fields.get("dims", [leaf]), f"{what}: dims", check_text)
    kind = check_text(fields.get("dtype"), f"{what}: dtype")
    dtype = np.dtype(str) if kind == "string" else (TIMES.get(kind) or DTYPES.get(kind))
    if dtype is None:
        raise FormatError(f"{what}: unknown dtype {abbreviated(kind)}")
    if "values" in fields:
        values = _read_values(fields, dtype, what, limits.header_bytes)
    else:
        size = check_integer(fields.get("size"), f"{what}: size")
        if size * 8 > limits.header_bytes:
            raise LimitError(f"{what} declares {size} values, over the limit of {limits.header_bytes // 8}")
        values = _read_regular(fields, dtype, size, what)
    if len(dims) != values.ndim:
        raise FormatError(f"{what}: {len(dims)} dims for values of rank {values.ndim}")
    return Coordinate(
        name=leaf, dims=dims, values=values, attributes=read_free(check_object(fields.get("attributes", {}), what))
    )


def _read_regular(fields: Mapping[str, Any], dtype: np.dtype[Any], size: int, what: str) -> NDArray[Any]:
    if dtype.kind in "iumM":
        bounds = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
        start = check_integer(fields.get("start"), f"{what}: start", least=-INT64)
        step = check_integer(fields.get("step"), f"{what}: step", least=-INT64)
        last = start + step * max(size - 1, 0)
        if not (bounds.min <= min(start, last) and max(start, last) <= min(int(bounds.max), INT64)):
            raise FormatError(f"{what}: start, step and size exceed the range of {dtype}")
        return regular(start, step, size, dtype)
    if dtype.kind != "f":
        raise FormatError(f"{what}: values of dtype {dtype} must be listed")
    values = regular(
        check_number(fields.get("start"), f"{what}: start"),
        check_number(fields.get("step"), f"{what}: step"),
        size,
        dtype,
    )
    if not np.isfinite(values).all():
        raise FormatError(f"{what}: start, step and size exceed the range of {dtype}")
    return values


def _read_values(fields: Mapping[str, Any], dtype: np.dtype[Any], what: str, most: int) -> NDArray[Any]:
    items = _items(fields["values"], dtype, what)
    shape = check_list(fields.get("shape", [len(items)]), f"{what}: shape", check_integer)
    if math.prod(shape) != len(items) or not shape:
        raise FormatError(f"{what}: {len(items)} values for the shape {list(shape)}")
    if dtype.kind in "mM":
        return np.asarray(items, dtype=np.int64).view(dtype).reshape(shape)
    # In NumPy every string takes as many bytes as the longest.
    width = max(map(len, items), default=0) * 4 if dtype.kind == "U" else dtype.itemsize
    if width * len(items) > most:
        raise LimitError(f"{what} takes {width * len(items)} bytes, over the limit of {most}")
    return np.asarray(items, dtype=dtype).reshape(shape)


def _items(values: Any, dtype: np.dtype[Any], what: str) -> tuple[Any, ...]:
    def one(item: Any, at: str) -> Any:
        if dtype.kind in "mM":  # NaT is the smallest 64-bit integer
            return -INT64 - 1 if item is None else check_integer(item, at, least=-INT64)
        if item is None:
            raise FormatError(f"{at}: null among its values")
        return check_text(item, at) if dtype.kind == "U" else read_scalar(item, dtype, at)

    return check_list(values, what, one)
