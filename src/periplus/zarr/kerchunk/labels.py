"""Labels of a dimension whose chunks are inline in references: decoded when the index is opened, without a request."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.node import DIMENSIONS
from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import MIB, Limits
from periplus.model import Array, Coordinate, Refs
from periplus.parse.json import INT64
from periplus.parse.zarr import ArrayMetadata

MOST_BYTES = 64 * MIB
"""Bytes of labels of one index that are kept in memory; further ones stay arrays."""
MOST_TEXTS = 1 << 20
"""Labels of one dimension that are text; longer ones stay arrays."""
SINCE = re.compile(r"(\w+) since (\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d(?:\.0*)?)?)?(?: ?UTC|Z|\+00:00)?")
NANOSECONDS = {
    "days": 86_400 * 10**9,
    "hours": 3600 * 10**9,
    "minutes": 60 * 10**9,
    "seconds": 10**9,
    "milliseconds": 10**6,
    "microseconds": 10**3,
    "nanoseconds": 1,
}
"""Of the units in which CF counts times."""
PLAIN_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


class LabelBudget:
    """Bytes that the labels of one index may still take: compressed ones are far smaller in the index."""

    def __init__(self) -> None:
        self.left = MOST_BYTES

    def take(self, array: Array) -> bool:
        """Whether the values fit, and those of a chunk, which may be larger than the array."""
        if max(array.nbytes, math.prod(array.chunks) * array.dtype.itemsize) > self.left:
            return False
        self.left -= array.nbytes
        return True


def labels_of(array: Array, refs: Refs, limits: Limits, budget: LabelBudget) -> Coordinate | None:
    """The values of an array of one dimension, all of whose chunks are inline; None where some are not."""
    if (
        array.ndim != 1
        or refs.inline is None
        or len(refs) != array.grid[0]
        or not refs.inline.held.all()
        or (refs.part is not None and refs.part.any())
        or not budget.take(array)
    ):
        return None
    values = np.empty(array.shape, array.dtype)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits)
    for row, place in enumerate(refs.chunk[0].tolist()):
        start = place * array.chunks[0]
        stop = min(start + array.chunks[0], array.shape[0])
        try:
            values[start:stop] = decode(refs.inline_bytes(row) or b"", valid=(stop - start,))[: stop - start]
        except DecodeError as error:
            error.message = f"{array.name}/{place}: {error.message}"
            raise
    return labels_named(array.name, array.dims, values, array.attributes)


def labels_named(name: str, dims: tuple[str, ...], values: NDArray[Any], attributes: Mapping[str, Any]) -> Coordinate:
    """Labels under the name of their dimension; integers since an epoch are times."""
    kept = {key: value for key, value in attributes.items() if key != "zarr_conventions"}
    found = SINCE.fullmatch(str(kept.get("units", "")).strip())
    if (
        found is not None
        and found[1].lower() in NANOSECONDS
        and values.dtype.kind in "iu"
        and kept.get("calendar", "standard") in PLAIN_CALENDARS
    ):
        times = _times(
            values, kept.get("_FillValue"), NANOSECONDS[found[1].lower()], f"{found[2]}T{found[3] or '00:00:00'}"
        )
        if times is not None:
            return Coordinate(
                name=name.rpartition("/")[2],
                dims=dims,
                values=times,
                attributes={k: v for k, v in kept.items() if k not in ("units", "calendar", "_FillValue")},
            )
    return Coordinate(name=name.rpartition("/")[2], dims=dims, values=values, attributes=kept)


def _times(values: NDArray[Any], missing: Any, scale: int, epoch: str) -> NDArray[Any] | None:
    """The moments; None where microseconds cannot count them."""
    numbers = values.astype(np.int64)
    nothing = numbers == (missing if type(missing) is int else -INT64 - 1)
    if scale < 1000:
        return None if (numbers % 1000).any() else np.datetime64(epoch, "us") + (numbers // 1000).astype("m8[us]")
    factor = scale // 1000
    known = numbers[~nothing]
    if known.size and int(np.abs(known).max()) > (1 << 62) // factor:
        return None
    times: NDArray[Any] = np.datetime64(epoch, "us") + np.where(nothing, 0, numbers * factor).astype("m8[us]")
    times[nothing] = np.datetime64("NaT")
    return times


def text_labels(path: str, metadata: ArrayMetadata, key: str, data: bytes | None) -> Coordinate | None:
    """Text labels of the dimension that their array is named after, in one chunk that is stored under `key`.

    None where the array is along another dimension, too long, or has no such chunk.
    """
    dim, count = path.rpartition("/")[2], metadata.shape[0]
    if data is None or metadata.dims != (dim,) or count > MOST_TEXTS:
        return None
    attributes = {name: value for name, value in metadata.attributes.items() if name != DIMENSIONS}
    return labels_named(path, (dim,), _strings(data, count, key), attributes)


def _strings(data: bytes, count: int, key: str) -> NDArray[Any]:
    """Strings as `vlen-utf8` stores them: their number, then each after its length."""
    found: list[str] = []
    try:
        (total,) = struct.unpack_from("<I", data)
        offset = 4
        for _ in range(min(total, count)):
            (length,) = struct.unpack_from("<I", data, offset)
            if offset + 4 + length > len(data):
                raise FormatError(f"{key}: the strings are cut off")
            found.append(data[offset + 4 : offset + 4 + length].decode())
            offset += 4 + length
    except (struct.error, UnicodeDecodeError):
        raise FormatError(f"{key}: the inline bytes are not strings of vlen-utf8") from None
    if len(found) < count:
        raise FormatError(f"{key}: {len(found)} strings where {count} are needed")
    return np.array(found, object)
