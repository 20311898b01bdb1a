"""The decoder of one chunk from a Zarr v3 codec list, checked once and then cheap to call."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import dted, jbp, png, vq
from periplus.decode.jpeg import codec as jpegblock
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.settings import Extent, Run, kind, known, number
from periplus.decode.tiff import codec as tifftile
from periplus.decode.tiff import tile
from periplus.decode.zarr import codecs as standard
from periplus.decode.zarr import filters as values
from periplus.decode.zarr import unpack
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits, out_of_memory
from periplus.model import Encoding, Pipeline, Shape, codecnames, codecs_text

LIST = codecnames.PIPELINE
CROP = codecnames.CROP
LIST_KEYS = frozenset({"codecs", "shape", "dtype", "last_rows"})
LARGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class ImageDecoder:
    """A codec of whole blocks (bands, rows, columns), array to bytes, alone in its list."""

    make: Callable[[Mapping[str, Any], Shape, np.dtype[Any], Limits], Run]
    """The decoder from the configuration, shape and type of chunks, which are those of `extent`."""
    keys: frozenset[str] = frozenset()
    extent: Callable[[Mapping[str, Any]], Extent] | None = None
    """The shape and type that a configuration declares."""
    exact: bool = True
    """Whether chunks have the rows and columns of `extent`; otherwise the decoder checks them."""


def _listed_extent(configuration: Mapping[str, Any]) -> Extent:
    shape = configuration.get("shape")
    if not isinstance(shape, list) or not shape or not all(type(n) is int and 0 < n < LARGEST for n in shape):
        raise FormatError(f"codec {LIST}: shape is {shape!r}")
    return tuple(shape), kind(LIST, configuration, "biufc")


def _as_one(configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    """A whole pipeline as one codec, for metadata formats that allow only one."""
    inner = _listed(configuration.get("codecs"))
    if any(_stage(codec)[0] == LIST for codec in inner):
        raise FormatError(f"codec {LIST} is within itself")
    declared = configuration.get("dtype", dtype.str)
    if declared not in (dtype.str, dtype.newbyteorder("S").str):
        raise FormatError(f"codec {LIST} is of chunks of {declared}, not of {dtype}")
    return prepare(tuple(inner), chunks=chunks, dtype=dtype, limits=limits)._run


IMAGES = {
    tifftile.NAME: ImageDecoder(tifftile.tiff_tile, tile.KEYS, tifftile.tiff_extent, exact=False),
    jbp.NAME: ImageDecoder(jbp.jbp_block, jbp.KEYS, jbp.jbp_extent),
    vq.NAME: ImageDecoder(vq.vector_quantised),
    dted.NAME: ImageDecoder(dted.dted, dted.KEYS, dted.dted_extent),
    jpegblock.NAME: ImageDecoder(jpegblock.jpeg_block, jpegblock.KEYS, jpegblock.jpeg_extent),
    png.NAME: ImageDecoder(png.png, png.KEYS, png.png_extent),
    jpeg2000.NAME: ImageDecoder(jpeg2000.jpeg2000, jpeg2000.KEYS, jpeg2000.jpeg2000_extent, exact=False),
    LIST: ImageDecoder(_as_one, LIST_KEYS, _listed_extent),
}
EXTENTS = {name: codec.extent for name, codec in IMAGES.items() if codec.extent is not None}
PARTIAL = frozenset({dted.NAME, jpegblock.NAME, png.NAME})
"""Those that decode less where less is wanted."""
CODECS = frozenset({CROP, unpack.NAME, *IMAGES, *standard.NAMES, *values.NAMES})
"""Names of all codecs known; others are never looked up anywhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """Decodes chunks of one encoding; safe to call from many threads at once."""

    codecs: str
    """The pipeline as JSON."""
    chunks: Shape
    dtype: np.dtype[Any]
    limits: Limits
    _run: Run = field(repr=False)
    short: Shape | None = None
    """What the last chunk of an image may hold at least, where it may hold less than others."""
    partial: bool = False
    """Whether less is decoded where less is wanted."""
    slow: bool = False
    """Whether even a small chunk takes far longer to decode than a thread to start."""
    extent: Shape | None = None
    """Shape of a stored chunk, where it is larger than `chunks`, which are its first elements."""

    def __call__(
        self, data: bytes | memoryview, *, valid: Shape, want: tuple[slice, ...] | None = None
    ) -> NDArray[Any]:
        """The chunk in the array's dimension order and native type, at least `valid` along each dimension, or `want`.

        `valid` is the part of the chunk inside the array; values outside `want` are undefined. The result may be
        in memory that the next call from this thread overwrites: copy it out at once. Whatever the bytes are, only
        DecodeError is raised, or LimitError where memory is short.
        """
        try:
            return self._run(data, valid, want) if self.partial else self._run(data, valid)
        except DecodeError:
            raise
        except MemoryError as error:
            size = math.prod(self.chunks) * self.dtype.itemsize
            raise out_of_memory(f"decoding a chunk of {size} bytes") from error
        except Exception as error:
            # The one place where errors of native decoders become ours.
            raise DecodeError(f"the chunk does not decode: {error or type(error).__name__}") from error

    def whole(self, data: bytes | memoryview, *, fill: Any = 0) -> NDArray[Any]:
        """The whole chunk in new memory, for callers that do not know which part of it is inside the array.

        Where the last chunk of an image may be shorter than others, what it lacks is `fill`.
        """
        try:
            values = self(data, valid=self.chunks)
        except DecodeError:
            if self.short is None:
                raise
            values = self(data, valid=self.short)
        values = values[tuple(slice(n) for n in self.chunks)]
        out = np.empty(self.chunks, self.dtype)
        if values.shape != self.chunks:
            out[...] = fill
        out[tuple(slice(n) for n in values.shape)] = values
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return (_prepared, (self.codecs, self.chunks, self.dtype, self.limits, self.extent))


