"""Files with one picture (JPEG, PNG): one array, usually in one chunk, georeferenced by sidecars."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Found, Refs, Shape, Source, Step, Steps, chunk_positions
from periplus.scan.buffer import FileBuffer
from periplus.scan.georeference.worldfile import read_sidecars

Reading: TypeAlias = Generator[Step, Any, tuple[Array, Refs, datetime | None, tuple[str, ...]]]
"""The picture, its byte ranges, when it was taken, and which metadata could not be read."""


def scan_picture(source: Source, limits: Limits, read: Callable[[FileBuffer, Limits], Reading]) -> Steps:
    """Scan a file that holds one picture, read by `read`, and its sidecars."""
    array, refs, moment, unread = yield from read(FileBuffer(source, limits), limits)
    sidecars = yield from read_sidecars(source, limits)
    sidecars = replace(sidecars, refused=(*unread, *sidecars.refused))
    about = sidecars.about(moment)
    if about is not None:
        yield about
    yield Found(sidecars.apply(array), refs, described_by=sidecars.names)


def whole_file(file: FileBuffer) -> Refs:
    """The file as one chunk."""
    if file.size is None:
        raise FormatError("the store does not report the size of the file")
    return Refs(chunk=chunk_positions((1, 1, 1)), offset=np.array([0]), length=np.array([file.size], np.int64))


def picture_array(
    shape: Shape, bits: int, encoding: Encoding, attributes: Mapping[str, Any], limits: Limits, rows: int | None = None
) -> Array:
    """(bands, y, x) of unsigned values of that many bits, in one chunk or in bands of `rows` rows."""
    dtype = np.dtype(np.uint8 if bits <= 8 else np.uint16)
    chunks = (shape[0], rows or shape[1], shape[2])
    limits.check("the bytes of a chunk", chunks[0] * chunks[1] * chunks[2] * dtype.itemsize, limits.chunk_bytes)
    return Array(
        name="0/data",
        dims=("bands", "y", "x"),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill=attributes.get("_FillValue", 0),
        encodings=(encoding,),
        attributes=attributes,
    )
