"""Types of values by name, and fill values that fit them, as JSON documents of Zarr v3 have them."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.model import Scalar
from periplus.parse.json import INT64, abbreviated, check_integer, check_list, check_text

DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
TIMES = {f"{kind}64[{unit}]": np.dtype(f"{kind}64[{unit}]") for kind in ("datetime", "timedelta") for unit in UNITS}
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NAT = "NaT"
WIDEST = (1 << 31) - 1
"""Bytes of one value; the limit of a chunk is mostly lower."""
_FIXED = re.compile("([SU])([1-9][0-9]{0,9})")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a type: `uint16`, `S5`, `U5`, `datetime64[us]`; FormatError for one that no array has."""
    name = f"{dtype.kind}{dtype.itemsize // (4 if dtype.kind == 'U' else 1)}" if dtype.kind in "SU" else dtype.name
    if name not in DTYPES and name not in TIMES and not _FIXED.fullmatch(name):
        raise FormatError(f"values of type {dtype} are unsupported")
    return name


def read_dtype(value: Any, what: str) -> np.dtype[Any]:
    """The type of that name."""
    name = check_text(value, what)
    fixed = _FIXED.fullmatch(name)
    if fixed is not None and int(fixed[2]) * (4 if fixed[1] == "U" else 1) <= WIDEST:
        return np.dtype(name)
    if name not in DTYPES and name not in TIMES:
        raise FormatError(f"{what}: unknown dtype {abbreviated(value)}")
    return np.dtype(name)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether values are numbers or booleans, and not text or times."""
    return dtype.kind in "biufc"


def write_fill(value: Scalar | None, dtype: np.dtype[Any]) -> Any:
    """A fill value in JSON: bytes in base64, text as it is, times as integers or `NaT`, numbers as in Zarr v3."""
    if value is None or is_number(dtype):
        return write_scalar(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, str):
        return value
    count = int(np.array(value, dtype).view(np.int64))
    return NAT if count == -INT64 - 1 else count


def read_fill(value: Any, dtype: np.dtype[Any], what: str) -> Scalar | None:
    """A fill value that the type can hold."""
    if value is None or is_number(dtype):
        return read_scalar(value, dtype, what)
    if dtype.kind in "mM":
        return -INT64 - 1 if value == NAT else check_integer(value, what, least=-INT64)
    if type(value) is not str:
        raise FormatError(f"{what} must be a string, not {abbreviated(value)}")
    found: bytes | str = value
    try:
        found = base64.b64decode(value, validate=True) if dtype.kind == "S" else value.encode().decode()
    except (binascii.Error, UnicodeEncodeError, ValueError):
        form = "base64" if dtype.kind == "S" else "text"
        raise FormatError(f"{what} is {abbreviated(value)}, which is no {form}") from None
    if np.dtype((dtype.kind, len(found))).itemsize > dtype.itemsize:
        raise FormatError(f"{what} is longer than values of {dtype_name(dtype)}")
    return found


def write_number(value: Any) -> Any:
    """A real number as in Zarr v3: a JSON number, or the string NaN, Infinity or -Infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def read_number(value: Any, what: str) -> float | int:
    """The reverse of write_number."""
    if type(value) is str and value in SPECIAL:
        return SPECIAL[value]
    if type(value) not in (int, float):
        raise FormatError(f"{what} must be a number, not {abbreviated(value)}")
    return value  # type: ignore[no-any-return]


def write_scalar(value: Scalar | None) -> Any:
    """A fill value as Zarr v3 writes it; complex numbers are [real, imaginary]."""
    if value is None:
        return None
    if isinstance(value, complex | np.complexfloating):
        return [write_number(float(value.real)), write_number(float(value.imag))]
    return write_number(value)


def read_scalar(value: Any, dtype: np.dtype[Any], what: str) -> Scalar | None:
    """A fill value that the dtype can hold."""
    if value is None:
        return None
    if dtype.kind == "b":
        if type(value) is not bool:
            raise FormatError(f"{what} must be true or false, not {abbreviated(value)}")
        return value
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return check_integer(value, what, least=int(bounds.min), most=int(bounds.max))
    parts = check_list(value, what, read_number, size=2) if dtype.kind == "c" and type(value) is list else None
    try:
        pair = [float(part) for part in (parts or (read_number(value, what), 0))]
        with np.errstate(over="ignore"):
            held = np.array(pair, np.float64).astype(np.empty(0, dtype).real.dtype)
        if np.isinf(held).tolist() != [math.isinf(part) for part in pair]:
            raise OverflowError
    except OverflowError:
        raise FormatError(f"{what} is too large for {dtype.name}") from None
    return pair[0] if dtype.kind == "f" else complex(*pair)
