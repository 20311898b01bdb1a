"""The codecs of Zarr itself: bytes, transpose, compressors and checksums."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode import compressions
from periplus.decode.compressions import Decompress, budget_of
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, Octets, octets, scratch, scratch_array
from periplus.decode.settings import Run
from periplus.errors import DecodeError, FormatError
from periplus.model import Shape

Stage: TypeAlias = tuple[str, Mapping[str, Any]]
"""A codec's name and configuration."""


def standard(stages: Sequence[Stage], *, chunks: Shape, dtype: np.dtype[Any]) -> Run:
    """The decoder of (transpose)*, bytes, (compressor)*; arrays are views of the decompressed bytes where possible."""
    order, rest = _order(stages, len(chunks))
    if not rest or rest[0][0] != "bytes":
        raise FormatError(f"codec {rest[0][0]} yields no array" if rest else "the codec pipeline has no bytes codec")
    stored, swapped = _stored(rest[0][1], dtype)
    shape = tuple(chunks[axis] for axis in order)
    full = math.prod(shape) * dtype.itemsize
    most = full if len(rest) == 1 else None  # what is compressed may have bytes to spare, as libtiff allows
    unpack = _decompress(rest[1:], full, dtype)
    back = tuple(order.index(axis) for axis in range(len(order)))
    plain_order = back == tuple(range(len(back)))
    # Strips that end with the image hold only the rows that exist: the outermost stored dimension may be short.
    outer = next((place for place, n in enumerate(shape) if n > 1), len(shape) - 1)
    step = math.prod(shape[outer + 1 :]) * dtype.itemsize
    axis = order[outer]

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:
        rows = valid[axis]
        need = rows * step
        found = unpack(data, need)
        if len(found) < need:
            raise DecodeError(f"the chunk decodes to {len(found)} of {need} bytes")
        if most is not None and len(found) > most:
            raise DecodeError(f"the chunk has {len(found)} bytes, and its values take {most}")
        values = found[:need].view(stored)
        if swapped:
            values = scratch_array(15, values.shape, dtype)
            np.copyto(values, found[:need].view(stored))
        if dtype.kind == "U" and values.size and int(values.view(np.uint32).max()) > sys.maxunicode:
            raise DecodeError("the chunk holds a number that is no character")
        if dtype.kind == "b" and values.size and int(values.view(np.uint8).max()) > 1:
            values = values.view(np.uint8) != 0  # NumPy takes the bytes of booleans to be 0 or 1
        values = values.reshape(*shape[:outer], rows, *shape[outer + 1 :])
        return values if plain_order else values.transpose(back)

    return run


def _order(stages: Sequence[Stage], rank: int) -> tuple[tuple[int, ...], Sequence[Stage]]:
    """(which array dimension each stored one is, the codecs after the transposes)."""
    order = tuple(range(rank))
    for place, (name, configuration) in enumerate(stages):
        if name != "transpose":
            return order, stages[place:]
        turn = configuration.get("order")
        if not isinstance(turn, list) or sorted(map(str, turn)) != sorted(map(str, range(rank))):
            raise FormatError(f"transpose order {turn!r} does not fit {rank} dimensions")
        order = tuple(order[int(axis)] for axis in turn)
    return order, ()


