"""Types of values by the names that the document has for them, and fill values that fit them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import numpy as np

from periplus.errors import FormatError
from periplus.model import Scalar
from periplus.table.document.values import DTYPES, INT64, TIMES, read_scalar, shown, text, whole, write_scalar

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
    name = text(value, what)
    fixed = _FIXED.fullmatch(name)
    if fixed is not None and int(fixed[2]) * (4 if fixed[1] == "U" else 1) <= WIDEST:
        return np.dtype(name)
    if name not in DTYPES and name not in TIMES:
        raise FormatError(f"{what}: unknown dtype {shown(value)}")
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
        return -INT64 - 1 if value == NAT else whole(value, what, least=-INT64)
    if type(value) is not str:
        raise FormatError(f"{what} must be a string, not {shown(value)}")
    found: bytes | str = value
    try:
        found = base64.b64decode(value, validate=True) if dtype.kind == "S" else value.encode().decode()
    except (binascii.Error, UnicodeEncodeError, ValueError):
        form = "base64" if dtype.kind == "S" else "text"
        raise FormatError(f"{what} is {shown(value)}, which is no {form}") from None
    if np.dtype((dtype.kind, len(found))).itemsize > dtype.itemsize:
        raise FormatError(f"{what} is longer than values of {dtype_name(dtype)}")
    return found
