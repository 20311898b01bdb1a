"""Checksums of a chunk's bytes, checked and removed; and compressions that only indexes of other tools name."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from periplus.decode import compressions
from periplus.decode.compressions import Decompress
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, Octets, octets, stream
from periplus.errors import DecodeError, FormatError

Sum = Callable[[Octets], int]


def _appended(make: Callable[[], Sum | None], *, first: bool) -> Callable[..., Decompress]:
    """Four bytes, little-endian, before or after the data, by their configuration."""

    def maker(configuration: Mapping[str, Any], budget: int, slot: int, dtype: np.dtype[Any]) -> Decompress:  # noqa: ARG001
        place = configuration.get("location", "start" if first else "end")
        if place not in ("start", "end"):
            raise FormatError(f"a checksum has location {place!r}")
        total = make()

        def run(data: Buffer, need: int) -> Octets:  # noqa: ARG001 - checked by the caller
            found = octets(data)
            if len(found) < 4:
                raise DecodeError("the chunk is shorter than its checksum")
            body, tail = (found[4:], found[:4]) if place == "start" else (found[:-4], found[-4:])
            if total is not None and total(body) != int.from_bytes(tail.tobytes(), "little"):
                raise DecodeError("the checksum of the chunk does not fit its bytes")
            return body

        return run

    return maker


def _crc32c() -> Sum | None:
    """By the library that zarr-python brings; without it the bytes are read and not checked."""
    if find_spec("google_crc32c") is None:
        return None
    value = import_module("google_crc32c").value
    return lambda data: int(value(data.tobytes()))


def _fletcher32() -> Sum | None:
    checksum = native("h5checksum_fletcher32")
    return lambda data: int(checksum(data.tobytes()))


def _bzip2(configuration: Mapping[str, Any], budget: int, slot: int, dtype: np.dtype[Any]) -> Decompress:  # noqa: ARG001
    def run(data: Buffer, need: int) -> Octets:  # noqa: ARG001 - checked by the caller
        decoder = bz2.BZ2Decompressor()
        found = decoder.decompress(stream(data), budget)
        if not decoder.eof and len(found) >= budget:
            raise compressions.over(budget)
        return octets(found)

    return run


def _tiff(maker: compressions.Maker) -> Callable[..., Decompress]:
    return lambda _configuration, budget, slot, _dtype: maker(budget, slot)


CODERS: dict[str, Callable[..., Decompress]] = {
    "crc32c": _appended(_crc32c, first=False),
    "numcodecs.crc32c": _appended(_crc32c, first=True),
    "numcodecs.crc32": _appended(lambda: lambda data: zlib.crc32(data.tobytes()), first=True),
    "numcodecs.adler32": _appended(lambda: lambda data: zlib.adler32(data.tobytes()), first=True),
    "numcodecs.fletcher32": _appended(_fletcher32, first=False),
    "numcodecs.bz2": _bzip2,
    "periplus.lzw": _tiff(compressions.lzw),
    "periplus.packbits": _tiff(compressions.packbits),
}
"""Bytes to bytes, by name in a codec list."""