def _stored(configuration: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[np.dtype[Any], bool]:
    """(type as stored, whether its bytes must be turned around)."""
    if dtype.kind not in "biufcSUmM" or dtype.itemsize == 0:
        raise FormatError(f"codec bytes cannot decode {dtype}")
    endian = configuration.get("endian")
    if endian not in ("little", "big") and not (endian is None and (dtype.itemsize == 1 or dtype.kind == "S")):
        raise FormatError(f"codec bytes: endian is {endian!r}")
    stored = dtype.newbyteorder(">" if endian == "big" else "<")
    return stored, not stored.isnative


def _decompress(stages: Sequence[Stage], full: int, dtype: np.dtype[Any]) -> Decompress:
    """All compressors of the pipeline as one; the last applied when writing is undone first."""
    steps: list[Decompress] = []
    # Between two compressors the bytes may be a little larger than the chunk itself.
    budget = budget_of(full)
    for slot, (name, configuration) in enumerate(reversed(stages)):
        maker = COMPRESSORS.get(name)
        if maker is None:
            raise FormatError(f"codec {name} cannot follow bytes")
        steps.append(maker(configuration, budget, slot, dtype))
    if not steps:
        return compressions.plain(budget, 0)
    if len(steps) == 1:
        return steps[0]

    def run(data: Buffer, need: int) -> Octets:
        # Only the innermost is known to need that much; the others yield whatever was compressed.
        for step in steps[:-1]:
            data = step(data, 0)
        return steps[-1](data, need)

    return run


Maker: TypeAlias = Callable[[Mapping[str, Any], int, int, np.dtype[Any]], Decompress]
"""(configuration, budget in bytes, scratch slot, type of values) -> Decompress."""
Sum: TypeAlias = Callable[[Octets], int]


def _simple(maker: compressions.Maker) -> Maker:
    return lambda _configuration, budget, slot, _dtype: maker(budget, slot)


def _blosc(_configuration: Mapping[str, Any], budget: int, slot: int, _dtype: np.dtype[Any]) -> Decompress:
    decode = native("blosc_decode")

    def run(data: Buffer, _need: int) -> Octets:
        # The library believes the sizes in the header, so they are compared with what is at hand first.
        head = bytes(data[:16])
        decoded, stored = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
        if len(head) < 16 or stored > len(data) or stored < 16:
            raise DecodeError("the blosc chunk is cut off")
        if decoded > budget:
            raise compressions.over(budget)
        return octets(decode(data, numthreads=1, out=scratch(slot, max(decoded, 1))))[:decoded]

    return run


def _lz4(_configuration: Mapping[str, Any], budget: int, slot: int, _dtype: np.dtype[Any]) -> Decompress:
    decode = native("lz4_decode")

    def run(data: Buffer, _need: int) -> Octets:
        decoded = int.from_bytes(data[:4], "little")
        if decoded > budget:
            raise compressions.over(budget)
        return octets(decode(data, header=True, out=scratch(slot, max(decoded, 1))))

    return run


def _shuffle(configuration: Mapping[str, Any], _budget: int, slot: int, dtype: np.dtype[Any]) -> Decompress:
    size = configuration.get("elementsize", dtype.itemsize)
    if not isinstance(size, int) or not 0 < size <= 256:
        raise FormatError(f"codec numcodecs.shuffle: elementsize is {size!r}")

    def run(data: Buffer, _need: int) -> Octets:
        shuffled = octets(data)
        count, left = divmod(len(shuffled), size)
        out = scratch(slot, len(shuffled))
        np.copyto(out[: count * size].reshape(count, size), shuffled[: count * size].reshape(size, count).T)
        out[count * size :] = shuffled[len(shuffled) - left :]
        return out

    return run


def _appended(make: Callable[[], Sum], *, first: bool) -> Maker:
    """Four bytes, little-endian, before or after the data, by their configuration."""

    def maker(configuration: Mapping[str, Any], _budget: int, _slot: int, _dtype: np.dtype[Any]) -> Decompress:
        place = configuration.get("location", "start" if first else "end")
        if place not in ("start", "end"):
            raise FormatError(f"a checksum has location {place!r}")
        total = make()

        def run(data: Buffer, _need: int) -> Octets:
            found = octets(data)
            if len(found) < 4:
                raise DecodeError("the chunk is shorter than its checksum")
            body, tail = (found[4:], found[:4]) if place == "start" else (found[:-4], found[-4:])
            if total(body) != int.from_bytes(tail.tobytes(), "little"):
                raise DecodeError("the checksum of the chunk does not fit its bytes")
            return body

        return run

    return maker


def _crc32c() -> Sum:
    from google_crc32c import value

    return lambda data: int(value(data.tobytes()))


def _fletcher32() -> Sum:
    checksum = native("h5checksum_fletcher32")
    return lambda data: int(checksum(data.tobytes()))


COMPRESSORS: dict[str, Maker] = {
    "zstd": _simple(compressions.zstd),
    "numcodecs.zstd": _simple(compressions.zstd),
    "numcodecs.zlib": _simple(compressions.deflate),
    "zlib": _simple(compressions.deflate),
    "gzip": _simple(compressions.gzip),
    "numcodecs.gzip": _simple(compressions.gzip),
    "numcodecs.lzma": _simple(compressions.xz),
    "blosc": _blosc,
    "numcodecs.blosc": _blosc,
    "numcodecs.lz4": _lz4,
    "numcodecs.shuffle": _shuffle,
    "numcodecs.bz2": _simple(compressions.bzip2),
    "periplus.lzw": _simple(compressions.lzw),
    "periplus.packbits": _simple(compressions.packbits),
    "crc32c": _appended(_crc32c, first=False),
    "numcodecs.crc32c": _appended(_crc32c, first=True),
    "numcodecs.crc32": _appended(lambda: lambda data: zlib.crc32(data.tobytes()), first=True),
    "numcodecs.adler32": _appended(lambda: lambda data: zlib.adler32(data.tobytes()), first=True),
    "numcodecs.fletcher32": _appended(_fletcher32, first=False),
}
"""Bytes to bytes, by name in a Zarr v3 codec list."""
NAMES = ("transpose", "bytes", *COMPRESSORS)