def prepare(encoding: Encoding | Pipeline, *, chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Decoder:
    """The decoder of an encoding, or of codecs alone, for chunks of that shape.

    FormatError for unknown codecs or settings, LimitError for chunks that are too large.
    """
    if not isinstance(encoding, Encoding):
        return _prepared(codecs_text(encoding), tuple(chunks), np.dtype(dtype), limits)
    if encoding.region is not None:
        raise FormatError("a region of a stored chunk is overlaid with the others of its chunk, which a reader does")
    return _prepared(encoding.text, tuple(chunks), np.dtype(dtype), limits, encoding.extent)


def prepare_stored(encoding: Encoding, *, chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Decoder:
    """The decoder of the stored chunks of which an encoding uses a region, for chunks of that shape."""
    return _prepared(encoding.text, encoding.extent or tuple(chunks), np.dtype(dtype), limits)


@lru_cache(maxsize=512)
def _prepared(codecs: str, chunks: Shape, dtype: np.dtype[Any], limits: Limits, extent: Shape | None = None) -> Decoder:
    if extent is not None:
        whole = _prepared(codecs, _holding(extent, chunks), dtype, limits)
        return replace(whole, chunks=chunks, extent=extent)
    stages = [_stage(codec) for codec in _listed(json.loads(codecs))]
    if any(n < 1 for n in chunks):
        raise FormatError(f"chunks of shape {chunks} hold nothing")
    if not chunks:  # one value
        one = _prepared(codecs, (1,), dtype, limits)
        return Decoder(codecs, chunks, one.dtype, limits, lambda data, _: one._run(data, (1,)).reshape(()))
    limits.check("the bytes of a chunk", math.prod(chunks) * dtype.itemsize, limits.chunk_bytes)
    native = dtype.newbyteorder("=")
    other = next((name for name, _ in stages if name not in standard.NAMES), None)
    if other is not None and dtype.kind not in "biufc":
        raise FormatError(f"codec {other} yields numbers, not {dtype}")
    if stages[0][0] == CROP:
        inside = codecs_text(json.loads(codecs)[1:])
        return _prepared(inside, chunks, dtype, limits, stored_shape(stages[0][1], chunks))
    if stages[0][0] == unpack.NAME:
        inner = _inner(stages[1:], chunks, unpack.stored_dtype(stages[0][1]), limits)
        finish = unpack.unpacker(stages[0][1], chunks=chunks, dtype=native)
        short = _short(stages[1:], chunks)
        return Decoder(codecs, chunks, native, limits, lambda data, valid: finish(inner(data, valid)), short)
    if any(name in values.NAMES for name, _ in stages):
        rest, stored, undo = values.split(stages, native)
        inner, short = _inner(rest, chunks, stored, limits), _short(rest, chunks)
        return Decoder(codecs, chunks, native, limits, lambda data, valid: undo(inner(data, valid)), short)
    inner = _inner(stages, chunks, native, limits)
    short = _short(stages, chunks)
    if short is None and stages[0][0] == LIST:
        block = _block(stages[0][1], chunks)
        short = prepare(tuple(stages[0][1]["codecs"]), chunks=block, dtype=native, limits=limits).short
        short = None if short is None else (*chunks[: -len(block)], *short)
    name, configuration = stages[0]
    slow = name == jpeg2000.NAME or (name == tifftile.NAME and configuration.get("compression") in tifftile.SLOW)
    return Decoder(codecs, chunks, native, limits, inner, short, name in PARTIAL, slow)


def _short(stages: list[standard.Stage], chunks: Shape) -> Shape | None:
    """The least shape of the last chunk: codestreams declare the size of tiles, other codecs `last_rows`."""
    if stages and stages[0][0] == jpeg2000.NAME:
        return (*chunks[:-2], 1, 1)
    if not stages or "last_rows" not in stages[0][1]:
        return None
    rows = number(stages[0][0].rpartition("/")[2], stages[0][1], "last_rows", 1, chunks[-2])
    return (*chunks[:-2], rows, chunks[-1])


def _inner(stages: list[standard.Stage], chunks: Shape, dtype: np.dtype[Any], limits: Limits) -> Run:
    if not stages or stages[0][0] not in IMAGES:
        return standard.standard(stages, chunks=chunks, dtype=dtype)
    name, configuration = stages[0]
    short = name.rpartition("/")[2].removeprefix(codecnames.OURS)
    if len(stages) > 1:
        raise FormatError(f"codec {stages[1][0]} cannot follow {short}")
    codec = IMAGES[name]
    known(short, configuration, codec.keys)
    if name != LIST and (len(chunks) < 3 or any(n != 1 for n in chunks[:-3])):
        raise FormatError(f"the {short} codec cannot fill chunks of shape {chunks}: it yields bands, rows and columns")
    block = _block(configuration, chunks) if name == LIST else chunks[-3:]
    if name != LIST and codec.extent is not None:
        shape, yields = codec.extent(configuration)
        if block[0] != shape[0] or (codec.exact and block != shape) or yields != dtype:
            raise FormatError(f"a {short} codec of {shape} values of {yields} does not fill {block} of {dtype}")
    run = codec.make(configuration, block, dtype, limits)
    if block == chunks:
        return run
    lead = (None,) * (len(chunks) - len(block))
    return lambda data, valid, *want: run(data, valid[-len(block) :], *want)[lead]


def _block(configuration: Mapping[str, Any], chunks: Shape) -> Shape:
    """The shape of which a whole pipeline is: that of chunks, without dimensions of size 1 before it."""
    shape = _listed_extent(configuration)[0] if "shape" in configuration else chunks
    if not shape or shape != chunks[-len(shape) :] or any(n != 1 for n in chunks[: -len(shape)]):
        raise FormatError(f"codec {LIST} is of chunks of {shape}, not of {chunks}")
    return shape


def extent(name: str, configuration: Mapping[str, Any]) -> Extent:
    """(bands, rows, columns) of a full chunk and the type of its values; FormatError if they are not declared."""
    if name not in EXTENTS:
        raise FormatError(f"codec {name} does not declare how large its chunks are")
    return EXTENTS[name](configuration)


def stored_shape(configuration: Mapping[str, Any], chunks: Shape) -> Shape:
    """The shape of chunks as they are stored before `periplus.crop` takes their first elements."""
    known(CROP, configuration, frozenset({"shape"}))
    shape = configuration.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int for n in shape):
        raise FormatError(f"codec {CROP}: shape is {shape!r}")
    return _holding(tuple(shape), chunks)


def _holding(stored: Shape, chunks: Shape) -> Shape:
    """The shape of a stored chunk, checked to hold chunks of a shape."""
    if len(stored) != len(chunks) or any(n < m for n, m in zip(stored, chunks, strict=True)):
        raise FormatError(f"a stored chunk of shape {stored} does not hold chunks of shape {chunks}")
    return stored


def _listed(codecs: Any) -> list[Any]:
    if not isinstance(codecs, list) or not 0 < len(codecs) <= 16:
        raise FormatError("a codec pipeline is a list of 1 to 16 codecs")
    return codecs


def _stage(codec: Any) -> standard.Stage:
    """(name, configuration) of a codec that is known."""
    name: Any = codec
    configuration: Any = {}
    if isinstance(codec, dict):
        name, configuration = codec.get("name", ""), codec.get("configuration") or {}
    if not isinstance(name, str) or not isinstance(configuration, dict):
        raise FormatError("a codec has a name and a configuration")
    if name not in CODECS:
        raise FormatError(f"codec {name!r} is not known")
    return name, configuration
